//! Programs that say where they listen: a replica that is timed, and the constant answer.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::rows::Setup;
use crate::api;
use crate::error::{Error, Result};
use crate::lab::deployment::Deployment;
use crate::load::client::{Connection, Target};

/// What a program says once it can be spoken to.
const LISTENING: &str = "listening on ";
/// How long it may take to answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Starts a program, which is killed when it is dropped, and gives its address.
pub async fn spawn(command: &mut Command) -> Result<(Child, String)> {
    let shown = command.as_std().get_program().display().to_string();
    let wrong = |why: String| Error::Setup(format!("{shown} cannot be started: {why}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| wrong("it has no output".to_owned()))?;
    let mut lines = BufReader::new(output).lines();
    loop {
        let line = lines.next_line().await.map_err(|error| wrong(error.to_string()))?;
        let line = line.ok_or_else(|| wrong("it ended".to_owned()))?;
        if let Some(url) = line.strip_prefix(LISTENING) {
            return Ok((child, url.to_owned()));
        }
    }
}

/// How long another replica of the deployment takes from its start to being ready.
pub async fn ready(deployment: &Deployment, setup: &Setup) -> Result<Duration> {
    let mut command = Command::from(deployment.command());
    command.args(["serve", "--no-migrate", "--bind", "127.0.0.1:0", "--replica-id", "start"]);
    command.args(setup.flags);
    let began = Instant::now();
    let (_replica, url) = spawn(&mut command).await?;
    let mut connection = Connection::new(Target::parse(&url)?, DEADLINE);
    while !api::is_ready(&mut connection).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(began.elapsed())
}
