//! A private cluster for a person: replicas behind the proxy, two vouchers, a crowd if one is
//! asked for, and nothing left afterwards.

mod banner;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use loadtest_board::Board;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell_axes::{CellAxes, PurchaseMode};
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::cluster::{Cluster, ServerPrograms};
use loadtest_lab::deployment::{Deployment, DeploymentSpec};
use loadtest_lab::faults::replica_name;
use loadtest_lab::lock::{ExtraServers, Lock};
use loadtest_lab::lock_server::LockServer;
use loadtest_lab::topology::Topology;
use loadtest_load::api;
use loadtest_load::api::NewVoucher;
use loadtest_load::client::{Connection, Target};
use loadtest_load::moment::rfc3339;
use loadtest_load::plan::Plan;
use loadtest_load::tokens::User;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::print::{print_line, print_status};
use loadtest_report::run_report::{RunReport, VoucherReport};
use loadtest_report::{counted, run_text};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::banner::StartupBanner;
use crate::run::{self, AuditSource};

/// The page's port unless another one is asked for.
const DEFAULT_PORT: u16 = 8080;
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Users whose tokens are there for a load if no crowd is asked for.
const LOAD_USERS: usize = 700;
/// Simultaneous requests of each buyer of a crowd.
const REQUESTS_PER_BUYER: usize = 3;
/// Connections that a crowd keeps busy.
const CROWD_CONNECTIONS: usize = 96;
/// Seconds until the second voucher opens.
const OPENS_IN_S: i64 = 60;

/// What to start.
#[derive(Debug, Clone)]
pub struct UpConfig {
    /// The programs of the servers.
    pub servers: ServerPrograms,
    /// How many servers there are of each sort.
    pub topology: Topology,
    /// The `seckill` program.
    pub program: PathBuf,
    /// Lock, scope, guards, and the number of replicas.
    pub axes: CellAxes,
    /// When replicas answer a purchase.
    pub mode: PurchaseMode,
    /// Servers to start although the lock of the replicas does not need them.
    pub lock_servers: Vec<ExtraServers>,
    /// The page's port: one that was asked for must be free.
    pub port: Option<u16>,
    /// Buyers to send when everything runs.
    pub crowd: Option<usize>,
    /// Whether to serve the race board beside it.
    pub board: bool,
}

/// The service that was started. Fields are dropped in this order.
struct RunningService {
    deployment: Deployment,
    _lock_servers: Vec<LockServer>,
    cluster: Arc<Cluster>,
    /// The voucher that is open.
    voucher: u64,
    admin: HeaderValue,
    buyers: Vec<User>,
    banner: String,
}

impl UpConfig {
    /// Starts everything, prints where it is, and takes it down when `stop` is cancelled.
    pub async fn run(&self, stop: &CancellationToken) -> Result<()> {
        self.check()?;
        let children = signal(SignalKind::child())
            .map_err(|error| Error::Setup(format!("signals cannot be awaited: {error}")))?;
        let (port, remark) = self.choose_port().await?;
        let service = tokio::select! {
            service = self.start(port) => service?,
            () = stop.cancelled() => return Err(Error::Interrupted),
        };
        print_line(format_args!(
            "\nThe service runs: {}. Ctrl-C takes it down.{remark}\n",
            self.axes
        ));
        print_line(&service.banner);
        let board = if self.board {
            let board = Board::start(service.cluster.clone(), stop).await?;
            print_line(format_args!("race board  {}\n", board.url()));
            Some(board)
        } else {
            None
        };
        let crowd = async {
            if self.crowd.is_some()
                && let Err(error) = service.send_crowd().await
            {
                print_status(format_args!("loadtest: the crowd failed: {}", error.sentence()));
            }
        };
        let watch = watch_replicas(&service.deployment, children);
        let _stopped = stop.run_until_cancelled(async { tokio::join!(watch, crowd) }).await;
        print_line("Taking everything down.");
        if let Some(board) = board {
            board.end().await;
        }
        service.deployment.end().await;
        Ok(())
    }

    /// Refuses what the service would refuse, before any server is started.
    fn check(&self) -> Result<()> {
        let CellAxes { lock, scope, guards, .. } = self.axes;
        let has_lock = !matches!(lock, Lock::None | Lock::Redisson) || scope == Scope::Voucher;
        if self.mode == PurchaseMode::Queued && (has_lock || guards == Guards::Off) {
            return Err(Error::Usage(
                "--mode queued takes no lock and needs the database's guards; leave out --lock, \
                 --scope and --guards"
                    .to_owned(),
            ));
        }
        let is_in_ensemble = matches!(lock.needs(), ExtraServers::ZooKeeper | ExtraServers::Etcd);
        if self.topology.has_ensemble() && !is_in_ensemble {
            let what = "--zookeeper 3 needs a lock that lives there: --lock zookeeper or etcd";
            return Err(Error::Usage(what.to_owned()));
        }
        let trial = CellSpec { topology: self.topology, ..CellSpec::plain(self.axes) };
        if self.topology.is_single() {
            return Ok(());
        }
        let fits = trial.supports_mode(self.mode).and_then(|()| trial.expectation().map(drop));
        fits.map_err(|because| Error::Usage(because.to_owned()))
    }

    /// The page's port, and a remark for the user: the port that was asked for, or the usual one,
    /// or any free one (`None`) if that is in use.
    async fn choose_port(&self) -> Result<(Option<u16>, String)> {
        let port = self.port.unwrap_or(DEFAULT_PORT);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(_free) => Ok((Some(port), String::new())),
            Err(error) if self.port.is_some() => {
                Err(Error::Setup(format!("port {port} of 127.0.0.1 cannot be used: {error}")))
            }
            Err(_) => Ok((None, format!(" Port {port} is in use, so it has another one."))),
        }
    }

    /// Flags of `seckill serve`.
    fn flags(&self) -> Vec<String> {
        let CellAxes { lock, scope, guards, .. } = self.axes;
        let mut flags = vec!["--dev", "--lock", lock.name(), "--lock-scope", scope.name()];
        if guards == Guards::Off {
            flags.extend(["--lab", "--guards", guards.name()]);
        }
        flags.into_iter().map(str::to_owned).chain(self.mode.flags()).collect()
    }

    async fn start(&self, page_port: Option<u16>) -> Result<RunningService> {
        let needs = self.axes.lock.needs();
        let cluster = Cluster::start(self.servers, self.program.clone(), &[needs]).await?;
        let cluster = Arc::new(cluster);
        let (replicas, flags) = (self.axes.replicas, self.flags());
        let topology = self.topology;
        let spec = DeploymentSpec {
            replicas,
            flags,
            needs,
            topology,
            page_port,
            ..DeploymentSpec::default()
        };
        let lock_servers = self.start_lock_servers(&cluster).await?;
        let deployment = cluster.deploy(spec).await?;
        let buyers = self.crowd.unwrap_or(LOAD_USERS);
        let ((admins, admin_file), (buyers, buyers_file)) =
            tokio::try_join!(deployment.users(1, true), deployment.users(buyers, false))?;
        let admin = admins[0].authorization.clone();
        let mut connection = Connection::new(Target::parse(deployment.url())?, CALL_DEADLINE);
        let [open, later] = vouchers(time::OffsetDateTime::now_utc());
        let mut ids = Vec::new();
        for voucher in [&open, &later] {
            let id = api::put_on_sale(&mut connection, &admin, voucher).await;
            ids.push(id.map_err(|error| Error::Setup(error.to_string()))?);
        }
        let own_servers: Vec<_> = lock_servers.iter().map(LockServer::setting).collect();
        let banner = StartupBanner {
            page: deployment.url(),
            operators: deployment.operator_url(),
            replicas: deployment.replicas().iter().map(|replica| replica.base_url()).collect(),
            servers: deployment.server_urls().chain(&own_servers).cloned().collect(),
            seckill: &self.program,
            admin_file: &admin_file,
            buyers_file: &buyers_file,
            open: (ids[0], &open),
            later: &later,
        };
        let banner = banner.text();
        Ok(RunningService {
            deployment,
            _lock_servers: lock_servers,
            cluster,
            voucher: ids[0],
            admin,
            buyers,
            banner,
        })
    }

    /// Starts the servers that were asked for and that the lock of the replicas does not bring.
    async fn start_lock_servers(&self, cluster: &Cluster) -> Result<Vec<LockServer>> {
        let mut servers = Vec::new();
        for kind in &self.lock_servers {
            if *kind != self.axes.lock.needs() {
                servers.extend(cluster.start_one_lock_server(*kind).await?);
            }
        }
        Ok(servers)
    }
}

impl RunningService {
    /// Sends all buyers for the open voucher, each with [`REQUESTS_PER_BUYER`] requests at once,
    /// and prints the report.
    async fn send_crowd(&self) -> Result<()> {
        let target = Target::parse(self.deployment.url())?;
        let plan = Plan {
            connections: CROWD_CONNECTIONS,
            seed: Uuid::new_v4().as_u64_pair().0,
            ..Plan::closed(target, self.voucher, self.buyers.clone().into(), REQUESTS_PER_BUYER)
        };
        print_line(format_args!(
            "A crowd of {} comes, {REQUESTS_PER_BUYER} simultaneous requests each.\n",
            counted(self.buyers.len(), "buyer")
        ));
        let operators = Target::parse(self.deployment.operator_url())?;
        let source = AuditSource { target: operators, admin: self.admin.clone() };
        let report = run::run(&plan, Some(&source), None).await?;
        print_line(format_args!("{}\n\n{}", run_text::text(&report), crowd_summary(&report)));
        Ok(())
    }
}

/// What came of a crowd, a sentence for each voucher.
fn crowd_summary(report: &RunReport) -> String {
    let sentence = |one: &VoucherReport| {
        let (verdict, offered) = (&one.judged.verdict, one.judged.offered);
        let units = offered.map_or("an unknown number of".to_owned(), |units| units.to_string());
        format!(
            "The crowd: {} buyers wanted {units} units of {}; orders: {}; users who bought twice: \
             {}; units oversold: {}.",
            report.load.users, one.title, verdict.orders, verdict.duplicate_users, verdict.oversold
        )
    };
    report.vouchers.iter().map(sentence).collect::<Vec<_>>().join("\n")
}

/// Reaps each replica that ends, and prints how it ended. Runs until it is dropped.
async fn watch_replicas(deployment: &Deployment, mut children: Signal) {
    let replicas = deployment.replicas();
    let mut ends: Vec<Option<ExitStatus>> = vec![None; replicas.len()];
    loop {
        for (index, replica) in replicas.iter().enumerate() {
            if ends[index].is_some() {
                continue;
            }
            ends[index] = replica.exit_status();
            if let Some(status) = ends[index] {
                let left = ends.iter().filter(|end| end.is_none()).count();
                let name = format!("{} ({})", replica_name(index), replica.base_url());
                let log = replica.log_path().display();
                print_line(format_args!("{}; its log: {log}", replica_end(&name, status, left)));
            }
        }
        if children.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// How a replica ended, and what that means for requests.
fn replica_end(name: &str, status: ExitStatus, left: usize) -> String {
    let rest = match left {
        0 => "no replica is left, so HAProxy answers 503".to_owned(),
        left => format!("HAProxy uses {}", counted(left, "replica")),
    };
    format!("{name} ended ({status}); {rest}")
}

/// One voucher that can be bought at once, and one that opens a minute later.
fn vouchers(now: time::OffsetDateTime) -> [NewVoucher; 2] {
    let ends_at = rfc3339(now + time::Duration::hours(24));
    [
        NewVoucher {
            title: "Afternoon tea for two".to_owned(),
            description: "A pot of oolong and a three-tier stand, any weekday until six."
                .to_owned(),
            price_cents: 8800,
            face_value_cents: 16_800,
            starts_at: rfc3339(now - time::Duration::minutes(1)),
            ends_at: ends_at.clone(),
            stock: 100,
            stock_buckets: 1,
        },
        NewVoucher {
            title: "Hotpot dinner for four".to_owned(),
            description: "The big pot with everything, drinks not included.".to_owned(),
            price_cents: 19_900,
            face_value_cents: 39_800,
            starts_at: rfc3339(now + time::Duration::seconds(OPENS_IN_S)),
            ends_at,
            stock: 50,
            stock_buckets: 1,
        },
    ]
}
