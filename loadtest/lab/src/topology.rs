//! Which servers the replicas of a cell run on: one Redis, one database and one `ZooKeeper` or
//! etcd, or several of one of them.

use serde::{Deserialize, Serialize};
use testbed::Replication;

/// A deployment's servers. What it does not name is one server.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One server of each.
    #[default]
    Single,
    /// A Redis master with two replicas and three sentinels.
    Sentinel,
    /// A Redis Cluster of three masters.
    RedisCluster,
    /// A primary of the database with a semi-synchronous replica.
    SemiSync,
    /// A primary of the database with an asynchronous replica.
    Async,
    /// Three Galera nodes; each replica of the service writes to the next one.
    Galera,
    /// Two shards and the front by which the service reaches them, by `MariaDB`'s engine Spider.
    Sharded,
    /// Three `ZooKeeper` or etcd servers.
    Ensemble,
    /// Sentinels, a semi-synchronous replica of the database, and three `ZooKeeper` or etcd
    /// servers.
    Replicated,
}

impl Topology {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::RedisCluster => "redis-cluster",
            Self::SemiSync => "semi-sync",
            Self::Async => "async",
            Self::Galera => "galera",
            Self::Sharded => "sharded",
            Self::Ensemble => "ensemble",
            Self::Replicated => "replicated",
        }
    }

    /// Whether it is one server of each. (By reference, as serde asks for it.)
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_single(&self) -> bool {
        *self == Self::Single
    }

    /// Whether its Redis is a group with sentinels.
    pub fn has_sentinels(self) -> bool {
        matches!(self, Self::Sentinel | Self::Replicated)
    }

    /// Whether it has a Redis of its own, which is more than one server.
    pub fn has_own_redis(self) -> bool {
        self.has_sentinels() || self == Self::RedisCluster
    }

    /// How its database is replicated, if a primary has a replica.
    pub fn replication(self) -> Option<Replication> {
        match self {
            Self::SemiSync | Self::Replicated => Some(Replication::SemiSync),
            Self::Async => Some(Replication::Async),
            _ => None,
        }
    }

    /// Whether its database is made of what only `MariaDB` has.
    pub fn is_of_mariadb(self) -> bool {
        matches!(self, Self::Galera | Self::Sharded)
    }

    /// Whether its database is more than one server.
    pub fn has_own_database(self) -> bool {
        self.replication().is_some() || self.is_of_mariadb()
    }

    /// Whether its `ZooKeeper` or etcd is three servers.
    pub fn has_ensemble(self) -> bool {
        matches!(self, Self::Ensemble | Self::Replicated)
    }
}
