//! Time on a busy machine.

use std::fs;
use std::time::{Duration, Instant};

/// The kernel's account of tasks that wait for a processor (Linux 4.20).
const PRESSURE: &str = "/proc/pressure/cpu";

/// Stands still while a task of this machine waits for a processor. So it does not blame a server
/// for what another program took. Where the kernel keeps no account of it, it never stands still.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    waited: Duration,
    began: Instant,
}

impl Stopwatch {
    /// Begins to measure.
    #[must_use]
    pub fn start() -> Self {
        // A pause between the two is taken off the measured time, and not added to it.
        Self { waited: waited(), began: Instant::now() }
    }

    /// The time since the start in which every task that could run did.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let elapsed = self.began.elapsed();
        elapsed.saturating_sub(waited().saturating_sub(self.waited))
    }
}

/// For how long, since the start of the machine, some task waited.
fn waited() -> Duration {
    let account = fs::read_to_string(PRESSURE).unwrap_or_default();
    let total = account.lines().find_map(|line| line.strip_prefix("some ")?.split("total=").nth(1));
    Duration::from_micros(total.and_then(|total| total.trim().parse().ok()).unwrap_or(0))
}
