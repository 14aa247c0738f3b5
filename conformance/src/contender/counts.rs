//! Learns when a lock was asked for and busy, by listening to the library's metrics.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use conformance::clock::now_ns;
use conformance::protocol::{Failure, Response};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, set_global_recorder,
};

use super::failure;

tokio::task_local! {
    /// When the acquisition of this task found the lock busy: the first time and the
    /// second; 0 if it was not.
    static BUSY_NS: Cell<(u64, u64)>;
}

/// The outcome of an acquisition, and when it found the lock busy: the first time and
/// the second.
pub(crate) async fn when_busy<T>(acquisition: impl Future<Output = T>) -> (T, (u64, u64)) {
    let both = async {
        let outcome = acquisition.await;
        (outcome, BUSY_NS.with(Cell::get))
    };
    BUSY_NS.scope(Cell::new((0, 0)), both).await
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    attempts: Arc<AtomicU64>,
    busy: Arc<BusyCounter>,
    hand_offs: Arc<HandOffCounter>,
}

/// Counts what is recorded.
#[derive(Debug, Default)]
struct HandOffCounter(AtomicU64);

impl HistogramFn for HandOffCounter {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts, and notes the time for the task in which it counts.
#[derive(Debug, Default)]
struct BusyCounter(AtomicU64);

impl CounterFn for BusyCounter {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
        // Outside of a contest no task has asked for the time.
        let _nobody = BUSY_NS.try_with(|busy_ns| match busy_ns.get() {
            (0, _) => busy_ns.set((now_ns(), 0)),
            (first_ns, 0) => busy_ns.set((first_ns, now_ns())),
            _ => {}
        });
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) fn install() -> Result<Self, Failure> {
        let counts = Self::default();
        set_global_recorder(counts.clone()).map_err(|error| failure("metrics", &error))?;
        Ok(counts)
    }

    pub(crate) fn say(&self) -> Response {
        Response::Counted {
            attempts: self.attempts.load(Ordering::Relaxed),
            busy: self.busy.0.load(Ordering::Relaxed),
            hand_offs: self.hand_offs.0.load(Ordering::Relaxed),
        }
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "distlock_attempts_total" => Counter::from_arc(Arc::clone(&self.attempts)),
            "distlock_contended_attempts_total" => Counter::from_arc(Arc::clone(&self.busy)),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "distlock_hand_off_seconds" => Histogram::from_arc(Arc::clone(&self.hand_offs)),
            _ => Histogram::noop(),
        }
    }
}
