//! Faults of servers that are several: what can only happen to a topology that has them.

use loadtest_measure::error::Result;
use testbed::Replication;

use super::ensemble::EnsembleFault;
use super::replicated::PairFault;
use super::{FaultContext, galera, redis_cluster, several, shards};
use crate::lock::{ExtraServers, Lock};
use crate::requirements::FaultRequirements;
use crate::topology::Topology;

/// What happens to servers that are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopologyFault {
    /// To the members of an ensemble.
    Ensemble(EnsembleFault),
    /// Slots of a Redis Cluster move from master to master while locks in them are held.
    SlotMoves,
    /// A master of a Redis Cluster is lost, its replica takes its place, and it returns.
    ClusterFailover,
    /// To a primary of the database and its replica.
    Pair(PairFault),
    /// Nodes of Galera write the same row at the same time: all but one of them are rolled back.
    CertificationConflict,
    /// A node of Galera is stopped, and joins the other one again.
    NodeLeaves,
    /// The shard of the voucher is killed and started again.
    ShardLost,
    /// To the Redis master, the primary of the database, and an ensemble or a replica, at once.
    ThreeAtOnce,
}

impl TopologyFault {
    /// All, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Ensemble(EnsembleFault::LeaderLost),
        Self::Ensemble(EnsembleFault::SplitBrain),
        Self::Ensemble(EnsembleFault::DiskFull),
        Self::SlotMoves,
        Self::ClusterFailover,
        Self::Pair(PairFault::ReplicaLags),
        Self::Pair(PairFault::OldPrimaryReturns),
        Self::CertificationConflict,
        Self::NodeLeaves,
        Self::ShardLost,
        Self::ThreeAtOnce,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ensemble(fault) => fault.name(),
            Self::SlotMoves => "slot-moves",
            Self::ClusterFailover => "cluster-failover",
            Self::Pair(fault) => fault.name(),
            Self::CertificationConflict => "certification-conflict",
            Self::NodeLeaves => "node-leaves",
            Self::ShardLost => "shard-lost",
            Self::ThreeAtOnce => "three-at-once",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Ensemble(fault) => fault.description(),
            Self::SlotMoves => "slots of a Redis Cluster move while their keys are in use",
            Self::ClusterFailover => {
                "a master of a Redis Cluster is lost, and its replica takes its place"
            }
            Self::Pair(fault) => fault.description(),
            Self::CertificationConflict => {
                "nodes of Galera write the same row at the same time, and only one commits"
            }
            Self::NodeLeaves => {
                "a node of Galera is stopped in the middle of the sale, and joins again"
            }
            Self::ShardLost => "the shard of the voucher is killed in the middle of commits",
            Self::ThreeAtOnce => {
                "the Redis master, the primary of the database and the leader of the lock's \
                 ensemble are lost at once"
            }
        }
    }

    /// Whether it can happen on that topology under that lock, or why not.
    pub(crate) fn fits(
        self,
        topology: Topology,
        lock: Lock,
    ) -> std::result::Result<(), &'static str> {
        let has_servers = match self {
            Self::Ensemble(_) => topology.has_ensemble(),
            Self::SlotMoves | Self::ClusterFailover => topology == Topology::RedisCluster,
            Self::Pair(PairFault::OldPrimaryReturns) => {
                topology.replication() == Some(Replication::SemiSync)
            }
            Self::Pair(PairFault::ReplicaLags) => topology.replication().is_some(),
            Self::CertificationConflict | Self::NodeLeaves => topology == Topology::Galera,
            Self::ShardLost => topology == Topology::Sharded,
            Self::ThreeAtOnce => topology == Topology::Replicated,
        };
        match self {
            _ if !has_servers => {
                Err("its fault happens to servers that its topology does not have")
            }
            Self::Ensemble(_) | Self::ThreeAtOnce if !is_in_an_ensemble(lock) => {
                Err("its fault happens to an ensemble, which that lock does not use")
            }
            Self::Ensemble(EnsembleFault::DiskFull) if lock.needs() != ExtraServers::ZooKeeper => {
                Err("the laboratory can fill no disk of etcd, which needs no C library to write")
            }
            _ => Ok(()),
        }
    }

    /// What it needs besides the servers of its topology.
    pub(super) fn requirements(self) -> FaultRequirements {
        let full_disk = self == Self::Ensemble(EnsembleFault::DiskFull);
        let cluster_replicas = self == Self::ClusterFailover;
        FaultRequirements { full_disk, cluster_replicas, ..FaultRequirements::default() }
    }

    pub(super) async fn inject(self, context: &FaultContext<'_>) -> Result<String> {
        match self {
            Self::Ensemble(fault) => fault.inject(context).await,
            Self::SlotMoves => redis_cluster::move_slots(context).await,
            Self::ClusterFailover => redis_cluster::lose_a_master(context).await,
            Self::Pair(fault) => fault.inject(context).await,
            Self::CertificationConflict => galera::conflict(context).await,
            Self::NodeLeaves => galera::leave(context).await,
            Self::ShardLost => shards::lose(context).await,
            Self::ThreeAtOnce => several::three(context).await,
        }
    }
}

/// Whether its holds are in servers that can be three.
pub(crate) fn is_in_an_ensemble(lock: Lock) -> bool {
    matches!(lock.needs(), ExtraServers::ZooKeeper | ExtraServers::Etcd)
}
