//! Flags of locks and their servers, for `seckill serve` and the commands of `seckill lock`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use distlock::{
    Backend, Fencing, LockKind, LockName, LockOptions, NatsServer, RedisAddress, Replication,
    guarantees,
};

use super::Address;
use super::lock_inspection::{LockFree, LockLs, LockShow, LockWaitFor};
use super::lock_run::LockRun;
use crate::store;

/// How to connect to any Redis, besides its address.
#[derive(Debug, Args)]
pub struct RedisArgs {
    /// Certificate authority (a PEM file) for Redis servers with `rediss://` (TLS). Set it for a
    /// private authority; without it the system's authorities count.
    #[arg(long, env = "REDIS_CA_FILE")]
    pub redis_ca_file: Option<PathBuf>,
    /// Accept a Redis that may evict keys, and with them locks. Set it only if two holders of one
    /// lock do no harm.
    #[arg(long, env = "ALLOW_EVICTION")]
    pub allow_eviction: bool,
    /// Milliseconds that Redis may take to connect or to answer: 50 to 60000. A slower answer is an
    /// error. Keep it under a third of the lease, or one lost answer costs a lock.
    #[arg(long, env = "REDIS_TIMEOUT_MS", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(50..=60_000))]
    pub redis_timeout_ms: u32,
}

impl RedisArgs {
    /// How long Redis may take to answer.
    pub fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.redis_timeout_ms.into())
    }

    /// How long Redis may take at the start, which is tried once: a busy machine may need seconds.
    pub fn start_timeout(&self) -> Duration {
        self.answer_timeout().max(Duration::from_secs(5))
    }
}

/// The longest restart delay: a day.
const MAX_RESTART_DELAY_MS: i64 = 86_400_000;

/// Servers that some kinds of locks need besides the database and the Redis that all use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers of locks")]
pub struct LockServers {
    /// Independent Redis servers of `redlock` (3 or 5) and `multi`, separated by commas.
    #[arg(long, env = "REDLOCK_URLS", hide_env_values = true, value_delimiter = ',')]
    pub redlock_urls: Vec<Address>,
    /// The former name of `--redlock-urls`.
    #[arg(long, env = "RED_URLS", hide = true, hide_env_values = true, value_delimiter = ',')]
    pub red_urls: Vec<Address>,
    /// Ensemble of `zookeeper`: `host:port,host:port/chroot`. The chroot must exist.
    #[arg(long, env = "ZOOKEEPER_URL")]
    pub zookeeper_url: Option<Address>,
    /// Endpoints of `etcd`: `host:port,host:port`, or `user:password@host:port,host:port` of a
    /// cluster with users; without TLS.
    #[arg(long, env = "ETCD_ENDPOINTS", hide_env_values = true)]
    pub etcd_endpoints: Option<Address>,
    /// Servers of `nats`, with `JetStream`: `nats://user:password@host:4222,nats://...`, without
    /// TLS.
    #[arg(long, env = "NATS_URL", hide_env_values = true)]
    pub nats_url: Option<Address>,
    /// Bucket of `nats`, 1 to 64 letters, digits, `-` and `_`. It is made with the lease as its
    /// maximum age if the server has none of that name; one that is there keeps its own.
    #[arg(long, env = "NATS_BUCKET", default_value = NatsServer::DEFAULT_BUCKET,
          value_parser = nats_bucket)]
    pub nats_bucket: String,
    /// How to connect to these and to the service's own Redis.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// Most database connections for locks: 2 to 1000. Each holder and each waiter of `mysql-row`
    /// and `mysql-named` uses one; raise it with their number.
    #[arg(long, env = "LOCK_POOL", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub lock_pool: u32,
    /// Replicas of the Redis that must confirm a lock of `redisson`: `none`, a number, or
    /// `majority:N` or `all:N` of N replicas, 1 to 100. With too few replicas every lock is
    /// refused. A failover then rarely loses a lock, but still can.
    #[arg(long, env = "LOCK_REPLICATION", default_value = "none", value_parser = replication)]
    pub lock_replication: Replication,
    /// Milliseconds that an empty server of `redlock` stays out after its start: 0 to 86400000, and
    /// at least the longest lease on these servers. It delays the very first lock too. Keep 0 for
    /// servers that lose nothing: `appendonly yes` with `appendfsync always`.
    #[arg(long, env = "REDLOCK_RESTART_DELAY_MS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=MAX_RESTART_DELAY_MS))]
    pub redlock_restart_delay_ms: u32,
    /// The former name of `--redlock-restart-delay-ms`.
    #[arg(long, env = "RED_RESTART_DELAY_MS", hide = true, default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=MAX_RESTART_DELAY_MS))]
    pub red_restart_delay_ms: u32,
}

impl LockServers {
    /// The independent servers; an empty setting names none. The former name of the setting counts
    /// if the current one is absent.
    pub fn independent(&self) -> impl Iterator<Item = &Address> {
        let is_named = |url: &&Address| !url.expose().is_empty();
        let current = self.redlock_urls.iter().any(|url| is_named(&url));
        let urls = if current { &self.redlock_urls } else { &self.red_urls };
        urls.iter().filter(is_named)
    }

    /// The ensemble as `ZooKeeper`'s own clients take it, and the setting that named it.
    pub fn ensemble(&self) -> Option<(&str, &str)> {
        let url = self.zookeeper_url.as_ref().filter(|url| !url.expose().is_empty())?;
        let named = url.expose();
        Some((named.strip_prefix("zookeeper://").unwrap_or(named), url.given_as()))
    }

    /// The endpoints of the etcd cluster, and the setting that named them.
    pub fn etcd(&self) -> Option<(&str, &str)> {
        let url = self.etcd_endpoints.as_ref().filter(|url| !url.expose().is_empty())?;
        Some((url.expose(), url.given_as()))
    }

    /// The NATS servers, and the setting that named them.
    pub fn nats(&self) -> Option<(&str, &str)> {
        let url = self.nats_url.as_ref().filter(|url| !url.expose().is_empty())?;
        Some((url.expose(), url.given_as()))
    }

    /// How long an empty server of `redlock` stays out after its start.
    pub fn redlock_restart_delay(&self) -> Duration {
        Duration::from_millis(self.redlock_restart_delay_ms.max(self.red_restart_delay_ms).into())
    }

    /// Checks that the kind has its servers, and no setting of another kind; the error is a
    /// sentence.
    pub(super) fn check(&self, kind: LockKind, lease: Duration) -> Result<(), String> {
        if self.lock_replication.confirmations() > 0 && !kind.can_be_confirmed() {
            let flag = "--lock-replication (LOCK_REPLICATION)";
            return Err(format!("{flag} is for the lock redisson, not for {kind}"));
        }
        let delay = self.redlock_restart_delay();
        if !delay.is_zero() {
            let flag = "--redlock-restart-delay-ms (REDLOCK_RESTART_DELAY_MS)";
            if !kind.has_restart_delay() {
                return Err(format!("{flag} is for the lock redlock, not for {kind}"));
            }
            if delay < lease {
                let lease_ms = lease.as_millis();
                return Err(format!("{flag} must be 0 or at least the lease of {lease_ms} ms"));
            }
        }
        self.check_servers(kind)
    }

    /// Checks that the kind has its servers; the error is a sentence.
    pub(super) fn check_servers(&self, kind: LockKind) -> Result<(), String> {
        match kind.backend() {
            Backend::IndependentRedis => self.check_independent(kind),
            Backend::ZooKeeper if self.ensemble().is_none() => {
                Err(format!("the lock {kind} needs --zookeeper-url (ZOOKEEPER_URL)"))
            }
            Backend::Etcd if self.etcd().is_none() => {
                Err(format!("the lock {kind} needs --etcd-endpoints (ETCD_ENDPOINTS)"))
            }
            Backend::Nats if self.nats().is_none() => {
                Err(format!("the lock {kind} needs --nats-url (NATS_URL)"))
            }
            Backend::ZooKeeper
            | Backend::Etcd
            | Backend::Nats
            | Backend::Process
            | Backend::Redis
            | Backend::MySql => Ok(()),
        }
    }

    /// Checks that the independent servers are as many as the kind needs, and different.
    fn check_independent(&self, kind: LockKind) -> Result<(), String> {
        let mut places = Vec::new();
        for url in self.independent() {
            check_redis(url)?;
            let address = RedisAddress::from(url.expose());
            if (address.is_cluster() || address.is_sentinel()) && kind.server_counts().is_some() {
                let instead = "not a cluster or sentinels";
                return Err(format!("the lock {kind} needs independent servers, {instead}"));
            }
            let place = address.place().unwrap_or_default();
            if places.contains(&place) {
                let given_as = url.given_as();
                return Err(format!("{given_as} names {place} twice, which is one server only"));
            }
            places.push(place);
        }
        if places.is_empty() {
            return Err(format!("the lock {kind} needs --redlock-urls (REDLOCK_URLS)"));
        }
        match kind.server_counts() {
            Some([few, more]) if ![few, more].contains(&places.len()) => {
                let named = places.len();
                let servers = format!("{few} or {more} independent Redis servers");
                Err(format!("the lock {kind} needs {servers}, and there are {named}"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the address of a Redis; the error is a sentence.
pub(super) fn check_redis(url: &Address) -> Result<(), String> {
    let usable = RedisAddress::from(url.expose()).check();
    usable.map_err(|error| format!("{} is not usable: {error}", url.given_as()))
}

/// Checks the address of a database; the error is a sentence.
pub(super) fn check_database(url: &Address) -> Result<(), String> {
    let usable = store::check_database_address(url.expose());
    usable.map_err(|error| format!("{} is not usable: {error}", url.given_as()))
}

/// Checks that holds of that kind can carry a fencing token; the error is a sentence.
pub(super) fn check_fencing(flag: &str, kind: LockKind) -> Result<(), String> {
    match guarantees(kind).fencing {
        Fencing::Optional | Fencing::Yes => Ok(()),
        Fencing::No | Fencing::NotApplicable => {
            Err(format!("{flag} needs a lock with fencing tokens, and {kind} has none"))
        }
        Fencing::NotNeeded => Err(format!(
            "{flag} is not for {kind}: what is done under it ends with the lock itself"
        )),
    }
}

/// Parses the name of a kind.
pub(super) fn lock_kind() -> impl TypedValueParser<Value = LockKind> {
    kinds_of(|_| true)
}

/// Parses the name of a kind, and lists in the help those that exclude other processes. The others
/// are refused later, with the reason.
pub(super) fn shared_kind() -> impl TypedValueParser<Value = LockKind> {
    kinds_of(|kind| guarantees(kind).is_on_a_server())
}

fn kinds_of(is_listed: fn(LockKind) -> bool) -> impl TypedValueParser<Value = LockKind> {
    let name = |kind: LockKind| {
        let name = PossibleValue::new(kind.as_str()).hide(!is_listed(kind));
        name.aliases(kind.former_name())
    };
    let names = PossibleValuesParser::new(LockKind::ALL.map(name));
    names.try_map(|name| name.parse::<LockKind>())
}

/// Where a command finds its locks.
#[derive(Debug, Args)]
pub struct LockAddresses {
    /// Address of MySQL or MariaDB, `mysql://user:password@host:3306/database`: for the `mysql`
    /// kinds, and for fencing tokens that the database makes. Of a primary and its replicas, name
    /// all: `user:password@host1:3306,host2:3306`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<Address>,
    /// Address of Redis: `redis://user:password@host:6379/0`, `rediss://` (TLS) or `redis+unix://`;
    /// of a Redis Cluster `redis+cluster://user:password@host:6379,host:6379`; of Redis Sentinel
    /// `redis+sentinel://user:password@host:26379,host:26379/service/0`
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<Address>,
    /// The servers of other kinds.
    #[command(flatten)]
    pub servers: LockServers,
}

impl LockAddresses {
    /// Checks that the kind excludes other processes and has its servers; the error is a sentence.
    /// Settings that the kind does not need are not checked.
    pub fn check(
        &self,
        kind: LockKind,
        lease: Duration,
        needs_database: bool,
    ) -> Result<(), String> {
        self.check_addresses(kind, needs_database)?;
        self.servers.check(kind, lease)
    }

    pub(super) fn check_addresses(
        &self,
        kind: LockKind,
        needs_database: bool,
    ) -> Result<(), String> {
        if !guarantees(kind).is_on_a_server() {
            return Err(format!("the lock {kind} keeps no other process out"));
        }
        if kind.backend() == Backend::Redis && Address::is_missing(self.redis_url.as_ref()) {
            return Err(format!("the lock {kind} needs --redis-url (REDIS_URL)"));
        }
        if kind.backend() == Backend::MySql && Address::is_missing(self.database_url.as_ref()) {
            return Err(format!("the lock {kind} needs --database-url (DATABASE_URL)"));
        }
        if let (Backend::Redis, Some(url)) = (kind.backend(), &self.redis_url) {
            check_redis(url)?;
        }
        if let Some(url) = self.database_url.as_ref().filter(|_| needs_database) {
            check_database(url)?;
        }
        Ok(())
    }
}

/// `seckill lock`.
#[derive(Debug, Subcommand)]
pub enum LockCommand {
    /// Run a command while holding a lock, as flock(1) does.
    Run(Box<LockRun>),
    /// List the locks that are held, page by page.
    Ls(Box<LockLs>),
    /// Show one lock: its holders, their leases, and its waiters.
    Show(Box<LockShow>),
    /// Free a lock by force, with a line in the audit trail.
    Free(Box<LockFree>),
    /// Wait until a lock is free, without taking it.
    WaitFor(Box<LockWaitFor>),
}

/// `none`, `2`, `majority:2` or `all:2`.
fn replication(text: &str) -> Result<Replication, String> {
    let count = |text: &str| text.parse().ok().filter(|count| (1..=100).contains(count));
    let found = match text.split_once(':') {
        None if text == "none" => Some(Replication::None),
        None => count(text).map(Replication::AtLeast),
        Some(("majority", of)) => count(of).map(|replicas| Replication::Majority { replicas }),
        Some(("all", of)) => count(of).map(|replicas| Replication::All { replicas }),
        Some(_) => None,
    };
    found.ok_or_else(|| "must be none, N, majority:N or all:N, with N from 1 to 100".to_owned())
}

/// An empty name is none: a compose file passes an unset variable so.
fn nats_bucket(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(NatsServer::DEFAULT_BUCKET.to_owned());
    }
    NatsServer::check_bucket(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

pub(super) fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|error| error.to_string())
}

pub(super) fn wait(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, LockOptions::MAX)
}

/// Parses a duration such as `1h 30m`, within these bounds.
pub(super) fn between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).ok();
    duration.filter(|duration| (least..=most).contains(duration)).ok_or_else(|| {
        let [least, most] = [least, most].map(humantime::format_duration);
        format!("must be {least} to {most}, with the unit, such as 500ms, 10s or 1h")
    })
}
