//! `loadtest learn`: the ladder, a rung at a time.

use std::path::PathBuf;

use clap::Args;
use loadtest_lab::cell::CellReport;
use loadtest_lab::ladder::{LadderRunner, RUNGS, Rung, RungSide};
use loadtest_measure::error::{Error, Result};
use loadtest_measure::files::check_writable;
use loadtest_measure::print::print_line;
use loadtest_report::headline::Headline;
use loadtest_report::learn::{ladder, next_step, prologue, seen, summary};
use loadtest_report::{MATRIX, Report};

use super::{PrivateArgs, stop_on_signal};

const EXIT_CODES: &str = "\
Exit codes: 0 each rung broke as it says and its repair withstood, 1 one did not, 2 bad usage or
something that must run does not.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct LearnArgs {
    /// The rung; without one the ladder is listed
    #[arg(value_name = "RUNG", conflicts_with = "all")]
    rung: Option<String>,
    /// Climb the whole ladder
    #[arg(long)]
    all: bool,
    /// Seed of the moments, victims and orders of users; the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the report into this folder: index.html with the drawings, and the same as .json,
    /// .csv, .txt and .md
    #[arg(long, value_name = "DIR")]
    report_dir: Option<PathBuf>,
    #[command(flatten)]
    private: PrivateArgs,
}

fn slugs() -> Vec<&'static str> {
    RUNGS.iter().map(|rung| rung.slug).collect()
}

impl LearnArgs {
    /// The rungs to climb; none if the ladder is to be listed.
    fn rungs(&self) -> Result<Vec<&'static Rung>> {
        match &self.rung {
            _ if self.all => Ok(RUNGS.iter().collect()),
            None => Ok(Vec::new()),
            Some(slug) => Rung::named(slug)
                .map(|rung| vec![rung])
                .ok_or_else(|| Error::unknown("rung", slug, &slugs())),
        }
    }

    /// The command line without the choice of servers.
    fn command(&self) -> String {
        let what = self.rung.as_deref().unwrap_or("--all");
        format!("loadtest learn {what} --seed {}", self.seed)
    }
}

/// Whether each rung broke, and each repair withstood.
pub(super) async fn run(args: LearnArgs) -> Result<bool> {
    let rungs = args.rungs()?;
    if rungs.is_empty() {
        print_line(ladder());
        return Ok(true);
    }
    let parts = args.private.parts_of_one_server()?;
    if let Some(folder) = &args.report_dir {
        check_writable(&folder.join(format!("{MATRIX}.json")))?;
    }
    let stop = stop_on_signal()?;
    let mut runner = Box::pin(LadderRunner::start(parts, &rungs, args.seed, &stop)).await?;
    let mut cells: Vec<CellReport> = Vec::new();
    for rung in &rungs {
        print_line(prologue(rung));
        for side in [RungSide::Broken, RungSide::Repaired] {
            let cell = Box::pin(runner.run(rung, side, &stop)).await;
            if stop.is_cancelled() {
                return Err(Error::Interrupted);
            }
            print_line(seen(rung, side, &cell));
            cells.push(cell);
        }
        print_line(next_step(rung));
    }
    if args.all {
        print_line(summary(&cells));
    }
    let ok = cells.iter().all(CellReport::ok);
    let report = Report::of(runner.results(cells, args.command()));
    if let Some(headline) = Headline::of(&report) {
        print_line(headline.lines());
    }
    if let Some(folder) = &args.report_dir {
        report.write_folder(folder)?;
        print_line(format_args!("Report: {}", folder.join("index.html").display()));
    }
    Ok(ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rung: Option<&str>, all: bool) -> LearnArgs {
        LearnArgs {
            rung: rung.map(str::to_owned),
            all,
            seed: 7,
            report_dir: None,
            private: PrivateArgs::default(),
        }
    }

    #[test]
    fn a_rung_is_found_by_its_name_and_an_unknown_one_is_a_usage_error_that_lists_all() {
        assert_eq!(args(None, true).rungs().expect("all").len(), RUNGS.len());
        assert!(args(None, false).rungs().expect("a list").is_empty());
        let one = args(Some("set-nx"), false);
        assert_eq!(one.rungs().expect("one")[0].slug, "set-nx");
        assert_eq!(one.command(), "loadtest learn set-nx --seed 7");
        let error = args(Some("spinlock"), false).rungs().expect_err("unknown");
        assert_eq!(error.exit_code(), 2);
        for rung in RUNGS {
            assert!(error.to_string().contains(rung.slug), "{error}");
        }
    }
}
