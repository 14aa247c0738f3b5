//! The report on a matrix: a line for each cell while it runs, a table, what is unsafe and why, and
//! the JSON.
//!
//! Cells are read back from their JSON here, because some of them may have been finished by an
//! earlier run.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::lab::machine::{Machine, Versions};
use crate::lab::matrix::NotGenerated;
use crate::lab::place::Load;
use crate::lab::predict::Prediction;
use crate::report::table::STYLE;
use crate::report::{Settings, wrapped, write, write_json};

/// Everything that came out of one run of the matrix.
#[derive(Debug, Serialize)]
pub struct MatrixReport {
    /// Whether every cell is valid and as predicted.
    pub ok: bool,
    /// The same in words and figures.
    pub summary: Summary,
    /// The cells, in the order of their run: members as those of the comparison, and the round.
    pub cells: Vec<Value>,
    /// Combinations without a prediction.
    pub not_generated: Vec<NotGenerated>,
    /// Cells that an earlier run had finished.
    pub resumed: usize,
    /// What settled the schedules.
    pub seed: u64,
    /// The load of cells that have none of their own.
    pub load: Load,
    /// Settings of the servers that figures depend on.
    pub settings: Settings,
    /// Versions of everything that took part.
    pub versions: Versions,
    /// The machine.
    pub machine: Machine,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// What a matrix comes to.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Cells.
    pub cells: usize,
    /// Those that are valid and as predicted.
    pub as_predicted: usize,
    /// Those that hold nothing that was not predicted to hold, by the reason: what is unsafe.
    pub unsafe_because: BTreeMap<String, Vec<String>>,
}

/// What is shown of a cell.
#[derive(Debug, Deserialize)]
struct Row {
    lock: String,
    scope: String,
    guards: String,
    replicas: u16,
    circumstance: String,
    fault: Option<String>,
    predicted: Prediction,
    because: String,
    observed: Prediction,
    as_predicted: bool,
    valid: bool,
    oversold: u64,
    duplicate_users: u64,
    lost: u64,
    orders_per_s: f64,
    p99_ms: f64,
    tries: u32,
    took_s: f64,
    invalid_because: Vec<String>,
    broken_rules: Vec<String>,
    error: Option<String>,
    round: Option<RoundRow>,
}

#[derive(Debug, Deserialize)]
struct RoundRow {
    plan: String,
    faults: Vec<StrikeRow>,
    back_after_ms: Option<u64>,
    unmet: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct StrikeRow {
    witness: String,
}

impl Row {
    /// A cell that cannot be read is none that is in order.
    fn of(cell: &Value) -> Option<Self> {
        Self::deserialize(cell).ok()
    }

    fn name(&self) -> String {
        let Self { lock, scope, guards, replicas, .. } = self;
        let what = match (&self.fault, self.circumstance.as_str()) {
            (None, "short-work") => String::new(),
            (Some(fault), "short-work") => format!(", {fault}"),
            (_, circumstance) => format!(", {circumstance}"),
        };
        format!("{lock} per {scope}, guards {guards}, replicas {replicas}{what}")
    }

    fn is_ok(&self) -> bool {
        self.valid && self.as_predicted
    }

    fn verdict(&self) -> &'static str {
        let unmet = self.round.as_ref().is_some_and(|round| !round.unmet.is_empty());
        if !self.valid {
            "INVALID"
        } else if self.as_predicted {
            "as predicted"
        } else if self.observed == self.predicted {
            if unmet { "NOT HEALED" } else { "RULE BROKEN" }
        } else if self.observed.oversells && !self.predicted.oversells
            || self.observed.duplicates && !self.predicted.duplicates
        {
            "BROKEN"
        } else {
            "NOT SHOWN"
        }
    }

    /// Everything that is wrong with it.
    fn faults(&self) -> Vec<String> {
        let mut because = Vec::new();
        if self.observed != self.predicted && self.error.is_none() {
            let (predicted, observed) = (self.predicted.words(), self.observed.words());
            because.push(format!("predicted {predicted}, observed {observed}"));
        }
        because.extend(self.broken_rules.iter().map(|rule| format!("rule {rule} is broken")));
        because.extend(self.round.iter().flat_map(|round| round.unmet.iter().cloned()));
        because.extend(self.invalid_because.iter().cloned());
        because.extend(self.error.clone());
        because
    }
}

/// Whether the cell is valid and as predicted.
pub fn is_ok(cell: &Value) -> bool {
    Row::of(cell).is_some_and(|row| row.is_ok())
}

/// The line that is shown when a cell is finished: what it is, and what was seen of its fault.
pub fn line(cell: &Value) -> String {
    let Some(row) = Row::of(cell) else { return "a cell that cannot be read".to_owned() };
    let tries = if row.tries > 1 { format!(", {} tries", row.tries) } else { String::new() };
    let mut lines =
        vec![format!("{:<62} {:<12} {:>5.1} s{tries}", row.name(), row.verdict(), row.took_s)];
    if let Some(round) = &row.round {
        let back = round.back_after_ms.map_or("not back within 5 s".to_owned(), |ms| {
            format!("throughput back after {ms} ms")
        });
        let seen: Vec<&str> = round.faults.iter().map(|fault| fault.witness.as_str()).collect();
        lines.push(format!("{}: {}; {back}", round.plan, seen.join("; ")));
    }
    lines.extend(row.faults().iter().map(|fault| format!("✗ {fault}")));
    lines.join("\n        ")
}

/// What the cells come to.
pub fn summary(cells: &[Value]) -> Summary {
    let rows: Vec<Row> = cells.iter().filter_map(Row::of).collect();
    let mut unsafe_because = BTreeMap::<String, Vec<String>>::new();
    for row in rows.iter().filter(|row| row.valid && !row.observed.holds()) {
        let because =
            if row.as_predicted { row.because.clone() } else { "nobody knows".to_owned() };
        let words = row.observed.words();
        unsafe_because.entry(because).or_default().push(format!("{}: {words}", row.name()));
    }
    let as_predicted = rows.iter().filter(|row| row.is_ok()).count();
    Summary { cells: cells.len(), as_predicted, unsafe_because }
}

impl MatrixReport {
    /// All that is printed.
    pub fn text(&self, markdown: bool) -> String {
        let rows: Vec<Row> = self.cells.iter().filter_map(Row::of).collect();
        let mut parts = vec![table(&rows, markdown)];
        let wrong: Vec<String> = rows
            .iter()
            .filter(|row| !row.is_ok())
            .map(|row| format!("✗ {}: {}", row.name(), row.faults().join("; ")))
            .collect();
        if !wrong.is_empty() {
            parts.push(wrong.join("\n"));
        }
        for (because, cells) in &self.summary.unsafe_because {
            let cells: Vec<String> = cells.iter().map(|cell| format!("- {cell}")).collect();
            parts.push(format!(
                "{}\n{}",
                wrapped(&format!("Unsafe, since {because}:")),
                cells.join("\n")
            ));
        }
        if !self.not_generated.is_empty() {
            let why = self.not_generated.iter();
            let why = why.map(|one| format!("- {}: {}", one.combinations, one.because));
            let why: Vec<String> = why.collect();
            parts.push(format!("Combinations that are no cells:\n{}", why.join("\n")));
        }
        parts.push(wrapped(&self.provenance()));
        let Summary { cells, as_predicted, .. } = &self.summary;
        parts.push(format!("{cells} cells, {as_predicted} as predicted"));
        parts.join("\n\n")
    }

    fn provenance(&self) -> String {
        let (versions, machine) = (&self.versions, &self.machine);
        let resumed = match self.resumed {
            0 => String::new(),
            some => format!("{some} cells were finished by an earlier run; "),
        };
        format!(
            "Seed {}; {resumed}{:.0} s; database {} (innodb_flush_log_at_trx_commit={}), Redis {}, \
             HAProxy {}{}; {} CPUs, Linux {}.",
            self.seed,
            self.took_s,
            versions.database,
            self.settings.innodb_flush_log_at_trx_commit,
            versions.redis,
            versions.haproxy,
            versions.zookeeper.as_ref().map_or(String::new(), |it| format!(", ZooKeeper {it}")),
            machine.cpus,
            machine.kernel
        )
    }

    /// Writes the JSON to a file.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }

    /// Writes `matrix.json`, `matrix.txt` and `matrix.md` into a folder, which is made if need be.
    pub fn write_folder(&self, folder: &Path) -> Result<()> {
        self.write_json(&folder.join("matrix.json"))?;
        write(&folder.join("matrix.txt"), &self.text(false))?;
        write(&folder.join("matrix.md"), &self.text(true))
    }
}

fn table(rows: &[Row], markdown: bool) -> String {
    const HEADERS: [&str; 13] = [
        "lock",
        "scope",
        "guards",
        "replicas",
        "circumstance",
        "predicted",
        "observed",
        "oversold",
        "duplicates",
        "lost",
        "orders/s",
        "p99 ms",
        "verdict",
    ];
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { STYLE });
    table.force_no_tty().set_header(HEADERS);
    for row in rows {
        let circumstance = match (&row.fault, row.circumstance.as_str()) {
            (Some(fault), "short-work") => fault.clone(),
            (_, circumstance) => circumstance.to_owned(),
        };
        table.add_row(
            [
                row.lock.clone(),
                row.scope.clone(),
                row.guards.clone(),
                row.replicas.to_string(),
                circumstance,
                row.predicted.words().to_owned(),
                row.observed.words().to_owned(),
                row.oversold.to_string(),
                row.duplicate_users.to_string(),
                row.lost.to_string(),
                format!("{:.0}", row.orders_per_s),
                format!("{:.1}", row.p99_ms),
                row.verdict().to_owned(),
            ]
            .map(Cell::new),
        );
    }
    for index in [3, 7, 8, 9, 10, 11] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
