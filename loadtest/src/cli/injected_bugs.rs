//! `loadtest inject-bugs`: its flags.

use std::path::PathBuf;

use clap::Args;
use loadtest_lab::injected_bugs::BugCase;
use loadtest_lab::injected_bugs::{DEFAULT_SEEDS, MAX_SEEDS};
use loadtest_lab::injection_run::{InjectionRun, rows};
use loadtest_lab::results::RunEvent;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::files::{check_writable, write_json};
use loadtest_measure::print::{print_line, print_status};
use loadtest_report::counted;
use loadtest_report::headline::Headline;
use loadtest_report::injected_bugs::render;
use loadtest_report::progress::matrix_line;

use super::{EXIT_CODES, PrivateArgs, stop_on_signal};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct InjectBugsArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Inject only these bugs; --list names them
    #[arg(long, value_name = "BUGS", value_delimiter = ',', default_value = "all")]
    only: Vec<String>,
    /// Seeds of each bug; each settles moments, victims and sizes of faults
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEEDS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    seeds: u64,
    /// Write the report as JSON, also if it fails
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the bugs with what each breaks and where it must show, and run none
    #[arg(long)]
    list: bool,
}

/// Whether all bugs were caught, and nothing was found without them.
pub(super) async fn run(args: InjectBugsArgs) -> Result<bool> {
    let rows = rows(&args.only)?;
    if args.list {
        list(&rows);
        return Ok(true);
    }
    if rows.is_empty() {
        return Err(Error::Usage("--only names no injected bug".to_owned()));
    }
    let parts = args.private.parts_of_one_server()?;
    if let Some(path) = &args.json {
        check_writable(path)?;
    }
    let stop = stop_on_signal()?;
    let injection = InjectionRun { rows, seeds: args.seeds };
    let observer = |event: RunEvent<'_>| print_status(matrix_line(event));
    let chosen = parts.chosen.clone();
    let report = Box::pin(injection.run_alone(parts, &observer, &stop)).await?;
    if let Some(headline) = Headline::of_bugs(&report.results, &chosen) {
        print_line(format_args!("{}\n", headline.lines()));
    }
    print_line(render(&report));
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    if stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(report.results.ok) }
}

/// Prints each with what it breaks and where it must show.
pub(super) fn list(rows: &[BugCase]) {
    for row in rows {
        print_line(format_args!("{}: {}; {}", row.bug.name(), row.breaks, row.trial));
    }
    print_line(format_args!("{}", counted(rows.len(), "injected bug")));
}
