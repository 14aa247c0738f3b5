//! What was measured, and what that makes of a row: pure, so that a verdict can be tested.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Rounds without which no bar is met.
pub const ROUNDS: usize = 5;
/// Seconds of a round without which no bar is met, warm-up not counted.
pub const SECONDS: u64 = 10;
/// The largest distance between the rounds of a figure that still is one, as a part of its median.
pub const MAX_SPREAD: f64 = 0.2;

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
    /// Milliseconds of an order in each part of its way, as the replicas measured it.
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
            Self::DatabaseTime => sample.cpu_us.get(DATABASE).copied(),
            Self::Memory => sample.memory_mib,
            Self::Ready => sample.ready_ms,
        }
    }

    /// Of several baselines the one that is hardest to beat.
    fn best(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        match self {
            Self::PerSecond => values.max_by(f64::total_cmp),
            _ => values.min_by(f64::total_cmp),
        }
    }
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// It or more.
    AtLeast(f64),
    /// It or less.
    AtMost(f64),
}

impl Bar {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bar) => figure >= bar,
            Self::AtMost(bar) => figure <= bar,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
        }
    }
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The bar is met.
    Met,
    /// It is not.
    Missed,
    /// The figure is none.
    Invalid,
    /// Too few rounds, or too short ones, for any verdict.
    TooShort,
    /// It would be met, or has no bar, but the host was not steady.
    Unsteady,
    /// A figure without a bar.
    NoBar,
}

impl Verdict {
    /// Whether a run with it may be called green.
    pub fn is_green(self) -> bool {
        matches!(self, Self::Met | Self::NoBar)
    }

    /// The same on a host that is steady or not. What is missed there stays missed.
    #[must_use]
    pub fn on_host(self, steady: bool) -> Self {
        if self.is_green() && !steady { Self::Unsteady } else { self }
    }
}

/// A row's figure: of each round, and of all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Of each round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Their largest distance, as a part of the median.
    pub spread: Option<f64>,
}

impl Outcome {
    /// Of these rounds: what each holds of the cell, and of what stands beside it.
    pub fn of(figure: Figure, rounds: &[(&Sample, Vec<&Sample>)]) -> Self {
        let values = rounds.iter().filter_map(|(cell, beside)| {
            let value = figure.of(cell)?;
            if beside.is_empty() {
                return Some(value);
            }
            let best = figure.best(beside.iter().filter_map(|sample| figure.of(sample)))?;
            (best > 0.0).then_some(value / best)
        });
        Self::of_rounds(values.collect())
    }

    /// Of the figures of the rounds.
    pub fn of_rounds(rounds: Vec<f64>) -> Self {
        let (median, spread) = (median(&rounds), spread(&rounds));
        Self { rounds, median, spread }
    }

    /// Whether it meets that bar; `sound` says whether all of its samples are measurements, and
    /// `long` whether there are enough of them.
    pub fn verdict(&self, bar: Option<Bar>, sound: bool, long: bool) -> Verdict {
        let Some(median) = self.median else { return Verdict::Invalid };
        let steady = self.spread.is_none_or(|spread| spread <= MAX_SPREAD);
        match bar {
            _ if !long => Verdict::TooShort,
            _ if !sound || !steady => Verdict::Invalid,
            None => Verdict::NoBar,
            Some(bar) if bar.is_met(median) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }
}

/// The middle one; of an even number the mean of both.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// The largest distance of two of them, as a part of the median; none of fewer than two.
pub fn spread(values: &[f64]) -> Option<f64> {
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let median = median(values).filter(|median| *median > 0.0)?;
    (values.len() > 1).then(|| (most - least) / median)
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
        Outcome::of(Figure::PerSecond, &rounds)
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
        let found = Outcome::of(Figure::P99, &[(&cell, vec![&one, &other])]);
        assert_eq!(found.rounds, [2.0]);
    }

    #[test]
    fn a_bar_is_met_by_a_sound_and_steady_figure_of_a_whole_run_only() {
        let bar = Some(Bar::AtLeast(2.5));
        let good = outcome(&[(300.0, &[100.0]), (310.0, &[100.0])]);
        assert_eq!(good.verdict(bar, true, true), Verdict::Met);
        assert_eq!(good.verdict(bar, true, false), Verdict::TooShort);
        assert_eq!(good.verdict(bar, false, true), Verdict::Invalid);
        assert_eq!(good.verdict(None, true, true), Verdict::NoBar);
        let scattered = outcome(&[(300.0, &[100.0]), (400.0, &[100.0])]);
        assert_eq!(scattered.verdict(bar, true, true), Verdict::Invalid);
        assert_eq!(scattered.verdict(None, true, true), Verdict::Invalid);
        let slow = outcome(&[(240.0, &[100.0]), (241.0, &[100.0])]);
        assert_eq!(slow.verdict(bar, true, true), Verdict::Missed);
        assert_eq!(slow.verdict(Some(Bar::AtMost(2.5)), true, true), Verdict::Met);
        assert_eq!(outcome(&[]).verdict(None, true, true), Verdict::Invalid);
    }

    #[test]
    fn only_a_met_bar_and_a_figure_without_one_are_green() {
        use Verdict::{Invalid, Met, Missed, NoBar, TooShort, Unsteady};
        let all = [Met, Missed, Invalid, TooShort, NoBar, Unsteady];
        assert_eq!(all.map(Verdict::is_green), [true, false, false, false, true, false]);
        assert_eq!(all.map(|verdict| verdict.on_host(true)), all);
        let unsteady = [Unsteady, Missed, Invalid, TooShort, Unsteady, Unsteady];
        assert_eq!(all.map(|verdict| verdict.on_host(false)), unsteady);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_both_in_the_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[1.0]), None);
    }

    #[test]
    fn the_generator_is_no_server_and_the_database_is_one_of_several() {
        let cpu_us = BTreeMap::from([(GENERATOR, 40.0), (DATABASE, 30.0), ("redis", 5.0)]);
        let sample = Sample { cpu_us, ..Sample::default() };
        assert!((sample.server_us() - 35.0).abs() < 1e-9);
        assert_eq!(Figure::DatabaseTime.of(&sample), Some(30.0));
        assert_eq!(Figure::DatabaseTime.of(&Sample::default()), None);
    }
}
