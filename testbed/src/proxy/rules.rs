//! Which command something happens to, what that is, and how often.

use std::fmt;
use std::time::Duration;

use super::faults::contains;

/// What happens to a command that was chosen, or to its answer.
///
/// "Executed" is certain: the answer has been read to its end before anything happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is executed, but its answer and all that follows it on this connection is swallowed, in
    /// both directions: neither side hears anything more, not even a close.
    LoseAnswer,
    /// It is executed; then both sides are closed instead of an answer.
    CutAnswer,
    /// It is executed; then both sides see a reset.
    ResetAnswer,
    /// It never arrives, and both sides are closed.
    CutRequest,
    /// It never arrives, and neither side receives anything more, not even a close.
    LoseRequest,
    /// It is sent on, and at once both sides are closed: it may be executed.
    CutBoth,
    /// Its arrival is delayed by this time; what follows on this connection waits for it.
    DelayRequest(Duration),
    /// It waits for [`Rule::release`](super::Rule); what follows on this connection waits too.
    HoldRequest,
    /// Its answer is delayed by this time; what follows on this connection waits for it.
    DelayAnswer(Duration),
    /// It is executed; its answer and what follows wait for [`Rule::release`](super::Rule).
    HoldAnswer,
}

impl Action {
    /// Whether the server is certain to have executed the command when this has happened to it.
    #[must_use]
    pub fn is_executed(self) -> bool {
        matches!(self, Self::LoseAnswer | Self::CutAnswer | Self::ResetAnswer)
            || matches!(self, Self::DelayAnswer(_) | Self::HoldAnswer)
    }

    /// Whether it happens when the answer has come, and not when the command has.
    pub(super) fn is_about_answer(self) -> bool {
        self.is_executed()
    }
}

/// How often a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// On the next matches up to this number; none is [`Proxy::watch`](super::Proxy::watch).
    Next(u64),
    /// Only on the match of that number; the first is 1.
    Nth(u64),
    /// On every match whose number is a multiple of that.
    Every(u64),
    /// On every match.
    Always,
}

impl Times {
    fn include(self, number: u64) -> bool {
        match self {
            Self::Next(count) => number <= count,
            Self::Nth(chosen) => number == chosen,
            Self::Every(step) => step > 0 && number.is_multiple_of(step),
            Self::Always => true,
        }
    }
}

/// A protocol that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Redis,
    MySql,
    ZooKeeper,
}

type Condition = Box<dyn Fn(&[&[u8]]) -> bool + Send>;

/// Which commands a rule is about.
pub struct Command {
    language: Language,
    start: Vec<u8>,
    conditions: Vec<Condition>,
}

impl Command {
    /// A Redis command by its name, or by its first words, as in `SET` or `SCRIPT LOAD`. The case
    /// does not matter; no words are every command.
    #[must_use]
    pub fn redis(words: &str) -> Self {
        Self::new(Language::Redis, words)
    }

    /// SQL that begins like that, sent as text or prepared before and executed now. The case does
    /// not matter.
    #[must_use]
    pub fn sql(start: &str) -> Self {
        Self::new(Language::MySql, start)
    }

    /// A request to `ZooKeeper` as its text begins, such as `create -e -s /locks`. Only what
    /// happens to requests can happen to it: its answer is not read.
    #[must_use]
    pub fn zookeeper(start: &str) -> Self {
        Self::new(Language::ZooKeeper, start)
    }

    /// What commits: COMMIT alone, or as the last of several statements that are sent together.
    #[must_use]
    pub fn commit() -> Self {
        Self::sql("").when(|parts| {
            parts.first().is_some_and(|sql| sql.to_ascii_uppercase().ends_with(b"COMMIT"))
        })
    }

    fn new(language: Language, start: &str) -> Self {
        let start = start.trim_ascii().as_bytes().to_vec();
        Self { language, start, conditions: Vec::new() }
    }

    /// Only if one of its parts contains this text. The parts of a Redis command are its name and
    /// its arguments (a key, the digest of a script). Those of SQL are the statement and the values
    /// bound to it.
    #[must_use]
    pub fn containing(self, text: impl Into<Vec<u8>>) -> Self {
        let text = text.into();
        self.when(move |parts| parts.iter().any(|part| contains(part, &text)))
    }

    /// Only if this holds. Of a Redis command it is given the name and the arguments; of SQL the
    /// statement and, if it was prepared, the values as the protocol encodes them. Of a request to
    /// `ZooKeeper` it is given the operation with its options and path, as one text.
    #[must_use]
    pub fn when(mut self, holds: impl Fn(&[&[u8]]) -> bool + Send + 'static) -> Self {
        self.conditions.push(Box::new(holds));
        self
    }

    fn matches(&self, language: Language, parts: &[&[u8]]) -> bool {
        let begins = match language {
            Language::Redis => {
                let mut parts = parts.iter();
                let mut words =
                    self.start.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                words.all(|word| parts.next().is_some_and(|part| part.eq_ignore_ascii_case(word)))
            }
            Language::MySql | Language::ZooKeeper => {
                let text = parts.first().copied().unwrap_or_default().trim_ascii_start();
                let start = text.get(..self.start.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(&self.start))
            }
        };
        self.language == language && begins && self.conditions.iter().all(|holds| holds(parts))
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = String::from_utf8_lossy(&self.start);
        write!(f, "{:?} {start:?} with {} conditions", self.language, self.conditions.len())
    }
}

/// A rule that wants this command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) rule: usize,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) struct ArmedRule {
    pub(super) command: Command,
    pub(super) action: Action,
    pub(super) times: Times,
    /// Whether nothing can be reached from the moment that this fires.
    pub(super) with_outage: bool,
    pub(super) matched: u64,
    pub(super) fired: u64,
    pub(super) disarmed: bool,
}

impl ArmedRule {
    pub(super) fn new(command: Command, action: Action, times: Times, with_outage: bool) -> Self {
        let (matched, fired, disarmed) = (0, 0, false);
        Self { command, action, times, with_outage, matched, fired, disarmed }
    }
}

/// All rules, in the order in which they were armed.
#[derive(Debug, Default)]
pub(super) struct Rules(Vec<ArmedRule>);

impl Rules {
    pub(super) fn arm(&mut self, rule: ArmedRule) -> usize {
        self.0.push(rule);
        self.0.len() - 1
    }

    pub(super) fn get(&mut self, rule: usize) -> &mut ArmedRule {
        &mut self.0[rule]
    }

    pub(super) fn disarm_all(&mut self) {
        self.0.iter_mut().for_each(|rule| rule.disarmed = true);
    }

    /// Whether any rule is about this command, and the first one that fires on it.
    pub(super) fn claim(&mut self, language: Language, parts: &[&[u8]]) -> (bool, Option<Claim>) {
        let (mut matched, mut claim) = (false, None);
        for (index, rule) in self.0.iter_mut().enumerate().filter(|(_, rule)| !rule.disarmed) {
            if !rule.command.matches(language, parts) {
                continue;
            }
            matched = true;
            rule.matched += 1;
            if claim.is_none() && rule.times.include(rule.matched) {
                claim = Some(Claim { rule: index, action: rule.action });
            }
        }
        (matched, claim)
    }
}
