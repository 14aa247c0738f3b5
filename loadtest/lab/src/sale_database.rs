//! The database of a deployment: one server of the cluster, or a primary and its replica of its
//! own.

use std::sync::Arc;

use loadtest_measure::error::Result;
use testbed::{Bed, Database, ReplicatedDatabase, Replication};

use crate::cluster::blocking;

/// Where the database of a deployment is. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum SaleDatabase {
    /// On the server that all deployments share.
    Shared(Arc<Database>),
    /// On a primary with a replica that no other deployment has.
    Replicated(Arc<ReplicatedDatabase>),
}

impl SaleDatabase {
    /// Starts a primary with a replica.
    pub(super) async fn replicated(bed: &Arc<Bed>, replication: Replication) -> Result<Self> {
        let bed = bed.clone();
        let started = blocking(move || bed.replicated(replication, 1)).await?;
        Ok(Self::Replicated(Arc::new(started)))
    }

    /// The server that takes writes.
    pub(super) fn primary(&self) -> &Arc<Database> {
        match self {
            Self::Shared(server) => server,
            Self::Replicated(group) => group.primary(),
        }
    }

    /// Drops a database of the shared server. A primary and its replica end with the deployment.
    pub(super) fn drop_database(&self, name: &str) -> testbed::Result<()> {
        match self {
            Self::Shared(server) => server.drop_database(name),
            Self::Replicated(_) => Ok(()),
        }
    }

    /// The address for the service, password included: of all servers.
    pub(super) fn url(&self, name: &str) -> String {
        match self {
            Self::Shared(server) => server.url(name),
            Self::Replicated(group) => group.url(name),
        }
    }

    /// The address for the judge, password included: of the server that takes writes.
    pub(super) fn primary_url(&self, name: &str) -> String {
        match self {
            Self::Shared(server) => server.url(name),
            Self::Replicated(group) => group.primary_url(name),
        }
    }
}
