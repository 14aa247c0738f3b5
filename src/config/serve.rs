//! The command line of `seckill serve`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use distlock::failpoint::are_compiled_in;
use distlock::{HoldKind, LockKind, LockOptions, RenewalKind, guarantees};
use secrecy::SecretString;

use super::connections::ConnectionArgs;
use super::dianping::{DianpingArgs, check_dianping};
use super::locks::{LockServers, check_database, check_fencing, check_redis, lock_kind};
use super::login::LoginFlags;
use super::purchase_mode::{PurchaseModeArgs, check_purchase_mode};
use super::rate_limits::LimitFlags;
use super::tokens::TokenArgs;
use super::traces::TraceArgs;
use super::{Address, Database};
use crate::sale::{
    BatchLimits, Guards, InjectedBug, LockOrder, OnLost, PurchaseMode, Scope, Writer,
};

/// The default of `--group-size`.
const GROUP_SIZE: usize = 256;
/// The default of `--group-queue`.
const GROUP_QUEUE: usize = 512;
/// The default of `--lock`.
pub(super) const LOCK: &str = "redisson";
/// The default lease of kinds without renewal.
const FIXED_LEASE: Duration = Duration::from_secs(10);

/// `seckill serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// Address of Redis: `redis://user:password@host:6379/0`, `rediss://` (TLS) or
    /// `redis+unix:///path?user=user&pass=password&db=0`. Of a Redis Cluster (7 or later) some
    /// nodes: `redis+cluster://user:password@host:6379,host:6379` or `rediss+cluster://`. Of Redis
    /// Sentinel all sentinels and the service:
    /// `redis+sentinel://user:password@host:26379,host:26379/service/0` or `rediss+sentinel://`
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Address,
    /// Address and port to listen on, instead of `--port`; port 0 takes a free one. Use
    /// `0.0.0.0:PORT` to be reached from other machines.
    #[arg(long, env = "BIND")]
    pub bind: Option<SocketAddr>,
    /// Port of 127.0.0.1 to listen on; 0 takes a free one. Use `--bind` for another address.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Key that signs access tokens: at least 32 bytes, the same for all replicas. A new key ends
    /// all tokens.
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub jwt_secret: Option<SecretString>,
    /// The life of tokens, and their revocation.
    #[command(flatten)]
    pub tokens: TokenArgs,
    /// Key that signs callbacks of the payment provider: at least 32 bytes, the same for all
    /// replicas. The provider is a mock that moves no money. Without the key payments are refused,
    /// except with --dev.
    #[arg(long, env = "PAYMENT_SECRET", hide_env_values = true)]
    pub payment_secret: Option<SecretString>,
    /// Seconds after which an unpaid order is cancelled and its unit sold again: 0 to 2592000; 0 is
    /// never. Choose it longer than a payment takes.
    #[arg(long, alias = "unpaid-timeout", env = "UNPAID_TIMEOUT_S", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=2_592_000))]
    pub unpaid_timeout_s: u32,
    /// Name of this replica in `X-Replica`: 1 to 64 visible ASCII characters. A fixed name lets a
    /// restarted replica of the queued mode take up its own entries [default: address and port, or
    /// HOSTNAME if the address is 0.0.0.0]
    #[arg(long, env = "REPLICA_ID", value_parser = replica_name)]
    pub replica_id: Option<String>,
    /// Kind of the lock around a purchase; the same for all replicas. `seckill locks` compares
    /// them.
    #[arg(long, env = "LOCK", default_value = LOCK, value_parser = lock_kind())]
    pub lock: LockKind,
    /// What the lock's name is made of: one purchase of a user at a time, or of a voucher.
    /// `voucher` is slower, and protects the stock too.
    #[arg(long, env = "LOCK_SCOPE", value_enum, default_value = "user")]
    pub lock_scope: Scope,
    /// When a purchase is answered.
    #[command(flatten)]
    pub purchase_mode: PurchaseModeArgs,
    /// What writes orders: `single` uses one transaction an order; `grouped` commits the orders of
    /// a voucher that arrive during a transaction in the next one. Use `grouped` for high rates.
    #[arg(long, env = "WRITER", value_enum, default_value = "single")]
    pub writer: Writer,
    /// Most orders in one transaction of `--writer grouped`: 1 to 1000. Lower it for shorter
    /// transactions [default: 256]
    #[arg(long, env = "GROUP_SIZE", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub group_size: Option<u32>,
    /// Most orders of one voucher that wait for a transaction of `--writer grouped`: 1 to 100000.
    /// More are answered 503 at once; raise it to queue longer bursts [default: 512]
    #[arg(long, env = "GROUP_QUEUE", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub group_queue: Option<u32>,
    /// Milliseconds that a purchase waits for its lock: 0 to 60000; 0 fails at once, as `tryLock()`
    /// does. From 100 on, the lock is released after the answer, and kinds that poll share it
    /// fairly.
    #[arg(long, env = "LOCK_WAIT_MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub lock_wait_ms: u32,
    /// Milliseconds that a lock outlives a dead holder: 10 to 3600000. Shorter frees the locks of
    /// dead replicas sooner, longer survives longer pauses [default: 30000 for kinds with renewal,
    /// 10000 for others]
    #[arg(long, env = "LEASE_MS", value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub lease_ms: Option<u32>,
    /// Most database connections for purchases and reads: 2 to 1000. Keep the sum over
    /// all replicas below the database's `max_connections`.
    #[arg(long, env = "DB_POOL", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub db_pool: u32,
    /// Most purchases in progress, and most payments, cancellations and callbacks: 1 to 100000
    /// each. More are answered 503 at once; raise it if the database is not busy.
    #[arg(long, env = "MAX_ORDERS", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_orders: u32,
    /// Most requests in flight: 1 to 100000. More are answered 503 at once; keep it above
    /// --max-orders, so that other routes are served during a sale.
    #[arg(long, env = "MAX_REQUESTS", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests: u32,
    /// Bounds of client connections.
    #[command(flatten)]
    pub connections: ConnectionArgs,
    /// Milliseconds to serve on after SIGTERM, until the proxy has taken the replica out: 0 to
    /// 60000. Raise it if the proxy checks less often than twice a second.
    #[arg(long, env = "DRAIN_DELAY_MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub drain_delay_ms: u32,
    /// Do not bring the schema up to date at the start. For a database user without the right to do
    /// so; then run `seckill migrate` before.
    #[arg(long, env = "NO_MIGRATE")]
    pub no_migrate: bool,
    /// Report ready even if other replicas use other lock settings. Such replicas do
    /// not exclude each other, so set it only while no lock is needed.
    #[arg(long, env = "ALLOW_MIXED")]
    pub allow_mixed: bool,
    /// Development mode, on a loopback address only: login codes are in the answer, and
    /// `JWT_SECRET` may be missing, so that tokens end with the process.
    #[arg(long, env = "DEV")]
    pub dev: bool,
    /// The servers of some kinds of locks.
    #[command(flatten)]
    pub lock_servers: LockServers,
    /// Rate limits.
    #[command(flatten)]
    pub limits: LimitFlags,
    /// Logins.
    #[command(flatten)]
    pub login: LoginFlags,
    /// The API of hm-dianping.
    #[command(flatten)]
    pub dianping: DianpingArgs,
    /// Traces of requests.
    #[command(flatten)]
    pub traces: TraceArgs,
    /// The laboratory's switches.
    #[command(flatten)]
    pub laboratory: Laboratory,
}

/// Switches that break the service on purpose, or show how it breaks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Laboratory (each needs --lab)")]
pub struct Laboratory {
    /// Allow the switches below, and say in the answer to a purchase when it held its lock. On a
    /// loopback address only.
    #[arg(long, env = "LAB")]
    pub lab: bool,
    /// `on`: unique key and stock condition are enforced. `off`: naive code sells in tables of its
    /// own, and the lock is the only protection.
    #[arg(long, env = "GUARDS", value_enum, default_value = "on")]
    pub guards: Guards,
    /// Milliseconds of extra time inside the critical section: 0 to 60000. It makes overlaps of
    /// holders likely.
    #[arg(long, env = "WORK_MS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub work_ms: u32,
    /// `inside`: take the lock inside the transaction and release it before the commit, a common
    /// mistake. `nested`: take it once more within. `read-first`: read the stock under it before.
    #[arg(long, env = "LOCK_ORDER", value_enum, default_value = "outside")]
    pub lock_order: LockOrder,
    /// What a purchase does when its lock is lost: `stop`, or `ignore` as naive code does.
    #[arg(long, env = "ON_LOST", value_enum, default_value = "stop")]
    pub on_lost: OnLost,
    /// Take a fencing token with the lock, and check it in the order's transaction. It stops
    /// holders that have lost their lock.
    #[arg(long, env = "FENCED")]
    pub fenced: bool,
    /// A deliberate bug, to test that the judge finds it.
    #[arg(long, alias = "plant", value_enum)]
    pub inject_bug: Option<InjectedBug>,
    /// Take the code path of purchases with this bug of --inject-bug, without the bug.
    #[arg(long, alias = "plant-control", value_enum, hide_possible_values = true)]
    pub inject_bug_control: Option<InjectedBug>,
    /// Points at which this replica fails, such as
    /// `sale-committed=return(kill);lock-busy=1*sleep(900)`. Needs a program that was built with
    /// failpoints.
    #[arg(long, env = "FAILPOINTS")]
    pub failpoints: Option<String>,
}

impl Serve {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        self.bind.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port))
    }

    /// Refuses combinations of flags that make no sense; the error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let lab = &self.laboratory;
        let used = [
            (lab.guards == Guards::Off, "--guards off"),
            (lab.work_ms > 0, "--work-ms"),
            (lab.lock_order != LockOrder::Outside, lab.lock_order.flag()),
            (lab.on_lost == OnLost::Ignore, "--on-lost ignore"),
            (lab.fenced, "--fenced"),
            (lab.inject_bug.is_some(), "--inject-bug"),
            (lab.inject_bug_control.is_some(), "--inject-bug-control"),
            (lab.failpoints.is_some(), "--failpoints"),
        ];
        if let Some((_, flag)) = used.iter().find(|(used, _)| *used && !lab.lab) {
            return Err(format!("{flag} is for the laboratory and needs --lab"));
        }
        if are_compiled_in() && !lab.lab {
            let why = "this program was built with failpoints, for the laboratory";
            return Err(format!("{why}: it serves with --lab only"));
        }
        if (self.dev || lab.lab) && !self.address().ip().is_loopback() {
            let flag = if self.dev { "--dev" } else { "--lab" };
            return Err(format!("{flag} needs a loopback address, not {}", self.address()));
        }
        if self.jwt_secret.is_none() && !self.dev {
            return Err("JWT_SECRET is missing (only --dev does without)".to_owned());
        }
        if self.unpaid_timeout_s > 0 && self.payment_secret.is_none() && !self.dev {
            let why = "no order could be paid in time";
            return Err(format!("--unpaid-timeout-s needs PAYMENT_SECRET: without it {why}"));
        }
        if self.unpaid_timeout_s > 0 && lab.guards == Guards::Off {
            let why = "naive code overwrites the units that come back";
            return Err(format!("--unpaid-timeout-s makes no sense with --guards off: {why}"));
        }
        self.tokens.check()?;
        check_database(&self.database.database_url)?;
        check_redis(&self.redis_url)?;
        self.check_lock()?;
        self.check_writer()?;
        check_dianping(self)?;
        check_purchase_mode(self)
    }

    fn check_writer(&self) -> Result<(), String> {
        if self.writer == Writer::Single {
            return match (self.group_size, self.group_queue) {
                (None, None) => Ok(()),
                (Some(_), _) => Err("--group-size is for --writer grouped".to_owned()),
                (None, Some(_)) => Err("--group-queue is for --writer grouped".to_owned()),
            };
        }
        let (kind, lab) = (self.lock, &self.laboratory);
        let lock_is_transaction = guarantees(kind).hold == HoldKind::Transaction;
        let bug_of_single_writer =
            lab.inject_bug.or(lab.inject_bug_control).is_some_and(InjectedBug::is_of_single_writer);
        let many = "the orders of one transaction have a lock each";
        let senseless = [
            (lock_is_transaction, "that lock", "the order is written in the lock's transaction"),
            (lab.guards == Guards::Off, "--guards off", "naive code writes one at a time"),
            (lab.lock_order == LockOrder::Inside, "--lock-order inside", many),
            (lab.fenced, "--fenced", many),
            (bug_of_single_writer, "that --inject-bug", "it is a bug of the writer single"),
        ];
        match senseless.iter().find(|(is_asked_for, ..)| *is_asked_for) {
            Some((_, what, why)) => {
                Err(format!("--writer grouped makes no sense with {what}: {why}"))
            }
            None => Ok(()),
        }
    }

    /// The bounds of the batch writer.
    pub fn batch_limits(&self) -> BatchLimits {
        let limit = |told: Option<u32>, usual| told.map_or(usual, |told| told as usize);
        BatchLimits {
            size: limit(self.group_size, GROUP_SIZE),
            queue: limit(self.group_queue, GROUP_QUEUE),
            slow: BatchLimits::SLOW,
        }
    }

    fn check_lock(&self) -> Result<(), String> {
        let (kind, lab) = (self.lock, &self.laboratory);
        if lab.inject_bug.and(lab.inject_bug_control).is_some() {
            return Err(
                "--inject-bug-control is the run without the bug of --inject-bug".to_owned()
            );
        }
        self.lock_servers.check(kind, self.lease())?;
        if lab.fenced {
            check_fencing("--fenced", kind)?;
        }
        if let Some(needed) =
            lab.inject_bug.and_then(InjectedBug::lock_kind).filter(|needed| *needed != kind)
        {
            return Err(format!("that --inject-bug is a bug of the lock {needed}, not of {kind}"));
        }
        if guarantees(kind).hold == HoldKind::Transaction {
            let because = format!("the lock {kind} ends with the order's transaction");
            if lab.lock_order != LockOrder::Outside {
                let flag = lab.lock_order.flag();
                return Err(format!("{flag} makes no sense: {because}"));
            }
            if lab.inject_bug == Some(InjectedBug::ReleaseBeforeCommit) {
                return Err(format!("--inject-bug release-before-commit cannot be: {because}"));
            }
        }
        Ok(())
    }

    /// The lease of locks.
    pub fn lease(&self) -> Duration {
        let usual = match guarantees(self.lock).renewal {
            RenewalKind::Yes | RenewalKind::Heartbeat => LockOptions::WATCHDOG_LEASE,
            RenewalKind::No | RenewalKind::NotApplicable => FIXED_LEASE,
        };
        self.lease_ms.map_or(usual, |ms| Duration::from_millis(ms.into()))
    }

    /// The name of a replica that listens on that address. In a container, HOSTNAME tells replicas
    /// apart.
    pub fn replica_name(&self, address: SocketAddr) -> String {
        let host = || std::env::var("HOSTNAME").ok().filter(|host| replica_name(host).is_ok());
        match &self.replica_id {
            Some(name) => name.clone(),
            None if address.ip().is_unspecified() => host().unwrap_or_else(|| address.to_string()),
            None => address.to_string(),
        }
    }

    /// The settings that replicas must share to exclude each other. `places` is the hash of lock
    /// servers other than the service's own.
    pub fn settings(&self, places: Option<String>) -> String {
        let scope = match self.lock_scope {
            Scope::User => "user",
            Scope::Voucher => "voucher",
        };
        let guards = match self.laboratory.guards {
            Guards::On => "on",
            Guards::Off => "off",
        };
        let writer = match self.writer {
            Writer::Single => "single",
            Writer::Grouped => "grouped",
        };
        // Replicas of the previous version compare this text, which has the former name of a kind.
        let kind = self.lock.former_name().unwrap_or(self.lock.as_str());
        let mut settings = format!("lock={kind} scope={scope} guards={guards} writer={writer}");
        match self.laboratory.lock_order {
            LockOrder::Outside => {}
            LockOrder::Inside => settings.push_str(" order=inside"),
            LockOrder::Nested => settings.push_str(" order=nested"),
            LockOrder::ReadFirst => settings.push_str(" order=read-first"),
        }
        if self.laboratory.fenced {
            settings.push_str(" fenced=yes");
        }
        if self.purchase_mode.mode() == PurchaseMode::Queued {
            settings.push_str(" path=queued");
        }
        // A replica that counts a server which the others leave out would undo their restart delay.
        let restart_delay_ms = self.lock_servers.redlock_restart_delay().as_millis();
        if restart_delay_ms > 0 {
            settings.push_str(" restart-delay-ms=");
            settings.push_str(&restart_delay_ms.to_string());
        }
        if let Some(places) = places {
            settings.push_str(" at=");
            settings.push_str(&places);
        }
        settings
    }
}

fn replica_name(text: &str) -> Result<String, String> {
    let fit = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fit { Ok(text.to_owned()) } else { Err("must be 1 to 64 visible ASCII characters".into()) }
}
