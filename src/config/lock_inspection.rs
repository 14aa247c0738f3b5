//! Flags of `seckill lock ls`, `show`, `free` and `wait-for`, and of `seckill locks`.

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use distlock::{Backend, LockKind, LockName, guarantees};

use super::Address;
use super::locks::{LockAddresses, lock_name, shared_kind, wait};

/// The session of a command in `ZooKeeper`, and how long a silent one lasts in the database.
pub const INSPECTOR_SESSION: Duration = Duration::from_secs(30);

/// The longest reason, in characters.
const MAX_REASON: usize = 500;

/// The kinds of a list; all if none is named.
#[derive(Debug, Clone, Copy)]
pub struct KindFilter(pub Option<LockKind>);

const LS_HELP: &str = "\
Locks that are free are not listed, nor are names that do not begin with --prefix. Redis is read \
by SCAN, on all masters of a cluster. A key of another program that begins with the prefix is \
shown by its form, as damaged or as held. A lock may be left out or appear late if it is taken \
meanwhile. With --kind all, kinds with one form of keys share a row. `mysql-named` cannot be \
listed. If some kinds fail, the others are printed, --json says `complete: false`, and the exit \
code is the largest one of the failures.

Exit codes:
  0    listed, and complete
  1    with --deadlocks: there is one
  2    bad usage
  69   a server cannot be reached, or failed; the list is not complete
  78   a server denies access, or the user lacks a right; the list is not complete
  80   the kind of --kind cannot be listed";

/// `seckill lock ls`.
#[derive(Debug, Args)]
#[command(after_help = LS_HELP)]
pub struct LockLs {
    /// How the names begin; '' for all.
    #[arg(long, default_value = "lock:")]
    pub prefix: String,
    /// Kind of the locks, or `all` kinds whose servers are given.
    #[arg(long, default_value = "all", value_parser = kind_filter())]
    pub kind: KindFilter,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// List instead tasks that wait for each other's locks, within a second where processors are
    /// free. Those are of `seckill lock run`, and of the library with a deadlock detector in the
    /// Redis of --redis-url. A `lock run` inside the command of another one holds the lock of both.
    #[arg(long, conflicts_with_all = ["prefix", "kind", "watch"])]
    pub deadlocks: bool,
    /// List again, a second after each list, until Ctrl-C. JSON is one line a list then.
    #[arg(long)]
    pub watch: bool,
    /// Where the locks are.
    #[command(flatten)]
    pub addresses: LockAddresses,
}

/// `seckill locks`.
#[derive(Debug, Args)]
pub struct LockList {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// One lock, of one kind.
#[derive(Debug, Args)]
pub struct NamedLockArgs {
    /// Name of the lock: 1 to 512 bytes.
    #[arg(value_parser = lock_name)]
    pub name: LockName,
    /// Kind of the lock.
    #[arg(long, default_value = "redisson", value_parser = shared_kind())]
    pub kind: LockKind,
    /// Where the lock is.
    #[command(flatten)]
    pub addresses: LockAddresses,
}

/// `seckill lock show`.
#[derive(Debug, Args)]
pub struct LockShow {
    /// The lock.
    #[command(flatten)]
    pub lock: NamedLockArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

const FREE_HELP: &str = "\
The holder is not stopped. Freeing wakes a waiter as a release does; another owner that has come \
meanwhile keeps the lock. In MySQL a holder is a connection, which may serve another one by then. \
Each hold is two lines of the audit trail on stderr, before and after: who, when, why and what.

Exit codes:
  0    freed
  1    not held, or taken by another owner meanwhile; nothing was freed
  2    bad usage, or --yes is missing; nothing was freed
  69   the server cannot be reached, or failed; the lock may be free or held
  78   the server denies access, does not know the holder, or stores no such lock; or the user
       lacks a right

Example:
  seckill lock free nightly-report --reason 'host db3 is gone, ticket 4711' --yes";

/// `seckill lock free`.
#[derive(Debug, Args)]
#[command(after_help = FREE_HELP)]
pub struct LockFree {
    /// The lock.
    #[command(flatten)]
    pub lock: NamedLockArgs,
    /// Why, for the audit trail, in 1 to 500 characters.
    #[arg(long, value_parser = reason)]
    pub reason: String,
    /// Free it although its holder may still work.
    #[arg(long)]
    pub yes: bool,
    /// The user that called `sudo`, which sets it.
    #[arg(long, env = "SUDO_USER", hide = true)]
    pub sudo_user: Option<String>,
}

const WAIT_FOR_HELP: &str = "\
Nothing is taken: another owner may take the lock before the next command. `lock run` takes it. \
The lock is read five times a second, as --kind only: held as another kind it is free. Each second \
the log says who holds it. An outage of the server of less than 30 s is waited out.

Exit codes:
  0    free
  2    bad usage
  69   the server cannot be reached at the start, fails for 30 s, or fails when --timeout ends
  75   not known to be free within --timeout
  78   the server denies access, the user lacks a right, or the name stores no such lock";

/// `seckill lock wait-for`.
#[derive(Debug, Args)]
#[command(after_help = WAIT_FOR_HELP)]
pub struct LockWaitFor {
    /// The lock.
    #[command(flatten)]
    pub lock: NamedLockArgs,
    /// How long to wait, with its unit, such as 500ms, 10s or 1h [default: without an end]
    #[arg(long, value_parser = wait, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
}

impl NamedLockArgs {
    /// Refuses combinations of flags that make no sense; the error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        self.addresses.check_inspection(self.kind)
    }
}

impl LockAddresses {
    /// Checks that locks of that kind can be read; the error is a sentence. How a lock is taken is
    /// not looked at.
    pub fn check_inspection(&self, kind: LockKind) -> Result<(), String> {
        self.check_addresses(kind, kind.backend() == Backend::MySql)?;
        self.servers.check_servers(kind)
    }

    /// Whether the servers of that kind are given.
    pub fn has_servers_of(&self, kind: LockKind) -> bool {
        match kind.backend() {
            Backend::Process => false,
            Backend::Redis => !Address::is_missing(self.redis_url.as_ref()),
            Backend::IndependentRedis => {
                let servers = self.servers.independent().count();
                servers > 0 && kind.server_counts().is_none_or(|fit| fit.contains(&servers))
            }
            Backend::MySql => !Address::is_missing(self.database_url.as_ref()),
            Backend::ZooKeeper => self.servers.ensemble().is_some(),
            Backend::Etcd => self.servers.etcd().is_some(),
            Backend::Nats => self.servers.nats().is_some(),
        }
    }
}

fn kind_filter() -> impl TypedValueParser<Value = KindFilter> {
    let is_shared = |kind: &LockKind| guarantees(*kind).is_on_a_server();
    let kinds = LockKind::ALL.into_iter().filter(is_shared).map(LockKind::as_str);
    let names = PossibleValuesParser::new(kinds.chain(["all"]));
    names.map(|name| KindFilter(name.parse().ok()))
}

fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_fine = !text.is_empty() && text.chars().count() <= MAX_REASON;
    if is_fine && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(format!("must be 1 to {MAX_REASON} characters, none of them a control character"))
}
