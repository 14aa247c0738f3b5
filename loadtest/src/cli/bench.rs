//! `loadtest bench`: its flags.

use clap::Args;
use loadtest_measure::bench_flags::{BenchFlags, EXIT_CODES};
use loadtest_measure::error::Result;
use loadtest_measure::files::{check_writable, write_json};
use loadtest_measure::print::{print_line, print_status};

use super::{PrivateArgs, stop_on_signal};
use crate::bench::Bench;
use crate::bench::rows::{ROWS, Row};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    private: PrivateArgs,
    #[command(flatten)]
    choice: BenchFlags,
}

/// Whether every bar is met.
pub(super) async fn run(args: BenchArgs) -> Result<bool> {
    let choice = args.choice;
    let is_measured = |row: &&Row| choice.list || !choice.is_all() || !row.is_by_name();
    let rows = choice.of(ROWS.iter().filter(is_measured).collect(), |row| row.name)?;
    if choice.list {
        for row in rows {
            print_line(format_args!("{}: {}", row.name, row.what));
        }
        return Ok(true);
    }
    let (rounds, seconds) = (choice.rounds, choice.seconds);
    let bench = Bench { parts: args.private.parts_of_one_server()?, rows, rounds, seconds };
    if let Some(path) = &choice.json {
        check_writable(path)?;
    }
    let stop = stop_on_signal()?;
    let report = bench.run(&stop, &|line| print_status(line)).await?;
    print_line(report.text());
    if let Some(path) = &choice.json {
        write_json(path, &report)?;
    }
    Ok(report.ok)
}
