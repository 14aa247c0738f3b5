//! Reports: what is printed of a run, and the files.
//!
//! [`Report`] is that of `compare` and `matrix`: its tables ([`mod@table`], [`mod@matrix`]), its
//! prose ([`conclusion`], [`headline`]), the page ([`html`]), what changed since an earlier run
//! ([`baseline`]), how to repeat it ([`repeat`]). [`run_report`] is that of one load. What the page
//! has in two languages is a [`text::Text`].

pub mod baseline;
pub mod cell_json;
pub mod check_text;
pub mod conclusion;
pub mod csv;
pub mod headline;
pub mod html;
pub mod injected_bugs;
pub mod learn;
pub mod matrix;
pub mod names;
pub mod progress;
pub mod repeat;
pub mod run_report;
pub mod run_text;
mod setting;
mod summary;
pub mod table;
pub mod text;

use std::path::Path;

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::Load;
use loadtest_lab::injection_results::InjectionResults;
use loadtest_lab::results::NotApplicable;
use loadtest_lab::results::RunResults;
use loadtest_lab::runner::Flag;
use loadtest_measure::error::Result;
use loadtest_measure::files::{write_json, write_text};
use loadtest_measure::machine::{Machine, Versions};
use loadtest_measure::server_settings::ServerSettings;
use serde::Serialize;

use crate::baseline::{Baseline, Changes};
use crate::conclusion::Conclusion;
use crate::headline::Headline;
use crate::html::page::Page;
use crate::matrix::Selection;
use crate::table::{TableFormat, TableSubject, footnote, problems, table};
use crate::text::Text;

/// Everything that came out of one comparison, or of one matrix.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every cell is valid and as predicted, and every injected bug caught.
    pub ok: bool,
    /// The same in prose.
    pub conclusion: Conclusion,
    /// The cells, in the order of the table.
    #[serde(serialize_with = "cell_json::cells")]
    pub cells: Vec<CellReport>,
    /// Cells that have nothing to show, and were not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applicable: Vec<NotApplicable>,
    /// What only a matrix reports.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// What changed since an earlier run, if there is one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// The outcome of injected bugs, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected_bugs: Option<InjectionResults>,
    /// The load that each cell got that has none of its own.
    pub load: Load,
    /// Flags that have chosen the servers and the service, if they are not the usual ones.
    pub chosen: Vec<Flag>,
    /// Settings of the servers that figures depend on.
    pub settings: ServerSettings,
    /// Versions of everything that took part.
    pub versions: Versions,
    /// The machine.
    pub machine: Machine,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// Names of the files in a report's folder, without their endings.
pub const COMPARISON: &str = "comparison";
/// What a matrix is called in reports.
pub const MATRIX: &str = "matrix";

/// What the columns of that table mean.
fn legend(table: &str) -> String {
    let percentiles = if table.contains("p50 ms") { "p50, p99" } else { "p99" };
    format!(
        "oversold: orders beyond the stock. duplicates: users who bought more than once. \
         lost: acknowledged orders that do not exist. \
         orders/s: acknowledged orders until the last one. \
         {percentiles}: of all answers, refusals included. \
         guards: unique key and stock condition of the database; off, the lock is all there is."
    )
}

/// A count with its noun: `1 cell`, `2 cells`.
pub fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Prose in lines of at most `columns` columns.
fn wrapped(prose: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in prose.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > columns {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Why each cell that is not in order is not, one line a cell.
fn wrong(cells: &[CellReport]) -> Vec<String> {
    let why = |cell: &CellReport| {
        let history = cell.history.as_ref().map(|path| format!(" (history: {path})"));
        let why = Text::joined("semicolon", problems(cell));
        let history = history.unwrap_or_default();
        format!("✗ {}: {why}{history}", cell.title())
    };
    cells.iter().filter(|cell| !cell.ok()).map(why).collect()
}

impl Report {
    /// The report on these results.
    pub fn of(results: RunResults) -> Self {
        let conclusion = setting::conclusion_of(&results);
        let RunResults { cells, selection, injected_bugs, .. } = results;
        let is_matrix = selection.is_some();
        let as_expected = cells.iter().all(CellReport::ok) && (is_matrix || !cells.is_empty());
        Self {
            ok: as_expected && injected_bugs.as_ref().is_none_or(|all| all.ok),
            conclusion,
            selection: selection.map(|chosen| Selection::of(chosen, &cells)),
            cells,
            not_applicable: results.not_applicable,
            changes: None,
            injected_bugs,
            load: results.load,
            chosen: results.chosen,
            settings: results.settings,
            versions: results.versions,
            machine: results.machine,
            started_at: results.started_at,
            took_s: results.took_s,
        }
    }

    /// All that is printed: first what makes it red, then the summary, if its cells were run.
    pub fn text(&self, format: TableFormat) -> String {
        let headline = Headline::of(self).map(|headline| headline.lines());
        let whole = match &self.selection {
            Some(selection) => matrix::text(self, selection, format),
            None => self.comparison(format),
        };
        let summary = summary::summary(&self.cells, &self.load, format);
        let parts = headline.into_iter().chain(summary).chain([whole]);
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Table, legend, what is wrong, conclusion.
    fn comparison(&self, format: TableFormat) -> String {
        let columns = format.columns();
        let table = table(&self.cells, TableSubject::Comparison, format);
        let legend = wrapped(&legend(&table), columns);
        let mut parts = vec![table];
        if !self.not_applicable.is_empty() {
            let none = self.not_applicable.iter().map(ToString::to_string);
            parts.push(none.collect::<Vec<_>>().join("\n"));
        }
        parts.push(legend);
        parts.extend(footnote(&self.cells));
        let wrong = wrong(&self.cells);
        if !wrong.is_empty() {
            parts.push(wrong.join("\n"));
        }
        parts.extend(self.changes.as_ref().map(Changes::text));
        parts.push(wrapped(&self.conclusion.to_string(), columns));
        parts.push(wrapped(&self.provenance(), columns));
        parts.join("\n\n")
    }

    /// Holds the cells and the injected bugs against those of an earlier run.
    pub fn compare_with(&mut self, baseline: &Baseline) {
        self.changes = Some(baseline.compare(&self.cells, self.injected_bugs.as_ref()));
    }

    /// Where the figures come from, in one line.
    fn provenance(&self) -> String {
        let load = &self.load;
        format!(
            "{} users x {} simultaneous requests for {} units over {} connections in each cell; \
             {:.0} s in all; {}",
            load.users,
            load.requests_per_user,
            load.stock,
            load.connections,
            self.took_s,
            self.servers()
        )
    }

    /// What ran, and on what.
    fn servers(&self) -> String {
        let (versions, machine) = (&self.versions, &self.machine);
        let [loadtest, seckill] = versions.builds();
        format!(
            "loadtest {} ({loadtest}), seckill ({seckill}), database {} \
             ({}), Redis {} ({}), HAProxy {}{}{}{}; {} CPUs, Linux {}.",
            versions.loadtest,
            versions.database,
            self.settings.database(),
            versions.redis,
            self.settings.redis(),
            versions.haproxy,
            versions.zookeeper.as_ref().map_or(String::new(), |it| format!(", ZooKeeper {it}")),
            versions.etcd.as_ref().map_or(String::new(), |it| format!(", etcd {it}")),
            versions.nats.as_ref().map_or(String::new(), |it| format!(", NATS {it}")),
            machine.cpus,
            machine.kernel
        )
    }

    /// Writes the JSON to a file.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        #[derive(Serialize)]
        struct Written<'a> {
            /// What makes it red, if it is.
            headline: Option<Headline>,
            #[serde(flatten)]
            report: &'a Report,
        }
        write_json(path, &Written { headline: Headline::of(self), report: self })
    }

    /// Writes `index.html`, and the same as JSON, CSV, text and Markdown, into a folder, which is
    /// made if need be.
    pub fn write_folder(&self, folder: &Path) -> Result<()> {
        let name = if self.selection.is_some() { MATRIX } else { COMPARISON };
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        self.write_json(&file("json"))?;
        write_text(&folder.join("index.html"), &html::render(&Page::of(self))?)?;
        write_text(&file("csv"), csv::csv(&self.cells)?.trim_end())?;
        write_text(&file("txt"), &self.text(TableFormat::FILE))?;
        write_text(&file("md"), &self.text(TableFormat::Markdown))
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
