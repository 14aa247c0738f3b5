//! What a run came to, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use loadtest_measure::bars::{Bar, Outcome, ROUNDS, SECONDS, Verdict, median};
use loadtest_measure::host::HostReport;
use loadtest_measure::machine::Machine;
use loadtest_measure::table::{percent, table};
use serde::Serialize;

use crate::cell::Sample;
use crate::groups::LESS;
use crate::round::{Lengths, Samples};
use crate::rows::{Figure, Row};
use crate::versions::Versions;

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    lengths: Lengths,
    machine: Machine,
    host: HostReport,
    versions: Versions,
    rows: Vec<RowReport>,
    /// All that was measured: of each group each cell's rounds.
    cells: BTreeMap<String, BTreeMap<&'static str, Vec<Sample>>>,
}

/// A row's figure and verdict.
#[derive(Debug, Serialize)]
struct RowReport {
    name: String,
    what: String,
    group: String,
    cell: &'static str,
    beside: Option<&'static str>,
    figure: Figure,
    bar: Option<Bar>,
    #[serde(flatten)]
    outcome: Outcome,
    verdict: Verdict,
}

impl Report {
    pub(crate) fn of(
        rows: Vec<Row>,
        samples: Samples,
        (lengths, host, versions): (Lengths, HostReport, Versions),
    ) -> Self {
        let judge = |row| judge(row, &samples, (lengths, host.steady));
        Self {
            rows: rows.into_iter().map(judge).collect(),
            lengths,
            machine: Machine::read(),
            host,
            versions,
            cells: samples.into_iter().map(|(group, cells)| (group.to_string(), cells)).collect(),
        }
    }

    /// Whether every bar is met.
    pub(crate) fn ok(&self) -> bool {
        self.rows.iter().all(|row| row.verdict.is_green())
    }

    pub(crate) fn text(&self) -> String {
        let mut rows = table(&["row", "", "figure", "bar", "spread", "verdict"], 2..5);
        for row in &self.rows {
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            rows.add_row([
                row.name.clone(),
                row.what.clone(),
                or_none(row.outcome.median.map(|median| format!("{median:.2}"))),
                or_none(row.bar.map(|bar| bar.to_string())),
                or_none(row.outcome.spread.map(percent)),
                row.verdict.words().to_owned(),
            ]);
        }
        let Lengths { rounds, seconds, .. } = self.lengths;
        let Machine { cpus, cpu, .. } = &self.machine;
        let mut text = format!("{rows}\n\nmedians of the cells:\n{}\n", self.cells_text());
        let _ = writeln!(
            text,
            "{rounds} rounds of {seconds:?} (kinds and ways: 1/{LESS} of it); {}; {cpus} \
             processors: {cpu}",
            self.versions.text(),
        );
        let _ = writeln!(text, "{}", self.host.line());
        if !self.lengths.are_long_enough() {
            let _ = writeln!(
                text,
                "a bar is met by {ROUNDS} rounds of {SECONDS} s or more only: this run can be no \
                 proof"
            );
        }
        text.push_str(if self.ok() { "every bar is met" } else { "not every bar is met" });
        text
    }

    fn cells_text(&self) -> String {
        let mut cells = table(&["group", "cell", "/s", "for each, and times"], 2..3);
        for (group, samples) in &self.cells {
            for (name, rounds) in samples {
                let per_s: Vec<f64> = rounds.iter().map(|sample| sample.per_s).collect();
                let per_s = format!("{:.0}", median(&per_s).unwrap_or(0.0));
                cells.add_row([group.clone(), (*name).to_owned(), per_s, details(rounds)]);
            }
        }
        cells.to_string()
    }
}

/// What was used for each, and how long it took: medians of the rounds.
fn details(rounds: &[Sample]) -> String {
    type Part = fn(&Sample) -> &BTreeMap<&'static str, f64>;
    let parts: [(&str, Part); 3] = [
        ("", |sample| &sample.each),
        (" p50 ms", |sample| &sample.p50_ms),
        (" p99 ms", |sample| &sample.p99_ms),
    ];
    let mut all = Vec::new();
    for (unit, part) in parts {
        for what in rounds.first().into_iter().flat_map(|first| part(first).keys()) {
            let values: Vec<f64> =
                rounds.iter().filter_map(|sample| part(sample).get(what).copied()).collect();
            all.extend(median(&values).map(|median| format!("{what}{unit} {median:.2}")));
        }
    }
    all.join(", ")
}

/// The result of a row.
fn judge(row: Row, samples: &Samples, (lengths, steady): (Lengths, bool)) -> RowReport {
    let of = |cell: &str| samples.get(&row.group).and_then(|cells| cells.get(cell));
    let cell = of(row.cell).map(Vec::as_slice).unwrap_or_default();
    let figures = cell.iter().enumerate().filter_map(|(round, sample)| {
        let figure = row.figure.of(sample)?;
        let Some(beside) = row.beside else { return Some(figure) };
        let beside = row.figure.of(of(beside)?.get(round)?)?;
        (beside > 0.0).then_some(figure / beside)
    });
    let outcome = Outcome::of_rounds(figures.collect());
    let complete = outcome.rounds.len() == lengths.rounds;
    let verdict = outcome.verdict(row.bar, complete, lengths.are_long_enough()).on_host(steady);
    let Row { name, what, group, cell, beside, figure, bar } = row;
    let group = group.to_string();
    RowReport { name, what, group, cell, beside, figure, bar, outcome, verdict }
}

/// One cell of one round, while a run continues.
pub(crate) fn line(round: usize, group: &str, cell: &str, sample: &Sample) -> String {
    let details = details(std::slice::from_ref(sample));
    format!("round {round}  {group:<16} {cell:<16} {:>9.0}/s  {details}", sample.per_s)
}
