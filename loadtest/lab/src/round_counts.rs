//! What is counted of a round once all requests are known.

use loadtest_load::history::History;
use loadtest_load::history::record::has_failed;
use loadtest_load::outcome::Outcome;
use serde::{Deserialize, Serialize};

use crate::oversell_moment::DoubleSale;
use crate::round::Round;

/// What ends within this time of a fault's begin, in nanoseconds, may have held its lock before.
const ONSET_NS: u64 = 500_000_000;

/// Purchases that were made after the fault's onset and before its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurchasesDuringFault {
    /// By all replicas.
    pub all: u64,
    /// By the replica that it hit.
    pub by_victim: u64,
}

impl Round {
    /// The frozen holder's purchase and the next one's.
    pub(super) fn double_sale(&self, history: &History) -> Option<DoubleSale> {
        let victim = self.schedule.victim_name();
        let went_on_ns = self.faults.first()?.end_ns;
        DoubleSale::of(&history.records, &history.names, (&victim, went_on_ns))
    }

    /// Counts the requests before, during and after the fault, and what they came to.
    pub(super) fn count(&mut self, history: &History) {
        let (begin_ns, end_ns) =
            self.faults.first().map_or((0, 0), |fault| (fault.begin_ns, fault.end_ns));
        let victim = self.schedule.victim_name();
        let names = &history.names;
        let victim = names.replicas.iter().position(|name| *name == victim);
        for record in &history.records {
            let phase =
                usize::from(record.start_ns >= begin_ns) + usize::from(record.start_ns >= end_ns);
            self.requests[phase] += 1;
            let is_bought = record.outcome == Outcome::Bought;
            let is_after = record.end_ns >= end_ns;
            self.ok_after += u64::from(is_after && is_bought);
            self.failed_requests += u64::from(has_failed(record, names));
            if is_bought && record.end_ns >= begin_ns + ONSET_NS && !is_after {
                self.during.all += 1;
                let by_victim = record.replica.map(usize::from) == victim && victim.is_some();
                self.during.by_victim += u64::from(by_victim);
            }
        }
    }
}
