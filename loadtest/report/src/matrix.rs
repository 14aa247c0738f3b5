//! What is printed of a matrix: a line for each cell while it runs, a table, what is unsafe and
//! why.

use std::collections::BTreeMap;

use loadtest_lab::cell::CellReport;
use loadtest_lab::matrix_axes::NotGenerated;
use loadtest_lab::presets::Preset;
use loadtest_lab::results::CellSelection;
use serde::Serialize;

use crate::baseline::Changes;
use crate::table::{TableFormat, TableSubject, footnote, problems, table, verdict};
use crate::{Report, counted, injected_bugs, legend, wrapped};

/// Longest time for the smoke run, which is part of `make test`.
const SMOKE_WITHIN_S: f64 = 300.0;
/// Longest time for the smoke run of topologies.
const SMOKE_TOPOLOGIES_WITHIN_S: f64 = 480.0;

/// How the cells of a matrix were chosen, and what they come to.
#[derive(Debug, Serialize)]
pub struct Selection {
    /// The same in words and figures.
    pub summary: Summary,
    /// Combinations without a prediction.
    pub not_generated: Vec<NotGenerated>,
    /// Cells that an earlier run had finished.
    pub resumed: usize,
    /// What settled the schedules.
    pub seed: u64,
    /// The flag that names the cells, if one does.
    pub preset: Option<Preset>,
    /// How many of its cells were drawn, if not all.
    pub sample: Option<usize>,
    /// The command that chose the cells, if it is not `loadtest matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Selection {
    pub(super) fn of(chosen: CellSelection, cells: &[CellReport]) -> Self {
        let CellSelection { not_generated, resumed, seed, preset, sample, command } = chosen;
        let summary = summary(cells);
        Self { summary, not_generated, resumed, seed, preset, sample, command }
    }
}

/// What a matrix comes to.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Cells.
    pub cells: usize,
    /// Cells that are valid and as predicted.
    pub as_predicted: usize,
    /// Those that hold nothing that was not predicted to hold, by the reason: what is unsafe.
    pub unsafe_because: BTreeMap<String, Vec<String>>,
}

/// The line that is shown when a cell is finished: what it is, and what was seen of its fault.
pub fn line(cell: &CellReport) -> String {
    let tries = if cell.tries > 1 { format!(", {} tries", cell.tries) } else { String::new() };
    let (verdict, _) = verdict(cell);
    let mut lines =
        vec![format!("{:<62} {verdict:<12} {:>5.1} s{tries}", cell.title(), cell.took_s)];
    if let Some(round) = &cell.round {
        let back = format!("throughput back {}", round.back());
        let seen: Vec<&str> = round.faults.iter().map(|fault| fault.witness.as_str()).collect();
        lines.push(format!("{}: {}; {back}", round.plan, seen.join("; ")));
    }
    lines.extend(problems(cell).iter().map(|problem| format!("✗ {problem}")));
    lines.join("\n        ")
}

/// What the cells come to.
pub fn summary(cells: &[CellReport]) -> Summary {
    let mut unsafe_because = BTreeMap::<String, Vec<String>>::new();
    for cell in cells.iter().filter(|cell| cell.valid && !cell.observed.holds()) {
        let because = if cell.as_predicted { cell.because.clone() } else { "unknown".to_owned() };
        let words = cell.observed.words();
        unsafe_because.entry(because).or_default().push(format!("{}: {words}", cell.title()));
    }
    let as_predicted = cells.iter().filter(|cell| cell.ok()).count();
    Summary { cells: cells.len(), as_predicted, unsafe_because }
}

/// All that is printed.
pub(super) fn text(report: &Report, selection: &Selection, format: TableFormat) -> String {
    let columns = format.columns();
    let table = table(&report.cells, TableSubject::Matrix, format);
    let legend = wrapped(&legend(&table), columns);
    let mut parts = vec![table, legend];
    parts.extend(footnote(&report.cells));
    let wrong = super::wrong(&report.cells);
    if !wrong.is_empty() {
        parts.push(wrong.join("\n"));
    }
    for (because, cells) in &selection.summary.unsafe_because {
        let cells: Vec<String> = cells.iter().map(|cell| format!("- {cell}")).collect();
        let because = wrapped(&format!("Unsafe, since {because}:"), columns);
        parts.push(format!("{because}\n{}", cells.join("\n")));
    }
    if !selection.not_generated.is_empty() {
        let why = selection.not_generated.iter();
        let why = why.map(|one| format!("- {}: {}", one.combinations, one.because));
        let why: Vec<String> = why.collect();
        parts.push(format!("Combinations that are no cells:\n{}", why.join("\n")));
    }
    parts.extend(
        report.injected_bugs.iter().map(|results| injected_bugs::render_table(results, format)),
    );
    parts.extend(report.changes.as_ref().map(Changes::text));
    parts.push(wrapped(&report.conclusion.to_string(), columns));
    parts.push(wrapped(&provenance(report, selection), columns));
    parts.extend(overdue(selection, report.took_s));
    let Summary { cells, as_predicted, .. } = &selection.summary;
    let cells = counted(*cells, "cell");
    let bugs = report.injected_bugs.as_ref().map_or(String::new(), |results| {
        format!("; injected {}, caught {}", results.injected, results.caught)
    });
    parts.push(format!("{cells}, {as_predicted} as predicted{bugs}"));
    parts.join("\n\n")
}

/// What must be said where a smoke run took too long, since changes wait for it.
fn overdue(selection: &Selection, took_s: f64) -> Option<String> {
    let (name, within_s) = match selection.preset? {
        Preset::Smoke => ("smoke run", SMOKE_WITHIN_S),
        Preset::SmokeTopologies => ("smoke run of topologies", SMOKE_TOPOLOGIES_WITHIN_S),
        Preset::Story | Preset::Full => return None,
    };
    (took_s > within_s).then(|| {
        format!("!!! TOO SLOW: the {name} took {took_s:.0} s, and may take {within_s:.0} s")
    })
}

fn provenance(report: &Report, selection: &Selection) -> String {
    let resumed = match selection.resumed {
        0 => String::new(),
        1 => "1 cell was finished by an earlier run; ".to_owned(),
        some => format!("{some} cells were finished by an earlier run; "),
    };
    let (seed, took_s) = (selection.seed, report.took_s);
    format!("Seed {seed}; {resumed}{took_s:.0} s; {}", report.servers())
}
