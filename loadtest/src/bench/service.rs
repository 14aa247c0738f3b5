//! One round of a service: a deployment of its own, a warm-up, the load, and a look whether all
//! that was acknowledged is in the database.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use http::HeaderValue;
use loadtest_judge::audit::DatabaseReader;
use loadtest_judge::setting::Guards;
use loadtest_lab::cluster::Cluster;
use loadtest_lab::deployment::{Deployment, DeploymentSpec, WORKER_THREADS};
use loadtest_load::api::NewVoucher;
use loadtest_load::arrival::Arrival;
use loadtest_load::client::{Connection, Target};
use loadtest_load::history_file::HistoryFile;
use loadtest_load::live::LiveFigures;
use loadtest_load::mix::Mix;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::Plan;
use loadtest_load::stats::Figures;
use loadtest_load::tokens::User;
use loadtest_load::{api, drive};
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{ProcessTimes, memory_mib};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::bare_transaction::BareTransaction;
use super::cells::Setup;
use super::figure::{DATABASE, GENERATOR, Sample};
use super::parts::Parts;
use super::revoked::revoke;
use super::server_processes::servers_of;
use super::trace_collector::{BATCH_DEADLINE, TraceCollector};
use super::turns::{Turn, Turns, slices, together};
use super::warm_up::WarmUp;

/// Units of a voucher: more than a round can sell.
pub(super) const STOCK: u64 = 1_000_000;
/// Units of a voucher that is sold out for nearly every buyer.
const FEW_UNITS: u64 = 1000;
/// Requests after which a replica's memory is looked at, for each second of a round, and at most.
const REQUESTS_A_SECOND: u64 = 100_000;
const REQUESTS: u64 = 1_000_000;
/// When a request of the load is given up.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
/// How long a call besides the load, and a start, may take.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Starts of a replica in a round.
const REPLICA_STARTS: usize = 11;
/// What a replica's output says once it can be spoken to.
pub(super) const LISTENING: &str = "listening on ";

/// Where and how long rounds are run.
#[derive(Debug)]
pub struct Stage {
    /// The servers.
    pub cluster: Cluster,
    /// Buyers; tokens are good at all deployments of the cluster.
    pub users: Vec<User>,
    /// Seconds of a round.
    pub seconds: u64,
    /// Seconds before it that do not count.
    pub warm_up: u64,
    /// Gives the machine to one cell at a time.
    pub turns: Turns,
    /// Numbers of deployments that do not stand.
    pub free: Mutex<Vec<u16>>,
}

/// A deployment with vouchers on sale.
pub(super) struct Round<'a> {
    pub(super) stage: &'a Stage,
    setup: &'a Setup,
    pub(super) deployment: Deployment,
    pub(super) target: Arc<Target>,
    pub(super) vouchers: Vec<u64>,
    collector: Option<TraceCollector>,
}

impl Stage {
    /// A round in which buyers come so.
    pub async fn orders(&self, setup: &Setup, arrival: Arrival, seed: u64) -> Result<Sample> {
        let mut turn = self.turns.take().await;
        let round = self.open(setup, STOCK).await?;
        let sample = round.sell(&arrival, seed, &mut turn).await;
        self.end(round.deployment).await?;
        sample
    }

    /// The memory of a replica after many requests.
    pub async fn memory(&self, setup: &Setup) -> Result<Sample> {
        let _turn = self.turns.take().await;
        let round = self.open(setup, FEW_UNITS).await?;
        let requests = REQUESTS.min(self.seconds * REQUESTS_A_SECOND);
        let mut plan = round.plan(self.users.clone().into(), 0);
        plan.mix = Mix::AfterSoldOut;
        plan.requests = usize::try_from(requests).ok();
        plan.duration = None;
        let figures = load(&plan).await?;
        let pid = round.deployment.replicas().first().map(|replica| replica.pid());
        let mut sample = Sample {
            memory_mib: pid.and_then(memory_mib),
            per_s: figures.requests_per_s,
            seconds: figures.elapsed_s,
            ..Sample::default()
        };
        if figures.requests < REQUESTS {
            sample.invalid.push(format!("{} requests are no million", figures.requests));
        }
        self.end(round.deployment).await?;
        Ok(sample)
    }

    /// How long a replica takes from the start of its program to being ready: the median of a few,
    /// since one of a few milliseconds is held up by anything.
    pub async fn start(&self, setup: &Setup) -> Result<Sample> {
        let _turn = self.turns.take().await;
        let round = self.open(setup, FEW_UNITS).await?;
        let late = |_| Error::Setup("a replica did not become ready in 30 s".to_owned());
        let mut took = Vec::with_capacity(REPLICA_STARTS);
        for _ in 0..REPLICA_STARTS {
            let ready = tokio::time::timeout(CALL_DEADLINE, start(&round.deployment, setup)).await;
            took.push(ready.map_err(late)??);
        }
        self.end(round.deployment).await?;
        took.sort_unstable();
        let ready_ms = took[REPLICA_STARTS / 2].as_secs_f64() * 1000.0;
        Ok(Sample { ready_ms: Some(ready_ms), ..Sample::default() })
    }

    pub(super) async fn open<'a>(&'a self, setup: &'a Setup, stock: u64) -> Result<Round<'a>> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let number = number.ok_or_else(|| Error::Setup("too many cells at once".to_owned()))?;
        let mut flags: Vec<String> = setup.flags.iter().map(|flag| (*flag).to_owned()).collect();
        let collector = match setup.trace_ratio {
            Some(ratio) => Some(TraceCollector::start(ratio).await?),
            None => None,
        };
        flags.extend(collector.iter().flat_map(TraceCollector::flags));
        let spec = DeploymentSpec {
            number,
            replicas: setup.replicas,
            flags,
            fleet: setup.fleet,
            worker_threads: Some(worker_threads()),
            needs: setup.needs,
            topology: setup.topology,
            ..DeploymentSpec::default()
        };
        let deployment = self.cluster.deploy(spec).await?;
        if setup.filled > 0 {
            let server = (DATABASE, deployment.database().pid());
            let folder = self.cluster.folder();
            let bare = BareTransaction::new(folder, &deployment.database_url(), server)?;
            bare.prepare(setup.filled).await?;
        }
        if setup.revoked > 0 {
            revoke(&deployment, setup.revoked).await?;
        }
        let url = match deployment.replicas() {
            [alone] => alone.base_url().to_owned(),
            _ => deployment.url().to_owned(),
        };
        let target = Target::parse(&url)?;
        let vouchers = put_on_sale(&deployment, setup, stock).await?;
        Ok(Round { stage: self, setup, deployment, target, vouchers, collector })
    }

    /// Ends a deployment and drops its database, so that the next one finds none like it.
    pub(super) async fn end(&self, deployment: Deployment) -> Result<()> {
        let number = deployment.redis_database();
        deployment.end_and_drop().await?;
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        Ok(())
    }
}

impl Round<'_> {
    /// Whether some of its replicas are JVMs.
    pub(super) fn has_jvms(&self) -> bool {
        self.setup.fleet.has_jvms()
    }

    /// The vouchers that the buyers want.
    fn wanted(&self) -> impl Iterator<Item = u64> {
        self.vouchers.iter().copied().step_by(self.setup.one_of).take(self.setup.wanted)
    }

    /// A closed loop of new users over the setup's connections.
    pub(super) fn plan(&self, users: Arc<[User]>, seed: u64) -> Plan {
        Plan {
            vouchers: self.wanted().collect(),
            connections: self.setup.connections,
            timeout: DEADLINE,
            with_keys: self.setup.with_keys,
            duration: Some(Duration::from_secs(self.stage.seconds)),
            seed,
            ..Plan::closed(self.target.clone(), self.vouchers[0], users, 1)
        }
    }

    async fn sell(&self, arrival: &Arrival, seed: u64, turn: &mut Turn<'_>) -> Result<Sample> {
        let (all, slices) = (&self.stage.users, slices(self.stage.seconds));
        let (first, others) = all.split_at(all.len() / 5);
        let WarmUp { mut loads, remark, invalid } = self.warm_up(first, seed).await?;
        let mut samples = Vec::new();
        let shares = others.chunks(others.len() / slices.len());
        for ((seconds, users), slice) in slices.into_iter().zip(shares).zip(1..) {
            turn.pass().await;
            // Of a schedule every slice has another part.
            let mut plan = self.plan(users.into(), seed + slice);
            plan.duration = Some(Duration::from_secs(seconds));
            plan.arrival = arrival.clone();
            let (sample, figures) = self.slice(&plan).await?;
            samples.push(sample);
            loads.push(figures);
        }
        // Every order that was acknowledged must be in the database.
        let of_all = |outcome| loads.iter().map(|figures| figures.count(outcome)).sum::<u64>();
        let acknowledged = of_all(Outcome::Bought);
        let perhaps = acknowledged + of_all(Outcome::Unknown);
        self.look_for(acknowledged..=perhaps, "acknowledged").await?;
        let pid = self.deployment.replicas().first().map(|replica| replica.pid());
        let mut sample = Sample { memory_mib: pid.and_then(memory_mib), ..together(samples) };
        sample.remarks.extend(remark);
        sample.invalid.extend(invalid);
        if let Some(collector) = &self.collector {
            sample.invalid.extend(collector.why_invalid(BATCH_DEADLINE).await);
        }
        Ok(sample)
    }

    async fn slice(&self, plan: &Plan) -> Result<(Sample, Figures)> {
        let servers = servers_of(&self.deployment);
        let parts = Parts::read(&self.deployment).await?;
        let before = ProcessTimes::of(&servers);
        let figures = load(plan).await?;
        let after = ProcessTimes::of(&servers);
        let parts_ms = Parts::read(&self.deployment).await?.since(&parts);
        let bought = count(&figures);
        let mut sample = sample(&figures, after.for_each(&before, bought), parts_ms);
        judge(plan, &figures, &mut sample);
        Ok((sample, figures))
    }

    /// Fails unless that many orders are in the database.
    pub(super) async fn look_for(&self, orders: RangeInclusive<u64>, how: &str) -> Result<()> {
        let naive = self.setup.flags.contains(&"--guards=off");
        let guards = if naive { Guards::Off } else { Guards::On };
        let mut reader = DatabaseReader::connect(&self.deployment.database_url()).await?;
        let mut rows = 0;
        for voucher in self.wanted() {
            rows += reader.read(&voucher.to_string(), guards).await?.rows.len() as u64;
        }
        if orders.contains(&rows) {
            return Ok(());
        }
        let least = orders.start();
        Err(Error::Setup(format!(
            "{least} orders were {how} and the database holds {rows}: figures of a service that \
             loses orders are none"
        )))
    }
}

/// Threads of a service that run its tasks: half of the processors, as Redis, the database and the
/// generator want their part as well.
pub(super) fn worker_threads() -> usize {
    (available_parallelism().map_or(1, usize::from) / 2).max(1)
}

/// Runs a load without keeping its history.
pub(super) async fn load(plan: &Plan) -> Result<Figures> {
    load_seen(plan, &Arc::new(LiveFigures::new(plan))).await
}

/// Runs a load whose live figures the caller can read.
pub(super) async fn load_seen(plan: &Plan, live: &Arc<LiveFigures>) -> Result<Figures> {
    plan.check()?;
    let connections = drive::connect(plan).await?;
    let recorded = HistoryFile::begin(plan, None, &vec![None; plan.vouchers.len()])?;
    let figures = drive::run(plan, connections, recorded.recorder(), live).await?;
    recorded.recorder().flush().await;
    Ok(figures)
}

/// Whether it was the round that was asked for.
fn judge(plan: &Plan, figures: &Figures, sample: &mut Sample) {
    let asked = plan.duration.unwrap_or_default().as_secs_f64();
    // The last arrival of a schedule comes a little before the end.
    if figures.elapsed_s < 0.95 * asked {
        let why = format!("it ended after {:.1} s of {asked} s", figures.elapsed_s);
        sample.invalid.push(format!("{why}: there were too few users"));
    }
    let others = figures.requests - figures.count(Outcome::Bought);
    if others > 0 {
        let codes: Vec<_> =
            figures.codes.iter().map(|(code, count)| format!("{count} {code}")).collect();
        sample.invalid.push(format!("{others} requests bought nothing: {}", codes.join(", ")));
    }
    if figures.cost.dropped > 0 {
        sample.invalid.push(format!("{} arrivals were never sent", figures.cost.dropped));
    }
    sample.remarks.extend(figures.bottlenecks());
}

#[allow(clippy::cast_precision_loss)]
fn count(figures: &Figures) -> f64 {
    figures.count(Outcome::Bought) as f64
}

fn sample(
    figures: &Figures,
    mut cpu_us: BTreeMap<&'static str, f64>,
    parts_ms: BTreeMap<String, f64>,
) -> Sample {
    cpu_us.insert(GENERATOR, figures.cost.cpu_s * 1e6 / count(figures).max(1.0));
    Sample {
        per_s: figures.orders_per_s,
        seconds: figures.elapsed_s,
        p50_ms: figures.all.p50_ms,
        p99_ms: figures.all.p99_ms,
        generator_share: figures.cost.machine_share,
        cpu_us,
        parts_ms,
        ..Sample::default()
    }
}

async fn put_on_sale(deployment: &Deployment, setup: &Setup, stock: u64) -> Result<Vec<u64>> {
    let (admins, _) = deployment.users(1, true).await?;
    let admin: &HeaderValue = &admins[0].authorization;
    let mut connection = Connection::new(Target::parse(deployment.url())?, CALL_DEADLINE);
    let voucher = NewVoucher { stock_buckets: setup.stock_buckets, ..NewVoucher::of_now(stock) };
    let mut ids = Vec::with_capacity(setup.vouchers);
    for _ in 0..setup.vouchers {
        let id = api::put_on_sale(&mut connection, admin, &voucher).await;
        ids.push(id.map_err(|error| Error::Setup(error.to_string()))?);
    }
    Ok(ids)
}

/// Starts another replica of the deployment, and ends it once it is ready.
async fn start(deployment: &Deployment, setup: &Setup) -> Result<Duration> {
    let wrong = |why: String| Error::Setup(format!("a replica cannot be started: {why}"));
    let mut command = Command::from(deployment.replica_command(setup.fleet)?);
    command.args(["--bind", "127.0.0.1:0", "--replica-id", "start"]);
    command.env(WORKER_THREADS, worker_threads().to_string());
    command.args(setup.flags).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| wrong(error.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| wrong("it has no output".to_owned()))?;
    let mut lines = BufReader::new(output).lines();
    let url = loop {
        let line = lines.next_line().await.map_err(|error| wrong(error.to_string()))?;
        let line = line.ok_or_else(|| wrong("it ended".to_owned()))?;
        if let Some(url) = line.strip_prefix(LISTENING) {
            break url.to_owned();
        }
    };
    let mut connection = Connection::new(Target::parse(&url)?, CALL_DEADLINE);
    while !api::is_ready(&mut connection).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed();
    child.kill().await.map_err(|error| wrong(error.to_string()))?;
    Ok(took)
}
