//! The cost of a buyer after the last unit: "sold out" at full speed, beside a handler that answers
//! a constant with the same HTTP settings (`examples/constant.rs` of the service).

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use loadtest_lab::deployment::WORKER_THREADS;
use loadtest_load::client::Target;
use loadtest_load::mix::Mix;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::Plan;
use loadtest_load::stats::Figures;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::cells::Setup;
use super::figure::{GENERATOR, Sample};
use super::server_processes::servers_of;
use super::service::{DEADLINE, LISTENING, Stage, load, worker_threads};
use super::turns::{Turn, slices, together};

/// Units that are sold during the warm-up.
const STOCK_UNITS: u64 = 100;
/// Users who ask, any of them again and again.
const SOLD_OUT_USERS: usize = 250_000;
/// Largest share of answers that are not "sold out".
const MAX_OTHER_SHARE: f64 = 0.001;

impl Stage {
    /// A round in which any user asks again and again for what is sold out.
    pub async fn sold_out(&self, setup: &Setup, seed: u64) -> Result<Sample> {
        let mut turn = self.turns.take().await;
        let round = self.open(setup, STOCK_UNITS).await?;
        let servers = servers_of(&round.deployment);
        let plan = self.late(&round.target, (round.vouchers[0], setup.connections), seed);
        // So no token is seen for the first time, however slow the host.
        load(&Plan { mix: Mix::EachUser { requests: 1 }, ..plan.clone() }).await?;
        let sample = self.answers(&plan, &servers, &mut turn).await;
        self.end(round.deployment).await?;
        sample
    }

    /// Sends the same requests to a handler that answers a constant, which runs beside the service.
    pub async fn constant(&self, service: &Path, connections: usize, seed: u64) -> Result<Sample> {
        let mut turn = self.turns.take().await;
        let program = service.with_file_name("examples").join("constant");
        let (child, url) = start(&program).await?;
        let servers = [("constant", child.id().unwrap_or_default())];
        let plan = self.late(&Target::parse(&url)?, (1, connections), seed);
        self.answers(&plan, &servers, &mut turn).await
    }

    fn late(&self, target: &Arc<Target>, (voucher, connections): (u64, usize), seed: u64) -> Plan {
        let crowd = &self.users[..SOLD_OUT_USERS.min(self.users.len())];
        Plan {
            mix: Mix::AfterSoldOut,
            // The same seed makes the warm-up's requests again: with keys, buyers would be told of
            // their orders once more.
            with_keys: false,
            connections,
            timeout: DEADLINE,
            seed,
            ..Plan::closed(target.clone(), voucher, crowd.into(), 1)
        }
    }

    async fn answers(
        &self,
        plan: &Plan,
        servers: &[NamedProcess],
        turn: &mut Turn<'_>,
    ) -> Result<Sample> {
        let lasting =
            |seconds| Plan { duration: Some(Duration::from_secs(seconds)), ..plan.clone() };
        load(&lasting(self.warm_up)).await?;
        let mut samples = Vec::new();
        for seconds in slices(self.seconds) {
            turn.pass().await;
            samples.push(self.slice(&lasting(seconds), servers).await?);
        }
        Ok(together(samples))
    }

    async fn slice(&self, plan: &Plan, servers: &[NamedProcess]) -> Result<Sample> {
        let before = ProcessTimes::of(servers);
        let figures = load(plan).await?;
        let mut cpu_us = ProcessTimes::of(servers).for_each(&before, of(figures.requests));
        cpu_us.insert(GENERATOR, figures.cost.cpu_s * 1e6 / of(figures.requests).max(1.0));
        let mut sample = Sample {
            per_s: figures.requests_per_s,
            seconds: figures.elapsed_s,
            p50_ms: figures.all.p50_ms,
            p99_ms: figures.all.p99_ms,
            generator_share: figures.cost.machine_share,
            cpu_us,
            ..Sample::default()
        };
        sample.invalid.extend(others(&figures));
        sample.remarks.extend(figures.bottlenecks());
        Ok(sample)
    }
}

#[allow(clippy::cast_precision_loss)]
fn of(requests: u64) -> f64 {
    requests as f64
}

/// Why these were not the expected answers.
fn others(figures: &Figures) -> Option<String> {
    let late = figures.count(Outcome::SoldOut) + figures.count(Outcome::AlreadyOrdered);
    let others = figures.requests - late;
    (of(others) > MAX_OTHER_SHARE * of(figures.requests))
        .then(|| format!("{others} of {} answers were others", figures.requests))
}

async fn start(program: &Path) -> Result<(Child, String)> {
    let wrong = |why: String| {
        let how = "`cargo build --release -p seckill --example constant` makes it";
        Error::Setup(format!("{}: {why}; {how}", program.display()))
    };
    let mut command = Command::new(program);
    command.env(WORKER_THREADS, worker_threads().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| wrong("it has no output".to_owned()))?;
    let line = BufReader::new(output).lines().next_line().await;
    let line = line.map_err(|error| wrong(error.to_string()))?.unwrap_or_default();
    let url = line.strip_prefix(LISTENING).ok_or_else(|| wrong("it does not listen".to_owned()))?;
    Ok((child, url.to_owned()))
}
