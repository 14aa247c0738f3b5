//! What a bench is asked for: the flags of all of them.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::bars::{ROUNDS, SECONDS};
use crate::error::{Error, Result};

/// What a bench's exit code says.
pub const EXIT_CODES: &str = "\
Exit codes: 0 every bar of the chosen rows is met, 1 one is not, the run is too short to tell or \
the host is not steady, 2 bad usage or something that must run does not.";

/// Which rows, and how long.
#[derive(Debug, Args)]
pub struct BenchFlags {
    /// Measure only these rows; --list names them
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "all")]
    pub rows: Vec<String>,
    /// Rounds, each of which measures everything; no bar is met with fewer than 5
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub rounds: usize,
    /// Seconds of each round after its warm-up; no bar is met with fewer than 10
    #[arg(long, value_name = "S", default_value_t = SECONDS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Write the report as JSON, also if bars are missed
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print the rows and measure none
    #[arg(long)]
    pub list: bool,
}

impl BenchFlags {
    /// Whether no rows were named.
    pub fn is_all(&self) -> bool {
        self.rows == ["all"]
    }

    /// The rows that were asked for; an unknown name is a usage error.
    pub fn of<R>(&self, mut all: Vec<R>, name: impl Fn(&R) -> &str) -> Result<Vec<R>> {
        if self.is_all() {
            return Ok(all);
        }
        let known = |asked: &&String| all.iter().any(|row| name(row) == **asked);
        if let Some(unknown) = self.rows.iter().find(|asked| !known(asked)) {
            let why = format!("--rows: there is no row {unknown:?}; --list names them");
            return Err(Error::Usage(why));
        }
        all.retain(|row| self.rows.iter().any(|asked| asked == name(row)));
        Ok(all)
    }
}
