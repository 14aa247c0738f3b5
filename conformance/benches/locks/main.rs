//! `make bench-locks`: what a lock costs, beside the bare commands it is made of and beside what
//! others use.
//!
//! What a row compares is measured side by side. Within a round its cells work in turn, half a
//! second each (contests longer), until each has had its seconds. A noisy neighbour then falls on
//! all alike. A row's figure is the median, over the rounds, of the ratio within a round.
//!
//! - [`rows`]: what is measured and its bars. [`groups`]: what is measured side by side. [`cell`]:
//!   from slices to a sample. [`round`]: cells in turn. [`report`]: the table and the JSON.
//!   [`versions`]: what took part.
//! - [`throughput`]: locks of this library; [`bare`]: the bare pair; [`benchmark`]:
//!   redis-benchmark; [`jvm`]: the real Redisson; [`local`]: what others use inside a process.
//! - [`releases`]: many bare pairs in a packet, by a server's own command and by the script.
//! - [`contended`]: locks that many want: [`contest`], by processes, beside one [`trip`] to the
//!   server; [`commands`], what clients send; [`crowd`], by very many; and many that are [`held`].
//! - [`list_time`]: how long many locks take to list.

mod bare;
mod benchmark;
mod cell;
mod commands;
mod contended;
mod contest;
mod crowd;
mod groups;
mod held;
mod jvm;
mod list_time;
mod local;
mod releases;
mod report;
mod round;
mod rows;
mod throughput;
mod trip;
mod versions;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use loadtest_measure::bars::SECONDS;
use loadtest_measure::bench_flags::{BenchFlags, EXIT_CODES};
use loadtest_measure::error::Result;
use loadtest_measure::files::{check_writable, write_json};
use loadtest_measure::host::HostReport;
use loadtest_measure::print::{print_line, print_status};
use report::Report;
use round::Lengths;

/// The service's, for all that is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what a lock costs.
#[derive(Debug, Parser)]
#[command(after_help = EXIT_CODES)]
struct Args {
    #[command(flatten)]
    choice: BenchFlags,
    /// Only see that the rows can be measured: each for a moment, whatever it comes to
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    smoke: bool,
    /// What cargo passes to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_status(error.sentence());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether every bar is met.
fn run(args: &Args) -> Result<bool> {
    let choice = &args.choice;
    let rows = choice.of(rows::all(), |row| &row.name)?;
    if choice.list {
        for row in rows {
            print_line(format_args!("{}: {}", row.name, row.what));
        }
        return Ok(true);
    }
    if let Some(path) = &choice.json {
        check_writable(path)?;
    }
    let lengths = if args.smoke {
        Lengths::smoke()
    } else {
        Lengths::of(choice.rounds, Duration::from_secs(choice.seconds))
    };
    let host = HostReport::measure(if args.smoke { 1 } else { choice.seconds.min(SECONDS) })?;
    print_status(host.line());
    let (samples, versions) = round::measure(&rows, lengths, &|line| print_status(line))?;
    let report = Report::of(rows, samples, (lengths, host, versions));
    print_line(report.text());
    if let Some(path) = &choice.json {
        write_json(path, &report)?;
    }
    Ok(report.ok() || args.smoke)
}
