//! A cell: one thing that is measured, a slice of time at a time, and what slices come to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes};
use serde::Serialize;

/// What works in turn with others.
pub(crate) trait Cell: Send {
    /// Works for about so long.
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>>;

    /// How long it works before it is measured for the first time.
    fn warm_up(&self) -> Duration {
        Duration::from_secs(1)
    }
}

/// What one slice, or all of a round, came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slice {
    /// How often what is measured was done.
    pub(crate) count: f64,
    /// Over how many seconds.
    pub(crate) seconds: f64,
    /// What was used for all of that, by what it is called.
    pub(crate) used: BTreeMap<&'static str, f64>,
    /// Each of the times that were taken, in ms, by what it is called.
    pub(crate) times_ms: BTreeMap<&'static str, Vec<f64>>,
}

impl Slice {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.seconds += other.seconds;
        for (what, used) in other.used {
            *self.used.entry(what).or_default() += used;
        }
        for (what, times) in other.times_ms {
            self.times_ms.entry(what).or_default().extend(times);
        }
    }

    pub(crate) fn sample(self) -> Sample {
        let used = self.used.into_iter();
        let mut sample = Sample {
            per_s: self.count / self.seconds.max(f64::MIN_POSITIVE),
            seconds: self.seconds,
            each: used.map(|(what, used)| (what, used / self.count.max(1.0))).collect(),
            ..Sample::default()
        };
        for (what, mut times) in self.times_ms {
            times.sort_by(f64::total_cmp);
            sample.p50_ms.extend(quantile(&times, 50).map(|ms| (what, ms)));
            sample.p99_ms.extend(quantile(&times, 99).map(|ms| (what, ms)));
        }
        sample
    }
}

/// The value that `percent` % of these sorted values do not exceed.
fn quantile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// What one round of a cell came to.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Sample {
    /// How often a second.
    pub(crate) per_s: f64,
    /// Over how many seconds.
    pub(crate) seconds: f64,
    /// What was used for each.
    pub(crate) each: BTreeMap<&'static str, f64>,
    /// Half of the times that are called so were no longer.
    pub(crate) p50_ms: BTreeMap<&'static str, f64>,
    /// 99 % of them.
    pub(crate) p99_ms: BTreeMap<&'static str, f64>,
}

/// Tells tasks that their slice is over.
///
/// By a thread, since tasks that never wait for anything leave a runtime no moment for its timers.
#[derive(Clone)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn after(length: Duration) -> Self {
        let over = Self(Arc::default());
        let told = Arc::clone(&over.0);
        thread::spawn(move || {
            thread::sleep(length);
            told.store(true, Ordering::Relaxed);
        });
        over
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An error after which a cell cannot continue.
pub(crate) fn broken<E: fmt::Display>(what: &'static str) -> impl Fn(E) -> Error + Copy {
    move |error| Error::Setup(format!("{what}: {error}"))
}

/// Runs `tasks` tasks for a slice. Each returns how often it did what is measured; the use of these
/// processes is read meanwhile.
pub(crate) async fn together<F>(
    tasks: usize,
    length: Duration,
    processes: &[NamedProcess],
    task: impl Fn(usize, StopFlag) -> F,
) -> Result<Slice>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let (before, began) = (ProcessTimes::of(processes), Instant::now());
    let over = StopFlag::after(length);
    let tasks: Vec<_> = (0..tasks).map(|number| tokio::spawn(task(number, over.clone()))).collect();
    let mut count = 0;
    for task in tasks {
        let ended = task.await.map_err(broken("a task"))?;
        count += ended?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let used = ProcessTimes::of(processes).for_each(&before, 1.0);
    #[allow(clippy::cast_precision_loss)]
    let count = count as f64;
    Ok(Slice { count, seconds, used, times_ms: BTreeMap::new() })
}
