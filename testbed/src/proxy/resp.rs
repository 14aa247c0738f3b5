//! The protocol of Redis, versions 2 and 3: where a command and an answer end, and which answer
//! belongs to which command.
//!
//! Answers come in the order of the commands, so they are counted. What the server says unasked is
//! distinguished: in version 3 it is marked as such, in version 2 it comes only to subscribers.
//! What is not followed: `MONITOR`, and `CLIENT REPLY`.

use std::collections::VecDeque;

use super::rules::{Claim, Language};
use super::talk::{Answer, Protocol, Request, Unreadable};

/// Commands that are answered by one confirmation for each channel.
const SUBSCRIBING: [&str; 3] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"];
const UNSUBSCRIBING: [&str; 3] = ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];

#[derive(Default)]
pub(super) struct Resp {
    expected: VecDeque<AwaitedReply>,
    has_subscribed: bool,
    is_version_3: bool,
}

struct AwaitedReply {
    claim: Option<Claim>,
    /// Instead of an answer; zero if it is an answer.
    confirmations: usize,
}

impl Protocol for Resp {
    fn language(&self) -> Language {
        Language::Redis
    }

    fn request(&mut self, said: &[u8]) -> Result<Option<Request>, Unreadable> {
        let mut at = 0;
        let Some(count) = header(said, &mut at, b'*')? else { return Ok(None) };
        let mut parts = Vec::new();
        for _ in 0..count {
            let Some(length) = header(said, &mut at, b'$')? else { return Ok(None) };
            let length = usize::try_from(length).map_err(|_| Unreadable)?;
            let Some(part) = said.get(at..at + length) else { return Ok(None) };
            parts.push(part.to_vec());
            at += length + 2;
        }
        Ok((said.len() >= at).then_some(Request { length: at, parts }))
    }

    fn expect(&mut self, request: &Request, _said: &[u8], claim: Option<Claim>) {
        let Some(name) = request.parts.first() else { return };
        let is_one_of = |names: &[&str]| names.iter().any(|one| is(name, one));
        let confirmations = if is_one_of(&SUBSCRIBING) {
            self.has_subscribed = true;
            request.parts.len() - 1
        } else if is_one_of(&UNSUBSCRIBING) {
            // Of all channels, if none is named: then at least one, and the rest comes unasked.
            (request.parts.len() - 1).max(1)
        } else {
            0
        };
        if is(name, "HELLO") && request.parts.len() > 1 {
            self.is_version_3 = request.parts[1] == b"3";
        }
        self.expected.push_back(AwaitedReply { claim, confirmations });
    }

    fn answer(&mut self, said: &[u8]) -> Result<Option<Answer>, Unreadable> {
        let Some(length) = value_length(said)? else { return Ok(None) };
        let bytes = said[..length].to_vec();
        let unasked = Answer { length, ..Answer::default() };
        let is_push = bytes[0] == b'>';
        let may_be_push = self.has_subscribed && !self.is_version_3 && bytes[0] == b'*';
        let claim = if is_push || may_be_push {
            let words = first_words(&bytes);
            let word = words.first().copied().unwrap_or_default();
            let channel = match word {
                b"message" | b"smessage" => words.get(1),
                b"pmessage" => words.get(2),
                _ => None,
            };
            if let Some(channel) = channel {
                let channel = Some(channel.to_vec());
                return Ok(Some(Answer { bytes, channel, ..unasked }));
            }
            let confirms = SUBSCRIBING.iter().chain(&UNSUBSCRIBING).any(|name| is(word, name));
            match confirms {
                true => self.confirm(),
                false if is_push => None,
                false => self.next(),
            }
        } else {
            self.next()
        };
        Ok(Some(Answer { bytes, claim, ..unasked }))
    }

    fn has_subscribed(&self) -> bool {
        self.has_subscribed
    }
}

impl Resp {
    /// An answer has come.
    fn next(&mut self) -> Option<Claim> {
        self.expected.pop_front().and_then(|expected| expected.claim)
    }

    /// A confirmation has come: it may be the last that was waited for.
    fn confirm(&mut self) -> Option<Claim> {
        let front = self.expected.front_mut().filter(|front| front.confirmations > 0)?;
        front.confirmations -= 1;
        if front.confirmations > 0 {
            return None;
        }
        self.next()
    }
}

fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

/// The number behind that sign; `at` moves behind its line.
fn header(said: &[u8], at: &mut usize, sign: u8) -> Result<Option<i64>, Unreadable> {
    if said.get(*at).is_some_and(|first| *first != sign) {
        return Err(Unreadable);
    }
    let Some(line) = line(said, at)? else { return Ok(None) };
    number(&line[1..]).map(Some)
}

/// A line without its end; `at` moves behind it.
fn line<'a>(said: &'a [u8], at: &mut usize) -> Result<Option<&'a [u8]>, Unreadable> {
    let rest = said.get(*at..).unwrap_or_default();
    let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    *at += length + 2;
    if length == 0 { Err(Unreadable) } else { Ok(Some(&rest[..length])) }
}

fn number(digits: &[u8]) -> Result<i64, Unreadable> {
    let digits = str::from_utf8(digits).map_err(|_| Unreadable)?;
    digits.parse().map_err(|_| Unreadable)
}

/// How long the value at the start is, with all that is inside it.
fn value_length(said: &[u8]) -> Result<Option<usize>, Unreadable> {
    let (mut at, mut values) = (0, 1_i64);
    while values > 0 {
        let Some(line) = line(said, &mut at)? else { return Ok(None) };
        values -= 1;
        match line[0] {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'!' | b'=' => {
                // A negative length is no text, without a line of its own.
                if let Ok(length) = usize::try_from(number(&line[1..])?) {
                    at = at.checked_add(length + 2).ok_or(Unreadable)?;
                }
            }
            b'*' | b'~' | b'>' => values += number(&line[1..])?.max(0),
            b'%' => values += number(&line[1..])?.max(0).saturating_mul(2),
            // Attributes stand before the value that they are about.
            b'|' => values += number(&line[1..])?.max(0).saturating_mul(2).saturating_add(1),
            _ => return Err(Unreadable),
        }
        if at > said.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The texts at the start of an array, three at most.
fn first_words(array: &[u8]) -> Vec<&[u8]> {
    let (mut at, mut words) = (0, Vec::new());
    let _count = line(array, &mut at);
    while words.len() < 3 {
        let Ok(Some(length)) = header(array, &mut at, b'$') else { break };
        let Ok(length) = usize::try_from(length) else { break };
        let Some(word) = array.get(at..at + length) else { break };
        words.push(word);
        at += length + 2;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::rules::{Action, Claim};
    use super::super::talk::Protocol;
    use super::{Resp, value_length};

    const CLAIM: Claim = Claim { rule: 0, action: Action::CutAnswer };

    /// The rules that the answers to these requests are claimed by.
    fn claims(requests: &[(&str, bool)], answers: &str) -> Vec<bool> {
        let mut talk = Resp::default();
        for (words, is_claimed) in requests {
            let parts: Vec<String> =
                words.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            let said = format!("*{}\r\n{}", parts.len(), parts.concat()).into_bytes();
            for end in 0..said.len() {
                assert!(talk.request(&said[..end]).unwrap().is_none(), "{words}, {end} bytes");
            }
            let request = talk.request(&said).unwrap().unwrap();
            assert_eq!(request.length, said.len());
            talk.expect(&request, &said, is_claimed.then_some(CLAIM));
        }
        let (mut claims, mut rest) = (Vec::new(), answers.as_bytes());
        while let Some(answer) = talk.answer(rest).unwrap() {
            assert_eq!(answer.bytes, rest[..answer.length]);
            claims.push(answer.claim.is_some());
            rest = &rest[answer.length..];
        }
        assert!(rest.is_empty(), "{rest:?}");
        claims
    }

    #[test]
    fn values_of_both_versions_end_where_they_end() {
        for value in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-7\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "*0\r\n",
            "*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "(123\r\n",
            "!5\r\nERR x\r\n",
            "=5\r\ntxt:x\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:1\r\n*1\r\n:2\r\n",
            ">2\r\n+invalidate\r\n*1\r\n$1\r\nx\r\n",
        ] {
            let more = format!("{value}+x\r\n");
            assert_eq!(value_length(more.as_bytes()).unwrap(), Some(value.len()), "{value:?}");
            for end in 0..value.len() {
                assert_eq!(value_length(&value.as_bytes()[..end]).unwrap(), None, "{value:?}");
            }
        }
        assert!(value_length(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(value_length(b"$x\r\n").is_err());
    }

    #[test]
    fn an_answer_is_found_by_counting_and_pushed_messages_are_not_counted() {
        let pushes = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nx\r\n\
                      >3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n";
        let answers = format!("+OK\r\n{pushes}+OK\r\n*1\r\n$7\r\nmessage\r\n+OK\r\n");
        let requests = [("GET a", false), ("GET b", false), ("GET c", true), ("GET d", false)];
        assert_eq!(claims(&requests, &answers), [false, false, false, false, true, false]);
        // In version 3 also a subscriber can have an answer that looks like a message.
        let confirmed = ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        let answers = format!("%0\r\n{confirmed}*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n");
        let requests = [("HELLO 3", false), ("SUBSCRIBE c", false), ("LRANGE l", true)];
        assert_eq!(claims(&requests, &answers), [false, false, true]);
    }

    #[test]
    fn subscribing_is_answered_by_a_confirmation_for_each_channel_in_both_versions() {
        for (sign, version) in [("*", "HELLO 2"), (">", "HELLO 3")] {
            let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let confirm = |kind: &str| format!("{sign}3\r\n{}{}:1\r\n", text(kind), text("c"));
            let message = format!("{sign}3\r\n{}{}{}", text("message"), text("c"), text("x"));
            let requests =
                [(version, false), ("SUBSCRIBE c d", true), ("UNSUBSCRIBE", false), ("PING", true)];
            let answers = [
                "%0\r\n".to_owned(),
                confirm("subscribe"),
                message.clone(),
                confirm("subscribe"),
                message,
                confirm("unsubscribe"),
                confirm("unsubscribe"),
                "+PONG\r\n".to_owned(),
            ];
            let wanted = [false, false, false, true, false, false, false, true];
            assert_eq!(claims(&requests, &answers.concat()), wanted, "{version}");
        }
    }
}
