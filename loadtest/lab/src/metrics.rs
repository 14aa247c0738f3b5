//! What the locks of a cell did, as its replicas measured it.
//!
//! Each replica is asked for its `/metrics` once, after the load and before it ends. Only the
//! `distlock_*` metrics of the cell's own lock kind are read; counters and buckets of all replicas
//! are added. A histogram has no exact percentile: the bound of the bucket that holds it is given.
//! A replica that does not answer within `READ_TIMEOUT` is left out; the number of those that
//! answered is in the result. The counters of a replica that a fault restarted begin at its new
//! start. The number of such replicas is in the result too.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use loadtest_load::api;
use loadtest_load::client::{Connection, Target};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// How long one replica may take to answer.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two readings of purchases in progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The gauge of purchases that were begun and have not ended.
const PURCHASES_IN_PROGRESS: &str = "seckill_purchases_in_progress ";
/// The counters of purchases that a server failed, or whose COMMIT is not known to have succeeded.
const FAILED_PURCHASES: [&str; 2] = [
    "seckill_orders_total{outcome=\"dependency_unavailable\"} ",
    "seckill_orders_total{outcome=\"unknown\"} ",
];

/// What the locks of all replicas did together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LockMetrics {
    /// Replicas that answered.
    pub replicas: usize,
    /// Those of the cell that are other processes than when its load began, whose counts of the
    /// time before are gone.
    pub started_anew: usize,
    /// Times that a lock's server was asked.
    pub attempts: u64,
    /// Locks that were taken.
    pub acquired: u64,
    /// Attempts that found the lock held.
    pub busy: u64,
    /// Waits that ended without the lock.
    pub timed_out: u64,
    /// Times that a lock's server failed.
    pub failed: u64,
    /// Locks that were lost before they were released.
    pub lost: u64,
    /// Time until a lock was taken, or until the wait was over.
    pub wait: HistogramSummary,
    /// Time for which locks were held.
    pub hold: HistogramSummary,
    /// From the signal that a lock is free to its being taken.
    pub hand_off: HistogramSummary,
}

/// A histogram in a few figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// How many were measured.
    pub count: u64,
    /// Their mean, in milliseconds.
    pub mean_ms: f64,
    /// Half were at most this long; `None` if the bucket has no bound, or nothing was measured.
    pub p50_at_most_ms: Option<f64>,
    /// 99 % were at most this long.
    pub p99_at_most_ms: Option<f64>,
}

/// Asks these replicas what their locks of this kind did; `None` if none of them answered.
pub async fn read(replicas: &[SocketAddr], kind: &str) -> Option<LockMetrics> {
    let asked = replicas.iter().map(|address| async move {
        let target = Target::parse(&format!("http://{address}")).ok()?;
        api::metrics(&mut Connection::new(target, READ_TIMEOUT)).await.ok()
    });
    let pages = futures_util::future::join_all(asked).await;
    let pages: Vec<String> = pages.into_iter().flatten().collect();
    (!pages.is_empty()).then(|| LockMetrics::of(&pages, kind))
}

/// Purchases that a server has failed, by all these replicas; `None` if one of them does not tell.
pub async fn purchases_failed(replicas: &[SocketAddr]) -> Option<u64> {
    sum(replicas, &FAILED_PURCHASES).await
}

/// Purchases that were begun and have not ended, at all these replicas; `None` as above.
pub async fn purchases_in_progress(replicas: &[SocketAddr]) -> Option<u64> {
    sum(replicas, &[PURCHASES_IN_PROGRESS]).await
}

/// Adds up the lines that begin so; `None` if a replica does not answer.
async fn sum(replicas: &[SocketAddr], lines: &[&str]) -> Option<u64> {
    let mut all = 0.0;
    for address in replicas {
        let target = Target::parse(&format!("http://{address}")).ok()?;
        let page = api::metrics(&mut Connection::new(target, READ_TIMEOUT)).await.ok()?;
        // What has not happened yet has no line.
        let value = |line: &&str| page.lines().find_map(|one| one.strip_prefix(line));
        for value in lines.iter().filter_map(value) {
            all += value.trim().parse::<f64>().ok()?;
        }
    }
    Some(whole(all))
}

/// How many begun purchases have not ended within `timeout`: the last answer of those replicas, and
/// `None` if a replica has told nothing at all.
///
/// The last reading begins after the deadline, so that a late one sees what has ended meanwhile.
pub async fn purchases_left(replicas: &[SocketAddr], timeout: Duration) -> Option<u64> {
    let deadline = Instant::now() + timeout;
    let mut last = None;
    loop {
        let is_last = Instant::now() >= deadline;
        last = purchases_in_progress(replicas).await.or(last);
        if is_last || last == Some(0) {
            return last;
        }
        sleep(POLL_INTERVAL).await;
    }
}

impl LockMetrics {
    /// Adds up what these pages, in the text format of Prometheus, say of one kind of lock.
    pub fn of(pages: &[String], kind: &str) -> Self {
        let mut sums = BTreeMap::<(&str, &str), f64>::new();
        for line in pages.iter().flat_map(|page| page.lines()) {
            if let Some((name, bound, value)) = sample(line, kind) {
                *sums.entry((name, bound)).or_default() += value;
            }
        }
        let counter = |name| whole(sums.get(&(name, "")).copied().unwrap_or(0.0));
        Self {
            replicas: pages.len(),
            started_anew: 0,
            attempts: counter("distlock_attempts_total"),
            acquired: counter("distlock_acquisitions_total"),
            busy: counter("distlock_contended_attempts_total"),
            timed_out: counter("distlock_timeouts_total"),
            failed: counter("distlock_errors_total"),
            lost: counter("distlock_losses_total"),
            wait: spread(&sums, "distlock_wait_seconds"),
            hold: spread(&sums, "distlock_hold_seconds"),
            hand_off: spread(&sums, "distlock_hand_off_seconds"),
        }
    }
}

/// Name, bound of the bucket (empty unless it is one) and value of a line on this kind.
fn sample<'a>(line: &'a str, kind: &str) -> Option<(&'a str, &'a str, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once('}')?;
    let label = |wanted: &str| {
        let pair = labels.split(',').filter_map(|pair| pair.split_once('='));
        let mut values = pair.filter(|(name, _)| *name == wanted).map(|(_, value)| value);
        values.next().map(|value| value.trim_matches('"'))
    };
    let is_meant = name.starts_with("distlock_") && label("kind") == Some(kind);
    is_meant.then_some(())?;
    Some((name, label("le").unwrap_or_default(), value.trim().parse().ok()?))
}

fn spread(sums: &BTreeMap<(&str, &str), f64>, name: &str) -> HistogramSummary {
    let single = |end: &str| {
        let wanted = format!("{name}{end}");
        sums.iter().find(|((name, _), _)| *name == wanted).map_or(0.0, |(_, value)| *value)
    };
    let (count, sum) = (single("_count"), single("_sum"));
    if count <= 0.0 {
        return HistogramSummary::default();
    }
    let bucket = format!("{name}_bucket");
    let of_it = sums.iter().filter(|((name, _), _)| *name == bucket);
    let mut bounds: Vec<(f64, f64)> =
        of_it.filter_map(|((_, bound), upto)| Some((bound.parse().ok()?, *upto))).collect();
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at_most_ms = |part: f64| {
        let holds_it = bounds.iter().find(|(_, upto)| *upto >= part * count);
        holds_it.map(|(bound, _)| bound * 1000.0).filter(|bound| bound.is_finite())
    };
    HistogramSummary {
        count: whole(count),
        mean_ms: sum / count * 1000.0,
        p50_at_most_ms: at_most_ms(0.5),
        p99_at_most_ms: at_most_ms(0.99),
    }
}

/// A counter's value, which a page writes as a number with or without a fraction.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# TYPE distlock_acquisitions_total counter
distlock_acquisitions_total{kind="redisson"} 90
distlock_acquisitions_total{kind="local"} 7
distlock_losses_total{kind="redisson"} 1
distlock_wait_seconds_bucket{kind="redisson",le="0.01"} 50
distlock_wait_seconds_bucket{kind="redisson",le="0.1"} 98
distlock_wait_seconds_bucket{kind="redisson",le="+Inf"} 100
distlock_wait_seconds_sum{kind="redisson"} 2.5
distlock_wait_seconds_count{kind="redisson"} 100
seckill_orders_total{kind="redisson"} 5
"#;

    #[test]
    fn counters_of_all_replicas_are_added_and_other_kinds_left_out() {
        let metrics = LockMetrics::of(&[PAGE.to_owned(), PAGE.to_owned()], "redisson");
        assert_eq!((metrics.replicas, metrics.acquired, metrics.lost), (2, 180, 2));
        assert_eq!(LockMetrics::of(&[PAGE.to_owned()], "fair").acquired, 0);
    }

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket_and_unknown_beyond_the_last() {
        let wait = LockMetrics::of(&[PAGE.to_owned()], "redisson").wait;
        assert_eq!(wait.count, 100);
        assert!((wait.mean_ms - 25.0).abs() < 1e-9, "{wait:?}");
        assert_eq!(wait.p50_at_most_ms, Some(10.0));
        assert_eq!(wait.p99_at_most_ms, None, "it lies in the bucket without a bound");
        assert_eq!(
            LockMetrics::of(&[PAGE.to_owned()], "redisson").hold,
            HistogramSummary::default()
        );
    }

    #[tokio::test]
    async fn replicas_that_have_ended_have_no_metrics() {
        let gone: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(read(&[gone], "redisson").await, None);
    }
}
