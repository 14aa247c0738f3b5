//! redis-benchmark, beside the bare pair: what the server makes of the pair's first command.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance::Servers;
use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use tokio::process::Command;

use crate::cell::{Cell, Slice, broken};

/// Requests of the first slice, which says how many fill the next.
const FIRST: f64 = 1000.0;
/// Attempts, since the benchmark at times ends well without a line of figures.
const TRIES: u32 = 3;

/// Keys, of which one is drawn for each command. Each ends soon, so nearly all are free.
const KEYS: &str = "1000000000";

/// `SET NX PX` over one connection, as many at a time as there are tasks.
pub(crate) struct Benchmark {
    url: String,
    tasks: usize,
    per_s: Option<f64>,
}

impl Benchmark {
    pub(crate) fn of(servers: &Servers, tasks: usize) -> Self {
        // It would log in as a user without a name.
        let url = servers.redis().url().replacen("//:", "//default:", 1);
        Self { url, tasks, per_s: None }
    }

    /// The rate of `requests` requests a second, or the program's output if it has none.
    async fn ask(&self, requests: f64) -> Result<std::result::Result<f64, String>> {
        let said = Command::new("redis-benchmark")
            .args(["-u", &self.url, "-c", "1", "--csv"])
            .args(["-n", &format!("{requests:.0}")])
            .args(["-P", &self.tasks.to_string(), "-r", KEYS])
            .args(["SET", "benchmark:__rand_int__", "1", "NX", "PX", "1"])
            .kill_on_drop(true)
            .output()
            .await
            .map_err(broken("redis-benchmark, which comes with redis-tools"))?;
        let said = String::from_utf8_lossy(&said.stdout);
        // A line of titles, then one of figures, of which the second is the rate.
        let figures = said.lines().nth(1).and_then(|line| line.split(',').nth(1));
        let per_s = figures.and_then(|rate| rate.trim_matches('"').parse::<f64>().ok());
        Ok(per_s.filter(|per_s| *per_s > 0.0).ok_or_else(|| said.into_owned()))
    }
}

impl Cell for Benchmark {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let requests =
                self.per_s.map_or(FIRST, |per_s| (per_s * length.as_secs_f64()).max(1.0));
            let mut told = self.ask(requests).await?;
            for _ in 1..TRIES {
                if told.is_ok() {
                    break;
                }
                told = self.ask(requests).await?;
            }
            let no_rate = |said| Error::Setup(format!("redis-benchmark says no rate: {said}"));
            let per_s = told.map_err(no_rate)?;
            self.per_s = Some(per_s);
            let seconds = requests / per_s;
            Ok(Slice { count: requests, seconds, used: BTreeMap::new(), times_ms: BTreeMap::new() })
        })
    }
}
