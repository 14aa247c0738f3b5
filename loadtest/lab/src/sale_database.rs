//! The database of a deployment: one server, which all deployments share or which is its own, a
//! primary and its replica, Galera nodes, or shards.

use std::sync::Arc;

use loadtest_measure::error::Result;
use testbed::{Bed, Database, Flavor, ReplicatedDatabase, Replication, ShardedDatabase};

use crate::cluster::{Cluster, blocking};
use crate::requirements::FaultRequirements;
use crate::topology::Topology;

/// Where the database of a deployment is. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum SaleDatabase {
    /// On one server: that which all deployments share, or one of its own.
    Single(Arc<Database>),
    /// On a primary with a replica that no other deployment has.
    Replicated(Arc<ReplicatedDatabase>),
    /// On Galera nodes that no other deployment has. All take writes.
    Galera(Arc<[Arc<Database>; GALERA_NODES]>),
    /// On two shards that no other deployment has, and their front, which the service speaks with.
    Sharded(Arc<ShardedDatabase>),
}

/// One can leave or be lost: the others are a majority.
pub(super) const GALERA_NODES: usize = 3;
/// Shards of a sale: the vouchers with even ids lie on one, those with odd ids on the other.
const SHARDS: usize = 2;

impl SaleDatabase {
    /// Starts the servers that the topology or a fault needs; else it is the shared one.
    pub(super) async fn start(
        cluster: &Cluster,
        topology: Topology,
        requirements: FaultRequirements,
    ) -> Result<Self> {
        let (bed, flavor) = (&cluster.bed, cluster.flavor());
        let replication = requirements.replication.or(topology.replication());
        match (replication, topology) {
            (Some(replication), _) => Self::replicated(bed, flavor, replication).await,
            (None, Topology::Galera) => Self::galera(bed).await,
            (None, Topology::Sharded) => Self::sharded(bed).await,
            (None, _) if requirements.database_disk => Self::with_disk_space(bed, flavor).await,
            (None, _) => Ok(Self::Single(cluster.database.clone())),
        }
    }

    /// Starts a primary with a replica.
    async fn replicated(bed: &Arc<Bed>, flavor: Flavor, replication: Replication) -> Result<Self> {
        let bed = bed.clone();
        let started = blocking(move || bed.replicated(flavor, replication, 1)).await?;
        Ok(Self::Replicated(Arc::new(started)))
    }

    /// Starts one server with a disk that can be filled.
    async fn with_disk_space(bed: &Arc<Bed>, flavor: Flavor) -> Result<Self> {
        let bed = bed.clone();
        let started = blocking(move || bed.database_with_disk_space(flavor)).await?;
        Ok(Self::Single(Arc::new(started)))
    }

    /// Starts Galera nodes. A read waits for what other nodes have committed: else an audit could
    /// miss it.
    async fn galera(bed: &Arc<Bed>) -> Result<Self> {
        let bed = bed.clone();
        let nodes = blocking(move || bed.galera(true)).await?;
        Ok(Self::Galera(Arc::new(nodes.map(Arc::new))))
    }

    /// Starts two shards and their front.
    async fn sharded(bed: &Arc<Bed>) -> Result<Self> {
        let bed = bed.clone();
        Ok(Self::Sharded(Arc::new(blocking(move || bed.sharded(SHARDS)).await?)))
    }

    /// The server that takes writes.
    pub(super) fn primary(&self) -> &Arc<Database> {
        match self {
            Self::Single(server) => server,
            Self::Replicated(group) => group.primary(),
            Self::Galera(nodes) => &nodes[0],
            Self::Sharded(group) => group.front(),
        }
    }

    /// Drops a database of a single server. Other servers end with the deployment.
    pub(super) fn drop_database(&self, name: &str) -> testbed::Result<()> {
        match self {
            Self::Single(server) => server.drop_database(name),
            Self::Replicated(_) | Self::Galera(_) | Self::Sharded(_) => Ok(()),
        }
    }

    /// The address for the service, password included: of all servers.
    pub(super) fn url(&self, name: &str) -> String {
        match self {
            Self::Single(server) => server.url(name),
            Self::Replicated(group) => group.url(name),
            Self::Galera(nodes) => nodes[0].url(name),
            Self::Sharded(group) => group.front().url(name),
        }
    }

    /// The address for that replica of the service, from 1, if each has another one.
    pub(super) fn url_of(&self, replica: u16, name: &str) -> Option<String> {
        match self {
            Self::Single(_) | Self::Replicated(_) | Self::Sharded(_) => None,
            Self::Galera(nodes) => Some(nodes[usize::from(replica - 1) % nodes.len()].url(name)),
        }
    }

    /// The address for the judge, password included: of the server that takes writes.
    pub(super) fn primary_url(&self, name: &str) -> String {
        match self {
            Self::Single(server) => server.url(name),
            Self::Replicated(group) => group.primary_url(name),
            Self::Galera(nodes) => nodes[0].url(name),
            Self::Sharded(group) => group.front().url(name),
        }
    }
}
