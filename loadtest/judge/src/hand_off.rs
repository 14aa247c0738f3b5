//! Whether a lock was left free while a request waited for it.
//!
//! How long a purchase takes says nothing of that: on a busy machine the purchase before it takes
//! long too. So the longest time counts in which a request waited for its lock and no other request
//! can have held it.
//!
//! A request waits for as long as its replica says. One that was refused because its time was over
//! waited that long. Another request may hold the lock from the earliest
//! moment of its hold to the end of its answer; if its outcome is unknown, for ever.
//! `docs/verdicts.md` says why a suspended thread makes that time shorter.

use loadtest_load::history::record::{Names, Record};
use loadtest_load::outcome::Outcome;

use crate::evidence::Evidence;
use crate::proof::Breaches;
use crate::rules::RuleResult;
use crate::setting::Scope;
use crate::stalls::Stalls;

/// For how long a lock may be left free. A waiter that missed the message asks after a second.
const MAX_FREE_NS: u64 = 3_000_000_000;
/// The answer to a request that waited for its lock as long as it may, and did not get it.
const TIMED_OUT: &str = "409 order_in_progress";

/// A request that waited for its lock.
struct Waiter {
    /// From its sending to the latest moment at which the wait can have ended.
    within: [u64; 2],
    /// For how long it waited.
    waited_ns: u64,
}

impl Waiter {
    fn of(names: &Names, record: &Record, lock_wait_ns: Option<u64>) -> Option<Self> {
        let (start, end) = (record.start_ns, record.end_ns);
        if let Some(hold) = names.holds.get(&record.n) {
            let waited_ns = hold.earliest.saturating_sub(start);
            return Some(Self { within: [start, hold.from], waited_ns });
        }
        let waited_ns = lock_wait_ns.filter(|_| names.code(record) == TIMED_OUT)?;
        Some(Self { within: [start, end], waited_ns: waited_ns.min(end.saturating_sub(start)) })
    }

    /// For how long it waited within a stretch, wherever its wait began: the least is that of the
    /// earliest begin or that of the latest one.
    fn certainly_in(&self, [from, until]: [u64; 2], stalls: &Stalls) -> u64 {
        let Self { within: [start, end], waited_ns } = *self;
        let earliest = [start, start + waited_ns];
        let latest = [end.saturating_sub(waited_ns), end];
        let shared = |[begin, end]: [u64; 2]| stalls.elapsed(begin.max(from), end.min(until));
        shared(earliest).min(shared(latest))
    }
}

/// From when until when a request can have held its lock.
fn possible_hold(names: &Names, record: &Record) -> Option<[u64; 2]> {
    if names.code(record) == TIMED_OUT {
        return None;
    }
    let from = names.holds.get(&record.n).map_or(record.start_ns, |hold| hold.earliest);
    let is_open = record.outcome == Outcome::Unknown;
    Some([from, if is_open { u64::MAX } else { record.end_ns }])
}

/// What none of these stretches covers of one.
fn uncovered([from, until]: [u64; 2], mut by: Vec<[u64; 2]>) -> Vec<[u64; 2]> {
    by.sort_unstable();
    by.push([until, until]);
    let (mut gaps, mut reached) = (Vec::new(), from);
    for [begin, end] in by {
        if begin.min(until) > reached {
            gaps.push([reached, begin.min(until)]);
        }
        reached = reached.max(end);
    }
    gaps
}

/// Judges the waiters of each lock.
pub(super) fn judge(evidence: &Evidence<'_>, breaches: &mut Breaches) -> RuleResult {
    let Some(scope) = evidence.terms.lock_per else {
        return (None, "the run does not say what a lock is for".to_owned());
    };
    let (names, stalls) = (evidence.names, &evidence.terms.stalls);
    let lock_wait_ns = evidence.terms.lock_wait_ns;
    let lock = |record: &&Record| match scope {
        Scope::User => record.user,
        Scope::Voucher => record.voucher.into(),
    };
    let mut records: Vec<&Record> = evidence.records.iter().collect();
    records.sort_by_key(lock);
    let (mut waiters, mut longest_ns) = (0, 0);
    for of_one in records.chunk_by(|one, other| lock(one) == lock(other)) {
        for record in of_one {
            let Some(waiter) = Waiter::of(names, record, lock_wait_ns) else { continue };
            waiters += 1;
            let others = of_one.iter().filter(|other| other.n != record.n);
            let others = others.filter_map(|other| possible_hold(names, other)).collect();
            let free = uncovered(waiter.within, others).into_iter();
            let free_ns = free.map(|gap| waiter.certainly_in(gap, stalls)).max().unwrap_or(0);
            longest_ns = longest_ns.max(free_ns);
            if free_ns > MAX_FREE_NS {
                let ms = free_ns / 1_000_000;
                let why = || format!("request {} waited {ms} ms for a free lock", record.n);
                breaches.add(evidence, why, || of_one.iter().copied());
            }
        }
    }
    if waiters == 0 {
        return (None, "no answer reported a wait".to_owned());
    }
    let (count, within, longest) =
        (breaches.count, MAX_FREE_NS / 1_000_000_000, longest_ns / 1_000_000);
    let detail = format!(
        "{count} of {waiters} waited more than {within} s for a free lock; the longest {longest} ms"
    );
    (Some(count == 0), detail)
}

#[cfg(test)]
#[path = "hand_off_tests.rs"]
mod tests;
