//! Where reports go: flags of every command that runs cells.

use std::path::PathBuf;

use clap::Args;
use loadtest_lab::histories::Histories;
use loadtest_lab::results::RunResults;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::files::check_writable;
use loadtest_measure::print::print_line;
use loadtest_report::Report;
use loadtest_report::baseline::Baseline;
use loadtest_report::table::TableFormat;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Write the report as JSON, also if it fails
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report into this folder: index.html, and the same as .json, .csv, .txt and .md
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    /// JSON report of an earlier run, to print what has changed since
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Keep the history of every cell in this folder, for `loadtest check`
    ///
    /// Without it only the histories of red cells are kept, in `histories/` of --report-dir.
    #[arg(long, value_name = "DIR")]
    histories: Option<PathBuf>,
}

/// Where a report is written; all of it can be written.
pub(super) struct Output {
    args: OutputArgs,
    baseline: Option<Baseline>,
}

impl OutputArgs {
    /// Where the histories of cells go; the folder is made.
    pub(super) fn histories(&self) -> Result<Option<Histories>> {
        Histories::open(self.histories.clone(), self.report_dir.as_deref())
    }

    /// Looks, before the work, whether all can be read and written; `name` is that of the files.
    pub(super) fn open(self, name: &str) -> Result<Output> {
        let in_folder = self.report_dir.as_ref().map(|folder| folder.join(format!("{name}.json")));
        for path in self.json.iter().chain(&in_folder) {
            check_writable(path)?;
        }
        // Read now: the report may be written over it.
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        Ok(Output { args: self, baseline })
    }
}

impl Output {
    /// Prints and writes the report; whether it is green.
    pub(super) fn take(self, results: RunResults, stop: &CancellationToken) -> Result<bool> {
        let mut report = Report::of(results);
        if let Some(baseline) = &self.baseline {
            report.compare_with(baseline);
        }
        print_line(report.text(TableFormat::of_stdout()));
        if let Some(path) = &self.args.json {
            report.write_json(path)?;
        }
        if let Some(folder) = &self.args.report_dir {
            report.write_folder(folder)?;
            print_line(format_args!("\nReport: {}", folder.join("index.html").display()));
        }
        if stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(report.ok) }
    }
}
