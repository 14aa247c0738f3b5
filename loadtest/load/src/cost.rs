//! The cost of the generator itself, and when it was the bottleneck.
//!
//! A generator that is busy, late or held up by its own recording measures itself. Then there is no
//! verdict on speed.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::stats::{Latency, ratio};

/// Threads that send and receive: the generator shares the machine with what it measures.
pub const THREADS: usize = 2;
/// Largest part of these threads' time that may be used.
const MAX_THREADS_BUSY: f64 = 0.8;
/// Largest part of the machine that may be used.
const MAX_MACHINE: f64 = 0.4;
/// Latest that 99 % of the arrivals may leave that found connections free, in milliseconds.
const MAX_LATENESS_MS: f64 = 5.0;
/// Largest lateness as a share of the 99th percentile of all requests, which contains it. On a busy
/// machine every request is late, and a small lateness does not explain a slow answer.
const MAX_LATENESS_SHARE: f64 = 0.1;
/// Largest part of all connections' time that may be spent waiting for the history.
const MAX_RECORDER_WAIT: f64 = 0.01;

/// What one load cost the machine that sent it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds of processor time of the whole process.
    pub cpu_s: f64,
    /// Whether another load of this process ran at the same time, whose processor time is in there.
    #[serde(default)]
    pub shared: bool,
    /// The same as a part of all processors' time, 0 to 1.
    pub machine_share: f64,
    /// Milliseconds that arrivals of an open loop left late although connections were free.
    pub lateness: Latency,
    /// Seconds that requests waited for the history, all added.
    pub recorder_wait_s: f64,
    /// Most arrivals of an open loop that waited for connections at one moment.
    pub waiting_peak: usize,
    /// Requests of an open loop that were never sent, because too many arrivals waited for
    /// connections, or one for too long.
    pub dropped: u64,
    /// Connections.
    pub connections: usize,
    /// Seconds the load took.
    pub elapsed_s: f64,
    /// Processors of the machine.
    pub cpus: usize,
}

impl Cost {
    /// Why there is no verdict on speed, in words; empty if there is one. 99 % of all requests were
    /// answered within `p99_ms`.
    pub fn bottlenecks(&self, p99_ms: f64) -> Vec<String> {
        let mut found = Vec::new();
        let cores = ratio(self.cpu_s, self.elapsed_s);
        #[allow(clippy::cast_precision_loss)]
        let threads = THREADS.min(self.cpus) as f64;
        if self.shared {
            found.push("other cells ran at the same time".to_owned());
        } else if self.machine_share > MAX_MACHINE {
            found.push(format!(
                "the generator took {:.0} % of the machine, above {:.0} %",
                self.machine_share * 100.0,
                MAX_MACHINE * 100.0
            ));
        } else if cores > MAX_THREADS_BUSY * threads {
            found.push(format!(
                "the generator kept {cores:.1} processors busy, above {:.0} % of its {threads} \
                 threads",
                MAX_THREADS_BUSY * 100.0
            ));
        }
        let late_ms = self.lateness.p99_ms;
        if late_ms > MAX_LATENESS_MS && late_ms > MAX_LATENESS_SHARE * p99_ms {
            found.push(format!(
                "1 % of the requests left more than {late_ms:.1} ms late although connections were \
                 free, above {MAX_LATENESS_MS} ms and {:.0} % of the {p99_ms:.1} ms in which 99 % \
                 were answered",
                MAX_LATENESS_SHARE * 100.0
            ));
        }
        #[allow(clippy::cast_precision_loss)]
        let waited = ratio(self.recorder_wait_s, self.elapsed_s * self.connections as f64);
        if waited > MAX_RECORDER_WAIT {
            found.push(format!(
                "requests waited for the history for {:.1} % of their connections' time, above \
                 {:.0} %",
                waited * 100.0,
                MAX_RECORDER_WAIT * 100.0
            ));
        }
        found
    }
}

/// Measures from its start to its end.
pub(super) struct CostMeter {
    cpu: Duration,
    waited: Duration,
}

impl CostMeter {
    pub(super) fn start(waited: Duration) -> Self {
        Self { cpu: processor_time(), waited }
    }

    /// What it cost; lateness and queue are for others to fill in.
    pub(super) fn stop(self, waited: Duration, elapsed: Duration, connections: usize) -> Cost {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let used = processor_time().saturating_sub(self.cpu).as_secs_f64();
        let elapsed_s = elapsed.as_secs_f64();
        #[allow(clippy::cast_precision_loss)]
        let machine_share = ratio(used, elapsed_s * cpus as f64);
        let recorder_wait_s = waited.saturating_sub(self.waited).as_secs_f64();
        Cost {
            cpu_s: used,
            machine_share,
            recorder_wait_s,
            connections,
            elapsed_s,
            cpus,
            ..Cost::default()
        }
    }
}

/// What this process has used so far, in user code and in the kernel.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    [usage.user_time(), usage.system_time()]
        .map(|time| {
            let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
            Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        })
        .iter()
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Cost {
        Cost {
            cpu_s: 1.0,
            machine_share: 0.05,
            connections: 64,
            elapsed_s: 10.0,
            cpus: 2,
            ..Cost::default()
        }
    }

    #[test]
    fn the_processor_time_of_several_cells_is_not_held_against_one() {
        let busy = Cost { cpu_s: 8.2, machine_share: 0.41, ..idle() };
        assert_ne!(busy.bottlenecks(1000.0), Vec::<String>::new());
        let shared = Cost { shared: true, ..busy }.bottlenecks(1000.0);
        assert_eq!(shared, ["other cells ran at the same time"]);
    }

    #[test]
    fn a_generator_that_had_time_to_spare_leaves_a_verdict_on_speed() {
        let lateness = Latency { p99_ms: 4.9, max_ms: 50.0, ..Latency::default() };
        let cost = Cost { lateness, recorder_wait_s: 6.0, dropped: 100, ..idle() };
        assert_eq!(cost.bottlenecks(10.0), Vec::<String>::new());
        let lateness = Latency { p99_ms: 49.0, ..Latency::default() };
        let cost = Cost { lateness, ..idle() };
        assert_eq!(cost.bottlenecks(500.0), Vec::<String>::new(), "a part of what was slow anyway");
    }

    #[test]
    fn each_way_of_being_the_bottleneck_is_named() {
        let lateness = Latency { p99_ms: 5.1, ..Latency::default() };
        for (cost, words) in [
            (Cost { cpu_s: 8.2, machine_share: 0.41, ..idle() }, "41 % of the machine"),
            (Cost { cpu_s: 16.5, machine_share: 0.1, cpus: 16, ..idle() }, "1.6 processors busy"),
            (Cost { lateness, ..idle() }, "5.1 ms late"),
            (Cost { recorder_wait_s: 6.5, ..idle() }, "waited for the history"),
        ] {
            let found = cost.bottlenecks(50.0);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(words), "{found:?}");
        }
    }

    #[test]
    fn processor_time_is_that_of_this_process() {
        let before = processor_time();
        let mut sum = 0_u64;
        while processor_time() < before + Duration::from_millis(20) {
            sum = (0..10_000).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
        }
        assert!(std::hint::black_box(sum) != 1);
    }
}
