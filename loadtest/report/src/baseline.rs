//! What changed since an earlier run, from the JSON that it wrote.
//!
//! Cells are the same if axes, scenario and fault are. A changed verdict comes first, whatever the
//! figures; then figures, the largest change first. Two runs of one program differ as well, the
//! more the busier the machine. So a ratio closer to 1 than [`NOTEWORTHY`] is not called a change.
//! Figures are not compared where either run was no real load or has no verdict on speed. Of an
//! injected bug two changes are reported: it was caught in one run only, or a sound round was clean
//! in one run only.

use std::collections::HashMap;
use std::path::Path;

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::injection_results::{Attempt, InjectionResults, is_caught, is_clean};
use loadtest_lab::predict::Prediction;
use loadtest_load::cost::Cost;
use loadtest_load::stats::Latency;
use loadtest_measure::error::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::table::no_verdict_on_speed;
use crate::text::Text;
use crate::{counted, names};

/// From this ratio on, or its inverse, a figure has changed.
pub const NOTEWORTHY: f64 = 1.5;
/// Most cells that are named where they are only listed.
const MAX_NAMED: usize = 5;
/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What is read of an earlier report.
#[derive(Debug, Clone, Deserialize)]
pub struct Baseline {
    /// When that run began.
    pub started_at: String,
    cells: Vec<EarlierCell>,
    #[serde(alias = "planted")]
    injected_bugs: Option<EarlierInjection>,
}

/// What is read of its injected bugs.
#[derive(Debug, Clone, Deserialize)]
struct EarlierInjection {
    #[serde(default)]
    seeds: u64,
    bugs: Vec<EarlierBug>,
}

/// What is read of one of them.
#[derive(Debug, Clone, Deserialize)]
struct EarlierBug {
    name: String,
    attempts: Vec<Attempt>,
}

/// What is read of one of its cells.
#[derive(Debug, Clone, Deserialize)]
struct EarlierCell {
    #[serde(flatten)]
    trial: CellSpec,
    /// `None`, as the figures, if it never ran.
    observed: Option<Prediction>,
    as_predicted: bool,
    valid: bool,
    orders_per_s: Option<f64>,
    p99_ms: Option<f64>,
    load: Option<EarlierLoad>,
}

/// What is read of its load: that on which a verdict on speed hangs.
#[derive(Debug, Clone, Deserialize)]
struct EarlierLoad {
    all: Latency,
    cost: Cost,
}

impl EarlierCell {
    fn has_verdict_on_speed(&self) -> bool {
        self.load.as_ref().is_none_or(|load| load.cost.bottlenecks(load.all.p99_ms).is_empty())
    }
}

/// What changed in one cell.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// Which.
    pub cell: CellSpec,
    /// Its verdict before and now, if that changed.
    pub verdict: Option<(Text, Text)>,
    /// Throughput now, divided by that before; `None` if there was none.
    pub throughput: Option<f64>,
    /// The same of the 99th percentile of latency.
    pub p99: Option<f64>,
}

/// What changed of an injected bug.
#[derive(Debug, Clone, Serialize)]
pub struct BugChange {
    /// Its name.
    pub name: String,
    /// What came of it before.
    pub was: Text,
    /// What comes of it now.
    pub is: Text,
}

/// Everything that changed.
#[derive(Debug, Clone, Serialize)]
pub struct Changes {
    /// When the earlier run began.
    pub since: String,
    /// Cells in which something changed.
    pub changed: Vec<Change>,
    /// Cells of both runs in which nothing did.
    pub same: usize,
    /// Cells that the earlier run did not have.
    pub new: Vec<CellSpec>,
    /// Cells that this run does not have.
    pub gone: Vec<CellSpec>,
    /// Injected bugs of both runs with another outcome.
    pub bugs: Vec<BugChange>,
}

impl Baseline {
    /// Reads an earlier report.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why: String| Error::Usage(format!("{} is no baseline: {why}", path.display()));
        let length = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
        if length > MAX_BYTES {
            return Err(wrong(format!("it has more than {MAX_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
    }

    /// What these cells and injected bugs have that the earlier ones had not, or had otherwise.
    pub fn compare(&self, cells: &[CellReport], results: Option<&InjectionResults>) -> Changes {
        let before: HashMap<CellSpec, &EarlierCell> =
            self.cells.iter().map(|cell| (cell.trial, cell)).collect();
        let now: HashMap<CellSpec, &CellReport> =
            cells.iter().map(|cell| (cell.trial(), cell)).collect();
        let both = cells.iter().filter_map(|cell| Some((cell, *before.get(&cell.trial())?)));
        let all: Vec<Change> = both.map(|(cell, earlier)| change(cell, earlier)).collect();
        let count = all.len();
        let mut changed: Vec<Change> = all.into_iter().filter(Change::is_one).collect();
        let rank = |change: &Change| (change.verdict.is_some(), change.size());
        changed.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            b.0.cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        let unknown = |cell: &&CellReport| !before.contains_key(&cell.trial());
        let absent = |cell: &&EarlierCell| !now.contains_key(&cell.trial);
        Changes {
            since: self.started_at.clone(),
            same: count - changed.len(),
            changed,
            new: cells.iter().filter(unknown).map(CellReport::trial).collect(),
            gone: self.cells.iter().filter(absent).map(|cell| cell.trial).collect(),
            bugs: results.map(|results| self.bugs(results)).unwrap_or_default(),
        }
    }

    fn bugs(&self, results: &InjectionResults) -> Vec<BugChange> {
        let earlier = |name: &str| {
            let earlier = self.injected_bugs.as_ref()?;
            let bug = earlier.bugs.iter().find(|bug| bug.name == name)?;
            Some(bug_outcome(&bug.attempts, earlier.seeds))
        };
        let changed = results.bugs.iter().filter_map(|bug| {
            let (was, is) = (earlier(bug.name)?, bug_outcome(&bug.attempts, bug.seeds));
            (was != is).then(|| BugChange { name: bug.name.to_owned(), was, is })
        });
        changed.collect()
    }
}

impl Changes {
    /// The changes in lines, for a terminal.
    pub fn text(&self) -> String {
        let count = self.changed.len() + self.bugs.len();
        let (since, same) = (&self.since, counted(self.same, "cell"));
        let mut lines = vec![format!("Since {since}: {count} changed, {same} as before.")];
        for (cells, what) in [(&self.new, "New"), (&self.gone, "Not run any more")] {
            let all = counted(cells.len(), "cell");
            lines.extend(
                (!cells.is_empty()).then(|| format!("{what}, {all}: {}.", list_names(cells))),
            );
        }
        let times = |what: &str, ratio: Option<f64>| Some(format!("{what} × {:.2}", ratio?));
        for Change { cell, verdict, throughput, p99 } in &self.changed {
            let verdict = verdict.as_ref().map(|(was, is)| format!("{was} → {is}"));
            let all = [verdict, times("orders/s", *throughput), times("p99", *p99)];
            let all: Vec<String> = all.into_iter().flatten().collect();
            lines.push(format!("- {cell}: {}", all.join(", ")));
        }
        let bugs = self.bugs.iter();
        lines.extend(bugs.map(|BugChange { name, was, is }| format!("- {name}: {was} → {is}")));
        lines.join("\n")
    }
}

impl Change {
    fn is_one(&self) -> bool {
        self.verdict.is_some() || self.size() >= NOTEWORTHY.ln()
    }

    /// The larger of both changes, whichever way it goes.
    fn size(&self) -> f64 {
        let size = |ratio: Option<f64>| ratio.map_or(0.0, |ratio| ratio.ln().abs());
        size(self.throughput).max(size(self.p99))
    }
}

/// The names of the first of them, and how many more there are.
pub fn list_names(cells: &[CellSpec]) -> Text {
    let mut all: Vec<Text> = cells.iter().take(MAX_NAMED).copied().map(names::cell).collect();
    if cells.len() > all.len() {
        all.push(Text::of("and_more").with("count", cells.len() - all.len()));
    }
    Text::joined("semicolon", all)
}

fn change(cell: &CellReport, earlier: &EarlierCell) -> Change {
    let was = words(earlier.valid, earlier.as_predicted, earlier.observed);
    let is = words(cell.valid, cell.as_predicted, Some(cell.observed));
    let has_verdict = earlier.has_verdict_on_speed() && no_verdict_on_speed(cell).is_empty();
    let comparable = earlier.valid && cell.valid && has_verdict;
    let ratio = |now: f64, before: Option<f64>| {
        let before = before.filter(|before| comparable && now > 0.0 && *before > 0.0)?;
        Some(now / before)
    };
    Change {
        cell: cell.trial(),
        throughput: ratio(cell.orders_per_s, earlier.orders_per_s),
        p99: ratio(cell.p99_ms, earlier.p99_ms),
        verdict: (was != is).then_some((was, is)),
    }
}

fn bug_outcome(attempts: &[Attempt], seeds: u64) -> Text {
    Text::of(match (is_caught(attempts, seeds), is_clean(attempts, seeds)) {
        (true, true) => "bug_caught_clean",
        (true, false) => "bug_caught_unclean",
        (false, true) => "bug_missed_clean",
        (false, false) => "bug_missed_unclean",
    })
}

fn words(valid: bool, as_predicted: bool, observed: Option<Prediction>) -> Text {
    let of =
        |key: &'static str, observed| Text::of(key).with("observed", names::prediction(observed));
    match (observed.filter(|_| valid), as_predicted) {
        (None, _) => Text::of("invalid"),
        (Some(observed), true) => of("verdict_predicted", observed),
        (Some(observed), false) => of("verdict_surprise", observed),
    }
}

#[cfg(test)]
#[path = "baseline_tests.rs"]
mod tests;
