//! What `seckill serve` and `seckill lock run` are told of locks and of the servers they live on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use distlock::{
    Backend, Fencing, LockKind, LockName, LockOptions, RedisAddress, Replication, guarantees,
};

use super::Address;
use crate::store;

/// How any Redis is connected to, besides what stands in its address.
#[derive(Debug, Args)]
pub struct RedisArgs {
    /// The authority, in PEM, that vouches for Redis servers with `rediss://` (TLS); without it
    /// those of the system do.
    #[arg(long, env = "REDIS_CA_FILE")]
    pub redis_ca_file: Option<PathBuf>,
    /// Accept a Redis that may evict keys, and with them locks.
    #[arg(long, env = "ALLOW_EVICTION")]
    pub allow_eviction: bool,
}

/// Servers that some kinds of locks need besides the database and the Redis that all use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Servers of locks")]
pub struct LockServers {
    /// The independent Redis servers of `red` (3 or 5) and `multi`, separated by commas.
    #[arg(long, env = "RED_URLS", hide_env_values = true, value_delimiter = ',')]
    pub red_urls: Vec<Address>,
    /// The ensemble of `zookeeper`: `host:port,host:port/chroot`, whose chroot must exist.
    #[arg(long, env = "ZOOKEEPER_URL")]
    pub zookeeper_url: Option<Address>,
    /// How they and the service's own Redis are connected to.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// The most database connections of the locks' own pool: each holder and each waiter of
    /// `mysql-row` and `mysql-named` has one.
    #[arg(long, env = "LOCK_POOL", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub lock_pool: u32,
    /// How many replicas of the Redis must confirm a lock of `redisson` before it counts: `none`, a
    /// number, or `majority:N` or `all:N` of the N that there ought to be. With too few of them
    /// nobody gets a lock. It makes rarer that a failover forgets one; it does not rule it out.
    #[arg(long, env = "LOCK_REPLICATION", default_value = "none", value_parser = replication)]
    pub lock_replication: Replication,
    /// How long a server of `red` that came up empty stays out, in ms: at least the longest lease
    /// that anybody uses on these servers. It delays the very first lock as well. 0 is for servers
    /// that forget nothing: `appendonly yes` and `appendfsync always`.
    #[arg(long, env = "RED_RESTART_DELAY_MS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=86_400_000))]
    pub red_restart_delay_ms: u32,
}

impl LockServers {
    /// The independent servers that were named; an empty setting names none.
    pub fn independent(&self) -> impl Iterator<Item = &Address> {
        self.red_urls.iter().filter(|url| !url.expose().is_empty())
    }

    /// The ensemble that was named, as `ZooKeeper`'s own clients take it, and by what setting.
    pub fn ensemble(&self) -> Option<(&str, &str)> {
        let url = self.zookeeper_url.as_ref().filter(|url| !url.expose().is_empty())?;
        let named = url.expose();
        Some((named.strip_prefix("zookeeper://").unwrap_or(named), url.given_as()))
    }

    /// How long a server of `red` that came up empty stays out.
    pub fn red_restart_delay(&self) -> Duration {
        Duration::from_millis(self.red_restart_delay_ms.into())
    }

    /// Whether the kind has its servers and is told nothing that is for another, as a sentence if
    /// not.
    pub(super) fn check(&self, kind: LockKind, lease: Duration) -> Result<(), String> {
        if self.lock_replication.confirmations() > 0 && !kind.can_be_confirmed() {
            let flag = "--lock-replication (LOCK_REPLICATION)";
            return Err(format!("{flag} is for the lock redisson, not for {kind}"));
        }
        let delay = self.red_restart_delay();
        if !delay.is_zero() {
            let flag = "--red-restart-delay-ms (RED_RESTART_DELAY_MS)";
            if !kind.has_restart_delay() {
                return Err(format!("{flag} is for the lock red, not for {kind}"));
            }
            if delay < lease {
                let lease_ms = lease.as_millis();
                return Err(format!("{flag} must be 0 or at least the lease of {lease_ms} ms"));
            }
        }
        match kind.backend() {
            Backend::IndependentRedis => self.check_independent(kind),
            Backend::ZooKeeper if self.ensemble().is_none() => {
                Err(format!("the lock {kind} needs --zookeeper-url (ZOOKEEPER_URL)"))
            }
            Backend::ZooKeeper | Backend::Process | Backend::Redis | Backend::MySql => Ok(()),
        }
    }

    /// Whether there are as many independent servers as the kind needs, none of them twice.
    fn check_independent(&self, kind: LockKind) -> Result<(), String> {
        let mut places = Vec::new();
        for url in self.independent() {
            check_redis(url)?;
            let address = RedisAddress::from(url.expose());
            if address.is_cluster() && kind.server_counts().is_some() {
                return Err(format!("the lock {kind} needs independent servers, not a cluster"));
            }
            let place = address.place().unwrap_or_default();
            if places.contains(&place) {
                let given_as = url.given_as();
                return Err(format!("{given_as} names {place} twice, which is one server only"));
            }
            places.push(place);
        }
        if places.is_empty() {
            return Err(format!("the lock {kind} needs --red-urls (RED_URLS)"));
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

/// Whether that can be the address of a Redis, as a sentence if not.
pub(super) fn check_redis(url: &Address) -> Result<(), String> {
    let usable = RedisAddress::from(url.expose()).check();
    usable.map_err(|error| format!("{} is not usable: {error}", url.given_as()))
}

/// The same of a database.
pub(super) fn check_database(url: &Address) -> Result<(), String> {
    let usable = store::check_database_address(url.expose());
    usable.map_err(|error| format!("{} is not usable: {error}", url.given_as()))
}

/// Whether holds of that kind can carry a fencing token, as a sentence if not.
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

/// Takes the name of a kind.
pub(super) fn lock_kind() -> impl TypedValueParser<Value = LockKind> {
    kinds_of(|_| true)
}

/// The same, listing only those that keep other processes out. A reason is all that the others get.
fn shared_kind() -> impl TypedValueParser<Value = LockKind> {
    kinds_of(|kind| guarantees(kind).is_on_a_server())
}

fn kinds_of(is_listed: fn(LockKind) -> bool) -> impl TypedValueParser<Value = LockKind> {
    let name = |kind: LockKind| PossibleValue::new(kind.as_str()).hide(!is_listed(kind));
    let names = PossibleValuesParser::new(LockKind::ALL.map(name));
    names.try_map(|name| name.parse::<LockKind>())
}

/// `seckill locks`.
#[derive(Debug, Args)]
pub struct LockList {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `seckill lock`.
#[derive(Debug, Subcommand)]
pub enum LockCommand {
    /// Run a command while holding a lock, as flock(1) does.
    Run(Box<LockRun>),
}

const RUN_HELP: &str = "\
The command runs in a process group of its own, in the foreground of the terminal if there is one \
(where Ctrl-Z has no effect: a command that is stopped would hold the lock for nothing). SIGTERM, \
SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group. If the lock is lost, or \
is about to be, it gets SIGTERM, and after the grace SIGKILL: before the lock's server lets \
anybody else in, unless the server itself took the lock away. A `seckill lock run` that is killed \
(SIGKILL) or stopped itself cannot do that: its command runs on, and once the lease has ended \
somebody else gets the lock. What must not be written twice even then has to check the token.

Exit codes:
  that of the command; 128+n if signal n ended it, or this program while it waited for the lock
  2    bad usage; the command did not run
  69   the lock's server cannot be reached, or failed; the command did not run
  71   this machine failed: the command could not be started or watched
  75   somebody else held the lock for as long as --wait; the command did not run
  76   the lock was lost; the command was ended
  78   the lock's server answers, and trying again does not help: it denies access (a wrong
       password, say), it may evict locks, or the name is that of a lock of another kind; the
       command did not run
  126  the command cannot be executed
  127  there is no such command
Numbers that a command uses itself say nothing of the lock: with each of its own from 2 to 127 \
this program writes a line to stderr that begins with `seckill: `, and with those of the command \
none.

The lock is released when the command ends. What it leaves running in the background goes on \
without it, other than under flock(1), which keeps the lock until all of them have closed its file.

Example:
  seckill lock run --name nightly-report --wait 0 -- ./report.sh";

/// `seckill lock run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct LockRun {
    /// What kind of lock it is. All who share a name must use the same kind: two kinds do not
    /// always keep each other out.
    #[arg(long, default_value = "redisson", value_parser = shared_kind())]
    pub kind: LockKind,
    /// Its name: 1 to 512 bytes.
    #[arg(long, value_parser = lock_name)]
    pub name: LockName,
    /// How long to wait for it, such as 500ms, 10s or 1h; 0 fails at once. Kinds that poll share
    /// fairly between processes from 100ms on.
    #[arg(long, default_value = "10s", value_parser = wait, allow_hyphen_values = true)]
    pub wait: Duration,
    /// How long it outlives a dead holder. Kinds without renewal end after that time even if the
    /// command still runs: they are then lost.
    #[arg(long, default_value = "30s", value_parser = lease, allow_hyphen_values = true)]
    pub lease: Duration,
    /// How long the command has between SIGTERM and SIGKILL if the lock is lost [default: a fifth
    /// of the lease, at most 5s]
    #[arg(long, value_parser = grace, allow_hyphen_values = true)]
    pub grace: Option<Duration>,
    /// Put the fencing token into the command's environment, as `LOCK_TOKEN`.
    #[arg(long)]
    pub token: bool,
    /// `mysql://user:password@host:3306/database`: for the `mysql` kinds, and for --token with
    /// kinds whose tokens the database makes.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<Address>,
    /// `redis://user:password@host:6379/0`, `rediss://` or `redis+unix://`; of a Redis Cluster
    /// `redis+cluster://user:password@host:6379,host:6379`
    #[arg(long, env = "REDIS_URL", hide_env_values = true)]
    pub redis_url: Option<Address>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The servers of other kinds.
    #[command(flatten)]
    pub servers: LockServers,
}

impl LockRun {
    /// Combinations that make no sense, as a sentence each.
    pub fn check(&self) -> Result<(), String> {
        let kind = self.kind;
        if !guarantees(kind).is_on_a_server() {
            return Err(format!("the lock {kind} keeps no other process out"));
        }
        let no_database = Address::is_missing(self.database_url.as_ref());
        if kind.backend() == Backend::Redis && Address::is_missing(self.redis_url.as_ref()) {
            return Err(format!("the lock {kind} needs --redis-url (REDIS_URL)"));
        }
        if kind.backend() == Backend::MySql && no_database {
            return Err(format!("the lock {kind} needs --database-url (DATABASE_URL)"));
        }
        // What the kind does not need is not looked at.
        if let (Backend::Redis, Some(url)) = (kind.backend(), &self.redis_url) {
            check_redis(url)?;
        }
        if let Some(url) = self.database_url.as_ref().filter(|_| self.needs_database()) {
            check_database(url)?;
        }
        self.servers.check(kind, self.lease)?;
        if self.token {
            check_fencing("--token", kind)?;
            if guarantees(kind).fencing == Fencing::Optional && no_database {
                let whose = "its tokens come from the database";
                return Err(format!("--token of {kind} needs --database-url: {whose}"));
            }
        }
        if self.grace() > self.lease / 2 {
            return Err("--grace must be at most half of --lease".to_owned());
        }
        Ok(())
    }

    /// Whether the database holds the lock, or makes its tokens.
    pub fn needs_database(&self) -> bool {
        self.kind.backend() == Backend::MySql || self.token
    }

    /// How long the command has between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.grace.unwrap_or_else(|| (self.lease / 5).min(Duration::from_secs(5)))
    }
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

fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|error| error.to_string())
}

fn wait(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, LockOptions::MAX)
}

fn lease(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(100), LockOptions::MAX)
}

fn grace(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, LockOptions::MAX / 2)
}

/// A duration such as `1h 30m`.
fn between(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).ok();
    duration.filter(|duration| (least..=most).contains(duration)).ok_or_else(|| {
        let [least, most] = [least, most].map(humantime::format_duration);
        format!("must be {least} to {most}, with the unit, such as 500ms, 10s or 1h")
    })
}
