//! Under which locks and modes a fault can happen, and what must be there for it.

use super::{FaultKind, FaultRequirements, Link, LossyReplica, Schedule, TopologyFault};
use crate::cell_axes::PurchaseMode;
use crate::lock::{ExtraServers, Lock};

impl FaultKind {
    /// Whether it can happen to that lock in that mode, or why not. In the mode `queued` every
    /// admission is a script, whatever the lock.
    pub fn suits(self, lock: Lock, mode: PurchaseMode) -> std::result::Result<(), &'static str> {
        let queued = mode == PurchaseMode::Queued;
        match self {
            Self::LoseScript if !queued && !lock.runs_scripts() => {
                Err("that lock runs no script in Redis whose answer could be lost")
            }
            Self::FlushScripts if !queued && (!lock.runs_scripts() || lock == Lock::Redlock) => {
                Err("that lock calls no script by its hash, which Redis could forget")
            }
            Self::OnTopology(TopologyFault::SlotMoves)
                if !queued && lock.holds_in_shared_redis().is_none() =>
            {
                Err("its fault happens to locks in the Redis Cluster, and that lock is elsewhere")
            }
            Self::Network(_, Link::Zookeeper) | Self::LosePackets(Link::Zookeeper)
                if lock.needs() != ExtraServers::ZooKeeper =>
            {
                Err("that lock never speaks to ZooKeeper")
            }
            _ => Ok(()),
        }
    }

    /// What it needs. Two at once need what both of the schedule's pair need.
    pub fn requirements(self, schedule: &Schedule) -> FaultRequirements {
        let own_redis = FaultRequirements { own_redis: true, ..FaultRequirements::default() };
        match self {
            Self::RestartRedis
            | Self::FlushRedis
            | Self::FlushScripts
            | Self::FreezeRedis
            | Self::PauseRedis
            | Self::BusyRedis
            | Self::RedisTooFewReplicas
            | Self::RedisOutOfMemory => own_redis,
            Self::RedisDiskFull => FaultRequirements { redis_disk: true, ..own_redis },
            Self::EvictRedis => FaultRequirements { eviction: true, ..own_redis },
            Self::Sentinel(_) => FaultRequirements { sentinel: true, ..own_redis },
            Self::RedisClock => FaultRequirements { clock: true, ..own_redis },
            Self::FailOverRedis => FaultRequirements { follower: true, ..own_redis }
                .and(FaultRequirements::link(Link::Redis)),
            Self::FailOverDatabase(replication) => FaultRequirements::replicated(replication),
            Self::DatabaseDiskFull => {
                FaultRequirements { database_disk: true, ..FaultRequirements::default() }
            }
            Self::LoseCommit => FaultRequirements::link(Link::Database),
            Self::LoseScript => FaultRequirements::link(Link::Redis),
            Self::TwoAtOnce => {
                let [one, other] = schedule.pair;
                one.requirements(schedule).and(other.requirements(schedule))
            }
            Self::Targeted(targeted) => targeted.requirements(),
            Self::OnTopology(fault) => fault.requirements(),
            Self::Network(_, link) => FaultRequirements::link(link),
            Self::LosePackets(link) => {
                let lossy = LossyReplica { index: schedule.victim, seed: schedule.variation };
                let lossy_replica = Some(lossy);
                FaultRequirements { lossy_replica, ..FaultRequirements::link(link) }
            }
            Self::KillReplica
            | Self::FreezeReplica
            | Self::StarveReplica
            | Self::RollingRestart
            | Self::RestartDatabase
            | Self::FreezeDatabase
            | Self::HangUp
            | Self::Failpoint => FaultRequirements::default(),
        }
    }
}
