//! What `seckill serve` is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use distlock::failpoint::are_compiled_in;
use distlock::{HoldKind, LockKind, LockOptions, RenewalKind, guarantees};
use secrecy::SecretString;

use super::limits::LimitFlags;
use super::locks::{LockServers, check_database, check_fencing, check_redis, lock_kind};
use super::path::{PathArgs, check_path};
use super::{Address, Database};
use crate::sale::{GroupLimits, Guards, LockOrder, OnLost, Path, Plant, Scope, Writer};

/// The most orders in one transaction of `--writer grouped`, unless told otherwise.
const GROUP_SIZE: usize = 256;
/// The most orders of one voucher that wait for one.
const GROUP_QUEUE: usize = 512;
/// The lock, unless told otherwise.
pub(super) const LOCK: &str = "redisson";
/// The lease of kinds that do not renew it, unless told otherwise.
const FIXED_LEASE: Duration = Duration::from_secs(10);

/// `seckill serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The database.
    #[command(flatten)]
    pub database: Database,
    /// `redis://user:password@host:6379/0`, `rediss://` (TLS) or
    /// `redis+unix:///path?user=user&pass=password&db=0`; of a Redis Cluster (7 or later) some
    /// nodes, `redis+cluster://user:password@host:6379,host:6379` or `rediss+cluster://`
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Address,
    /// Address and port to listen on, instead of `--port`; port 0 takes a free one.
    #[arg(long, env = "BIND")]
    pub bind: Option<SocketAddr>,
    /// Listen on this port of 127.0.0.1; use `--bind 0.0.0.0:PORT` to be reached from outside.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,
    /// Signs the tokens: at least 32 bytes, the same for all replicas.
    #[arg(long, env = "JWT_SECRET", hide_env_values = true)]
    pub jwt_secret: Option<SecretString>,
    /// How long a login lasts, in seconds.
    #[arg(long, env = "TOKEN_TTL_S", default_value_t = 43_200,
          value_parser = clap::value_parser!(u32).range(60..=2_592_000))]
    pub token_ttl_s: u32,
    /// Where login codes go: `-` for stdout or a file, a line of JSON each. Without it nobody can
    /// log in, except with --dev.
    #[arg(long, env = "LOGIN_CODE_OUTBOX")]
    pub login_code_outbox: Option<PathBuf>,
    /// Signs what the payment provider says: at least 32 bytes, the same for all replicas. The
    /// provider is a mock that takes no money. Without it nobody can pay, except with --dev.
    #[arg(long, env = "PAYMENT_SECRET", hide_env_values = true)]
    pub payment_secret: Option<SecretString>,
    /// After how long an order that is not paid is cancelled and its unit sold again, in seconds;
    /// 0: never.
    #[arg(long, alias = "unpaid-timeout", env = "UNPAID_TIMEOUT_S", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=2_592_000))]
    pub unpaid_timeout_s: u32,
    /// Name of this replica in `X-Replica`; default: address and port, or HOSTNAME with a bind
    /// address that says nothing (0.0.0.0).
    #[arg(long, env = "REPLICA_ID", value_parser = replica_name)]
    pub replica_id: Option<String>,
    /// The lock around a purchase.
    #[arg(long, env = "LOCK", default_value = LOCK, value_parser = lock_kind())]
    pub lock: LockKind,
    /// What the lock's name is made of.
    #[arg(long, env = "LOCK_SCOPE", value_enum, default_value = "user")]
    pub lock_scope: ScopeArg,
    /// When a purchase is answered.
    #[command(flatten)]
    pub path: PathArgs,
    /// What writes the orders: each in a transaction of its own, or those of a voucher that arrive
    /// while one is on its way together in the next.
    #[arg(long, env = "WRITER", value_enum, default_value = "single")]
    pub writer: Writer,
    /// The most orders in one transaction of `--writer grouped` [default: 256]
    #[arg(long, env = "GROUP_SIZE", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub group_size: Option<u32>,
    /// The most orders of one voucher that wait for a transaction of `--writer grouped`; more are
    /// answered 503 at once [default: 512]
    #[arg(long, env = "GROUP_QUEUE", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub group_queue: Option<u32>,
    /// How long a purchase waits for its lock, in ms; 0 fails at once, as `tryLock()` does. From
    /// 100 on a lock is given back after the answer, and kinds that poll share it fairly.
    #[arg(long, env = "LOCK_WAIT_MS", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub lock_wait_ms: u32,
    /// How long a lock outlives a dead holder, in ms [default: 30000 for locks that are renewed,
    /// 10000 for others]
    #[arg(long, env = "LEASE_MS", value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pub lease_ms: Option<u32>,
    /// The most database connections.
    #[arg(long, env = "DB_POOL", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub db_pool: u32,
    /// The most purchases at a time; more are answered 503 at once.
    #[arg(long, env = "MAX_ORDERS", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_orders: u32,
    /// The most requests at a time; more are answered 503 at once.
    #[arg(long, env = "MAX_REQUESTS", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests: u32,
    /// The most connections; more wait.
    #[arg(long, env = "MAX_CONNECTIONS", default_value_t = 8192,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,
    /// How long to go on answering after SIGTERM, in ms, so that the proxy notices.
    #[arg(long, env = "DRAIN_DELAY_MS", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub drain_delay_ms: u32,
    /// Do not bring the schema up to date at the start.
    #[arg(long, env = "NO_MIGRATE")]
    pub no_migrate: bool,
    /// Be ready although another replica locks differently.
    #[arg(long, env = "ALLOW_MIXED")]
    pub allow_mixed: bool,
    /// For development, on a loopback address only: login codes are in the answer, and `JWT_SECRET`
    /// may be missing (then tokens end with the process).
    #[arg(long, env = "DEV")]
    pub dev: bool,
    /// The servers of some kinds of locks.
    #[command(flatten)]
    pub lock_servers: LockServers,
    /// How often somebody may ask.
    #[command(flatten)]
    pub limits: LimitFlags,
    /// The laboratory's switches.
    #[command(flatten)]
    pub laboratory: Laboratory,
}

/// Switches that break things on purpose, or show how they break.
#[derive(Debug, Args)]
#[command(next_help_heading = "Laboratory (each needs --lab)")]
pub struct Laboratory {
    /// Allow the switches below, and tell with the answer to a purchase when it held its lock; on a
    /// loopback address only.
    #[arg(long, env = "LAB")]
    pub lab: bool,
    /// off: sell by the textbook's naive code, in tables of its own.
    #[arg(long, env = "GUARDS", value_enum, default_value = "on")]
    pub guards: GuardsArg,
    /// Extra time inside the locked section, in ms.
    #[arg(long, env = "WORK_MS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub work_ms: u32,
    /// inside: take the lock inside the transaction and free it before the commit.
    #[arg(long, env = "LOCK_ORDER", value_enum, default_value = "outside")]
    pub lock_order: LockOrderArg,
    /// ignore: work on after the lock is lost, as naive code does.
    #[arg(long, env = "ON_LOST", value_enum, default_value = "stop")]
    pub on_lost: OnLost,
    /// Take a fencing token with the lock, and check it in the order's own transaction.
    #[arg(long, env = "FENCED")]
    pub fenced: bool,
    /// A deliberate bug, to see it caught.
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// Take the way through the code that purchases take with this bug of --plant, without the bug.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub plant_control: Option<Plant>,
    /// Fail at these points, as `sale-committed=return(kill);lock-busy=1*sleep(900)`; only in a
    /// program that was built for it.
    #[arg(long, env = "FAILPOINTS")]
    pub failpoints: Option<String>,
}

/// `--lock-scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// One purchase of a user at a time.
    User,
    /// One purchase of a voucher at a time.
    Voucher,
}

/// `--guards`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GuardsArg {
    /// The database has the last word.
    On,
    /// It has not.
    Off,
}

/// `--lock-order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LockOrderArg {
    /// Around the transaction.
    Outside,
    /// Inside it.
    Inside,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::User => Self::User,
            ScopeArg::Voucher => Self::Voucher,
        }
    }
}

impl From<GuardsArg> for Guards {
    fn from(guards: GuardsArg) -> Self {
        match guards {
            GuardsArg::On => Self::On,
            GuardsArg::Off => Self::Off,
        }
    }
}

impl From<LockOrderArg> for LockOrder {
    fn from(order: LockOrderArg) -> Self {
        match order {
            LockOrderArg::Outside => Self::Outside,
            LockOrderArg::Inside => Self::Inside,
        }
    }
}

impl Serve {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        self.bind.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port))
    }

    /// Combinations that make no sense, as a sentence each.
    pub fn check(&self) -> Result<(), String> {
        let lab = &self.laboratory;
        let used = [
            (lab.guards == GuardsArg::Off, "--guards off"),
            (lab.work_ms > 0, "--work-ms"),
            (lab.lock_order == LockOrderArg::Inside, "--lock-order inside"),
            (lab.on_lost == OnLost::Ignore, "--on-lost ignore"),
            (lab.fenced, "--fenced"),
            (lab.plant.is_some(), "--plant"),
            (lab.plant_control.is_some(), "--plant-control"),
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
            let why = "nobody could pay in time";
            return Err(format!("--unpaid-timeout-s needs PAYMENT_SECRET: without it {why}"));
        }
        if self.unpaid_timeout_s > 0 && lab.guards == GuardsArg::Off {
            let why = "naive code overwrites the units that come back";
            return Err(format!("--unpaid-timeout-s makes no sense with --guards off: {why}"));
        }
        check_database(&self.database.database_url)?;
        check_redis(&self.redis_url)?;
        self.check_lock()?;
        self.check_writer()?;
        check_path(self)
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
        let plant_of_single = lab.plant.or(lab.plant_control).is_some_and(Plant::is_of_single);
        let many = "the orders of one transaction have a lock each";
        let senseless = [
            (lock_is_transaction, "that lock", "the order is written in the lock's transaction"),
            (lab.guards == GuardsArg::Off, "--guards off", "naive code writes one at a time"),
            (lab.lock_order == LockOrderArg::Inside, "--lock-order inside", many),
            (lab.fenced, "--fenced", many),
            (plant_of_single, "that --plant", "it is a bug of the writer single"),
        ];
        match senseless.iter().find(|(is_asked_for, ..)| *is_asked_for) {
            Some((_, what, why)) => {
                Err(format!("--writer grouped makes no sense with {what}: {why}"))
            }
            None => Ok(()),
        }
    }

    /// How many orders are written together.
    pub fn group_limits(&self) -> GroupLimits {
        let limit = |told: Option<u32>, usual| told.map_or(usual, |told| told as usize);
        GroupLimits {
            size: limit(self.group_size, GROUP_SIZE),
            queue: limit(self.group_queue, GROUP_QUEUE),
        }
    }

    fn check_lock(&self) -> Result<(), String> {
        let (kind, lab) = (self.lock, &self.laboratory);
        if lab.plant.and(lab.plant_control).is_some() {
            return Err("--plant-control is the run without the bug of --plant".to_owned());
        }
        self.lock_servers.check(kind, self.lease())?;
        if lab.fenced {
            check_fencing("--fenced", kind)?;
        }
        if let Some(needed) = lab.plant.and_then(Plant::kind).filter(|needed| *needed != kind) {
            return Err(format!("that --plant is a bug of the lock {needed}, not of {kind}"));
        }
        if guarantees(kind).hold == HoldKind::Transaction {
            let because = format!("the lock {kind} ends with the order's transaction");
            if lab.lock_order == LockOrderArg::Inside {
                return Err(format!("--lock-order inside makes no sense: {because}"));
            }
            if lab.plant == Some(Plant::ReleaseBeforeCommit) {
                return Err(format!("--plant release-before-commit cannot be: {because}"));
            }
        }
        Ok(())
    }

    /// How long a lock outlives a dead holder.
    pub fn lease(&self) -> Duration {
        let usual = match guarantees(self.lock).renewal {
            RenewalKind::Yes | RenewalKind::Heartbeat => LockOptions::WATCHDOG_LEASE,
            RenewalKind::No | RenewalKind::NotApplicable => FIXED_LEASE,
        };
        self.lease_ms.map_or(usual, |ms| Duration::from_millis(ms.into()))
    }

    /// The name of a replica that listens there. In a container, HOSTNAME is what tells it apart.
    pub fn replica_name(&self, address: SocketAddr) -> String {
        let host = || std::env::var("HOSTNAME").ok().filter(|host| replica_name(host).is_ok());
        match &self.replica_id {
            Some(name) => name.clone(),
            None if address.ip().is_unspecified() => host().unwrap_or_else(|| address.to_string()),
            None => address.to_string(),
        }
    }

    /// What replicas must have in common to exclude each other. `places` says where their locks
    /// are, as far as that is not the database and the Redis that all of them use.
    pub fn settings(&self, places: Option<String>) -> String {
        let scope = match self.lock_scope {
            ScopeArg::User => "user",
            ScopeArg::Voucher => "voucher",
        };
        let guards = match self.laboratory.guards {
            GuardsArg::On => "on",
            GuardsArg::Off => "off",
        };
        let writer = match self.writer {
            Writer::Single => "single",
            Writer::Grouped => "grouped",
        };
        let kind = self.lock;
        let mut settings = format!("lock={kind} scope={scope} guards={guards} writer={writer}");
        if self.laboratory.lock_order == LockOrderArg::Inside {
            settings.push_str(" order=inside");
        }
        if self.laboratory.fenced {
            settings.push_str(" fenced=yes");
        }
        if self.path.path == Path::Queued {
            settings.push_str(" path=queued");
        }
        // One that counts a server which the others leave out would undo their restart delay.
        let restart_delay_ms = self.lock_servers.red_restart_delay_ms;
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
