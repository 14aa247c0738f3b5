//! Latencies as a curve: from an HDR histogram, at quantiles that come the closer the nearer they
//! are to 1, because the slowest answers are what a percentile alone hides.
//!
//! A quantile that so few answers cannot tell (99.9 % of 50) is left out; the longest is always
//! there.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::judge::evidence::{NO_END, Record};
use crate::load::outcome::Outcome;

/// Longest latency told apart, in microseconds.
const MAX_LATENCY_US: u64 = 600_000_000;
/// The quantiles of a curve, each with the number of answers from which on it means something.
const LADDER: [(f64, u64); 14] = [
    (0.0, 1),
    (0.1, 2),
    (0.25, 2),
    (0.5, 2),
    (0.75, 4),
    (0.9, 10),
    (0.95, 20),
    (0.975, 40),
    (0.99, 100),
    (0.995, 200),
    (0.999, 1000),
    (0.9995, 2000),
    (0.9999, 10_000),
    (1.0, 1),
];

/// One point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantile {
    /// This part of the answers, 0 to 1,
    pub part: f64,
    /// came within this many milliseconds.
    pub ms: f64,
}

/// The curve of each outcome that came at all.
pub fn curves(records: &[Record]) -> BTreeMap<Outcome, Vec<Quantile>> {
    let mut curves = BTreeMap::new();
    for outcome in Outcome::ALL {
        let came = |record: &&Record| record.outcome == outcome && record.end_ns != NO_END;
        let curve = curve(records.iter().filter(came));
        if !curve.is_empty() {
            curves.insert(outcome, curve);
        }
    }
    curves
}

fn curve<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Quantile> {
    let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, MAX_LATENCY_US, 3) else {
        return Vec::new();
    };
    for record in records {
        histogram.saturating_record((record.end_ns.saturating_sub(record.start_ns) / 1000).max(1));
    }
    let told = LADDER.into_iter().filter(|(_, least)| histogram.len() >= *least);
    told.map(|(part, _)| Quantile { part, ms: milliseconds(histogram.value_at_quantile(part)) })
        .collect()
}

/// Exact: latencies have far fewer than 2^53 microseconds.
#[allow(clippy::cast_precision_loss)]
fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(outcome: Outcome, ms: u64) -> Record {
        let (start_ns, end_ns, user) = (5_000_000, 5_000_000 + ms * 1_000_000, 0);
        let (order, n, key, voucher, replica, code) = (None, 0, 0, 0, None, 0);
        Record { start_ns, end_ns, user, order, n, key, voucher, outcome, replica, code }
    }

    #[test]
    fn a_curve_rises_to_the_longest_and_holds_only_what_so_many_answers_can_tell() {
        let mut records: Vec<_> = (1..=100).map(|ms| took(Outcome::Bought, ms)).collect();
        records.push(took(Outcome::Refused, 7));
        let curves = curves(&records);
        let bought = &curves[&Outcome::Bought];
        assert!(bought.windows(2).all(|pair| pair[0].ms <= pair[1].ms), "{bought:?}");
        let at = |part: f64| {
            bought.iter().find(|point| (point.part - part).abs() < 1e-9).map(|point| point.ms)
        };
        assert!((at(0.5).expect("a median") - 50.0).abs() < 0.1, "{bought:?}");
        assert!((at(0.99).expect("100 answers tell it") - 99.0).abs() < 0.1, "{bought:?}");
        assert!((at(1.0).expect("the longest") - 100.0).abs() < 0.1, "{bought:?}");
        assert_eq!(at(0.999), None, "100 answers do not tell it");
        assert_eq!(
            curves[&Outcome::Refused].len(),
            2,
            "one answer is the shortest and the longest"
        );
        assert_eq!(curves.len(), 2, "what never came has no curve");
    }
}
