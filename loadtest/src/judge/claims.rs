//! How many units may have been taken at a moment, so that a "sold out" can have been true.
//!
//! An order has its unit from when it was asked for. A request that left no order, as the final
//! read shows, may have kept one from others only while it was at work. Of this service that can
//! be no longer than its client waits: until the COMMIT others read the stock as it was, or wait
//! for its row. Where tickets are given, a unit is kept for one until it has ended.
//! [`AFTERMATH_NS`] is what any service is allowed beyond.

use crate::judge::evidence::{NO_END, Record};

/// How long after its client's end a request that left no order may have kept a unit from others.
const AFTERMATH_NS: u64 = 1_000_000_000;

/// From when, and until when, units may have been taken.
#[derive(Debug, Default)]
pub(super) struct Claims {
    from: Vec<u64>,
    /// Fewer: an order keeps its unit, and who was not seen ending may have one for ever.
    until: Vec<u64>,
}

impl Claims {
    /// An order that was asked for at that time.
    pub(super) fn order(&mut self, asked_ns: u64) {
        self.from.push(asked_ns);
    }

    /// A user's requests with unknown outcomes, so many of which left an order. Which ones is not
    /// known: that those which ended first give nothing back allows for the most at any time.
    pub(super) fn unknown<'r>(&mut self, asked: impl Iterator<Item = &'r Record>, orders: usize) {
        let mut ends = Vec::new();
        for record in asked {
            self.from.push(record.start_ns);
            ends.push(record.end_ns);
        }
        ends.sort_unstable();
        let absent = ends.into_iter().skip(orders).filter(|end_ns| *end_ns != NO_END);
        self.until.extend(absent.map(|end_ns| end_ns.saturating_add(AFTERMATH_NS)));
    }

    /// A request whose ticket ended without an order: the unit was kept for it until then.
    pub(super) fn given_back(&mut self, record: &Record) {
        self.from.push(record.start_ns);
        self.until.push(record.end_ns.saturating_add(AFTERMATH_NS));
    }

    /// To be called once all are known.
    pub(super) fn sort(&mut self) {
        self.from.sort_unstable();
        self.until.sort_unstable();
    }

    /// How many at most had a unit just before that time.
    pub(super) fn before(&self, ns: u64) -> usize {
        let began = self.from.partition_point(|from_ns| *from_ns < ns);
        began.saturating_sub(self.until.partition_point(|until_ns| *until_ns < ns))
    }

    /// All orders, and all requests that may have become one.
    pub(super) fn len(&self) -> usize {
        self.from.len()
    }
}
