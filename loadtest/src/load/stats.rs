//! Figures of a load, from its records: counts, latencies, rates, and how real the load was.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::judge::evidence::Record;
use crate::load::drive::History;
use crate::load::outcome::Outcome;

/// Longest latency told apart, in microseconds: longer than any time-out.
const MAX_LATENCY_US: u64 = 600_000_000;

/// Latencies in milliseconds, from the hand-over of a request to the end of its answer.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Half were at most this long.
    pub p50_ms: f64,
    /// 90 % were at most this long.
    pub p90_ms: f64,
    /// 99 % were at most this long.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// How much one replica did.
#[derive(Debug, Clone, Serialize)]
pub struct Share {
    /// Requests it answered.
    pub answers: u64,
    /// The same as a part of all requests, 0 to 1.
    pub share: f64,
}

/// All figures of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Requests sent.
    pub requests: u64,
    /// Users who sent them.
    pub users: u64,
    /// Seconds from the first request to the last answer.
    pub elapsed_s: f64,
    /// Requests per second over that time.
    pub requests_per_s: f64,
    /// Orders acknowledged, divided by the seconds from the first request to the last
    /// acknowledgement.
    pub orders_per_s: f64,
    /// Latencies of all requests.
    pub all: Latency,
    /// Latencies of each outcome.
    pub outcomes: BTreeMap<&'static str, Latency>,
    /// How often each status and code came.
    pub codes: BTreeMap<String, u64>,
    /// What each replica did, by its `X-Replica`.
    pub replicas: BTreeMap<String, Share>,
    /// Mean number of requests in flight (weighted by time) while the load was full: from the first
    /// moment with as many requests as connections sent, to the moment the last request was sent.
    pub in_flight_mean: f64,
    /// Most requests in flight at one moment.
    pub in_flight_peak: u64,
    /// The smallest number, over all users, of a user's requests that were in flight at one moment.
    pub simultaneous_min: u64,
}

impl Figures {
    /// Computes the figures of a load over this many connections.
    pub fn of(history: &History, connections: usize) -> Self {
        let records = &history.records;
        let elapsed_s = history.elapsed.as_secs_f64();
        let requests = records.len() as u64;
        let latency =
            |outcome: Outcome| latency(records.iter().filter(|record| record.outcome == outcome));
        let by_user = by_user(records);
        Self {
            requests,
            users: by_user.len() as u64,
            elapsed_s,
            requests_per_s: ratio(count(requests), elapsed_s),
            orders_per_s: orders_per_s(records),
            all: self::latency(records.iter()),
            outcomes: Outcome::ALL.iter().map(|one| (one.name(), latency(*one))).collect(),
            codes: tally(&history.names.codes, records.iter().map(|record| Some(record.code))),
            replicas: tally(&history.names.replicas, records.iter().map(|record| record.replica))
                .into_iter()
                .map(|(name, answers)| {
                    (name, Share { answers, share: ratio(count(answers), count(requests)) })
                })
                .collect(),
            in_flight_mean: in_flight_mean(records, connections),
            in_flight_peak: most_at_once(records.iter()),
            simultaneous_min: by_user
                .values()
                .map(|mine| most_at_once(mine.iter().copied()))
                .min()
                .unwrap_or(0),
        }
    }

    /// How many requests ended so.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome.name()).map_or(0, |latency| latency.count)
    }

    /// Unknown outcomes as a part of all requests, 0 to 1.
    pub fn unknown_share(&self) -> f64 {
        ratio(count(self.count(Outcome::Unknown)), count(self.requests))
    }
}

/// A count as a number to calculate with; exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn count(number: u64) -> f64 {
    number as f64
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn latency<'a>(records: impl Iterator<Item = &'a Record>) -> Latency {
    let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, MAX_LATENCY_US, 3) else {
        return Latency::default();
    };
    for record in records {
        histogram.saturating_record((record.end_ns.saturating_sub(record.start_ns) / 1000).max(1));
    }
    let at = |quantile| count(histogram.value_at_quantile(quantile)) / 1000.0;
    Latency {
        count: histogram.len(),
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        max_ms: at(1.0),
    }
}

fn orders_per_s(records: &[Record]) -> f64 {
    let bought = records.iter().filter(|record| record.outcome == Outcome::Bought);
    let (mut orders, mut first_ns, mut last_ns) = (0_u64, u64::MAX, 0);
    for record in bought {
        orders += 1;
        last_ns = last_ns.max(record.end_ns);
    }
    for record in records {
        first_ns = first_ns.min(record.start_ns);
    }
    ratio(count(orders), count(last_ns.saturating_sub(first_ns)) / 1e9)
}

fn tally(names: &[String], indexes: impl Iterator<Item = Option<u8>>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in indexes.flatten().filter_map(|index| names.get(usize::from(index))) {
        *counts.entry(name.clone()).or_default() += 1;
    }
    counts
}

fn by_user(records: &[Record]) -> BTreeMap<u64, Vec<&Record>> {
    let mut users = BTreeMap::<u64, Vec<&Record>>::new();
    for record in records {
        users.entry(record.user).or_default().push(record);
    }
    users
}

/// The most of these intervals that share a moment.
fn most_at_once<'a>(records: impl Iterator<Item = &'a Record>) -> u64 {
    // At equal times ends come first, so that back-to-back requests do not count as simultaneous.
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for record in records {
        edges.push((record.start_ns, 1));
        edges.push((record.end_ns, -1));
    }
    edges.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    u64::try_from(most).unwrap_or(0)
}

fn in_flight_mean(records: &[Record], connections: usize) -> f64 {
    let mut starts: Vec<u64> = records.iter().map(|record| record.start_ns).collect();
    starts.sort_unstable();
    let (Some(&from), Some(&until)) = (starts.get(connections), starts.last()) else {
        return 0.0;
    };
    let busy_ns: u64 = records
        .iter()
        .map(|record| record.end_ns.min(until).saturating_sub(record.start_ns.max(from)))
        .sum();
    ratio(count(busy_ns), count(until - from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::evidence::Names;
    use std::time::Duration;

    fn record(user: u64, outcome: Outcome, from: u64, until: u64) -> Record {
        let (start_ns, end_ns) = (from * 1_000_000, until * 1_000_000);
        let replica = Some(u8::from(user % 2 == 1));
        let (order, n, key, voucher, code) = (None, 0, 0, 0, 0);
        Record { start_ns, end_ns, user, order, n, key, voucher, outcome, replica, code }
    }

    fn figures(records: Vec<Record>, connections: usize) -> Figures {
        let history = History {
            records,
            names: Names { replicas: vec!["r1".into(), "r2".into()], codes: vec!["201".into()] },
            elapsed: Duration::from_secs(2),
        };
        Figures::of(&history, connections)
    }

    #[test]
    fn figures_count_time_and_share_what_happened() {
        let figures = figures(
            vec![
                record(0, Outcome::Bought, 0, 10),
                record(0, Outcome::AlreadyOrdered, 0, 20),
                record(1, Outcome::Bought, 10, 500),
                record(2, Outcome::Unknown, 20, 2000),
            ],
            1,
        );
        assert_eq!((figures.requests, figures.users), (4, 3));
        assert_eq!(figures.count(Outcome::Bought), 2);
        assert!((figures.orders_per_s - 4.0).abs() < 1e-9, "2 in half a second");
        assert!((figures.unknown_share() - 0.25).abs() < 1e-9);
        assert_eq!(figures.replicas["r1"].answers, 3);
        assert!((figures.replicas["r2"].share - 0.25).abs() < 1e-9);
        assert_eq!(figures.codes["201"], 4);
        assert!((figures.all.max_ms - 1980.0).abs() < 2.0, "{:?}", figures.all);
    }

    #[test]
    fn simultaneous_requests_are_those_that_share_a_moment() {
        let together =
            figures(vec![record(0, Outcome::Bought, 0, 10), record(0, Outcome::SoldOut, 9, 11)], 1);
        assert_eq!(together.simultaneous_min, 2);
        let one_after_the_other = figures(
            vec![record(0, Outcome::Bought, 0, 10), record(0, Outcome::SoldOut, 10, 11)],
            1,
        );
        assert_eq!(one_after_the_other.simultaneous_min, 1);
    }

    #[test]
    fn requests_in_flight_are_averaged_over_the_time_the_load_was_full() {
        // Two connections, always busy from 0 to 40 ms; what the last two do is not full load.
        let records = (0..4)
            .flat_map(|step| {
                let (from, to) = (step * 10, step * 10 + 10);
                [record(0, Outcome::Bought, from, to), record(1, Outcome::Bought, from, to)]
            })
            .collect();
        let figures = figures(records, 2);
        assert!((figures.in_flight_mean - 2.0).abs() < 1e-9, "{}", figures.in_flight_mean);
        assert_eq!(figures.in_flight_peak, 2);
    }
}
