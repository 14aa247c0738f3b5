//! The faults that the laboratory knows: a closed list, one file for each family.
//!
//! One call injects a fault, shows that it happened, and heals it: [`FaultKind::inject`]. Its
//! answer is the *witness*, a sentence with the figures or states that were seen. Without a witness
//! the call is an error, and its round shows nothing. The round's [`Schedule`] decides beforehand
//! which replica is hit, how long the fault lasts, and which variant it is.

mod action;
mod at_commit;
mod callers;
mod carry_out;
mod clients;
mod database;
mod database_failover;
mod ensemble;
mod failover;
mod failpoint;
mod frozen_holder;
mod galera;
mod held_commit;
mod kill_after_set;
mod late_holder;
mod network;
mod packets;
pub mod pairs;
mod poison;
mod preconditions;
mod redis;
mod redis_cluster;
mod redis_refuses;
mod replicas;
mod replicated;
mod replies;
mod schedule;
mod sentinel;
mod several;
mod shards;
mod stock;
mod targeted;
mod topology;
mod witness;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use testbed::Replication;

pub use self::action::{ActionTarget, FaultAction, ProcessState};
pub use self::callers::SeenRules;
pub use self::carry_out::{ActionContext, heal_all};
pub use self::clients::{AbortPoint, AbortedClient, AbortingClients};
pub use self::ensemble::EnsembleFault;
pub use self::frozen_holder::{ContenderAction, freeze_the_holder};
pub use self::packets::why_no_packet_loss;
pub use self::replicated::PairFault;
pub use self::replies::{slow_down_commits, slow_down_some_writes};
pub use self::schedule::Schedule;
pub use self::sentinel::SentinelFault;
pub use self::stock::StockAdmin;
pub use self::targeted::TargetedFault;
pub use self::topology::TopologyFault;
pub(crate) use self::topology::is_in_an_ensemble;
use loadtest_load::tokens::User;
use loadtest_measure::error::Result;

use self::witness::{POLL_INTERVAL, WITNESS_TIMEOUT, no_witness, wait_until, witness};
use crate::cell_axes::PurchaseMode;
use crate::deployment::Deployment;
pub use crate::deployment::replica_name;
use crate::lock::Lock;
pub use crate::requirements::{FaultRequirements, Link, LossyReplica};

/// What can be wrong with a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NetworkFault {
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
    /// A replica gets hardly any processor time.
    StarveReplica,
    /// All replicas are restarted, one after the other, by SIGTERM.
    RollingRestart,
    /// Redis is killed and comes back empty.
    RestartRedis,
    /// Redis forgets everything.
    FlushRedis,
    /// Redis forgets the loaded scripts.
    FlushScripts,
    /// Redis runs out of memory and evicts keys.
    EvictRedis,
    /// Redis stands still for longer than the lease.
    FreezeRedis,
    /// Redis fails over to a replica that lags.
    FailOverRedis,
    /// Sentinels make another Redis the master.
    Sentinel(SentinelFault),
    /// The clock of Redis jumps.
    RedisClock,
    /// Redis delays all writes for longer than the lease.
    PauseRedis,
    /// Redis is busy with a script and refuses all else.
    BusyRedis,
    /// Redis has too few replicas and refuses all writes.
    RedisTooFewReplicas,
    /// Redis uses more memory than it may, and refuses all writes.
    RedisOutOfMemory,
    /// The disk of Redis is full, and it refuses all writes.
    RedisDiskFull,
    /// The database is killed and started again.
    RestartDatabase,
    /// The database stands still.
    FreezeDatabase,
    /// The disk of the database is full, until an operator helps.
    DatabaseDiskFull,
    /// The database fails over to a replica that lags.
    FailOverDatabase(Replication),
    /// A link fails.
    Network(NetworkFault, Link),
    /// Packets of a link are lost, and others change their order.
    LosePackets(Link),
    /// COMMIT is executed and its answer lost.
    LoseCommit,
    /// A script is executed and its answer lost.
    LoseScript,
    /// Clients close their connections in the middle of a purchase.
    HangUp,
    /// Two of these at once.
    TwoAtOnce,
    /// Something happens to servers that are several.
    OnTopology(TopologyFault),
    /// A replica fails at a named point; needs a program that was built for it.
    Failpoint,
    /// Something at the one moment at which an injected bug shows; not a cell of the matrix.
    Targeted(TargetedFault),
}

/// What a fault happens to.
#[derive(Debug)]
pub struct FaultContext<'a> {
    /// The deployment.
    pub deployment: &'a Deployment,
    /// Which replica is hit, and how.
    pub schedule: &'a Schedule,
    /// The lock of its replicas.
    pub lock: Lock,
    /// Whether a purchase is answered at once or queued.
    pub mode: PurchaseMode,
    /// Clients who are there to hang up.
    pub aborting_clients: &'a AbortingClients,
    /// Adds stock to the voucher.
    pub stock_admin: &'a StockAdmin,
    /// Users of the load.
    pub buyers: &'a [User],
    /// What is seen of rules meanwhile.
    pub seen: &'a SeenRules,
}

impl FaultKind {
    /// The one that injected bugs need by name.
    pub const CUT_REDIS: Self = Self::Network(NetworkFault::Cut, Link::Redis);

    /// All that any `seckill` on single servers can have, in the order of reports.
    pub const ALL: [Self; 47] = [
        Self::KillReplica,
        Self::FreezeReplica,
        Self::StarveReplica,
        Self::RollingRestart,
        Self::RestartRedis,
        Self::FlushRedis,
        Self::FlushScripts,
        Self::EvictRedis,
        Self::FreezeRedis,
        Self::FailOverRedis,
        Self::Sentinel(SentinelFault::MasterLost),
        Self::Sentinel(SentinelFault::OldMasterReturns),
        Self::RedisClock,
        Self::PauseRedis,
        Self::BusyRedis,
        Self::RedisTooFewReplicas,
        Self::RedisOutOfMemory,
        Self::RedisDiskFull,
        Self::RestartDatabase,
        Self::FreezeDatabase,
        Self::DatabaseDiskFull,
        Self::FailOverDatabase(Replication::SemiSync),
        Self::FailOverDatabase(Replication::Async),
        Self::Network(NetworkFault::Cut, Link::Redis),
        Self::Network(NetworkFault::Delay, Link::Redis),
        Self::Network(NetworkFault::Reset, Link::Redis),
        Self::Network(NetworkFault::HalfOpen, Link::Redis),
        Self::Network(NetworkFault::Cut, Link::Database),
        Self::Network(NetworkFault::Delay, Link::Database),
        Self::Network(NetworkFault::Reset, Link::Database),
        Self::Network(NetworkFault::HalfOpen, Link::Database),
        Self::Network(NetworkFault::Cut, Link::Replica),
        Self::Network(NetworkFault::Delay, Link::Replica),
        Self::Network(NetworkFault::Reset, Link::Replica),
        Self::Network(NetworkFault::HalfOpen, Link::Replica),
        Self::Network(NetworkFault::Cut, Link::Zookeeper),
        Self::Network(NetworkFault::Delay, Link::Zookeeper),
        Self::Network(NetworkFault::Reset, Link::Zookeeper),
        Self::Network(NetworkFault::HalfOpen, Link::Zookeeper),
        Self::LosePackets(Link::Redis),
        Self::LosePackets(Link::Database),
        Self::LosePackets(Link::Replica),
        Self::LosePackets(Link::Zookeeper),
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
            Self::StarveReplica => "starve",
            Self::RollingRestart => "rolling-restart",
            Self::RestartRedis => "redis-restart",
            Self::FlushRedis => "redis-flush",
            Self::FlushScripts => "redis-script-flush",
            Self::EvictRedis => "redis-evict",
            Self::FreezeRedis => "redis-freeze",
            Self::FailOverRedis => "redis-failover",
            Self::Sentinel(fault) => fault.name(),
            Self::RedisClock => "redis-clock",
            Self::PauseRedis => "redis-pause",
            Self::BusyRedis => "redis-busy",
            Self::RedisTooFewReplicas => "redis-too-few-replicas",
            Self::RedisOutOfMemory => "redis-out-of-memory",
            Self::RedisDiskFull => "redis-disk-full",
            Self::RestartDatabase => "database-restart",
            Self::FreezeDatabase => "database-freeze",
            Self::DatabaseDiskFull => "database-disk-full",
            Self::FailOverDatabase(Replication::SemiSync) => "database-failover",
            Self::FailOverDatabase(Replication::Async) => "database-failover-async",
            Self::Network(fault, link) => network::name(fault, link),
            Self::LosePackets(link) => packets::name(link),
            Self::LoseCommit => "lose-commit",
            Self::LoseScript => "lose-script",
            Self::HangUp => "hang-up",
            Self::TwoAtOnce => "two-at-once",
            Self::OnTopology(fault) => fault.name(),
            Self::Failpoint => "failpoint",
            Self::Targeted(targeted) => targeted.name(),
        }
    }

    /// All that any `seckill` can have on some servers.
    pub fn all_servers() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(TopologyFault::ALL.map(Self::OnTopology))
    }

    /// All that a cell can have. [`Self::Failpoint`] needs a program that was built for it.
    pub fn known() -> impl Iterator<Item = Self> {
        Self::all_servers().chain([Self::Failpoint])
    }

    /// The fault of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::known().find(|kind| kind.name() == name)
    }

    /// What it does, in a sentence without a subject.
    pub fn description(self) -> &'static str {
        match self {
            Self::KillReplica => "a replica is killed; its locks stay until their leases end",
            Self::FreezeReplica => "a replica is frozen past its lease, then continues",
            Self::StarveReplica => "a replica runs 5 of each 100 ms, until after its lease",
            Self::RollingRestart => "every replica is restarted in turn; no request may fail",
            Self::RestartRedis => "Redis is killed and restarts empty; all its locks are lost",
            Self::FlushRedis => "Redis forgets all locks and order numbers",
            Self::FlushScripts => "Redis forgets the scripts of locks and of queues",
            Self::EvictRedis => "Redis evicts keys, and locks are keys like others",
            Self::FreezeRedis => "Redis stands still while leases run on",
            Self::FailOverRedis => "Redis fails over to a replica that has not received the locks",
            Self::Sentinel(fault) => fault.description(),
            Self::RedisClock => "the clock by which Redis ends leases jumps",
            Self::PauseRedis => "Redis lets all writes wait while leases run on",
            Self::BusyRedis => {
                "Redis is busy with a script that does not end, and refuses the rest"
            }
            Self::RedisTooFewReplicas => {
                "Redis has fewer replicas than it wants, and refuses all writes"
            }
            Self::RedisOutOfMemory => {
                "Redis has no memory left and evicts nothing, and refuses all writes"
            }
            Self::RedisDiskFull => {
                "the disk of Redis is full, and without its append-only file it refuses all writes"
            }
            Self::RestartDatabase => "the database is killed in the middle of commits",
            Self::FreezeDatabase => "the database stands still",
            Self::DatabaseDiskFull => {
                "the disk of the database is full, and COMMITs wait until an operator helps"
            }
            Self::FailOverDatabase(replication) => database_failover::description(replication),
            Self::Network(fault, link) => network::description(fault, link),
            Self::LosePackets(link) => packets::description(link),
            Self::LoseCommit => "transactions are committed whose answers are lost",
            Self::LoseScript => {
                "scripts of locks, or admissions, are executed whose answers are lost"
            }
            Self::HangUp => "clients close their connections in the middle of a purchase",
            Self::TwoAtOnce => "two other faults happen at the same time",
            Self::OnTopology(fault) => fault.description(),
            Self::Failpoint => "a replica dies, panics or sleeps at a named point of a purchase",
            Self::Targeted(targeted) => targeted.description(),
        }
    }

    /// Injects the fault, heals it, and returns the witness: a sentence with the figures seen.
    pub async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        match self {
            Self::KillReplica => replicas::kill(context).await,
            Self::FreezeReplica => replicas::freeze(context).await,
            Self::StarveReplica => replicas::starve(context).await,
            Self::RollingRestart => replicas::restart_all(context).await,
            Self::RestartRedis => redis::restart(context).await,
            Self::FlushRedis => redis::flush(context).await,
            Self::FlushScripts => redis::flush_scripts(context).await,
            Self::EvictRedis => redis::evict(context).await,
            Self::FreezeRedis => redis::freeze(context).await,
            Self::FailOverRedis => failover::fail_over(context.deployment, context.lock).await,
            Self::Sentinel(fault) => fault.inject(context).await,
            Self::RedisClock => redis::jump_clock(context).await,
            Self::PauseRedis => redis_refuses::pause(context).await,
            Self::BusyRedis => redis_refuses::keep_busy(context).await,
            Self::RedisTooFewReplicas => redis_refuses::want_replicas(context).await,
            Self::RedisOutOfMemory => redis_refuses::want_memory(context).await,
            Self::RedisDiskFull => redis_refuses::fill_disk(context).await,
            Self::RestartDatabase => database::restart(context).await,
            Self::FreezeDatabase => database::freeze(context).await,
            Self::DatabaseDiskFull => database::fill_disk(context).await,
            Self::FailOverDatabase(replication) => {
                database_failover::fail_over(context, replication).await
            }
            Self::Network(fault, link) => network::inject(context, fault, link).await,
            Self::LosePackets(_) => packets::inject(context).await,
            Self::LoseCommit => replies::lose_commit(context).await,
            Self::LoseScript => replies::lose_script(context).await,
            Self::HangUp => clients::hang_up(context).await,
            Self::TwoAtOnce => several::both(context).await,
            Self::OnTopology(fault) => Box::pin(fault.inject(context)).await,
            Self::Failpoint => failpoint::fail(context).await,
            Self::Targeted(targeted) => targeted.inject(context).await,
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

#[cfg(test)]
mod tests;
