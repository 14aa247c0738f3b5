//! The proof that a rule was broken: the requests behind it, by which a person can find them in the
//! history.

use loadtest_load::history::record::{LockHold, NO_END, Names, Record};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;

/// Proofs that are kept for a rule.
pub const MAX_PROOFS: usize = 10;
/// Requests that are named in one proof.
pub const MAX_REQUESTS: usize = 8;

/// One way in which a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// What happened, in words.
    pub why: String,
    /// The requests that show it; none where an order has no request.
    pub requests: Vec<ProofRequest>,
}

/// One request of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRequest {
    /// Its number in the history.
    pub n: u32,
    /// The user's id.
    pub user: String,
    /// When it was sent, in nanoseconds since the load began.
    pub start_ns: u64,
    /// When it ended, if that was seen.
    pub end_ns: Option<u64>,
    /// From when until when it had its lock, if that is known: the latest moment at which the hold
    /// can have begun, and the end that belongs to it.
    #[serde(default)]
    pub held_ns: Option<[u64; 2]>,
    /// The earliest moment at which that hold can have begun.
    #[serde(default)]
    pub earliest_hold_ns: Option<u64>,
    /// Whether the lock's validity had ended before it was given back.
    #[serde(default)]
    pub lost: bool,
    /// The replica that answered.
    pub replica: Option<String>,
    /// Status and code of the answer, or why there was none.
    pub answer: String,
    /// The order that the answer names.
    pub order: Option<String>,
}

impl ProofRequest {
    /// The request of a record that refers to these names.
    pub fn of(names: &Names, record: &Record) -> Self {
        let name = |list: &[String], index: u8| list.get(usize::from(index)).cloned();
        let hold = names.holds.get(&record.n);
        Self {
            n: record.n,
            user: record.user.to_string(),
            start_ns: record.start_ns,
            end_ns: (record.end_ns != NO_END).then_some(record.end_ns),
            held_ns: hold.map(|hold| [hold.from, hold.until]),
            earliest_hold_ns: hold.map(|hold| hold.earliest),
            lost: hold.is_some_and(|hold| hold.lost),
            replica: record.replica.and_then(|index| name(&names.replicas, index)),
            answer: name(&names.codes, record.code)
                .unwrap_or_else(|| record.outcome.name().to_owned()),
            order: record.order_id().map(|id| id.to_string()),
        }
    }

    /// The hold of its lock. If its earliest moment is not known, it may have begun with the
    /// request.
    pub fn hold(&self) -> Option<LockHold> {
        let [from, until] = self.held_ns?;
        let earliest = self.earliest_hold_ns.unwrap_or(self.start_ns);
        Some(LockHold { earliest, from, until, lost: self.lost })
    }

    /// `request 17 of user 5, 0.10 s to 0.25 s: 201 from r2, order 9; its lock 0.11 s to 0.24 s`.
    pub fn text(&self) -> String {
        let end = self.end_ns.map_or("no end".to_owned(), seconds);
        let replica = self.replica.as_ref().map(|name| format!(" from {name}"));
        let order = self.order.as_ref().map(|id| format!(", order {id}"));
        let held = self.held_ns.map(|held| held.map(seconds));
        let held = held.map(|[from, until]| format!("; its lock {from} to {until}"));
        format!(
            "request {} of user {}, {} to {end}: {}{}{}{}",
            self.n,
            self.user,
            seconds(self.start_ns),
            self.answer,
            replica.unwrap_or_default(),
            order.unwrap_or_default(),
            held.unwrap_or_default(),
        )
    }
}

/// Nanoseconds as seconds to the microsecond.
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns / 1000 % 1_000_000)
}

/// Breaches of one rule: all are counted, the first few are proved.
#[derive(Debug, Default)]
pub(super) struct Breaches {
    pub(super) count: u64,
    pub(super) proofs: Vec<Proof>,
}

impl Breaches {
    /// Counts one; what it was is asked for only while there is room for a proof.
    pub(super) fn add<'r, R: IntoIterator<Item = &'r Record>>(
        &mut self,
        evidence: &Evidence<'_>,
        why: impl FnOnce() -> String,
        requests: impl FnOnce() -> R,
    ) {
        self.count += 1;
        if self.proofs.len() < MAX_PROOFS {
            let requests = requests().into_iter().take(MAX_REQUESTS);
            let requests =
                requests.map(|record| ProofRequest::of(evidence.names, record)).collect();
            self.proofs.push(Proof { why: why(), requests });
        }
    }
}
