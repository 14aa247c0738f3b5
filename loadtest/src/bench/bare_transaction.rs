//! The bare transaction: what the database itself makes of one order at a time, by sysbench.
//!
//! Spoken to as the service speaks to it: over TCP, with prepared statements, READ COMMITTED.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes, of_ended_children};
use tokio::process::Command;

use super::figure::{GENERATOR, Sample};
use super::turns::{Turn, slices, together};

const SCRIPT: &str = include_str!("../../benches/bare_order.lua");
/// How long sysbench may take beyond its set time, and to fill a table.
const SYSBENCH_GRACE: Duration = Duration::from_mins(2);

/// sysbench, and the database that it uses.
#[derive(Debug)]
pub struct BareTransaction {
    script: PathBuf,
    /// The server's address and login, in a private file.
    login: PathBuf,
    server: NamedProcess,
}

/// The version of sysbench; that it is missing is an error that says what to do.
pub async fn version() -> Result<String> {
    let missing = |error| {
        Error::Setup(format!("sysbench cannot be run: {error}; `apt-get install sysbench`"))
    };
    let said = Command::new("sysbench").arg("--version").output().await.map_err(missing)?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().trim_start_matches("sysbench ").to_owned())
}

impl BareTransaction {
    /// For the database with that address, whose server is that process.
    pub fn new(folder: &Path, url: &str, server: NamedProcess) -> Result<Self> {
        let broken = || Error::Setup("the database's address has another form".to_owned());
        let (login, place) = url
            .strip_prefix("mysql://")
            .and_then(|rest| rest.split_once('@'))
            .ok_or_else(broken)?;
        let (user, password) = login.split_once(':').ok_or_else(broken)?;
        let (address, database) = place.split_once('/').ok_or_else(broken)?;
        // What stands behind it says how others connect; sysbench encrypts nothing anyway.
        let database = database.split_once('?').map_or(database, |(name, _)| name);
        let (host, port) = address.split_once(':').ok_or_else(broken)?;
        let options = format!(
            "mysql-host={host}\nmysql-port={port}\nmysql-user={user}\n\
             mysql-password={password}\nmysql-db={database}\n"
        );
        let (script, login) =
            (folder.join("bare_order.lua"), folder.join(database).with_extension("cnf"));
        // The folder is a private one.
        let unwritten = |error| Error::Setup(format!("sysbench's files: {error}"));
        std::fs::write(&script, SCRIPT).map_err(unwritten)?;
        std::fs::write(&login, options).map_err(unwritten)?;
        Ok(Self { script, login, server })
    }

    /// Puts its voucher on sale, and writes `orders` orders of it into the table.
    pub async fn prepare(&self, orders: u64) -> Result<()> {
        self.run(&[format!("--filled={orders}"), "prepare".to_owned()], SYSBENCH_GRACE)
            .await
            .map(drop)
    }

    /// Runs over `connections` connections: first a warm-up, then the seconds that count.
    pub async fn measure(
        &self,
        connections: usize,
        (warm_up, seconds): (u64, u64),
        turn: &mut Turn<'_>,
    ) -> Result<Sample> {
        self.transactions(connections, warm_up).await?;
        let mut samples = Vec::new();
        for seconds in slices(seconds) {
            turn.pass().await;
            samples.push(self.slice(connections, seconds).await?);
        }
        Ok(together(samples))
    }

    async fn slice(&self, connections: usize, seconds: u64) -> Result<Sample> {
        let (servers, own) = (ProcessTimes::of(&[self.server]), of_ended_children());
        let said = self.transactions(connections, seconds).await?;
        let counted = find(&said, "transactions:", " ");
        let per_s = said
            .split_once("transactions:")
            .and_then(|(_, rest)| find(rest, "(", " per sec"))
            .ok_or_else(|| Error::Setup(format!("sysbench said no rate: {said}")))?;
        let orders = counted.unwrap_or(0.0);
        let mut cpu_us = ProcessTimes::of(&[self.server]).for_each(&servers, orders);
        let generator_s = of_ended_children() - own;
        cpu_us.insert(GENERATOR, generator_s * 1e6 / orders.max(1.0));
        let elapsed = orders / per_s;
        Ok(Sample {
            per_s,
            seconds: elapsed,
            p50_ms: 0.0,
            p99_ms: find(&said, "99th percentile:", "\n").unwrap_or(0.0),
            generator_share: generator_s / (elapsed * super::processors()),
            cpu_us,
            ..Sample::default()
        })
    }

    async fn transactions(&self, connections: usize, seconds: u64) -> Result<String> {
        let arguments = [
            format!("--threads={connections}"),
            format!("--time={seconds}"),
            "--percentile=99".to_owned(),
            "run".to_owned(),
        ];
        self.run(&arguments, Duration::from_secs(seconds) + SYSBENCH_GRACE).await
    }

    async fn run(&self, arguments: &[String], limit: Duration) -> Result<String> {
        let child = Command::new("sysbench")
            .arg(&self.script)
            .arg(format!("--config-file={}", self.login.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let wrong = |why: String| Error::Setup(format!("sysbench failed: {why}"));
        let output = tokio::time::timeout(limit, child)
            .await
            .map_err(|_| wrong(format!("it took longer than {limit:?}")))?
            .map_err(|error| wrong(error.to_string()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let fatal = said.lines().chain(std::str::from_utf8(&output.stderr).unwrap_or("").lines());
        let fatal: Vec<&str> = fatal.filter(|line| line.contains("FATAL")).collect();
        Err(wrong(fatal.join("; ")))
    }
}

/// The number between the two.
fn find(text: &str, before: &str, after: &str) -> Option<f64> {
    let (_, rest) = text.split_once(before)?;
    rest.trim_start().split(after).next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found_in_what_sysbench_says() {
        let said = "    transactions:                        40893  (4089.12 per sec.)\n\
                    Latency (ms):\n         99th percentile:                       12.30\n";
        assert_eq!(find(said, "transactions:", " "), Some(40_893.0));
        let (_, rest) = said.split_once("transactions:").expect("there");
        assert_eq!(find(rest, "(", " per sec"), Some(4089.12));
        assert_eq!(find(said, "99th percentile:", "\n"), Some(12.3));
        assert_eq!(find(said, "95th percentile:", "\n"), None);
    }
}
