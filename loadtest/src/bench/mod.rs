//! The figures: what the service makes of a second, beside what the database itself makes of it.
//!
//! A round has three phases. First all cells stand side by side and are measured in turn, two
//! seconds at a time, so that what is compared was measured a moment apart on one machine. Cells at
//! rates that this phase has measured follow in the same way. Cells that cannot be sliced come
//! last, one after the other.
//!
//! A row's figure is the median, over the rounds, of the ratio within a round. A service has its
//! own deployment and database in every round, and warms up. Afterwards all that it acknowledged
//! must be in the database. A ratio whose rounds lie too far apart is invalid. A run that is too
//! short, or on a host that is not steady, can meet no bar; the host is measured first.
//!
//! Rates move with the host. So beside each rate stands the cost of an order in plain answers. It
//! is the processor time of all servers for the order, as a multiple of that of a handler that
//! answers a constant, measured in the same round.
//!
//! - [`cells`]: what is measured; [`rows`]: what it has to reach; [`figure`]: what is read of a
//!   sample; [`row_report`]: the result of a row.
//! - [`bare_transaction`]: the database alone; [`service`]: one round of a service;
//!   [`queued`]: the mode of that name; [`sold_out`]: requests after the last unit.
//! - [`revoked`]: revoked tokens; [`trace_collector`]: where traces are
//!   sent; [`turns`]: slices in turn; [`parts`]: where the time goes.
//! - [`text`]: the table.

pub mod bare_transaction;
pub mod cells;
pub mod figure;
pub mod parts;
pub mod queued;
pub mod revoked;
pub mod row_report;
pub mod rows;
pub mod server_processes;
pub mod service;
pub mod sold_out;
pub mod text;
pub mod trace_collector;
pub mod turns;
pub mod warm_up;

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::future::try_join_all;
use loadtest_lab::cluster::{Cluster, MAX_DEPLOYMENTS};
use loadtest_lab::deployment::DeploymentSpec;
use loadtest_lab::java::Java;
use loadtest_lab::lock::ExtraServers;
use loadtest_lab::runner::ClusterSpec;
use loadtest_load::arrival::Arrival;
use loadtest_load::tokens::MAX_USERS;
use loadtest_measure::bars::{ROUNDS, SECONDS};
use loadtest_measure::error::{Error, Result};
use loadtest_measure::host::HostReport;
use loadtest_measure::machine::{Builds, Machine, Profiles, Versions};
use serde::Serialize;
use testbed::Flavor;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::bare_transaction::BareTransaction;
use self::cells::{Cell, Measurement, PHASES, Setup};
use self::figure::{DATABASE, Sample};
use self::row_report::{Conditions, RowReport, judge};
use self::rows::{Row, cells_of};
use self::service::{Stage, worker_threads};
use self::turns::Turns;

/// Users for each second of a round, more than any cell serves in one; each buys once.
const USERS_PER_SECOND: usize = 90_000;

/// A round warms up for its length divided by this, and at least for `MIN_WARM_UP_S`.
const WARM_UP_DIVISOR: u64 = 5;
const MIN_WARM_UP_S: u64 = 1;
/// Processors below which everything that runs for an order takes them from one another.
const MANY_PROCESSORS: f64 = 8.0;

/// A run as it is asked for.
#[derive(Debug)]
pub struct Bench {
    /// The programs and the database server.
    pub parts: ClusterSpec,
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
    /// The version of Java, if replicas were JVMs.
    pub java: Option<String>,
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
    /// Runs all rounds; `tell` is called for each cell.
    pub async fn run(&self, stop: &CancellationToken, tell: &dyn Fn(&str)) -> Result<BenchReport> {
        let cells = cells_of(&self.rows);
        let has_jvms =
            cells.iter().filter_map(|cell| cell.setup()).any(|setup| setup.fleet.has_jvms());
        let java = if has_jvms { Some(Java::find()?.version()?) } else { None };
        let seconds = self.seconds.min(SECONDS);
        tell(&format!("measuring the host for {seconds} s"));
        let host = spawn_blocking(move || HostReport::measure(seconds)).await;
        let host = host.map_err(|error| Error::Setup(error.to_string()))??;
        tell(&host.line());
        let needs_sysbench = |cell: &&Cell| {
            let is_filled = cell.setup().is_some_and(|setup| setup.filled > 0);
            is_filled || matches!(cell.what, Measurement::Bare(_))
        };
        let sysbench = match cells.iter().copied().find(needs_sysbench) {
            Some(_) => Some(bare_transaction::version().await?),
            None => None,
        };
        let stage = self.stage(&cells).await?;
        let mut samples = BTreeMap::<_, Vec<Sample>>::new();
        for round in 1..=self.rounds {
            for phase in PHASES {
                let of_part = |cell: &&Cell| cell.what.phase() == phase;
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
        self.report(&stage, (host, sysbench, java), samples).await
    }

    async fn stage(&self, cells: &[&Cell]) -> Result<Stage> {
        let needs: Vec<ExtraServers> =
            cells.iter().filter_map(|cell| cell.setup()).map(|s| s.needs).collect();
        let parts = &self.parts;
        let cluster = Cluster::start(parts.servers, parts.program.clone(), &needs).await?;
        let is_of_mariadb = |setup: &Setup| setup.topology.is_of_mariadb();
        if cluster.flavor() == Flavor::MySql
            && cells.iter().filter_map(|cell| cell.setup()).any(is_of_mariadb)
        {
            return Err(Error::Usage(
                "galera and sharded are MariaDB's: leave out their rows".to_owned(),
            ));
        }
        // Any deployment's tokens are good at all others.
        let deployment = cluster.deploy(DeploymentSpec::default()).await?;
        let count =
            USERS_PER_SECOND.saturating_mul(usize::try_from(self.seconds).unwrap_or(MAX_USERS));
        let (users, _) = deployment.users(count.min(MAX_USERS), false).await?;
        deployment.end_and_drop().await?;
        let warm_up = (self.seconds / WARM_UP_DIVISOR).max(MIN_WARM_UP_S);
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
            Measurement::Bare(connections) => self.bare(stage, *connections).await,
            Measurement::SoldOut(setup) => stage.sold_out(setup, seed).await,
            Measurement::Constant(connections) => {
                stage.constant(&self.parts.program, *connections, seed).await
            }
            Measurement::Orders(setup) => stage.orders(setup, Arrival::Closed, seed).await,
            Measurement::Admitted(setup) => stage.admitted(setup, seed).await,
            Measurement::Drained(setup) => stage.drained(setup, seed).await,
            Measurement::AtHalfOf(of, setup) => {
                let rate = samples.get(of).and_then(|all| all.last()).map(|last| last.per_s / 2.0);
                let unknown = || Error::Setup(format!("the cell {of} was not measured"));
                let arrival = Arrival::Poisson(rate.ok_or_else(unknown)?);
                stage.orders(setup, arrival, seed).await
            }
            Measurement::Memory(setup) => stage.memory(setup).await,
            Measurement::Start(setup) => stage.start(setup).await,
        }
    }

    /// In a database of its own with the service's tables, and no service.
    async fn bare(&self, stage: &Stage, connections: usize) -> Result<Sample> {
        let mut turn = stage.turns.take().await;
        let name = format!("bare_{connections}");
        let cluster = &stage.cluster;
        let url = cluster.schema(&name, false).await?;
        let bare =
            BareTransaction::new(cluster.folder(), &url, (DATABASE, cluster.database_pid()))?;
        bare.prepare(0).await?;
        let sample = bare.measure(connections, (stage.warm_up, stage.seconds), &mut turn).await;
        cluster.drop_schema(&name).await?;
        sample
    }

    async fn report(
        &self,
        stage: &Stage,
        (host, sysbench, java): (HostReport, Option<String>, Option<String>),
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
            redis: cluster.redis_version().await?,
            haproxy: cluster.haproxy_version().to_owned(),
            zookeeper: cluster.lock_server_versions().zookeeper.get().cloned(),
            etcd: cluster.lock_server_versions().etcd.get().cloned(),
            nats: cluster.lock_server_versions().nats.get().cloned(),
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
            java,
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
            Measurement::Bare(_) | Measurement::Constant(_) => None,
            Measurement::Orders(setup)
            | Measurement::Admitted(setup)
            | Measurement::Drained(setup)
            | Measurement::SoldOut(setup)
            | Measurement::AtHalfOf(_, setup)
            | Measurement::Memory(setup)
            | Measurement::Start(setup) => Some(setup),
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
