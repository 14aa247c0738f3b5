//! `loadtest bench`: its flags.

use clap::Args;

use super::{PrivateArgs, stop_on_signal};
use crate::bench::Bench;
use crate::bench::choice::{Choice, EXIT_CODES};
use crate::bench::rows::ROWS;
use crate::error::Result;
use crate::report::{check_writable, write_json};
use crate::say::{say, tell};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    private: PrivateArgs,
    #[command(flatten)]
    choice: Choice,
}

/// Whether every bar is met.
pub(super) async fn run(args: BenchArgs) -> Result<bool> {
    let choice = args.choice;
    let rows = choice.of(ROWS.iter().collect(), |row| row.name)?;
    if choice.list {
        for row in rows {
            say(format_args!("{}: {}", row.name, row.what));
        }
        return Ok(true);
    }
    let (rounds, seconds) = (choice.rounds, choice.seconds);
    let bench = Bench { parts: args.private.parts()?, rows, rounds, seconds };
    if let Some(path) = &choice.json {
        check_writable(path)?;
    }
    let stop = stop_on_signal()?;
    let report = bench.run(&stop, &|line| tell(line)).await?;
    say(report.text());
    if let Some(path) = &choice.json {
        write_json(path, &report)?;
    }
    Ok(report.ok)
}
