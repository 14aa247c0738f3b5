//! Flags of `seckill lock run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use distlock::{Backend, Fencing, LockKind, LockName, LockOptions, RenewalKind, guarantees};

use super::Address;
use super::locks::{LockAddresses, between, check_fencing, lock_name, shared_kind, wait};

/// The shortest lease, and the shortest time that a lock stays held.
const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest window of `--once-per`: a year of 365.25 days.
const MAX_WINDOW: Duration = Duration::from_hours(8766);

/// The variable by which a `lock run` tells those inside its command what it holds.
pub const HELD_LOCKS: &str = "SECKILL_HELD_LOCKS";

const RUN_HELP: &str = "\
The command runs in a process group of its own, in the foreground of the terminal if there is \
one. Ctrl-Z has no effect there: a stopped command would hold the lock for nothing. SIGTERM, \
SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the group.

If the lock is lost or about to expire, the group gets SIGTERM, and SIGKILL after the grace. That \
is before the server grants the lock to another owner, unless the server itself took it away. A \
`seckill lock run` that is killed (SIGKILL) or stopped cannot end its command: another owner gets \
the lock after the lease, while the command still runs. Where that must do no harm, check the token.

Exit codes:
  that of the command, or 128+n if signal n ended it, or this program while it waited
  2    bad usage; the command did not run
  69   the lock's server cannot be reached, or failed; the command did not run
  71   this machine failed: the command could not be started or watched
  75   another owner held the lock for longer than --wait, or at all with --skip-if-held; the
       command did not run
  76   the lock was lost; the command was ended
  78   the lock's server answers, and a retry does not help: it denies access (such as for a
       wrong password), it may evict locks, or the name belongs to a lock of another kind;
       the command did not run
  79   a run began within the window of --once-per; the command did not run
  126  the command cannot be executed
  127  there is no such command
A command may use the same numbers. With its own codes from 2 to 127 this program writes a line to \
stderr that begins with `seckill: `; with those of the command it does not.

A run that fails, with another exit code than 0, counts neither for --once-per nor for \
--at-least-for: another machine may run the command at once. A run counts for --once-per until the \
window is over if this program or its machine dies, or if the lock is lost: the command may have \
done its work. By hand it runs without --once-per.

The lock is released when the command ends. Processes that it leaves in the background run on \
without the lock. flock(1) differs: it keeps the lock until all of them have closed its file.

Examples:
  seckill lock run --name nightly-report --wait 0 -- ./report.sh
  seckill lock run --name nightly-report --once-per 20h --skip-exit-code 0 -- ./report.sh";

/// `seckill lock run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct LockRun {
    /// Kind of the lock. All users of a name must use the same kind: two kinds do not always
    /// exclude each other. `seckill locks` compares them.
    #[arg(long, default_value = "redisson", value_parser = shared_kind())]
    pub kind: LockKind,
    /// Name of the lock: 1 to 512 bytes.
    #[arg(long, value_parser = lock_name)]
    pub name: LockName,
    /// How long to wait for the lock, with its unit, such as 500ms, 10s or 1h; 0 fails at once.
    /// From 100ms on, kinds that poll share the lock fairly between processes.
    #[arg(long, default_value = "10s", value_parser = wait, allow_hyphen_values = true)]
    pub wait: Duration,
    /// How long the lock outlives a dead holder, from 100ms on. Kinds without renewal are lost
    /// after this time although the command still runs: choose it longer than the command for them.
    #[arg(long, default_value = "30s", value_parser = lease, allow_hyphen_values = true)]
    pub lease: Duration,
    /// Time between SIGTERM and SIGKILL if the lock is lost, at most half of the lease. Raise it
    /// for a command that needs longer to clean up [default: a fifth of the lease, at most 5s]
    #[arg(long, value_parser = grace, allow_hyphen_values = true)]
    pub grace: Option<Duration>,
    /// Run the command at most once in a window of this length, on all machines together, from 1s
    /// to 1year. Choose it shorter than the job's period: 20h for a nightly job. The server's clock
    /// counts. The record of the last run is kept with the lock in Redis, for other kinds in the
    /// database.
    #[arg(long, value_name = "WINDOW", value_parser = window, allow_hyphen_values = true)]
    pub once_per: Option<Duration>,
    /// Keep the lock held for at least this long from its acquisition although the command has
    /// succeeded earlier, from 100ms to 1day. Choose it longer than the machines' clocks differ.
    /// The server keeps it: this program does not stay.
    #[arg(long, value_name = "TIME", value_parser = least_hold, allow_hyphen_values = true)]
    pub at_least_for: Option<Duration>,
    /// Do not wait for a lock that is held: exit at once, with 75.
    #[arg(long, conflicts_with = "wait")]
    pub skip_if_held: bool,
    /// Exit with this code, from 0 to 255, instead of 75 and 79, where the command did not run
    /// because of another run. With 0 the reason is a line of the log, of the level info.
    #[arg(long, value_name = "CODE")]
    pub skip_exit_code: Option<u8>,
    /// Put the fencing token into the command's environment as `LOCK_TOKEN`, for servers that check
    /// it.
    #[arg(long)]
    pub token: bool,
    /// What the `lock run` holds whose command has started this one, for the deadlock detector.
    #[arg(long, env = HELD_LOCKS, default_value = "", hide = true)]
    pub held_locks: String,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// Where the lock is.
    #[command(flatten)]
    pub addresses: LockAddresses,
}

impl LockRun {
    /// Refuses combinations of flags that make no sense; the error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let kind = self.kind;
        if self.records_in_database() && Address::is_missing(self.addresses.database_url.as_ref()) {
            return Err(format!(
                "--once-per of {kind} needs --database-url: the last run is recorded there"
            ));
        }
        self.addresses.check(kind, self.lease, self.needs_database())?;
        if self.token {
            check_fencing("--token", kind)?;
            let no_database = Address::is_missing(self.addresses.database_url.as_ref());
            if guarantees(kind).fencing == Fencing::Optional && no_database {
                let whose = "its tokens come from the database";
                return Err(format!("--token of {kind} needs --database-url: {whose}"));
            }
        }
        if self.at_least_for.is_some() && guarantees(kind).renewal != RenewalKind::Yes {
            let is_renewed = |kind: &LockKind| guarantees(*kind).renewal == RenewalKind::Yes;
            let kinds = LockKind::ALL.into_iter().filter(is_renewed).map(LockKind::as_str);
            let kinds = kinds.collect::<Vec<_>>().join(", ");
            return Err(format!(
                "--at-least-for needs a lock with a lease that is renewed ({kinds}), not {kind}"
            ));
        }
        if self.grace() > self.lease / 2 {
            return Err("--grace must be at most half of --lease".to_owned());
        }
        Ok(())
    }

    /// Whether the database holds the lock, makes its tokens, or has its record of runs.
    pub fn needs_database(&self) -> bool {
        self.kind.backend() == Backend::MySql || self.token || self.records_in_database()
    }

    /// Whether the last run is recorded in the database.
    pub fn records_in_database(&self) -> bool {
        self.once_per.is_some() && self.kind.backend() != Backend::Redis
    }

    /// How long to wait for the lock.
    pub fn longest_wait(&self) -> Duration {
        if self.skip_if_held { Duration::ZERO } else { self.wait }
    }

    /// How long the command has between SIGTERM and SIGKILL.
    pub fn grace(&self) -> Duration {
        self.grace.unwrap_or_else(|| (self.lease / 5).min(Duration::from_secs(5)))
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    between(text, MIN_LEASE, LockOptions::MAX)
}

fn grace(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, LockOptions::MAX / 2)
}

fn window(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_secs(1), MAX_WINDOW)
}

fn least_hold(text: &str) -> Result<Duration, String> {
    between(text, MIN_LEASE, LockOptions::MAX)
}
