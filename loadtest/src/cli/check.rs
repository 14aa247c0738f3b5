//! `loadtest check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use loadtest_judge::check::Check;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::files::{check_writable, write_json};
use loadtest_measure::print::print_line;
use loadtest_report::check_text;
use secrecy::{ExposeSecret as _, SecretString};

/// The value of `--database` that stands for [`DATABASE_URL`].
const IN_ENVIRONMENT: &str = "env";
const DATABASE_URL: &str = "DATABASE_URL";

#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(super) struct CheckArgs {
    /// The history, as written by `loadtest run --history FILE`
    file: PathBuf,
    /// Read the orders from this database instead of the file; nothing is written to it
    ///
    /// `env` takes the URL from `DATABASE_URL`: every user of the machine can read arguments in the
    /// list of processes, but not the environment.
    #[arg(long, value_name = "URL|env")]
    database: Option<SecretString>,
    /// Seconds after which the check is given up, which is a failure
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_s: u64,
    /// Write the judgement as JSON, also if a rule is broken
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Whether the history is good.
pub(super) async fn check(args: CheckArgs) -> Result<bool> {
    args.json.as_deref().map_or(Ok(()), check_writable)?;
    let deadline = Duration::from_secs(args.timeout_s);
    let database = args.database.map(named_or_in_environment).transpose()?;
    let judgement = Check { file: args.file, database, deadline }.run().await?;
    print_line(check_text::text(&judgement));
    if let Some(path) = &args.json {
        write_json(path, &judgement)?;
    }
    Ok(judgement.ok)
}

/// The URL itself, or for `env` that of the environment.
fn named_or_in_environment(url: SecretString) -> Result<SecretString> {
    if url.expose_secret() != IN_ENVIRONMENT {
        return Ok(url);
    }
    let missing = || Error::Usage(format!("--database env needs {DATABASE_URL}, which is not set"));
    let told = std::env::var(DATABASE_URL).ok().filter(|url| !url.is_empty());
    told.map(SecretString::from).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;

    #[test]
    fn a_password_on_the_command_line_is_not_shown_with_the_arguments() {
        let line = ["loadtest", "check", "file", "--database", "mysql://u:s3cret@h/sale"];
        let shown = format!("{:?}", Cli::try_parse_from(line).expect("parsed"));
        assert!(shown.contains("database") && !shown.contains("s3cret"), "{shown}");
    }
}
