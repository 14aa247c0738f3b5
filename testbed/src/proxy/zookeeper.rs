//! The protocol of `ZooKeeper`: where a request ends, and what it asks for. Answers are not read,
//! so no rule of theirs ever fires.

use super::rules::{Claim, Language};
use super::talk::{Answer, Protocol, Request, Unreadable};

/// The length that stands before each request.
const HEADER: usize = 4;
/// How long the first request of a client may be: its session with a password of up to 16 bytes.
const HELLO_LENGTHS: std::ops::RangeInclusive<u8> = 28..=45;

/// The options of a new node, by the number that stands for them.
const CREATE_MODES: [&str; 7] = ["", " -e", " -s", " -e -s", " -c", " -t", " -s -t"];

#[derive(Default)]
pub(super) struct ZooKeeperRequests {
    has_greeted: bool,
}

/// Whether a client that begins so speaks to `ZooKeeper`. It sends its greeting at once; less is
/// not waited for, since another protocol may wait for an answer to two bytes.
pub(super) fn greets(said: &[u8]) -> bool {
    // The length, and the version of the protocol.
    matches!(said, [0, 0, 0, length, 0, 0, 0, 0, ..] if HELLO_LENGTHS.contains(length))
}

impl Protocol for ZooKeeperRequests {
    fn language(&self) -> Language {
        Language::ZooKeeper
    }

    fn request(&mut self, said: &[u8]) -> Result<Option<Request>, Unreadable> {
        let Some((length, rest)) = said.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| Unreadable)?;
        let Some(request) = rest.get(..length) else { return Ok(None) };
        let has_greeted = std::mem::replace(&mut self.has_greeted, true);
        let text = if has_greeted { text_of(Fields(request)) } else { None };
        let parts = text.map(String::into_bytes).into_iter().collect();
        Ok(Some(Request { length: HEADER + length, parts }))
    }

    fn expect(&mut self, _request: &Request, _said: &[u8], _claim: Option<Claim>) {}

    fn answer(&mut self, said: &[u8]) -> Result<Option<Answer>, Unreadable> {
        let all = Answer { length: said.len(), bytes: said.to_vec(), ..Answer::default() };
        Ok((!said.is_empty()).then_some(all))
    }
}

/// The operation, its options and its path; `None` for one that is of no interest, such as a ping.
fn text_of(mut fields: Fields<'_>) -> Option<String> {
    let _number = fields.int()?;
    let operation = fields.int()?;
    let name = match operation {
        1 | 15 | 19 | 21 => "create",
        2 => "delete",
        3 => "exists",
        4 => "getData",
        5 => "setData",
        8 | 12 => "getChildren",
        9 => "sync",
        14 => return Some("multi".to_owned()),
        -11 => return Some("closeSession".to_owned()),
        _ => return None,
    };
    let path = fields.text()?;
    let options = match name {
        "create" => fields.create_mode()?,
        "exists" | "getData" | "getChildren" if fields.bytes(1)? == [1] => " -w",
        _ => "",
    };
    Some(format!("{name}{options} {path}"))
}

/// What of a request was not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn int(&mut self) -> Option<i32> {
        let (int, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*int))
    }

    /// Bytes with their length before them; a negative one is that of nothing.
    fn text(&mut self) -> Option<std::borrow::Cow<'a, str>> {
        let length = usize::try_from(self.int()?.max(0)).ok()?;
        self.bytes(length).map(String::from_utf8_lossy)
    }

    /// The options of a new node, behind its data and who may do what to it.
    fn create_mode(&mut self) -> Option<&'static str> {
        self.text()?;
        for _ in 0..self.int()? {
            let _rights = self.int()?;
            let (_scheme, _id) = (self.text()?, self.text()?);
        }
        CREATE_MODES.get(usize::try_from(self.int()?).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::talk::Protocol as _;
    use super::{ZooKeeperRequests, greets};

    fn framed(fields: &[&[u8]]) -> Vec<u8> {
        let request = fields.concat();
        [&i32::try_from(request.len()).unwrap().to_be_bytes()[..], &request].concat()
    }

    fn int(number: i32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn text(text: &str) -> Vec<u8> {
        framed(&[text.as_bytes()])
    }

    /// What is read of these requests, which come after a greeting, in pieces.
    fn read(requests: &[Vec<u8>]) -> Vec<String> {
        let mut talk = ZooKeeperRequests::default();
        let hello = framed(&[&[0; 40], &[0]]);
        assert_eq!(talk.request(&hello).unwrap().unwrap().parts, Vec::<Vec<u8>>::new());
        let mut texts = Vec::new();
        for request in requests {
            for end in 0..request.len() {
                assert!(talk.request(&request[..end]).unwrap().is_none(), "{end} bytes");
            }
            let more = [request, &[7][..]].concat();
            let read = talk.request(&more).unwrap().unwrap();
            assert_eq!(read.length, request.len());
            texts.extend(read.parts.into_iter().map(|text| String::from_utf8(text).unwrap()));
        }
        texts
    }

    #[test]
    fn requests_are_named_with_their_options_and_paths() {
        let acl = [&int(1)[..], &int(31), &text("world"), &text("anyone")].concat();
        let create = |operation, mode| {
            let head = [&int(1)[..], &int(operation), &text("/locks/a-"), &text("owner")];
            framed(&[&head.concat(), &acl, &int(mode)])
        };
        let of_path =
            |operation, rest: &[u8]| framed(&[&int(2), &int(operation), &text("/locks"), rest]);
        let requests = [
            create(15, 3),
            create(19, 4),
            create(1, 0),
            of_path(2, &int(-1)),
            of_path(3, &[0]),
            of_path(4, &[1]),
            of_path(8, &[0]),
            of_path(9, &[]),
            framed(&[&int(-2), &int(11)]),
            framed(&[&int(3), &int(-11)]),
        ];
        assert_eq!(
            read(&requests),
            [
                "create -e -s /locks/a-",
                "create -c /locks/a-",
                "create /locks/a-",
                "delete /locks",
                "exists /locks",
                "getData -w /locks",
                "getChildren /locks",
                "sync /locks",
                "closeSession",
            ]
        );
    }

    #[test]
    fn a_request_that_ends_too_early_is_passed_on_without_a_name() {
        let cut_off = framed(&[&int(1), &int(15), &text("/locks/a-"), &int(900)]);
        assert_eq!(read(&[cut_off]), Vec::<String>::new());
        let mut talk = ZooKeeperRequests::default();
        assert!(talk.request(&int(-1)).is_err(), "no request has a negative length");
    }

    #[test]
    fn a_client_is_known_by_its_greeting_and_by_no_shorter_beginning() {
        let hello = framed(&[&[0; 40], &[0]]);
        assert!(greets(&hello));
        for end in 0..8 {
            assert!(!greets(&hello[..end]), "{end} bytes");
        }
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"ruok", &[0, 0, 0, 90, 0, 0, 0, 0]] {
            assert!(!greets(other), "{other:?}");
        }
    }
}
