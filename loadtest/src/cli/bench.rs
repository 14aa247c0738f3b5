//! `loadtest bench`: its flags.

use std::path::PathBuf;

use clap::Args;

use super::{PrivateArgs, stop_on_signal};
use crate::bench::Bench;
use crate::bench::figure::{ROUNDS, SECONDS};
use crate::bench::rows::{ROWS, Row};
use crate::error::{Error, Result};
use crate::report::{check_writable, write_json};

const EXIT_CODES: &str = "\
Exit codes: 0 every bar of the chosen rows is met, 1 one is not, or the run is too short to tell, \
2 bad usage or something that must run does not.";

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    private: PrivateArgs,
    /// Only these rows; --list names them
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "all")]
    rows: Vec<String>,
    /// How often everything is measured; with fewer than 5 no bar is met
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
    /// Seconds of each round after its warm-up; with fewer than 10 no bar is met
    #[arg(long, value_name = "S", default_value_t = SECONDS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Write the report as JSON, also if it fails
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the rows, and measure none
    #[arg(long)]
    list: bool,
}

/// Whether every bar is met.
pub(super) async fn run(args: BenchArgs) -> Result<bool> {
    let rows = chosen(&args.rows)?;
    if args.list {
        for row in rows {
            println!("{}: {}", row.name, row.what);
        }
        return Ok(true);
    }
    let (rounds, seconds) = (args.rounds, args.seconds);
    let bench = Bench { parts: args.private.parts()?, rows, rounds, seconds };
    if let Some(path) = &args.json {
        check_writable(path)?;
    }
    let stop = stop_on_signal()?;
    let report = bench.run(&stop, &|line| eprintln!("{line}")).await?;
    println!("{}", report.text());
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    Ok(report.ok)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    if names == ["all"] {
        return Ok(ROWS.iter().collect());
    }
    let known = |name: &String| ROWS.iter().any(|row| row.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Error::Usage(format!(
            "--rows: there is no row {unknown:?}; --list names them"
        )));
    }
    Ok(ROWS.iter().filter(|row| names.iter().any(|name| name == row.name)).collect())
}
