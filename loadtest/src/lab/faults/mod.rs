//! The faults that the laboratory knows: a closed list, one file for each family.
//!
//! A fault is injected, shown to have happened, and healed again by one call,
//! [`FaultKind::strike`], whose answer is the *witness*: a sentence that holds figures or states
//! that were seen. Without a witness it is an error, and its round shows nothing. Whom it hits, how
//! long it lasts and how it varies, the round's [`Schedule`] says beforehand.

mod aimed;
mod clients;
mod database;
mod equipment;
mod failover;
mod failpoint;
mod frozen_holder;
pub mod pairs;
mod redis;
mod redis_refuses;
mod replicas;
mod replies;
mod schedule;
mod several;
mod stock;
mod ways;

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::aimed::Aim;
pub use self::clients::{Gone, HangUps, Left};
pub use self::equipment::Equipment;
pub use self::frozen_holder::{Others, freeze_the_holder};
pub use self::replies::{slow_down_commits, slow_down_some_writes};
pub use self::schedule::{Schedule, replica_name};
pub use self::stock::Clerk;
use crate::error::{Error, Result};
use crate::lab::deployment::Deployment;
use crate::lab::lock::{Lock, Needs};
use crate::lab::place::Path;

/// How often a state that is awaited is looked at.
const POLL: Duration = Duration::from_millis(10);
/// How long a state may take until it is seen.
const SEEN_WITHIN: Duration = Duration::from_secs(8);

/// A way on which a fault can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// From a replica to its Redis servers.
    Redis,
    /// From a replica to the database.
    Database,
    /// From HAProxy to a replica.
    Replica,
    /// From a replica to `ZooKeeper`.
    Zookeeper,
}

/// What can be wrong with a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trouble {
    /// Nothing is open, and nothing can be opened.
    Cut,
    /// Everything takes longer.
    Delay,
    /// Connections are reset, again and again.
    Reset,
    /// What is said in one direction does not arrive before it is over.
    HalfOpen,
}

/// What happens to a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// A replica is killed and started again.
    KillReplica,
    /// A replica stands still for longer than its lease.
    FreezeReplica,
    /// All replicas are restarted, one after the other, by SIGTERM.
    RollingRestart,
    /// Redis is killed and comes back empty.
    RestartRedis,
    /// Redis forgets everything.
    FlushRedis,
    /// Redis forgets the scripts that it was told.
    FlushScripts,
    /// Redis runs out of memory and evicts keys.
    EvictRedis,
    /// Redis stands still for longer than the lease.
    FreezeRedis,
    /// Redis fails over to a replica that lags.
    FailOverRedis,
    /// The clock of Redis jumps.
    RedisClock,
    /// Redis lets all writes wait for longer than the lease.
    PauseRedis,
    /// Redis is busy with a script and refuses all else.
    BusyRedis,
    /// Redis has too few replicas and refuses all writes.
    LonelyRedis,
    /// The database is killed and started again.
    RestartDatabase,
    /// The database stands still.
    FreezeDatabase,
    /// A way is in trouble.
    Way(Trouble, Link),
    /// COMMIT is executed and its answer lost.
    LoseCommit,
    /// A script is executed and its answer lost.
    LoseScript,
    /// Clients close their connections in the middle of a purchase.
    HangUp,
    /// Two of these at once.
    TwoAtOnce,
    /// A replica fails at a named point; needs a program that was built for it.
    Failpoint,
    /// Something at the one moment at which a planted bug shows; not a cell of the matrix.
    Aimed(Aim),
}

/// What a fault happens to.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// Whom it hits, and how.
    pub schedule: &'a Schedule,
    /// What its replicas lock with.
    pub lock: Lock,
    /// When they answer.
    pub path: Path,
    /// Clients who are there to hang up.
    pub hang_ups: &'a HangUps,
    /// Who adds stock.
    pub clerk: &'a Clerk,
}

impl FaultKind {
    /// The one that planted bugs need by name.
    pub const CUT_REDIS: Self = Self::Way(Trouble::Cut, Link::Redis);

    /// All that any `seckill` can have, in the order of reports.
    pub const ALL: [Self; 35] = [
        Self::KillReplica,
        Self::FreezeReplica,
        Self::RollingRestart,
        Self::RestartRedis,
        Self::FlushRedis,
        Self::FlushScripts,
        Self::EvictRedis,
        Self::FreezeRedis,
        Self::FailOverRedis,
        Self::RedisClock,
        Self::PauseRedis,
        Self::BusyRedis,
        Self::LonelyRedis,
        Self::RestartDatabase,
        Self::FreezeDatabase,
        Self::Way(Trouble::Cut, Link::Redis),
        Self::Way(Trouble::Delay, Link::Redis),
        Self::Way(Trouble::Reset, Link::Redis),
        Self::Way(Trouble::HalfOpen, Link::Redis),
        Self::Way(Trouble::Cut, Link::Database),
        Self::Way(Trouble::Delay, Link::Database),
        Self::Way(Trouble::Reset, Link::Database),
        Self::Way(Trouble::HalfOpen, Link::Database),
        Self::Way(Trouble::Cut, Link::Replica),
        Self::Way(Trouble::Delay, Link::Replica),
        Self::Way(Trouble::Reset, Link::Replica),
        Self::Way(Trouble::HalfOpen, Link::Replica),
        Self::Way(Trouble::Cut, Link::Zookeeper),
        Self::Way(Trouble::Delay, Link::Zookeeper),
        Self::Way(Trouble::Reset, Link::Zookeeper),
        Self::Way(Trouble::HalfOpen, Link::Zookeeper),
        Self::LoseCommit,
        Self::LoseScript,
        Self::HangUp,
        Self::TwoAtOnce,
    ];

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillReplica => "kill",
            Self::FreezeReplica => "freeze",
            Self::RollingRestart => "rolling-restart",
            Self::RestartRedis => "redis-restart",
            Self::FlushRedis => "redis-flush",
            Self::FlushScripts => "redis-script-flush",
            Self::EvictRedis => "redis-evict",
            Self::FreezeRedis => "redis-freeze",
            Self::FailOverRedis => "redis-failover",
            Self::RedisClock => "redis-clock",
            Self::PauseRedis => "redis-pause",
            Self::BusyRedis => "redis-busy",
            Self::LonelyRedis => "redis-too-few-replicas",
            Self::RestartDatabase => "database-restart",
            Self::FreezeDatabase => "database-freeze",
            Self::Way(trouble, link) => ways::name(trouble, link),
            Self::LoseCommit => "lose-commit",
            Self::LoseScript => "lose-script",
            Self::HangUp => "hang-up",
            Self::TwoAtOnce => "two-at-once",
            Self::Failpoint => "failpoint",
            Self::Aimed(aim) => aim.name(),
        }
    }

    /// All that a cell can have, with the one that only some programs can.
    pub fn known() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain([Self::Failpoint])
    }

    /// The fault of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::known().find(|kind| kind.name() == name)
    }

    /// What it does, in a sentence without a subject.
    pub fn does(self) -> &'static str {
        match self {
            Self::KillReplica => "a replica is killed; its locks stay until their leases end",
            Self::FreezeReplica => "a replica stands still past its lease, then goes on",
            Self::RollingRestart => "every replica is restarted in turn; no request may fail",
            Self::RestartRedis => "Redis is killed and comes back empty; all its locks are gone",
            Self::FlushRedis => "Redis forgets all locks and order numbers",
            Self::FlushScripts => "Redis forgets the scripts of locks and of queues",
            Self::EvictRedis => "Redis evicts keys, and locks are keys like others",
            Self::FreezeRedis => "Redis stands still while leases run on",
            Self::FailOverRedis => "Redis fails over to a replica that has not heard of the locks",
            Self::RedisClock => "the clock by which Redis ends leases jumps",
            Self::PauseRedis => "Redis lets all writes wait while leases run on",
            Self::BusyRedis => {
                "Redis is busy with a script that does not end, and refuses the rest"
            }
            Self::LonelyRedis => "Redis has fewer replicas than it wants, and refuses all writes",
            Self::RestartDatabase => "the database is killed in the middle of commits",
            Self::FreezeDatabase => "the database stands still",
            Self::Way(trouble, link) => ways::does(trouble, link),
            Self::LoseCommit => "transactions are committed whose answers are lost",
            Self::LoseScript => {
                "scripts of locks, or admissions, are executed whose answers are lost"
            }
            Self::HangUp => "clients close their connections in the middle of a purchase",
            Self::TwoAtOnce => "two other faults happen at the same time",
            Self::Failpoint => "a replica dies, panics or sleeps at a named point of a purchase",
            Self::Aimed(aim) => aim.does(),
        }
    }

    /// Whether it can happen to that lock on that path, or why not. The path `queued` is scripts
    /// itself.
    pub fn suits(self, lock: Lock, path: Path) -> std::result::Result<(), &'static str> {
        let queued = path == Path::Queued;
        match self {
            Self::LoseScript if !queued && !lock.runs_scripts() => {
                Err("that lock runs no script in Redis whose answer could be lost")
            }
            Self::FlushScripts if !queued && (!lock.runs_scripts() || lock == Lock::Red) => {
                Err("that lock calls no script by its hash, which Redis could forget")
            }
            Self::Way(_, Link::Zookeeper) if lock.needs() != Needs::ZooKeeper => {
                Err("that lock never speaks to ZooKeeper")
            }
            _ => Ok(()),
        }
    }

    /// What it needs. Two at once need what both of the schedule's pair need.
    pub fn equipment(self, schedule: &Schedule) -> Equipment {
        let own_redis = Equipment { own_redis: true, ..Equipment::default() };
        match self {
            Self::RestartRedis
            | Self::FlushRedis
            | Self::FlushScripts
            | Self::FreezeRedis
            | Self::PauseRedis
            | Self::BusyRedis
            | Self::LonelyRedis => own_redis,
            Self::EvictRedis => Equipment { eviction: true, ..own_redis },
            Self::RedisClock => Equipment { clock: true, ..own_redis },
            Self::FailOverRedis => {
                Equipment { follower: true, ..own_redis }.and(Equipment::way(Link::Redis))
            }
            Self::LoseCommit => Equipment::way(Link::Database),
            Self::LoseScript => Equipment::way(Link::Redis),
            Self::TwoAtOnce => {
                let [one, other] = schedule.pair;
                one.equipment(schedule).and(other.equipment(schedule))
            }
            Self::Aimed(aim) => aim.equipment(),
            Self::Way(_, link) => Equipment::way(link),
            _ => Equipment::default(),
        }
    }

    /// Lets it happen and heals it; what was seen of it.
    pub async fn strike(self, scene: &Scene<'_>) -> Result<String> {
        match self {
            Self::KillReplica => replicas::kill(scene).await,
            Self::FreezeReplica => replicas::freeze(scene).await,
            Self::RollingRestart => replicas::restart_all(scene).await,
            Self::RestartRedis => redis::restart(scene).await,
            Self::FlushRedis => redis::flush(scene).await,
            Self::FlushScripts => redis::flush_scripts(scene).await,
            Self::EvictRedis => redis::evict(scene).await,
            Self::FreezeRedis => redis::freeze(scene).await,
            Self::FailOverRedis => failover::fail_over(scene).await,
            Self::RedisClock => redis::jump_clock(scene).await,
            Self::PauseRedis => redis_refuses::pause(scene).await,
            Self::BusyRedis => redis_refuses::keep_busy(scene).await,
            Self::LonelyRedis => redis_refuses::want_replicas(scene).await,
            Self::RestartDatabase => database::restart(scene).await,
            Self::FreezeDatabase => database::freeze(scene).await,
            Self::Way(trouble, link) => ways::trouble(scene, trouble, link).await,
            Self::LoseCommit => replies::lose_commit(scene).await,
            Self::LoseScript => replies::lose_script(scene).await,
            Self::HangUp => clients::hang_up(scene).await,
            Self::TwoAtOnce => several::both(scene).await,
            Self::Failpoint => failpoint::fail(scene).await,
            Self::Aimed(aim) => aim.strike(scene).await,
        }
    }
}

impl Serialize for FaultKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FaultKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| de::Error::custom(format!("no fault is called {name:?}")))
    }
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = tokio::time::Instant::now() + SEEN_WITHIN;
    while !is_so() {
        if tokio::time::Instant::now() >= deadline {
            return Err(unseen(format!("not seen within {SEEN_WITHIN:?}: {what}")));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// The witness, unless what it tells of did not happen.
fn witness(happened: bool, text: String) -> Result<String> {
    if happened { Ok(text) } else { Err(unseen(format!("no witness: {text}"))) }
}

fn unseen(text: String) -> Error {
    Error::Setup(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_one_name_by_which_it_is_found() {
        for kind in FaultKind::known() {
            assert_eq!(FaultKind::named(kind.name()), Some(kind));
        }
        assert_eq!(FaultKind::named("none"), None);
    }

    #[test]
    fn a_fault_of_a_way_needs_that_way_and_two_at_once_what_both_need() {
        let schedule = Schedule {
            pair: [FaultKind::Way(Trouble::Cut, Link::Redis), FaultKind::LoseCommit],
            ..Schedule::of(1, "a cell", 2)
        };
        let both = FaultKind::TwoAtOnce.equipment(&schedule);
        assert!(both.has(Link::Redis) && both.has(Link::Database) && !both.has(Link::Replica));
        for kind in FaultKind::ALL {
            if let FaultKind::Way(_, link) = kind {
                assert_eq!(kind.equipment(&schedule), Equipment::way(link), "{}", kind.name());
            }
        }
    }
}
