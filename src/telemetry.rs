//! Logs, metrics and traces: the only global state of the process.

mod descriptions;
mod histogram;
mod log;
pub mod traces;

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use histogram::Histograms;
pub use log::{parse_log_filter, start_log};

/// Bucket bounds of most durations, in seconds.
const SECONDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Bucket bounds of locks, from a hand-off inside the process to the longest usual lease.
const LOCK_SECONDS: [f64; 15] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    30.0,
];
/// The histogram of the parts of a purchase.
const PART: &str = "seckill_order_part_seconds";
/// The gauge whose label names the replica.
const REPLICA: &str = "seckill_replica_info";
/// The counter of purchases by outcome.
const ORDERS: &str = "seckill_orders_total";

/// The metrics of the process.
pub struct Metrics {
    others: PrometheusHandle,
    histograms: Arc<Histograms>,
}

impl Metrics {
    /// All metrics in the text format of Prometheus.
    pub fn page(&self) -> String {
        let mut page = self.others.render();
        self.histograms.write(&mut page);
        page
    }
}

/// The metrics of the process; the first call starts them.
pub fn metrics() -> &'static Metrics {
    static METRICS: OnceLock<Metrics> = OnceLock::new();
    METRICS.get_or_init(|| {
        let others = PrometheusBuilder::new().build_recorder();
        let histograms = Arc::<Histograms>::default();
        let metrics = Metrics { others: others.handle(), histograms: Arc::clone(&histograms) };
        // Fails only if another recorder is installed; then this page stays empty.
        let _recorded_elsewhere =
            metrics::set_global_recorder(MetricsRecorder { others, histograms });
        descriptions::describe();
        metrics
    })
}

/// Records histograms in this crate's own buckets, and all else in the exporter's.
struct MetricsRecorder {
    others: PrometheusRecorder,
    histograms: Arc<Histograms>,
}

impl Recorder for MetricsRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.others.describe_counter(name, unit, help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.others.describe_gauge(name, unit, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.histograms.describe(name.as_str(), help);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.others.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.others.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let is_lock = key.name().starts_with("distlock_") || key.name() == PART;
        self.histograms.of(key, if is_lock { &LOCK_SECONDS } else { &SECONDS })
    }
}

/// Puts the replica's name on the page: behind a proxy nothing else says whose page it is.
pub fn name_replica(name: &str) {
    gauge!(REPLICA, "replica" => name.to_owned()).set(1.0);
}

/// The durations that are recorded of purchases and requests.
#[derive(Debug, Clone, Copy)]
pub enum DurationMetric {
    /// Verifying its token.
    Token,
    /// Taking its lock.
    Lock,
    /// Waiting for a batch (`--writer grouped`).
    Queue,
    /// Its transaction.
    Transaction,
    /// Releasing its lock.
    Release,
    /// The purchase up to its outcome, without the release.
    Purchase,
    /// Any request.
    Request,
}

impl DurationMetric {
    /// All of them, in the order of their declaration.
    const ALL: [Self; 7] = [
        Self::Token,
        Self::Lock,
        Self::Queue,
        Self::Transaction,
        Self::Release,
        Self::Purchase,
        Self::Request,
    ];

    fn histogram(self) -> Histogram {
        let part = match self {
            Self::Token => "token",
            Self::Lock => "lock",
            Self::Queue => "queue",
            Self::Transaction => "transaction",
            Self::Release => "release",
            Self::Purchase => return histogram!("seckill_order_seconds"),
            Self::Request => return histogram!("seckill_http_request_seconds"),
        };
        histogram!(PART, "part" => part)
    }
}

/// Records a duration. Each histogram is looked up once: a look-up by name and label costs more
/// than recording.
pub fn record_duration(metric: DurationMetric, time: Duration) {
    static HISTOGRAMS: OnceLock<[Histogram; DurationMetric::ALL.len()]> = OnceLock::new();
    let histograms = HISTOGRAMS.get_or_init(|| {
        metrics();
        DurationMetric::ALL.map(DurationMetric::histogram)
    });
    histograms[metric as usize].record(time);
}

/// Counts a purchase by its outcome. Each counter is looked up once: a look-up by label costs more
/// than counting.
pub fn count_purchase(outcome: &'static str) {
    static KNOWN: RwLock<Vec<(&str, Counter)>> = RwLock::new(Vec::new());
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, counter)) = known.iter().find(|(name, _)| *name == outcome) {
        return counter.increment(1);
    }
    drop(known);
    metrics();
    let counter = counter!(ORDERS, "outcome" => outcome);
    counter.increment(1);
    KNOWN.write().unwrap_or_else(PoisonError::into_inner).push((outcome, counter));
}

/// Changes the number of purchases in progress: 1 at the begin, -1 after the release. A purchase
/// whose task is aborted stays counted.
pub fn purchase_in_progress(change: i8) {
    static IN_PROGRESS: OnceLock<Gauge> = OnceLock::new();
    let gauge = IN_PROGRESS.get_or_init(|| {
        metrics();
        gauge!("seckill_purchases_in_progress")
    });
    gauge.increment(f64::from(change));
}

/// Counts a login that failed.
pub fn login_failed(reason: &'static str) {
    counter!("seckill_logins_failed_total", "reason" => reason).increment(1);
}

/// Counts a request that was answered 401 or 403.
pub fn request_denied(reason: &'static str) {
    counter!("seckill_requests_denied_total", "reason" => reason).increment(1);
}
