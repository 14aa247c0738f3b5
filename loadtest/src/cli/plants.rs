//! `loadtest plants`: its flags.

use std::path::PathBuf;

use clap::Args;

use super::{EXIT_CODES, PrivateArgs, stop_on_signal};
use crate::error::Result;
use crate::lab::cluster::find_program;
use crate::lab::planting::{MAX_SEEDS, Planting, rows};
use crate::lab::runner::Parts;
use crate::report::{check_writable, write_json};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct PlantsArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Only these bugs [default: all; --list names them]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Seeds of each bug; each settles moments, victims and sizes of faults
    #[arg(long, value_name = "N", default_value_t = 3)]
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
        for row in &rows {
            println!("{}: {}; {}", row.bug.name(), row.breaks, row.trial);
        }
        println!("{} planted bugs", rows.len());
        return Ok(true);
    }
    let program = find_program(args.private.seckill.as_deref())?;
    if let Some(path) = &args.json {
        check_writable(path)?;
    }
    let parts = Parts { flavor: args.private.flavor(), program };
    let stop = stop_on_signal()?;
    let report = Planting { parts, rows, seeds: args.seeds }.run(&stop).await?;
    println!("{}", report.text());
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    Ok(report.ok)
}
