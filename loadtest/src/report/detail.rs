//! What a report shows of one cell besides its figures: the course of the load, the work of each
//! replica, the moment at which the stock was exceeded, the locks. Where a round has several loads
//! one after another, all of them are in it, while rates and latencies are those of the main load.
//!
//! All of it is bounded, whatever the length of the load, so that a report of many cells stays a
//! file that can be sent around.

use serde::{Deserialize, Serialize};

use crate::judge::evidence::{Names, Record};
use crate::lab::metrics::LockMetrics;
use crate::load::outcome::Outcome;
use crate::report::crossing::{Crossing, Thaw};
use crate::report::series::Series;

/// What a report shows of one cell besides its figures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Detail {
    /// Answers over time.
    pub series: Series,
    /// What each replica did, by its name.
    pub replicas: Vec<Work>,
    /// The moment at which more was sold than there was, if it came.
    pub crossing: Option<Crossing>,
    /// Who sold one unit twice, if a frozen holder and the next one did.
    pub thaw: Option<Thaw>,
    /// What the locks did, if a replica told.
    pub locks: Option<LockMetrics>,
}

/// What one replica did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Its name.
    pub replica: String,
    /// Requests that it answered.
    pub answers: u64,
    /// Orders that it acknowledged.
    pub orders: u64,
}

impl Detail {
    /// Gathers everything from a load on so many units; only its replicas know of the locks.
    pub fn of(records: &[Record], names: &Names, units: u64) -> Self {
        Self {
            series: Series::of(records),
            replicas: work(records, &names.replicas),
            crossing: Crossing::of(records, names, units),
            thaw: None,
            locks: None,
        }
    }
}

fn work(records: &[Record], names: &[String]) -> Vec<Work> {
    let start = |name: &String| Work { replica: name.clone(), answers: 0, orders: 0 };
    let mut all: Vec<Work> = names.iter().map(start).collect();
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
