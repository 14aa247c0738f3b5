//! The moment at which more was sold than there was: the first acknowledgement beyond the stock,
//! and the purchases that were under way with it.
//!
//! The judge's proofs name the orders beyond the stock. These requests show how they came about:
//! more than one purchase held the lock. At most [`MAX_REQUESTS`] are kept, those that ended
//! closest to the first one beyond the stock. After a frozen holder the unit was sold twice long
//! before the stock was exceeded; then the moment in which it continued is shown instead.

use loadtest_judge::proof::ProofRequest;
use loadtest_load::history::record::{Names, Record};
use loadtest_load::outcome::Outcome;
use serde::{Deserialize, Serialize};

/// Most requests that are kept.
pub const MAX_REQUESTS: usize = 12;

/// From the arrival of a frozen holder's COMMIT until it is seen that it went on, at most.
const COMMIT_TO_THAW_NS: u64 = 100_000_000;

/// The moment at which more was sold than there was.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OversellMoment {
    /// The units that there were.
    pub units: u64,
    /// Number of the request that was acknowledged first beyond them.
    pub first: u32,
    /// It, and purchases that were under way with it, in the order in which they were sent.
    pub requests: Vec<ProofRequest>,
    /// How many more there were.
    pub left_out: usize,
}

/// The two who sold one unit: a holder that had stood still past its lock, and the next one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DoubleSale {
    /// The replica that had stood still.
    pub victim: String,
    /// Its purchase, and the next holder's.
    pub requests: [ProofRequest; 2],
}

impl DoubleSale {
    /// Looks for it at the moment in which that replica went on. The next holder's write waits for
    /// the frozen one's COMMIT, which arrives shortly before, so both are acknowledged then.
    pub fn of(
        records: &[Record],
        names: &Names,
        (victim, went_on_ns): (&str, u64),
    ) -> Option<Self> {
        let from_ns = went_on_ns.saturating_sub(COMMIT_TO_THAW_NS);
        let by_victim = |record: &Record| {
            let name = record.replica.and_then(|index| names.replicas.get(usize::from(index)));
            name.is_some_and(|name| name == victim)
        };
        let first = |of_victim: bool| {
            let is_one = |record: &&Record| {
                let spans = record.start_ns < from_ns && record.end_ns >= from_ns;
                spans && record.outcome == Outcome::Bought && by_victim(record) == of_victim
            };
            records.iter().filter(is_one).min_by_key(|record| (record.end_ns, record.n))
        };
        let requests = [first(true)?, first(false)?].map(|record| ProofRequest::of(names, record));
        Some(Self { victim: victim.to_owned(), requests })
    }
}

impl OversellMoment {
    /// Finds it in a load on `units` units.
    pub fn of(records: &[Record], names: &Names, units: u64) -> Option<Self> {
        let is_order = |record: &&Record| record.outcome == Outcome::Bought;
        let mut orders: Vec<&Record> = records.iter().filter(is_order).collect();
        orders.sort_unstable_by_key(|record| (record.end_ns, record.n));
        let first = *orders.get(usize::try_from(units).ok()?)?;
        orders.retain(|one| one.start_ns < first.end_ns && one.end_ns > first.start_ns);
        orders.sort_unstable_by_key(|one| (one.n != first.n, one.end_ns.abs_diff(first.end_ns)));
        let left_out = orders.len().saturating_sub(MAX_REQUESTS);
        orders.truncate(MAX_REQUESTS);
        orders.sort_unstable_by_key(|one| (one.start_ns, one.n));
        let requests = orders.iter().map(|one| ProofRequest::of(names, one)).collect();
        Some(Self { units, first: first.n, requests, left_out })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    /// The oversell moment of a load whose orders were sent and acknowledged at these milliseconds.
    fn oversell_moment(
        units: u64,
        orders: impl IntoIterator<Item = (u64, u64)>,
    ) -> Option<OversellMoment> {
        let record = |(n, (from, until)): (u32, (u64, u64))| Record {
            start_ns: from * 1_000_000,
            end_ns: until * 1_000_000,
            user: u64::from(n) + 1000,
            order: NonZeroU64::new(u64::from(n) + 1),
            n,
            replica: Some(0),
            ..Record::that_ended(Outcome::Bought)
        };
        let records: Vec<Record> = (0..).zip(orders).map(record).collect();
        let names = Names { replicas: vec!["r1".to_owned()], ..Names::default() };
        OversellMoment::of(&records, &names, units)
    }

    #[test]
    fn a_sale_that_keeps_to_its_stock_has_no_such_moment() {
        assert!(oversell_moment(2, [(0, 5), (1, 6)]).is_none());
    }

    #[test]
    fn the_first_order_beyond_the_stock_is_there_with_the_purchases_that_overlapped_it() {
        let oversell_moment = oversell_moment(2, [(0, 5), (4, 10), (6, 12), (11, 15), (13, 20)]);
        let oversell_moment = oversell_moment.expect("five were sold");
        let shown: Vec<u32> = oversell_moment.requests.iter().map(|one| one.n).collect();
        assert_eq!(
            (oversell_moment.first, &shown[..], oversell_moment.left_out),
            (2, &[1, 2, 3][..], 0)
        );
        assert_eq!(oversell_moment.requests[0].user, "1001");
    }

    #[test]
    fn of_a_frozen_holder_its_purchase_and_that_of_the_next_holder_are_kept() {
        let names = Names { replicas: vec!["r1".to_owned(), "r2".to_owned()], ..Names::default() };
        let record = |n: u32, replica: u8, (from, until): (u64, u64)| Record {
            start_ns: from * 1_000_000,
            end_ns: until * 1_000_000,
            user: u64::from(n),
            order: NonZeroU64::new(u64::from(n) + 1),
            n,
            replica: Some(replica),
            ..Record::that_ended(Outcome::Bought)
        };
        // r2 stands still from 1000 to 2000; 3 and 4 only waited for their turn.
        let records = [
            record(0, 0, (900, 1010)),
            record(1, 1, (950, 2005)),
            record(2, 0, (970, 1990)),
            record(3, 0, (980, 2060)),
            record(4, 1, (990, 2080)),
        ];
        let double_sale =
            DoubleSale::of(&records, &names, ("r2", 2_000_000_000)).expect("both sold");
        assert_eq!(double_sale.requests.map(|one| one.n), [1, 2]);
        assert!(DoubleSale::of(&records[..2], &names, ("r2", 2_000_000_000)).is_none());
    }

    #[test]
    fn of_many_requests_the_closest_are_kept_and_the_rest_counted() {
        let oversell_moment =
            oversell_moment(10, (0..80).map(|at| (at, at + 90))).expect("80 sold");
        assert_eq!(oversell_moment.requests.len(), MAX_REQUESTS);
        assert_eq!(oversell_moment.left_out, 80 - MAX_REQUESTS);
        assert!(
            oversell_moment.requests.iter().any(|one| one.n == oversell_moment.first),
            "{oversell_moment:?}"
        );
    }
}
