//! What the orders of a race cost its replicas.

use loadtest_lab::deployment::Deployment;
use loadtest_measure::processes::{NamedProcess, ProcessTimes};

/// The name under which the times of all replicas are added.
const REPLICAS: &str = "replicas";

/// The processor time of a lane's replicas so far.
#[derive(Debug)]
pub(crate) struct ReplicaTimes {
    processes: Vec<NamedProcess>,
    times: ProcessTimes,
}

impl ReplicaTimes {
    /// `None` if a replica does not run.
    pub(crate) fn of(deployment: &Deployment) -> Option<Self> {
        let replicas = deployment.replicas().iter();
        let pids: Option<_> = replicas.map(|it| it.is_running().then(|| it.pid())).collect();
        pids.map(Self::of_processes)
    }

    fn of_processes(pids: Vec<u32>) -> Self {
        let processes: Vec<_> = pids.into_iter().map(|pid| (REPLICAS, pid)).collect();
        let times = ProcessTimes::of(&processes);
        Self { processes, times }
    }

    /// Milliseconds for each of these orders since `earlier`; `None` if there is no order, or if a
    /// replica was started anew.
    pub(crate) fn per_order_ms(&self, earlier: &Self, orders: u64) -> Option<f64> {
        if orders == 0 || self.processes != earlier.processes {
            return None;
        }
        let orders = f64::from(u32::try_from(orders).ok()?);
        self.times.for_each(&earlier.times, orders).get(REPLICAS).map(|micros| micros / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_time_of_an_order_is_known_if_no_replica_was_started_anew() {
        let times = || ReplicaTimes::of_processes(vec![std::process::id()]);
        let earlier = times();
        let begun = Instant::now();
        while times().per_order_ms(&earlier, 10).is_none_or(|ms| ms < 1.0) {
            assert!(begun.elapsed() < Duration::from_secs(20), "this loop costs time");
        }
        assert_eq!(times().per_order_ms(&earlier, 0), None);
        let other = ReplicaTimes::of_processes(vec![1]);
        assert_eq!(times().per_order_ms(&other, 10), None);
    }
}
