//! Figures of a load: counts, latencies, rates, how real the load was, and what it cost.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::cost::Cost;
use crate::outcome::Outcome;
use crate::quantiles::{Quantile, curve};

/// Longest latency distinguished, in microseconds: a wait for a connection and the longest
/// time-out.
const MAX_LATENCY_US: u64 = 1_200_000_000;

/// Latencies in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplicaShare {
    /// Requests it answered.
    pub answers: u64,
    /// The same as a part of all requests, 0 to 1.
    pub share: f64,
}

/// Figures of requests that were answered with a ticket, which is followed to its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AdmissionFigures {
    /// How many.
    pub admitted: u64,
    /// Seconds from the first request to the last ticket that came.
    pub admitting_s: f64,
    /// How many a second in that time.
    pub admitted_per_s: f64,
    /// From the moment a request was due to its ticket.
    pub admission: Latency,
}

/// All figures of one load.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// Figures of admissions, if tickets were given; all other figures count to a ticket's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<AdmissionFigures>,
    /// Latencies of all requests, from the moment a request was due to the end of its answer.
    /// In a closed loop it is due when it leaves.
    pub all: Latency,
    /// Latencies of all requests from the moment they left.
    pub from_sending: Latency,
    /// Latencies of each outcome, counted like all.
    pub outcomes: BTreeMap<Outcome, Latency>,
    /// The same as curves, of each outcome that came at all.
    pub curves: BTreeMap<Outcome, Vec<Quantile>>,
    /// How often each status and code came.
    pub codes: BTreeMap<String, u64>,
    /// What each replica did, by its `X-Replica`.
    pub replicas: BTreeMap<String, ReplicaShare>,
    /// Mean number of requests in flight, weighted by time, while the load was full. Full is from
    /// the moment when all connections are busy to the moment when the last request is sent.
    pub in_flight_mean: f64,
    /// Most requests in flight at one moment.
    pub in_flight_peak: u64,
    /// The smallest number, over all users, of a user's requests that were in flight at one moment.
    pub simultaneous_min: u64,
    /// What the generator itself cost.
    pub cost: Cost,
}

impl Figures {
    /// Why there is no verdict on speed, in words; empty if there is one.
    pub fn bottlenecks(&self) -> Vec<String> {
        self.cost.bottlenecks(self.all.p99_ms)
    }

    /// How many requests ended so.
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).map_or(0, |latency| latency.count)
    }

    /// Unknown outcomes as a part of all requests, 0 to 1.
    pub fn unknown_share(&self) -> f64 {
        ratio(whole(self.count(Outcome::Unknown)), whole(self.requests))
    }
}

/// Any number of latencies, in a bounded space.
#[derive(Debug)]
pub(super) struct Latencies(Option<Histogram<u64>>);

impl Latencies {
    pub(super) fn new() -> Self {
        // It fails only for bounds that are none.
        Self(Histogram::new_with_bounds(1, MAX_LATENCY_US, 3).ok())
    }

    pub(super) fn record(&mut self, latency: Duration) {
        if let Some(histogram) = &mut self.0 {
            let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            histogram.saturating_record(micros.max(1));
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    pub(super) fn add(&mut self, other: &Self) {
        if let (Some(all), Some(other)) = (&mut self.0, &other.0) {
            // It fails only if the bounds differ.
            let _ = all.add(other);
        }
    }

    /// More of them than the summary has; nothing of nothing.
    pub(super) fn curve(&self) -> Vec<Quantile> {
        self.0.as_ref().map(curve).unwrap_or_default()
    }

    pub(super) fn summary(&self) -> Latency {
        let Some(histogram) = &self.0 else { return Latency::default() };
        let at = |quantile| whole(histogram.value_at_quantile(quantile)) / 1000.0;
        Latency {
            count: histogram.len(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    }
}

/// A count as a number to calculate with; exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
pub(super) fn whole(number: u64) -> f64 {
    number as f64
}

/// A part of a whole; nothing of nothing is 0.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
