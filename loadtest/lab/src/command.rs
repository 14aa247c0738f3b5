//! Runs `seckill` commands to their end.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use loadtest_measure::error::{Error, Result};
use tokio::process::Command;

/// How long `seckill migrate` or `seckill token` may take.
const COMMAND_DEADLINE: Duration = Duration::from_mins(1);

/// Runs `seckill` to its end; an error holds the last line that it wrote to stderr.
pub(super) async fn run_seckill(
    program: &Path,
    arguments: &[&str],
    secrets: &[(String, String)],
) -> Result<Output> {
    let shown = format!("{} {}", program.display(), arguments.first().unwrap_or(&""));
    let child = Command::new(program)
        .args(arguments)
        .envs(secrets.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(COMMAND_DEADLINE, child)
        .await
        .map_err(|_| Error::Setup(format!("`{shown}` took longer than {COMMAND_DEADLINE:?}")))?
        .map_err(|error| Error::Setup(format!("`{shown}` cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(Error::Setup(format!("`{shown}` failed ({}): {last}", output.status)))
}
