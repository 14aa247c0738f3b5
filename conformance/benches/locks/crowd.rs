//! A crowd that waits for one lock: what a hand-off costs then.
//!
//! All of them wait all the time, half of them as if in another process; between slices one task
//! holds the lock.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use conformance::{Servers, fresh_name};
use distlock::{BoxFuture, Lease, LockError, LockKind, LockName, LockOptions, Locks};
use loadtest_measure::error::{Error, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::cell::{Cell, Slice, broken};
use crate::rows::Figure;

/// Microseconds of processor time of clients and Redis for each.
pub(crate) const COST: Figure = Figure::Each(COST_US);
/// Microseconds for each.
pub(crate) const TIME: Figure = Figure::Each(TIME_US);
const COST_US: &str = "us of clients and redis";
const TIME_US: &str = "us of time";

/// Longer than any run.
const WAIT: Duration = Duration::from_hours(10);

/// Tasks that all want one lock.
pub(crate) struct Waiters {
    /// Whether the holder releases the lock.
    open: watch::Sender<bool>,
    entered: Arc<AtomicU64>,
    tasks: JoinSet<LockError>,
    processes: [u32; 2],
}

impl Waiters {
    /// Starts `count` waiters.
    pub(crate) async fn start(servers: &Servers, count: usize) -> Result<Self> {
        let name = LockName::new(fresh_name()).map_err(broken("a name"))?;
        let (open, gate) = watch::channel(false);
        let (entered, mut tasks) = (Arc::<AtomicU64>::default(), JoinSet::new());
        for _ in 0..2 {
            let locks = servers.locks(LockKind::Redisson).await;
            for _ in 0..count.div_ceil(2) {
                let (locks, name) = (locks.clone(), name.clone());
                tasks.spawn(enter(locks, name, gate.clone(), Arc::clone(&entered)));
            }
        }
        let processes = [std::process::id(), servers.redis().pid()];
        Ok(Self { open, entered, tasks, processes })
    }
}

/// Again and again, until that fails.
async fn enter(
    locks: Locks,
    name: LockName,
    mut gate: watch::Receiver<bool>,
    entered: Arc<AtomicU64>,
) -> LockError {
    let options = LockOptions::new(WAIT, Lease::Renewed(LockOptions::WATCHDOG_LEASE));
    loop {
        let guard = match locks.lock(&name, &options).await {
            Ok(guard) => guard,
            Err(error) => return error,
        };
        // The other end has ended when this task is about to end.
        let _gone = gate.wait_for(|open| *open).await.is_err();
        entered.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = guard.release().await {
            return error;
        }
    }
}

impl Cell for Waiters {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let used = ResourceUse::from_now(&self.processes);
            let before = self.entered.load(Ordering::Relaxed);
            self.open.send_replace(true);
            sleep(length).await;
            self.open.send_replace(false);
            let entered = self.entered.load(Ordering::Relaxed) - before;
            if let Some(ended) = self.tasks.try_join_next() {
                return Err(Error::Setup(format!("a waiter ended: {ended:?}")));
            }
            Ok(used.slice(entered))
        })
    }
}

/// What processes use from a moment on.
pub(crate) struct ResourceUse<'a> {
    pids: &'a [u32],
    before: f64,
    since: Instant,
}

impl<'a> ResourceUse<'a> {
    pub(crate) fn from_now(pids: &'a [u32]) -> Self {
        Self { pids, before: processor_us(pids), since: Instant::now() }
    }

    /// For as many as were done meanwhile.
    pub(crate) fn slice(self, count: u64) -> Slice {
        let seconds = self.since.elapsed().as_secs_f64();
        let cost = processor_us(self.pids) - self.before;
        let used = BTreeMap::from([(COST_US, cost), (TIME_US, seconds * 1e6)]);
        #[allow(clippy::cast_precision_loss)]
        let count = count as f64;
        Slice { count, seconds, used, times_ms: BTreeMap::new() }
    }
}

/// Of all their threads. The kernel's usual figures are in hundredths of a second, which is too
/// coarse for what a thousand renewals cost.
fn processor_us(pids: &[u32]) -> f64 {
    let threads = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let used = threads.flatten().flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    used.sum::<f64>() / 1000.0
}
