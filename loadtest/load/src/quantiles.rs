//! Latencies as a curve: from an HDR histogram, at quantiles that come the closer the nearer they
//! are to 1, because the slowest answers are what a percentile alone hides.
//!
//! A quantile that needs more answers (99.9 % of 50) is left out; the longest is always
//! there.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::stats::whole;

/// The quantiles of a curve, each with the number of answers from which on it means something.
const QUANTILES: [(f64, u64); 14] = [
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

/// The curve of latencies in microseconds.
pub(super) fn curve(histogram: &Histogram<u64>) -> Vec<Quantile> {
    let told = QUANTILES.into_iter().filter(|(_, least)| histogram.len() >= *least);
    let ms = |part| whole(histogram.value_at_quantile(part)) / 1000.0;
    told.map(|(part, _)| Quantile { part, ms: ms(part) }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::stats::Latencies;

    #[test]
    fn a_curve_rises_to_the_longest_and_has_only_quantiles_that_the_count_supports() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.curve(), [], "what never came has no curve");
        latencies.record(Duration::from_millis(7));
        assert_eq!(latencies.curve().len(), 2, "one answer is the shortest and the longest");
        let mut latencies = Latencies::new();
        (1..=100).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let curve = latencies.curve();
        assert!(curve.windows(2).all(|pair| pair[0].ms <= pair[1].ms), "{curve:?}");
        let at = |part: f64| {
            curve.iter().find(|point| (point.part - part).abs() < 1e-9).map(|point| point.ms)
        };
        assert!((at(0.5).expect("a median") - 50.0).abs() < 0.1, "{curve:?}");
        assert!((at(0.99).expect("100 answers tell it") - 99.0).abs() < 0.1, "{curve:?}");
        assert!((at(1.0).expect("the longest") - 100.0).abs() < 0.1, "{curve:?}");
        assert_eq!(at(0.999), None, "100 answers do not tell it");
    }
}
