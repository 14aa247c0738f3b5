//! The figures: what the service makes of a second, beside what the database itself makes of it.
//!
//! In a round all cells stand side by side and are measured in turn, a slice of two seconds each,
//! until each has had its time, so that what is compared was measured a moment apart on the same
//! machine; then, likewise, what comes at a rate that was measured so; then, one after the other,
//! what cannot be cut into slices. A row's figure is the median,
//! over the rounds, of the ratio within a round. A service has a deployment and a database of its
//! own in every round, warms up, and is asked afterwards whether all that it acknowledged is in the
//! database. A ratio whose rounds lie too far apart is invalid, and a run that is too short can
//! meet no bar. Nor does one on a host that is not steady, which is measured first.
//!
//! Rates move with the host. So beside each rate stands what an order costs in plain answers: the
//! processor time of all servers for it, as a multiple of that of a handler that answers a
//! constant, measured in the same round.
//!
//! - [`rows`]: what is measured and what it has to reach; [`choice`]: the flags of benches;
//!   [`figure`]: medians and verdicts; [`row_report`]: what becomes of a row.
//! - [`bare`]: the bare transaction; [`service`]: one round of a service;
//!   [`queued`]: the path of that name; [`late`]: who comes too late; [`turns`]: slices in
//!   turn; [`parts`] and [`processes`]: where the time goes; [`host`]: the host by itself.
//! - [`text`]: the table.

pub mod bare;
pub mod choice;
pub mod figure;
pub mod host;
pub mod late;
pub mod parts;
pub mod processes;
pub mod queued;
pub mod row_report;
pub mod rows;
pub mod service;
pub mod text;
pub mod turns;

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::try_join_all;
use serde::Serialize;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::bare::Bare;
use self::figure::{DATABASE, ROUNDS, SECONDS, Sample};
use self::host::HostReport;
use self::row_report::{Conditions, RowReport, judge};
use self::rows::{Cell, PARTS, Row, Setup, What, cells_of};
use self::service::{Stage, worker_threads};
use self::turns::Turns;
use crate::error::{Error, Result};
use crate::lab::cluster::{Cluster, MAX_DEPLOYMENTS};
use crate::lab::deployment::Spec;
use crate::lab::lock::Needs;
use crate::lab::machine::{Builds, Machine, Profiles, Versions, version_of};
use crate::lab::runner::Parts;
use crate::load::arrival::Arrival;
use crate::load::tokens::MAX_USERS;

/// Part of a round's length that it warms up for, and at least so many seconds.
const WARM_UP: u64 = 5;
const MIN_WARM_UP: u64 = 1;
/// Processors below which everything that runs for an order takes them from one another.
const MANY_PROCESSORS: f64 = 8.0;

/// A run as it is asked for.
#[derive(Debug)]
pub struct Bench {
    /// The programs and the database server.
    pub parts: Parts,
    /// The rows.
    pub rows: Vec<&'static Row>,
    /// How often every cell is measured.
    pub rounds: usize,
    /// For how many seconds each time.
    pub seconds: u64,
}

/// What a run came to.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    /// Whether every bar is met.
    pub ok: bool,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of each.
    pub seconds: u64,
    /// Whether that is enough for a verdict.
    pub long_enough: bool,
    /// The machine.
    pub machine: Machine,
    /// How fast and how steady it was by itself.
    pub host: HostReport,
    /// What ran.
    pub versions: Versions,
    /// sysbench's version, if it was needed.
    pub sysbench: Option<String>,
    /// What a commit was worth.
    pub durability: String,
    /// What to bear in mind.
    pub remarks: Vec<String>,
    /// The rows.
    pub rows: Vec<RowReport>,
    /// All that was measured: of each cell every round.
    pub cells: BTreeMap<&'static str, Vec<Sample>>,
}

impl Bench {
    /// Runs all rounds; `tell` hears of each cell.
    pub async fn run(&self, stop: &CancellationToken, tell: &dyn Fn(&str)) -> Result<BenchReport> {
        let seconds = self.seconds.min(SECONDS);
        tell(&format!("measuring the host for {seconds} s"));
        let host = spawn_blocking(move || HostReport::measure(seconds)).await;
        let host = host.map_err(|error| Error::Setup(error.to_string()))??;
        tell(&host.line());
        let cells = cells_of(&self.rows);
        let needs_sysbench = |cell: &&Cell| {
            let is_filled = cell.setup().is_some_and(|setup| setup.filled > 0);
            is_filled || matches!(cell.what, What::Bare(_))
        };
        let sysbench = match cells.iter().copied().find(needs_sysbench) {
            Some(_) => Some(bare::version().await?),
            None => None,
        };
        let stage = self.stage(&cells).await?;
        let mut samples = BTreeMap::<_, Vec<Sample>>::new();
        for round in 1..=self.rounds {
            for part in PARTS {
                let of_part = |cell: &&Cell| cell.what.part() == part;
                let cells: Vec<&Cell> = cells.iter().copied().filter(of_part).collect();
                let measured = cells.iter().map(async |cell| {
                    let measured = self.measure(&stage, cell, (round, &samples)).await?;
                    tell(&text::line(round, cell.name, &measured));
                    Ok::<_, Error>(measured)
                });
                let measured = tokio::select! {
                    measured = try_join_all(measured) => measured?,
                    () = stop.cancelled() => return Err(Error::Interrupted),
                };
                for (cell, measured) in cells.into_iter().zip(measured) {
                    samples.entry(cell.name).or_default().push(measured);
                }
            }
        }
        self.report(&stage, (host, sysbench), samples).await
    }

    async fn stage(&self, cells: &[&Cell]) -> Result<Stage> {
        let needs: Vec<Needs> =
            cells.iter().filter_map(|cell| cell.setup()).map(|s| s.needs).collect();
        let parts = &self.parts;
        let cluster = Cluster::start(parts.flavor, parts.program.clone(), &needs).await?;
        // Any deployment's tokens are good at all others.
        let deployment = cluster.deploy(Spec::default()).await?;
        let (users, _) = deployment.users(MAX_USERS, false).await?;
        deployment.end_and_drop().await?;
        let warm_up = (self.seconds / WARM_UP).max(MIN_WARM_UP);
        Ok(Stage {
            cluster,
            users,
            seconds: self.seconds,
            warm_up,
            turns: Turns::default(),
            free: Mutex::new((0..MAX_DEPLOYMENTS).collect()),
        })
    }

    async fn measure(
        &self,
        stage: &Stage,
        cell: &Cell,
        (round, samples): (usize, &BTreeMap<&'static str, Vec<Sample>>),
    ) -> Result<Sample> {
        // Slices add their numbers to it.
        let seed = (round as u64) << 32;
        match &cell.what {
            What::Bare(connections) => self.bare(stage, *connections).await,
            What::SoldOut(setup) => stage.sold_out(setup, seed).await,
            What::Constant(connections) => {
                stage.constant(&self.parts.program, *connections, seed).await
            }
            What::Orders(setup) => stage.orders(setup, Arrival::Closed, seed).await,
            What::Admitted(setup) => stage.admitted(setup, seed).await,
            What::Drained(setup) => stage.drained(setup, seed).await,
            What::AtHalfOf(of, setup) => {
                let rate = samples.get(of).and_then(|all| all.last()).map(|last| last.per_s / 2.0);
                let unknown = || Error::Setup(format!("the cell {of} was not measured"));
                let arrival = Arrival::Poisson(rate.ok_or_else(unknown)?);
                stage.orders(setup, arrival, seed).await
            }
            What::Memory(setup) => stage.memory(setup).await,
            What::Start(setup) => stage.start(setup).await,
        }
    }

    /// In a database of its own with the service's tables, and no service.
    async fn bare(&self, stage: &Stage, connections: usize) -> Result<Sample> {
        let mut turn = stage.turns.take().await;
        let name = format!("bare_{connections}");
        let cluster = &stage.cluster;
        let url = cluster.schema(&name, false).await?;
        let bare = Bare::new(cluster.folder(), &url, (DATABASE, cluster.database_pid()))?;
        bare.prepare(0).await?;
        let sample = bare.measure(connections, (stage.warm_up, stage.seconds), &mut turn).await;
        cluster.drop_schema(&name).await?;
        sample
    }

    async fn report(
        &self,
        stage: &Stage,
        (host, sysbench): (HostReport, Option<String>),
        cells: BTreeMap<&'static str, Vec<Sample>>,
    ) -> Result<BenchReport> {
        let cluster = &stage.cluster;
        let (server, settings) = cluster.settings().await?;
        let flavor = cluster.flavor();
        let long_enough = self.rounds >= ROUNDS && self.seconds >= SECONDS;
        let run = Conditions { flavor, long_enough, host_is_steady: host.steady };
        let rows: Vec<RowReport> = self.rows.iter().map(|row| judge(row, &cells, run)).collect();
        let versions = Versions {
            loadtest: env!("CARGO_PKG_VERSION"),
            builds: Builds::read(&self.parts.program)?,
            profiles: Profiles::read(&self.parts.program).await,
            database: server.version,
            redis: version_of(cluster.redis_pid(), "redis-server", "--version").await,
            haproxy: cluster.haproxy_version().to_owned(),
            zookeeper: cluster.zookeeper_version().map(str::to_owned),
        };
        let flush = server.flush_log_at_trx_commit;
        Ok(BenchReport {
            ok: long_enough && rows.iter().all(RowReport::is_green) && flush == 1,
            rounds: self.rounds,
            seconds: self.seconds,
            long_enough,
            machine: Machine::read(),
            host,
            versions,
            sysbench,
            durability: format!("{}; Redis: {}", settings.database(), settings.redis()),
            remarks: remarks(&cells),
            rows,
            cells,
        })
    }
}

impl Cell {
    fn setup(&self) -> Option<&Setup> {
        match &self.what {
            What::Bare(_) | What::Constant(_) => None,
            What::Orders(setup)
            | What::Admitted(setup)
            | What::Drained(setup)
            | What::SoldOut(setup)
            | What::AtHalfOf(_, setup)
            | What::Memory(setup)
            | What::Start(setup) => Some(setup),
        }
    }
}

fn remarks(cells: &BTreeMap<&'static str, Vec<Sample>>) -> Vec<String> {
    let (processors, threads) = (processors(), worker_threads());
    let mut all = vec![format!(
        "a replica, and the handler beside it, runs its tasks in {threads} of its threads"
    )];
    if processors < MANY_PROCESSORS {
        all.push(format!(
            "generator, proxy, replicas, Redis and database share {processors} processors: orders \
             a second say what all of them together can do here, and more replicas can only divide \
             what one has; the processor time of an order is what carries over to other machines"
        ));
    }
    for (name, samples) in cells {
        let mut said: Vec<&String> = samples.iter().flat_map(|sample| &sample.remarks).collect();
        said.sort();
        all.extend(said.first().map(|first| format!("{name}: {first}")));
    }
    all
}

/// Processors that there are for all.
#[allow(clippy::cast_precision_loss)]
fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}
