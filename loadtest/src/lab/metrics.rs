//! What the locks of a cell did, as its replicas measured it.
//!
//! Each replica is asked for its `/metrics` once, after the load and before it ends. Only what
//! `distlock_*` says of the cell's own kind of lock is read; counters and buckets of all replicas
//! are added. A histogram of buckets tells no exact percentile: what is given is the bound of the
//! bucket that holds it. A replica that does not answer within `DEADLINE` is left out, and the
//! number of those that answered is part of the result. A replica that a fault killed or restarted
//! counts from its new start on: what the process before it had counted is gone, and how many
//! replicas that concerns is part of the result as well.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api;
use crate::load::client::{Connection, Target};

/// How long one replica may take to tell.
const DEADLINE: Duration = Duration::from_secs(2);
/// The gauge of purchases that were begun and have not ended.
const PURCHASES_IN_PROGRESS: &str = "seckill_purchases_in_progress ";

/// What the locks of all replicas did together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LockMetrics {
    /// Replicas that told.
    pub replicas: usize,
    /// Those of the cell that are other processes than when its load began, whose counts of the
    /// time before are gone.
    pub started_anew: usize,
    /// Times that a lock's server was asked.
    pub attempts: u64,
    /// Locks that were taken.
    pub acquired: u64,
    /// Times that somebody else held it.
    pub busy: u64,
    /// Waits that ended without the lock.
    pub timed_out: u64,
    /// Times that a lock's server failed.
    pub failed: u64,
    /// Locks that were lost before they were released.
    pub lost: u64,
    /// Time until a lock was taken, or until the wait was over.
    pub wait: Spread,
    /// Time for which locks were held.
    pub hold: Spread,
    /// From the signal that a lock is free to its being taken.
    pub hand_off: Spread,
}

/// A histogram in a few figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
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
        api::metrics(&mut Connection::new(target, DEADLINE)).await.ok()
    });
    let pages = futures_util::future::join_all(asked).await;
    let pages: Vec<String> = pages.into_iter().flatten().collect();
    (!pages.is_empty()).then(|| LockMetrics::of(&pages, kind))
}

/// Purchases that these replicas have begun and not ended; `None` if one of them does not tell.
pub async fn purchases_in_progress(replicas: &[SocketAddr]) -> Option<u64> {
    let mut all = 0.0;
    for address in replicas {
        let target = Target::parse(&format!("http://{address}")).ok()?;
        let page = api::metrics(&mut Connection::new(target, DEADLINE)).await.ok()?;
        // A replica that has had no purchase does not name it.
        let line = page.lines().find_map(|line| line.strip_prefix(PURCHASES_IN_PROGRESS));
        all += line.map_or(Some(0.0), |value| value.trim().parse::<f64>().ok())?;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    Some(all.max(0.0) as u64)
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
            acquired: counter("distlock_acquired_total"),
            busy: counter("distlock_busy_total"),
            timed_out: counter("distlock_timed_out_total"),
            failed: counter("distlock_failed_total"),
            lost: counter("distlock_lost_total"),
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

fn spread(sums: &BTreeMap<(&str, &str), f64>, name: &str) -> Spread {
    let single = |end: &str| {
        let wanted = format!("{name}{end}");
        sums.iter().find(|((name, _), _)| *name == wanted).map_or(0.0, |(_, value)| *value)
    };
    let (count, sum) = (single("_count"), single("_sum"));
    if count <= 0.0 {
        return Spread::default();
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
    Spread {
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
# TYPE distlock_acquired_total counter
distlock_acquired_total{kind="redisson"} 90
distlock_acquired_total{kind="local"} 7
distlock_lost_total{kind="redisson"} 1
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
        assert_eq!(LockMetrics::of(&[PAGE.to_owned()], "redisson").hold, Spread::default());
    }

    #[tokio::test]
    async fn replicas_that_are_gone_tell_nothing() {
        let gone: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        assert_eq!(read(&[gone], "redisson").await, None);
    }
}
