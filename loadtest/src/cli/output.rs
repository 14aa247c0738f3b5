//! Where reports go: flags of every command that runs cells.

use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::lab::histories::Histories;
use crate::report::baseline::Baseline;
use crate::report::table::Look;
use crate::report::{Report, check_writable};
use crate::say::say;

#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Write the report as JSON, also if it fails
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report into this folder: index.html, and the same as .json, .csv, .txt and .md
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    /// Say what changed since an earlier run, whose JSON this is
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Keep the history of every cell in this folder, so that `loadtest check` can judge it again
    ///
    /// Without it only those of red cells are kept, in `histories/` of --report-dir.
    #[arg(long, value_name = "DIR")]
    histories: Option<PathBuf>,
}

/// Where a report is to go; all of it can be written.
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
    pub(super) fn take(self, mut report: Report, stop: &CancellationToken) -> Result<bool> {
        if let Some(baseline) = &self.baseline {
            report.compare_with(baseline);
        }
        say(report.text(Look::of_stdout()));
        if let Some(path) = &self.args.json {
            report.write_json(path)?;
        }
        if let Some(folder) = &self.args.report_dir {
            report.write_folder(folder)?;
            say(format_args!("\nReport: {}", folder.join("index.html").display()));
        }
        if stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(report.ok) }
    }
}
