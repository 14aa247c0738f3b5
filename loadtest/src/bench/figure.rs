//! What was measured, and what that makes of a row: pure, so that a verdict can be tested.

use std::collections::BTreeMap;

use loadtest_measure::bars::Outcome;
use serde::Serialize;

/// What one round of a cell came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Sample {
    /// Orders or answers a second.
    pub per_s: f64,
    /// Over how many seconds.
    pub seconds: f64,
    /// Half of the answers took no longer; of several slices the median of theirs.
    pub p50_ms: f64,
    /// 99 % took no longer; of several slices the median of theirs.
    pub p99_ms: f64,
    /// Microseconds of processor time for each order or answer, by what used it.
    pub cpu_us: BTreeMap<&'static str, f64>,
    /// What the generator used of all processors' time, 0 to 1.
    pub generator_share: f64,
    /// Milliseconds of an order in each part of a purchase, as the replicas measured it.
    pub parts_ms: BTreeMap<String, f64>,
    /// Resident memory of a replica afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<f64>,
    /// From the start of a replica's program to the first answer that it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_ms: Option<f64>,
    /// Why it is no measurement, in words.
    pub invalid: Vec<String>,
    /// What should be known of it.
    pub remarks: Vec<String>,
}

/// The process that sends; all others serve.
pub const GENERATOR: &str = "generator";
/// The server of the database.
pub const DATABASE: &str = "database";
/// The replicas of the service.
pub const REPLICAS: &str = "replicas";

impl Sample {
    /// Microseconds of processor time of everything that serves, for each order.
    pub fn server_us(&self) -> f64 {
        let servers = self.cpu_us.iter().filter(|(name, _)| **name != GENERATOR);
        // The sum of nothing is -0.
        0.0 + servers.map(|(_, us)| us).sum::<f64>()
    }
}

/// Which of a sample's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Orders or answers a second.
    PerSecond,
    /// Latency, 99 %.
    P99,
    /// Processor time of all servers for each order.
    ServerTime,
    /// Processor time of the replicas alone for each order.
    ReplicaTime,
    /// Processor time of the database alone for each order: what it can make of processors of its
    /// own, whatever else runs on this machine.
    DatabaseTime,
    /// Resident memory.
    Memory,
    /// Time to readiness.
    Ready,
}

impl Figure {
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::PerSecond => Some(sample.per_s),
            Self::P99 => Some(sample.p99_ms),
            Self::ServerTime => Some(sample.server_us()),
            Self::ReplicaTime => sample.cpu_us.get(REPLICAS).copied(),
            Self::DatabaseTime => sample.cpu_us.get(DATABASE).copied(),
            Self::Memory => sample.memory_mib,
            Self::Ready => sample.ready_ms,
        }
    }

    /// The baseline among several that is hardest to beat.
    fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        match self {
            Self::PerSecond => values.max_by(f64::total_cmp),
            _ => values.min_by(f64::total_cmp),
        }
    }
}

/// Figures of these rounds: what each holds of the cell, and of what stands beside it.
pub(super) fn outcome_of(figure: Figure, rounds: &[(&Sample, Vec<&Sample>)]) -> Outcome {
    let values = rounds.iter().filter_map(|(cell, beside)| {
        let value = figure.of(cell)?;
        if beside.is_empty() {
            return Some(value);
        }
        let best = figure.best(beside.iter().filter_map(|sample| figure.of(sample)))?;
        (best > 0.0).then_some(value / best)
    });
    Outcome::of_rounds(values.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_s: f64) -> Sample {
        Sample { per_s, ..Sample::default() }
    }

    fn outcome(rounds: &[(f64, &[f64])]) -> Outcome {
        let samples: Vec<(Sample, Vec<Sample>)> = rounds
            .iter()
            .map(|(cell, beside)| (rate(*cell), beside.iter().copied().map(rate).collect()))
            .collect();
        let rounds: Vec<_> =
            samples.iter().map(|(cell, beside)| (cell, beside.iter().collect())).collect();
        outcome_of(Figure::PerSecond, &rounds)
    }

    #[test]
    fn a_ratio_is_that_of_each_round_to_the_best_baseline_of_the_same_round() {
        let found = outcome(&[
            (300.0, &[50.0, 100.0, 90.0]),
            (600.0, &[200.0, 100.0, 1.0]),
            (310.0, &[100.0, 1.0, 1.0]),
        ]);
        assert_eq!(found.rounds, [3.0, 3.0, 3.1]);
        assert_eq!(found.median, Some(3.0));
        let spread = found.spread.expect("three rounds");
        assert!((spread - 0.1 / 3.0).abs() < 1e-9, "{spread}");
    }

    #[test]
    fn of_latencies_and_costs_the_smallest_baseline_is_the_best() {
        let sample = |p99_ms| Sample { p99_ms, ..Sample::default() };
        let (cell, one, other) = (sample(10.0), sample(5.0), sample(20.0));
        let found = outcome_of(Figure::P99, &[(&cell, vec![&one, &other])]);
        assert_eq!(found.rounds, [2.0]);
    }

    #[test]
    fn the_generator_is_no_server_and_the_database_is_one_of_several() {
        let cpu_us = BTreeMap::from([(GENERATOR, 40.0), (DATABASE, 30.0), (REPLICAS, 5.0)]);
        let sample = Sample { cpu_us, ..Sample::default() };
        assert!((sample.server_us() - 35.0).abs() < 1e-9);
        assert_eq!(Figure::DatabaseTime.of(&sample), Some(30.0));
        assert_eq!(Figure::ReplicaTime.of(&sample), Some(5.0));
        assert_eq!(Figure::DatabaseTime.of(&Sample::default()), None);
    }
}
