//! The log of the current race: the only place where its events are kept.
//!
//! A page has a position in the log and reads on from there. So a late page gets everything, a page
//! that reconnects gets what it missed, and a slow page costs no memory and no time of the load.
//! [`MAX_EVENTS`] and [`MAX_BYTES`] bound the log. Beyond them requests and leases are counted and
//! left out; faults, states and verdicts still have [`RESERVE_BYTES`]. A request whose begin is in
//! the log has room for its end, so no page shows it as waiting after the race.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Most events of requests and leases in one race.
pub const MAX_EVENTS: usize = 32_768;
/// Most bytes of all events of requests and leases: a saved race with its page stays below 1.5 MB.
pub const MAX_BYTES: usize = 1_150_000;
/// Bytes beyond these for faults, states and verdicts.
pub const RESERVE_BYTES: usize = 150_000;
/// The part of [`RESERVE_BYTES`] that events of faults leave to states and verdicts.
const VERDICT_BYTES: usize = 50_000;
/// Bytes that are kept free for the end of each open request.
const END_BYTES: usize = 256;

/// A position in the log of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// Number of the race.
    pub race: u64,
    /// Events of it that were read.
    pub next: usize,
}

/// What there is to read from a position on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSlice {
    /// What the race is made of, as JSON, if the position is not one of it: reading begins again.
    pub setup: Option<String>,
    /// The events, a JSON array.
    pub events: String,
    /// How many they are.
    pub count: usize,
    /// Where reading continues.
    pub position: LogPosition,
}

/// How much an event matters when the log is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// A request leaves.
    Begin,
    /// A request ends whose begin is in the log.
    End,
    /// A lease as its server has it.
    Lease,
    /// A fault.
    Fault,
    /// A state or a verdict.
    Race,
}

/// The log.
#[derive(Debug)]
pub struct EventLog {
    contents: Mutex<LogContents>,
    growth: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LogContents {
    race: u64,
    setup: String,
    events: Vec<Box<str>>,
    bytes: usize,
    /// Requests whose end has not come.
    open: usize,
    left_out: u64,
}

impl Default for EventLog {
    fn default() -> Self {
        Self { contents: Mutex::default(), growth: watch::Sender::new(()) }
    }
}

impl EventLog {
    fn contents(&self) -> MutexGuard<'_, LogContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the log of a new race. Events of the last one are deleted.
    pub fn begin(&self, setup: String) {
        let mut contents = self.contents();
        let race = contents.race + 1;
        *contents = LogContents { race, setup, ..LogContents::default() };
        drop(contents);
        self.growth.send_replace(());
    }

    /// Adds an event, a JSON value, unless the log is full; whether it was added. The end of a
    /// request that was left out must not be pushed: it was left out with its begin.
    pub fn push(&self, event: String, priority: Priority) -> bool {
        let mut contents = self.contents();
        let open = match priority {
            Priority::Begin => contents.open + 1,
            Priority::End => contents.open.saturating_sub(1),
            Priority::Lease | Priority::Fault | Priority::Race => contents.open,
        };
        let bytes = contents.bytes + event.len() + 1;
        let most = match priority {
            Priority::Begin | Priority::Lease => MAX_BYTES,
            Priority::Fault => MAX_BYTES + RESERVE_BYTES - VERDICT_BYTES,
            Priority::End | Priority::Race => MAX_BYTES + RESERVE_BYTES,
        };
        let is_bounded = matches!(priority, Priority::Begin | Priority::Lease);
        let has_place = !is_bounded || contents.events.len() + open < MAX_EVENTS;
        let fits = has_place && bytes + open * END_BYTES <= most;
        if fits {
            (contents.bytes, contents.open) = (bytes, open);
            contents.events.push(event.into_boxed_str());
        } else {
            contents.left_out += if priority == Priority::Begin { 2 } else { 1 };
        }
        drop(contents);
        self.growth.send_replace(());
        fits
    }

    /// How many events were left out of the current race.
    pub fn left_out(&self) -> u64 {
        self.contents().left_out
    }

    /// What there is from that position on, at most `most` events; `None` if that is nothing.
    pub fn read(&self, from: LogPosition, most: usize) -> Option<LogSlice> {
        let contents = self.contents();
        if contents.race == 0 {
            return None;
        }
        let is_known = from.race == contents.race && from.next <= contents.events.len();
        let start = if is_known { from.next } else { 0 };
        let end = contents.events.len().min(start.saturating_add(most));
        if is_known && start == end {
            return None;
        }
        let events = format!("[{}]", contents.events[start..end].join(","));
        let setup = (!is_known).then(|| contents.setup.clone());
        let position = LogPosition { race: contents.race, next: end };
        Some(LogSlice { setup, events, count: end - start, position })
    }

    /// A receiver that wakes whenever the log grows.
    pub fn growth(&self) -> watch::Receiver<()> {
        self.growth.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(events: &[&str]) -> EventLog {
        let log = EventLog::default();
        log.begin("{}".to_owned());
        for event in events {
            log.push((*event).to_owned(), Priority::Fault);
        }
        log
    }

    #[test]
    fn a_page_reads_on_where_it_stopped_and_a_late_one_from_the_beginning() {
        let log = log_of(&["1", "2", "3"]);
        let first = log.read(LogPosition::default(), 2).expect("a slice");
        assert_eq!((first.setup.as_deref(), first.events.as_str()), (Some("{}"), "[1,2]"));
        let second = log.read(first.position, 2).expect("a slice");
        assert_eq!((second.setup, second.events.as_str()), (None, "[3]"));
        assert_eq!(log.read(second.position, 2), None, "nothing is new");
        let late = log.read(LogPosition::default(), 10).expect("a slice");
        assert_eq!(late.count, 3);
    }

    #[test]
    fn a_new_race_is_read_from_its_begin_whatever_was_read_before() {
        let log = log_of(&["1", "2"]);
        let old = log.read(LogPosition::default(), 10).expect("a slice").position;
        log.begin("{\"seed\":2}".to_owned());
        for event in ["7", "8", "9"] {
            log.push(event.to_owned(), Priority::Fault);
        }
        let new = log.read(old, 10).expect("a slice");
        assert_eq!(new.setup.as_deref(), Some("{\"seed\":2}"));
        assert_eq!((new.events.as_str(), new.position.next), ("[7,8,9]", 3));
        let beyond = LogPosition { race: new.position.race, next: 99 };
        assert!(log.read(beyond, 10).expect("a slice").setup.is_some(), "it has never been there");
    }

    #[test]
    fn the_log_has_a_bound_and_what_matters_still_finds_room() {
        let log = log_of(&[]);
        let quarter = "1".repeat(MAX_BYTES / 4);
        for _ in 0..8 {
            log.push(quarter.clone(), Priority::Begin);
        }
        assert_eq!(log.left_out(), 10, "the separators take room as well");
        for _ in 0..3 {
            assert!(log.push("\"end\"".to_owned(), Priority::End), "each begin has its end");
        }
        while log.push("\"fault\"".to_owned(), Priority::Fault) {}
        let verdict = format!("\"{}\"", "v".repeat(20_000));
        assert!(log.push(verdict.clone(), Priority::Race));
        let all = log.read(LogPosition::default(), usize::MAX).expect("a slice");
        assert!(all.events.ends_with(&format!(",{verdict}]")));
        assert!(all.events.len() <= MAX_BYTES + RESERVE_BYTES);
    }

    #[test]
    fn in_a_full_log_each_request_that_has_begun_also_ends() {
        let (log, mut begun) = (log_of(&[]), 0);
        while log.push("1".to_owned(), Priority::Begin) {
            begun += 1;
        }
        let end = "2".repeat(END_BYTES - 1);
        for number in 0..begun {
            assert!(log.push(end.clone(), Priority::End), "{number} of {begun}");
        }
        let all = log.read(LogPosition::default(), usize::MAX).expect("a slice");
        assert_eq!(all.count, 2 * begun);
        assert!(all.count <= MAX_EVENTS && all.events.len() <= MAX_BYTES + RESERVE_BYTES);
    }
}
