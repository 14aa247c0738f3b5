//! Whether two requests held one lock at once, by the holds that replicas reported.
//!
//! The length of a hold is the replica's own. Its begin is known up to the network time of request
//! and answer ([`LockHold`]): it lies between `earliest` and `from`. Two holds overlap *for
//! certain* if they do so for every begin within these bounds. Every overlap that is longer than
//! the two uncertainties together is certain; the largest such sum of a run is its resolution.
//! `docs/verdicts.md` says why a suspended thread cannot make an overlap certain.

use loadtest_load::history::record::{LockHold, Names, Record};
use serde::{Deserialize, Serialize};

use crate::evidence::Evidence;
use crate::proof::{Breaches, seconds};
use crate::setting::Scope;

/// Holds of one lock at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldOverlaps {
    /// Holds that replicas reported.
    pub holds: u64,
    /// Holds that began while another had the same lock, by the reports of replicas.
    pub at_once: u64,
    /// The longest time for which two had it, by the reports, in milliseconds.
    pub longest_ms: f64,
    /// Overlaps that are certain, whatever the network time of requests and answers.
    pub certain: u64,
    /// Overlaps that are longer than this are found for certain, in milliseconds.
    #[serde(default)]
    pub resolution_ms: f64,
}

/// A request, its hold, and the lock that it held.
type Holder<'a> = (u64, LockHold, &'a Record);

impl HoldOverlaps {
    /// Of these requests under locks for each user, or for each voucher; `None` if no hold was
    /// told of.
    pub fn of(records: &[Record], names: &Names, scope: Scope) -> Option<Self> {
        Self::walk(records, names, scope, |_, _| {})
    }

    /// Finds the overlaps and passes each certain one to `found`, the earlier request first.
    fn walk<'a>(
        records: &'a [Record],
        names: &Names,
        scope: Scope,
        mut certain: impl FnMut(&Holder<'a>, &Holder<'a>),
    ) -> Option<Self> {
        let holder_of = |record: &'a Record| {
            let lock = match scope {
                Scope::User => record.user,
                Scope::Voucher => record.voucher.into(),
            };
            Some((lock, names.holds.get(&record.n).copied()?, record))
        };
        let mut holders: Vec<Holder<'_>> = records.iter().filter_map(holder_of).collect();
        holders.sort_unstable_by_key(|(lock, hold, record)| (*lock, hold.from, record.n));
        let mut found = Self { holds: holders.len() as u64, ..Self::default() };
        let mut most = 0;
        for of_one in holders.chunk_by(|(one, ..), (other, ..)| one == other) {
            let mut begun: Vec<&Holder<'_>> = Vec::new();
            for holder in of_one {
                let hold = holder.1;
                begun.retain(|(_, other, _)| other.until > hold.from);
                let at_once = begun.iter().map(|(_, one, _)| one.until.min(hold.until) - hold.from);
                let at_once = at_once.max().unwrap_or(0);
                most = most.max(at_once);
                found.at_once += u64::from(at_once > 0);
                if let Some(first) = begun.iter().find(|one| one.1.surely_overlaps(hold)) {
                    found.certain += 1;
                    certain(first, holder);
                }
                begun.push(holder);
            }
        }
        found.longest_ms = milliseconds(most);
        found.resolution_ms = milliseconds(largest_two(holders.iter().map(|one| one.1)));
        (found.holds > 0).then_some(found)
    }

    /// How many there were for certain, how many more there may have been, and for how long.
    pub fn words(&self) -> String {
        let Self { holds, at_once, longest_ms, certain, resolution_ms } = self;
        let perhaps = at_once - certain;
        let sure = match (certain, perhaps) {
            (0, 0) => return format!("none of {holds} holds"),
            (0, _) => format!("none of {holds} holds for certain, but perhaps {perhaps}"),
            (_, 0) => format!("{certain} of {holds} holds for certain"),
            _ => format!("{certain} of {holds} holds for certain, and perhaps {perhaps} more"),
        };
        let longer = format!("an overlap of more than {resolution_ms:.1} ms is certain");
        format!("{sure}, for {longest_ms:.1} ms at most; {longer}")
    }
}

/// Judges a lock that lets one in at a time; `None` where the run does not say that it does.
pub(super) fn judge(evidence: &Evidence<'_>, breaches: &mut Breaches) -> (Option<bool>, String) {
    let Some(scope) = evidence.terms.one_holder_per else {
        return (None, "the run has no such lock".to_owned());
    };
    let found = HoldOverlaps::walk(evidence.records, evidence.names, scope, |one, other| {
        let why = || {
            let from = one.1.from.max(other.1.from);
            let ms = milliseconds(one.1.until.min(other.1.until) - from);
            format!("two had one lock at {} for {ms:.1} ms", seconds(from))
        };
        breaches.add(evidence, why, || [one.2, other.2]);
    });
    match found {
        Some(found) => (Some(found.certain == 0), found.words()),
        None => (None, "no answer reported a hold".to_owned()),
    }
}

/// The largest sum of two holds' uncertainties.
fn largest_two(holds: impl Iterator<Item = LockHold>) -> u64 {
    let mut largest = [0; 2];
    for uncertainty in holds.map(LockHold::uncertainty) {
        if uncertainty > largest[0] {
            largest = [uncertainty, largest[0]];
        } else {
            largest[1] = largest[1].max(uncertainty);
        }
    }
    largest.iter().sum()
}

#[allow(clippy::cast_precision_loss, reason = "a load has far fewer than 2^53 nanoseconds")]
fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
