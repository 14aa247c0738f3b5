//! The result of a row: its figure, what an order costs in plain answers, and both verdicts.

use std::collections::BTreeMap;

use loadtest_measure::bars::{Bar, Outcome, Verdict};
use serde::Serialize;
use testbed::Flavor;

use super::cells::PLAIN;
use super::figure::{Figure, Sample, outcome_of};
use super::rows::Row;

/// A row's figure and verdict.
#[derive(Debug, Serialize)]
pub struct RowReport {
    /// What `--rows` calls it.
    pub name: &'static str,
    /// What it says.
    pub what: &'static str,
    /// The cell.
    pub cell: &'static str,
    /// What it is divided by.
    pub beside: Vec<&'static str>,
    /// Which figure.
    pub figure: Figure,
    /// What it has to reach.
    pub bar: Option<Bar>,
    /// What it came to.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Its result.
    pub verdict: Verdict,
    /// What one order or answer costs, if the figure is a rate.
    pub plain_answers: Option<PlainAnswers>,
    /// Why it is no figure, in words.
    pub because: Vec<String>,
}

impl RowReport {
    /// Whether a run with it may be called green.
    pub fn is_green(&self) -> bool {
        self.verdict.is_green()
            && self.plain_answers.as_ref().is_none_or(|cost| cost.verdict.is_green())
    }
}

/// Processor time of all servers for one order or answer, in that of a constant answer.
#[derive(Debug, Serialize)]
pub struct PlainAnswers {
    /// What it came to.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What it has to stay below.
    pub bar: Option<Bar>,
    /// Its result.
    pub verdict: Verdict,
}

/// What a run's verdicts depend on besides its samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    /// The database server.
    pub(super) flavor: Flavor,
    /// Whether it had enough rounds, and long ones.
    pub(super) long_enough: bool,
    /// Whether the host was steady.
    pub(super) host_is_steady: bool,
}

/// The result of a row.
pub(super) fn judge(
    row: &Row,
    cells: &BTreeMap<&'static str, Vec<Sample>>,
    run: Conditions,
) -> RowReport {
    let of = |name: &str| cells.get(name).map(Vec::as_slice).unwrap_or_default();
    let baselines: Vec<&[Sample]> = row.beside.iter().map(|name| of(name)).collect();
    let rounds = of(row.cell).iter().enumerate().map(|(round, sample)| {
        (sample, baselines.iter().filter_map(|samples| samples.get(round)).collect())
    });
    let rounds: Vec<(&Sample, Vec<&Sample>)> = rounds.collect();
    let plain = if row.is_rate() { of(PLAIN) } else { &[] };
    let all = rounds.iter().flat_map(|(cell, beside)| beside.iter().copied().chain([*cell]));
    let mut because: Vec<String> =
        all.chain(plain).flat_map(|sample| sample.invalid.clone()).collect();
    because.sort();
    because.dedup();
    let verdict = |outcome: &Outcome, bar| {
        outcome.verdict(bar, because.is_empty(), run.long_enough).on_host(run.host_is_steady)
    };
    let outcome = outcome_of(row.figure, &rounds);
    let bar = row.bar(run.flavor);
    let plain_answers = row.is_rate().then(|| {
        let rounds = of(row.cell).iter().zip(plain).map(|(cell, plain)| (cell, vec![plain]));
        let outcome = outcome_of(Figure::ServerTime, &rounds.collect::<Vec<_>>());
        let bar = row.plain_bar(run.flavor);
        PlainAnswers { verdict: verdict(&outcome, bar), outcome, bar }
    });
    let verdict = verdict(&outcome, bar);
    RowReport {
        name: row.name,
        what: row.what,
        cell: row.cell,
        beside: row.beside.to_vec(),
        figure: row.figure,
        bar,
        outcome,
        verdict,
        plain_answers,
        because,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::{GENERATOR, REPLICAS};
    use crate::bench::rows::ROWS;

    fn sample(per_s: f64, servers_us: f64) -> Sample {
        let cpu_us = BTreeMap::from([(REPLICAS, servers_us), (GENERATOR, 100.0)]);
        Sample { per_s, cpu_us, ..Sample::default() }
    }

    fn report(name: &str, run: Conditions) -> RowReport {
        let cells = BTreeMap::from([
            (PLAIN, vec![sample(100_000.0, 6.0), sample(50_000.0, 12.0)]),
            ("sold out", vec![sample(80_000.0, 7.2), sample(40_000.0, 14.4)]),
        ]);
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        judge(row, &cells, run)
    }

    const SOUND: Conditions =
        Conditions { flavor: Flavor::MariaDb, long_enough: true, host_is_steady: true };

    #[test]
    fn a_rate_has_its_cost_in_plain_answers_of_the_same_round() {
        let row = report("sold-out", SOUND);
        let cost = row.plain_answers.as_ref().expect("a cost");
        assert_eq!(cost.outcome.rounds.len(), 2);
        assert!(cost.outcome.rounds.iter().all(|round| (round - 1.2).abs() < 1e-9), "{cost:?}");
        assert_eq!((row.verdict, cost.verdict), (Verdict::Met, Verdict::Met));
        assert!(row.is_green());
        assert!(report("ready", SOUND).plain_answers.is_none(), "no rate");
    }

    #[test]
    fn nothing_is_met_on_a_host_that_is_not_steady() {
        let row = report("sold-out", Conditions { host_is_steady: false, ..SOUND });
        let cost = row.plain_answers.as_ref().expect("a cost");
        assert_eq!((row.verdict, cost.verdict), (Verdict::Unsteady, Verdict::Unsteady));
        assert!(!row.is_green());
    }
}
