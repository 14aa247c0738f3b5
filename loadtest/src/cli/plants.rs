//! `loadtest plants`: its flags.

use std::path::PathBuf;

use clap::Args;

use super::{EXIT_CODES, PrivateArgs, stop_on_signal};
use crate::error::{Error, Result};
use crate::lab::planting::{MAX_SEEDS, Planting, SEEDS, rows};
use crate::lab::plants::Row;
use crate::report::{check_writable, counted, write_json};
use crate::say::say;

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct PlantsArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Only these bugs; --list names them
    #[arg(long, value_name = "BUGS", value_delimiter = ',', default_value = "all")]
    only: Vec<String>,
    /// Seeds of each bug; each settles moments, victims and sizes of faults
    #[arg(long, value_name = "N", default_value_t = SEEDS)]
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
pub(super) async fn run(args: PlantsArgs) -> Result<bool> {
    let rows = rows(&args.only)?;
    if args.list {
        list(&rows);
        return Ok(true);
    }
    if rows.is_empty() {
        return Err(Error::Usage("--only names no planted bug".to_owned()));
    }
    let parts = args.private.parts()?;
    if let Some(path) = &args.json {
        check_writable(path)?;
    }
    let stop = stop_on_signal()?;
    let report = Box::pin(Planting { rows, seeds: args.seeds }.run_alone(parts, &stop)).await?;
    say(report.text());
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    if stop.is_cancelled() { Err(Error::Interrupted) } else { Ok(report.plants.ok) }
}

/// Prints each with what it breaks and where it must show.
pub(super) fn list(rows: &[Row]) {
    for row in rows {
        say(format_args!("{}: {}; {}", row.bug.name(), row.breaks, row.trial));
    }
    say(format_args!("{}", counted(rows.len(), "planted bug")));
}
