//! `make bench-locks`: what a lock costs, beside the bare commands it is made of and beside what
//! others use.
//!
//! What a row compares is measured side by side: within a round its cells work in turn, half a
//! second each (contests longer), until each has had its seconds, so that a noisy neighbour falls
//! on all alike. A row's figure is the median, over the rounds, of the ratio within a round.
//!
//! - [`rows`]: what is measured and what it has to reach; [`groups`]: what side by side;
//!   [`cell`]: how slices become a sample; [`round`]: cells in turn; [`report`]: the table and the
//!   JSON; [`versions`]: what took part.
//! - [`throughput`]: locks of this library; [`bare`]: the bare pair; [`benchmark`]:
//!   redis-benchmark; [`jvm`]: the real Redisson; [`local`]: what others use inside a process.
//! - [`contended`]: locks that many want: [`contest`], by processes, beside one [`trip`] to the
//!   server; [`commands`], what clients send; [`crowd`], by very many; and many that are [`held`].

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
mod local;
mod report;
mod round;
mod rows;
mod throughput;
mod trip;
mod versions;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use loadtest::bench::choice::{Choice, EXIT_CODES};
use loadtest::bench::figure::SECONDS;
use loadtest::bench::host::HostReport;
use loadtest::error::Result;
use loadtest::report::{check_writable, write_json};

use loadtest::say::{say, tell};
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
    choice: Choice,
    /// Only see that the rows can be measured: each for a moment, whatever it comes to
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    smoke: bool,
    /// What cargo tells every bench
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tell(error.sentence());
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
            say(format_args!("{}: {}", row.name, row.what));
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
    tell(host.line());
    let (samples, versions) = round::measure(&rows, lengths, &|line| tell(line))?;
    let report = Report::of(rows, samples, (lengths, host, versions));
    say(report.text());
    if let Some(path) = &choice.json {
        write_json(path, &report)?;
    }
    Ok(report.ok() || args.smoke)
}
