//! The requests of a history, as their clients saw them.

use std::collections::HashMap;
use std::num::NonZeroU64;

use crate::client::HUNG_UP;
use crate::outcome::Outcome;

/// One request as its client saw it. There are millions of them, so it is kept to 48 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When the request was handed to its connection, in nanoseconds since the load began.
    pub start_ns: u64,
    /// When its answer was complete, or given up; [`NO_END`] if nothing was recorded.
    pub end_ns: u64,
    /// The user's id.
    pub user: u64,
    /// The order the answer speaks of, if it names one.
    pub order: Option<NonZeroU64>,
    /// Its number.
    pub n: u32,
    /// What its idempotency key comes to; equal for equal keys.
    pub key: u32,
    /// Index of the voucher, in the history's list.
    pub voucher: u16,
    /// What the answer means.
    pub outcome: Outcome,
    /// Index of the replica that answered, in the history's list; `None` without an answer.
    pub replica: Option<u8>,
    /// Index of the status and code, in the history's list.
    pub code: u8,
    /// Whether a ticket was given for it, which has ended so.
    pub admitted: bool,
}

/// The end of a request whose end was not seen.
pub const NO_END: u64 = u64::MAX;

impl Record {
    /// A request that ended with this outcome, for tests that depend on little more.
    #[doc(hidden)]
    pub fn that_ended(outcome: Outcome) -> Self {
        Self {
            start_ns: 1,
            end_ns: 2,
            user: 1,
            order: None,
            n: 0,
            key: 0,
            voucher: 0,
            outcome,
            replica: None,
            code: 0,
            admitted: false,
        }
    }

    /// The id of the order the answer speaks of.
    pub fn order_id(&self) -> Option<u64> {
        self.order.map(NonZeroU64::get)
    }

    /// Brings records into the order in which they are judged: by voucher, user, and time.
    pub fn sort(records: &mut [Self]) {
        records.sort_unstable_by_key(|one| (one.voucher, one.user, one.start_ns, one.n));
    }
}

/// What records refer to, so that they stay small: names by an index, holds by their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Replicas, as they call themselves.
    pub replicas: Vec<String>,
    /// Status and code of answers: `409 sold_out`.
    pub codes: Vec<String>,
    /// When a request had its lock, by the request's number; of those that told, and not of all of
    /// very many.
    pub holds: HashMap<u32, LockHold>,
}

impl Names {
    /// Status and code of a request's answer, or why there is none.
    pub fn code(&self, record: &Record) -> &str {
        self.codes.get(usize::from(record.code)).map_or("", String::as_str)
    }
}

/// Whether a request has no known outcome, or was refused because something was down.
pub fn has_failed(record: &Record, names: &Names) -> bool {
    let code = names.code(record);
    code != HUNG_UP && (record.outcome == Outcome::Unknown || code.starts_with('5'))
}

/// When a request had its lock, in nanoseconds since the load began. Its length is the replica's
/// own; where it stands is known up to the time that request and answer were on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockHold {
    /// The earliest moment at which it can have begun.
    pub earliest: u64,
    /// The latest.
    pub from: u64,
    /// The end that belongs to the latest.
    pub until: u64,
    /// Whether the lock's validity had ended before it was given back.
    pub lost: bool,
}

impl LockHold {
    /// How long the lock was held.
    pub fn length(self) -> u64 {
        self.until - self.from
    }

    /// The time by which it is not known when it began.
    pub fn uncertainty(self) -> u64 {
        self.from - self.earliest
    }

    /// Whether these overlapped, wherever each of them began. A hold whose lock was lost is left
    /// out: it says until when its holder went on, not until when it had the lock.
    pub fn surely_overlaps(self, other: Self) -> bool {
        let begins_before_end_of =
            |one: Self, other: Self| one.from < other.earliest + other.length();
        let is_known = !self.lost && !other.lost;
        is_known && begins_before_end_of(self, other) && begins_before_end_of(other, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_million_records_fit_into_half_a_gibibyte() {
        assert!(size_of::<Record>() <= 48, "{}", size_of::<Record>());
    }

    fn names() -> Names {
        let codes = ["201", "504 gateway_timeout", "503 overloaded", "hung_up"];
        Names { codes: codes.map(str::to_owned).into(), ..Names::default() }
    }

    fn record(outcome: Outcome, code: u8) -> Record {
        Record { code, ..Record::that_ended(outcome) }
    }

    #[test]
    fn a_request_has_failed_if_its_outcome_is_unknown_or_a_server_was_down_unless_it_hung_up() {
        for (outcome, code, failed) in [
            (Outcome::Bought, 0, false),
            (Outcome::Unknown, 1, true),
            (Outcome::Refused, 2, true),
            (Outcome::Unknown, 3, false),
        ] {
            assert_eq!(has_failed(&record(outcome, code), &names()), failed, "{code}");
        }
    }
}
