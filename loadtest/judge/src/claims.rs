//! How many units may have been taken when a replica decided that nothing is left, so that its
//! "sold out" can have been true.
//!
//! The decision fell between the sending of its request and the end of its answer. It rested on
//! what the replica knew, which may be [`MAX_STALENESS_NS`] old. So a unit counts as taken if it
//! was asked for before the answer ended, and was not given back a second before the request was
//! sent. Only clock readings outside the decision are compared. A thread that the kernel suspends
//! makes the answer end later, or the sending earlier, so that more units count.
//!
//! An order has its unit from the moment it was asked for. A request that left no order in the
//! final read takes a unit from no other. Until COMMIT other transactions read the stock as it was,
//! or wait for its row. Where tickets are given, the request may have been admitted and then keeps
//! its unit until its ticket ends. If its answer was lost that moment is not known, and the unit
//! counts to the end. So does that of a request that was refused for a silent server. Its admission
//! may have had no answer in time, and its unit returns when a worker finds its ticket ended.

use loadtest_load::history::record::{NO_END, Record};

use crate::evidence::MAX_STALENESS_NS;

/// From when, and until when, units may have been taken.
#[derive(Debug, Default)]
pub(super) struct Claims {
    from: Vec<u64>,
    /// Fewer: an order keeps its unit, and so may a request that was not seen ending.
    until: Vec<u64>,
}

impl Claims {
    /// An order that was asked for at that time.
    pub(super) fn order(&mut self, asked_ns: u64) {
        self.from.push(asked_ns);
    }

    /// Adds one user's requests with unknown outcomes, `orders` of which left an order, without
    /// tickets. Which ones is not known: that those which ended first give nothing back allows for
    /// the most units at any time.
    pub(super) fn unknown<'r>(&mut self, asked: impl Iterator<Item = &'r Record>, orders: usize) {
        let mut ends = Vec::new();
        for record in asked {
            self.from.push(record.start_ns);
            ends.push(record.end_ns);
        }
        ends.sort_unstable();
        let absent = ends.into_iter().skip(orders).filter(|end_ns| *end_ns != NO_END);
        self.until.extend(absent);
    }

    /// Adds one user's requests where tickets are given, of which the end is not known.
    pub(super) fn may_have_tickets<'r>(&mut self, asked: impl Iterator<Item = &'r Record>) {
        self.from.extend(asked.map(|record| record.start_ns));
    }

    /// A request whose ticket ended without an order: the unit was kept for it until then.
    pub(super) fn given_back(&mut self, record: &Record) {
        self.from.push(record.start_ns);
        self.until.push(record.end_ns);
    }

    /// To be called once all are known.
    pub(super) fn sort(&mut self) {
        self.from.sort_unstable();
        self.until.sort_unstable();
    }

    /// How many units at most were taken for all that the replica knew that gave this answer.
    pub(super) fn taken(&self, told: &Record) -> usize {
        let began = self.from.partition_point(|from_ns| *from_ns < told.end_ns);
        let known_since = told.start_ns.saturating_sub(MAX_STALENESS_NS);
        began.saturating_sub(self.until.partition_point(|until_ns| *until_ns < known_since))
    }

    /// All orders, and all requests that may have become one.
    pub(super) fn len(&self) -> usize {
        self.from.len()
    }
}

#[cfg(test)]
mod tests {
    use loadtest_load::outcome::Outcome;

    use super::*;

    /// A shop of two units, whose events come in this order; every reading of a clock may be any
    /// time away from the event that it stands for.
    #[test]
    fn a_true_sold_out_is_never_accused_whichever_thread_is_descheduled() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut any = |most: u64| if random.bool() { 0 } else { random.u64(0..most) };
            let mut now = 10_000_000_000;
            let mut claims = Claims::default();
            let record = |start_ns: u64, end_ns: u64, outcome| Record {
                start_ns,
                end_ns,
                ..Record::that_ended(outcome)
            };
            // One unit is ordered for good; the other is kept for a ticket that ends without one.
            claims.order(now - any(3_000_000_000));
            let asked = now - any(3_000_000_000);
            now += any(2_000_000_000);
            let knew_at = now;
            // The ticket ends after that; its client learns of it later still.
            now += 1 + any(2_000_000_000);
            let ticket_ended = now + any(2_000_000_000);
            claims.given_back(&record(asked, ticket_ended, Outcome::Refused));
            claims.sort();
            // A replica decides by what it knew, at most a second ago, for a request sent before.
            let decided = knew_at + 1 + any(MAX_STALENESS_NS - 1);
            let told = record(
                decided - any(5_000_000_000),
                decided + any(5_000_000_000),
                Outcome::SoldOut,
            );
            assert_eq!(claims.taken(&told), 2, "seed {seed}: {told:?}");
        }
    }

    #[test]
    fn a_unit_that_was_given_back_a_second_before_the_request_is_not_taken() {
        let at =
            |start_ns, end_ns| Record { start_ns, end_ns, ..Record::that_ended(Outcome::SoldOut) };
        let mut claims = Claims::default();
        claims.given_back(&at(5, 10));
        claims.sort();
        assert_eq!(claims.taken(&at(10 + MAX_STALENESS_NS, u64::MAX)), 1);
        assert_eq!(claims.taken(&at(11 + MAX_STALENESS_NS, u64::MAX)), 0);
        assert_eq!(claims.taken(&at(1, 5)), 0, "the unit was asked for after that answer");
    }
}
