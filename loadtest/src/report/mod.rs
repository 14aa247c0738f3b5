//! The whole report on a run of cells: what is printed, and the files.

pub mod baseline;
pub mod check_text;
pub mod conclusion;
pub mod crossing;
pub mod csv;
pub mod detail;
pub mod headline;
pub mod html;
pub mod matrix;
pub mod plants;
pub mod repeat;
pub mod run_text;
pub mod series;
pub mod settings;
mod summary;
pub mod table;
pub mod unknown;

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::lab::cell::CellReport;
use crate::lab::compare::NotApplicable;
use crate::lab::machine::{Machine, Versions};
use crate::lab::place::Load;
use crate::lab::planting::Plants;
use crate::report::baseline::{Baseline, Changes};
use crate::report::conclusion::Conclusion;
use crate::report::headline::Headline;
use crate::report::html::page::Page;
use crate::report::matrix::Selection;
use crate::report::repeat::Flag;
use crate::report::settings::Settings;
use crate::report::table::{Look, Of, footnote, problems, table};

/// Everything that came out of one comparison, or of one matrix.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every cell is valid and as predicted, and every planted bug caught.
    pub ok: bool,
    /// The same in prose.
    pub conclusion: Conclusion,
    /// The cells, in the order of the table.
    #[serde(serialize_with = "unknown::cells")]
    pub cells: Vec<CellReport>,
    /// Cells that have nothing to show, and were not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_applicable: Vec<NotApplicable>,
    /// What only a matrix tells.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// What changed since an earlier run, if there is one to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// What became of planted bugs, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planted: Option<Plants>,
    /// The load that each cell got that has none of its own.
    pub load: Load,
    /// Flags that have chosen the servers and the service, if they are not the usual ones.
    pub chosen: Vec<Flag>,
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

/// Names of the files in a report's folder, without their endings.
pub const COMPARISON: &str = "comparison";
/// The same of a matrix.
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

/// So many of them: `1 cell`, `2 cells`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// A sentence with a capital letter at its begin.
fn capitalized(sentence: &str) -> String {
    let mut text = sentence.to_owned();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// Prose in lines of at most so many columns.
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
        let (why, history) = (problems(cell).join("; "), history.unwrap_or_default());
        format!("✗ {}: {why}{history}", cell.trial())
    };
    cells.iter().filter(|cell| !cell.ok()).map(why).collect()
}

impl Report {
    /// All that is printed: first what makes it red, then the summary, if its cells were run.
    pub fn text(&self, look: Look) -> String {
        let headline = Headline::of(self).map(|headline| headline.lines());
        let whole = match &self.selection {
            Some(selection) => matrix::text(self, selection, look),
            None => self.comparison(look),
        };
        let summary = summary::summary(&self.cells, &self.load, look);
        let parts = headline.into_iter().chain(summary).chain([whole]);
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Table, legend, what is wrong, conclusion.
    fn comparison(&self, look: Look) -> String {
        let columns = look.columns();
        let table = table(&self.cells, Of::Comparison, look);
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

    /// Holds the cells and the planted bugs against those of an earlier run.
    pub fn compare_with(&mut self, baseline: &Baseline) {
        self.changes = Some(baseline.compare(&self.cells, self.planted.as_ref()));
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
             ({}), Redis {} ({}), HAProxy {}{}; {} CPUs, Linux {}.",
            versions.loadtest,
            versions.database,
            self.settings.database(),
            versions.redis,
            self.settings.redis(),
            versions.haproxy,
            versions.zookeeper.as_ref().map_or(String::new(), |it| format!(", ZooKeeper {it}")),
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
        write(&folder.join("index.html"), &html::render(&Page::of(self))?)?;
        write(&file("csv"), csv::csv(&self.cells)?.trim_end())?;
        write(&file("txt"), &self.text(Look::FILE))?;
        write(&file("md"), &self.text(Look::Markdown))
    }
}

/// Writes anything as readable JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Setup(format!("the report cannot be written: {error}")))?;
    write(path, &text)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, format!("{text}\n")))
        .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))
}

/// Says now, before the work, if a report could not be written after it.
pub fn check_writable(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let existed = path.exists();
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::OpenOptions::new().append(true).create(true).open(path).map(drop))
        .and_then(|()| if existed { Ok(()) } else { std::fs::remove_file(path) })
        .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
