//! What a deployment must have before a fault can happen.

use testbed::Replication;

/// A link on which a fault can happen.
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

/// A replica on whose links packets can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossyReplica {
    /// Which one, from 0.
    pub index: usize,
    /// What chooses the packets.
    pub seed: u64,
}

/// What a fault needs to be there before it can happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct FaultRequirements {
    /// Redis servers that belong to the deployment alone.
    pub own_redis: bool,
    /// A replica of the main one.
    pub follower: bool,
    /// Two replicas of the main one, and sentinels by which replicas of the service find it.
    pub sentinel: bool,
    /// A clock of it that can be set.
    pub clock: bool,
    /// A disk of it that can be filled, with an append-only file on it.
    pub redis_disk: bool,
    /// Replicas that do not mind a Redis that evicts.
    pub eviction: bool,
    /// Disks of the lock's ensemble that can be filled.
    pub full_disk: bool,
    /// A replica of each master of a Redis Cluster.
    pub cluster_replicas: bool,
    /// A server of the database that is its own, with a disk that can be filled.
    pub database_disk: bool,
    /// A primary and a replica of the database that belong to the deployment alone.
    pub replication: Option<Replication>,
    /// A replica on whose proxied links packets can be lost.
    pub lossy_replica: Option<LossyReplica>,
    /// Ways, by [`Link`].
    pub(super) links: [bool; 4],
}

impl FaultRequirements {
    /// Nothing but that proxied link.
    pub fn link(link: Link) -> Self {
        let mut requirements = Self::default();
        requirements.links[link as usize] = true;
        requirements
    }

    /// Nothing but a primary and a replica.
    pub fn replicated(replication: Replication) -> Self {
        Self { replication: Some(replication), ..Self::default() }
    }

    /// Whether it needs a Redis that no other deployment has.
    pub fn has_redis(self) -> bool {
        let Self { own_redis, follower, sentinel, clock, redis_disk, eviction, .. } = self;
        own_redis || follower || sentinel || clock || redis_disk || eviction
    }

    /// Whether that link must be proxied.
    pub fn has(self, link: Link) -> bool {
        self.links[link as usize]
    }

    /// What both need.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let links = [0, 1, 2, 3].map(|link| self.links[link] || other.links[link]);
        Self {
            own_redis: self.own_redis || other.own_redis,
            follower: self.follower || other.follower,
            sentinel: self.sentinel || other.sentinel,
            clock: self.clock || other.clock,
            redis_disk: self.redis_disk || other.redis_disk,
            eviction: self.eviction || other.eviction,
            full_disk: self.full_disk || other.full_disk,
            cluster_replicas: self.cluster_replicas || other.cluster_replicas,
            database_disk: self.database_disk || other.database_disk,
            replication: self.replication.or(other.replication),
            lossy_replica: self.lossy_replica.or(other.lossy_replica),
            links,
        }
    }
}
