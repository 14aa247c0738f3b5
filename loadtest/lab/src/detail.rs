//! What a report shows of one cell besides its figures: answers over time, the work of each
//! replica, the moment at which the stock was exceeded, the locks. Where a round has several loads
//! in turn all of them are in it, while rates and latencies are those of the main load.
//!
//! Its size is bounded, whatever the length of the load, so that a report of many cells stays
//! small.

use loadtest_load::history::record::{Names, Record};
use loadtest_load::outcome::Outcome;
use serde::{Deserialize, Serialize};

use crate::metrics::LockMetrics;
use crate::oversell_moment::{DoubleSale, OversellMoment};
use crate::series::Series;

/// What a report shows of one cell besides its figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Detail {
    /// Answers over time.
    pub series: Series,
    /// What each replica did, by its name.
    pub replicas: Vec<ReplicaWork>,
    /// The moment at which more was sold than there was, if it came.
    #[serde(alias = "crossing")]
    pub oversell_moment: Option<OversellMoment>,
    /// The two requests that sold one unit, if a frozen holder and the next one did.
    #[serde(alias = "thaw")]
    pub double_sale: Option<DoubleSale>,
    /// What the locks did, if a replica reported it.
    pub locks: Option<LockMetrics>,
}

/// What one replica did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaWork {
    /// Its name.
    pub replica: String,
    /// Requests that it answered.
    pub answers: u64,
    /// Orders that it acknowledged.
    pub orders: u64,
}

impl Detail {
    /// Gathers everything from the requests of a load on `units` units; only replicas know the
    /// locks.
    pub fn of(records: &[Record], names: &Names, units: u64) -> Self {
        Self {
            series: Series::of(records),
            replicas: work(records, &names.replicas),
            oversell_moment: OversellMoment::of(records, names, units),
            double_sale: None,
            locks: None,
        }
    }
}

fn work(records: &[Record], names: &[String]) -> Vec<ReplicaWork> {
    let start = |name: &String| ReplicaWork { replica: name.clone(), answers: 0, orders: 0 };
    let mut all: Vec<ReplicaWork> = names.iter().map(start).collect();
    for record in records {
        let Some(index) = record.replica else { continue };
        if let Some(work) = all.get_mut(usize::from(index)) {
            work.answers += 1;
            work.orders += u64::from(record.outcome == Outcome::Bought);
        }
    }
    all.sort_by(|a, b| a.replica.cmp(&b.replica));
    all
}
