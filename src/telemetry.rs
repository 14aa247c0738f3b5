//! Logs and metrics: the only global state of the process.

mod histogram;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tracing_subscriber::EnvFilter;

use histogram::Histograms;

/// Bucket bounds of all durations, in seconds.
const SECONDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Those of what locks take: from a hand-over inside the process to the longest lease in use.
const LOCK_SECONDS: [f64; 15] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
    30.0,
];
/// How long the parts of a purchase take.
const PART: &str = "seckill_order_part_seconds";
/// Which replica the page is of.
const REPLICA: &str = "seckill_replica_info";
/// How purchases end.
const ORDERS: &str = "seckill_orders_total";

/// Starts the log on stderr, as lines for people or as JSON. `filter` is in the form of `RUST_LOG`.
pub fn start_log(filter: &str, json: bool) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // Fails only if a log was started before, which then goes on.
    let _started_before = if json { log.json().try_init() } else { log.try_init() };
}

/// The metrics of the process.
pub struct Metrics {
    others: PrometheusHandle,
    histograms: Arc<Histograms>,
}

impl Metrics {
    /// The page that tells them, in the text format of Prometheus.
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
        // Fails only if somebody else records already; then this page stays empty.
        let _recorded_elsewhere = metrics::set_global_recorder(Recording { others, histograms });
        describe();
        metrics
    })
}

/// Where values go.
struct Recording {
    others: PrometheusRecorder,
    histograms: Arc<Histograms>,
}

impl Recorder for Recording {
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

/// What is timed of every purchase.
#[derive(Debug, Clone, Copy)]
pub enum Timed {
    /// Verifying its token.
    Token,
    /// Taking its lock.
    Lock,
    /// Waiting for a group (writer `grouped`).
    Queue,
    /// Its transaction.
    Transaction,
    /// Releasing its lock.
    Release,
    /// All of it up to its outcome, and so without the release.
    Purchase,
    /// A request, whatever it asks for.
    Request,
}

impl Timed {
    /// In the order of their declaration.
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

/// Records how long that took. To find a histogram by its name and label costs the recorder more
/// than to record, so each is looked up once.
pub fn took(timed: Timed, time: Duration) {
    static HISTOGRAMS: OnceLock<[Histogram; Timed::ALL.len()]> = OnceLock::new();
    let histograms = HISTOGRAMS.get_or_init(|| {
        metrics();
        Timed::ALL.map(Timed::histogram)
    });
    histograms[timed as usize].record(time);
}

/// Counts a purchase that has ended so. There are only so many outcomes, and to find a counter by
/// its label costs the recorder more than to count, so each is looked up once.
pub fn ended(outcome: &'static str) {
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

/// Counts a purchase that begins (1) or has ended (-1), its release included. One whose task is
/// aborted stays counted.
pub fn purchase_in_progress(change: i8) {
    static IN_PROGRESS: OnceLock<Gauge> = OnceLock::new();
    let gauge = IN_PROGRESS.get_or_init(|| {
        metrics();
        gauge!("seckill_purchases_in_progress")
    });
    gauge.increment(f64::from(change));
}

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_gauge!(
        "seckill_purchases_in_progress",
        "Purchases that were begun and have not ended"
    );
    describe_gauge!(REPLICA, "Always 1; its label is the name of the replica");
    describe_counter!(ORDERS, "Purchases by outcome");
    describe_histogram!(
        "seckill_order_seconds",
        Unit::Seconds,
        "Time of a purchase up to its outcome"
    );
    describe_histogram!(PART, Unit::Seconds, "Time of each part of a purchase");
    describe_counter!("seckill_groups_total", "Groups of orders that were begun");
    describe_counter!("seckill_group_setbacks_total", "Tries of groups that failed, by cause");
    describe_counter!("seckill_settlements_total", "Orders paid and cancelled, by outcome");
    describe_counter!("seckill_orders_timed_out_total", "Orders that were not paid in time");
    describe_counter!("seckill_http_requests_total", "Requests by route, method and status");
    describe_histogram!("seckill_http_request_seconds", Unit::Seconds, "Time of a request");
    describe_locks();
}

/// What the lock library records, per kind.
fn describe_locks() {
    use metrics::{describe_counter, describe_histogram};
    let counters = [
        ("distlock_attempts_total", "Times that a lock's server was asked for it"),
        ("distlock_acquired_total", "Locks that were taken"),
        ("distlock_busy_total", "Times that somebody else held the lock"),
        ("distlock_timed_out_total", "Waits that ended without the lock"),
        ("distlock_failed_total", "Times that a lock's server failed"),
        ("distlock_lost_total", "Locks that were lost before they were released"),
        (
            "distlock_given_up_total",
            "Releases and abandoned attempts that were dropped because too many were under way",
        ),
    ];
    for (name, what) in counters {
        describe_counter!(name, what);
    }
    let histograms = [
        ("distlock_wait_seconds", "Time until a lock was taken, or until the wait was over"),
        ("distlock_hold_seconds", "Time for which a lock was held"),
        (
            "distlock_hand_off_seconds",
            "From the news that a lock is free, which may bring the lock itself, to its being held \
             by somebody who had to wait",
        ),
        ("distlock_renewal_late_seconds", "How late renewals began"),
    ];
    for (name, what) in histograms {
        describe_histogram!(name, Unit::Seconds, what);
    }
}
