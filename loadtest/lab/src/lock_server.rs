//! The servers that a lock lives on alone, their own for each deployment.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use loadtest_measure::error::Result;
use loadtest_measure::machine::{version_of, zookeeper_version};
use testbed::{
    Etcd, EtcdCluster, EtcdOptions, Nats, NatsOptions, ZooKeeper, ZooKeeperEnsemble,
    ZooKeeperOptions,
};

use crate::cluster::{Cluster, blocking};
use crate::lock::ExtraServers;
use crate::requirements::FaultRequirements;
use crate::topology::Topology;

/// Servers that are neither the database nor a Redis: one, or three of them.
#[derive(Debug)]
pub enum LockServer {
    /// A `ZooKeeper`.
    ZooKeeper(Box<ZooKeeper>),
    /// An etcd.
    Etcd(Box<Etcd>),
    /// A NATS server.
    Nats(Box<Nats>),
    /// Three of one kind.
    Ensemble(LockEnsemble),
}

/// Three servers. Cheap to clone.
#[derive(Debug, Clone)]
pub enum LockEnsemble {
    /// An ensemble of `ZooKeeper`.
    ZooKeeper(Arc<ZooKeeperEnsemble>),
    /// A cluster of etcd.
    Etcd(Arc<EtcdCluster>),
}

/// Their versions, each known once a deployment has needed such a server.
#[derive(Debug, Default)]
pub struct LockServerVersions {
    /// `ZooKeeper`.
    pub zookeeper: OnceLock<String>,
    /// etcd.
    pub etcd: OnceLock<String>,
    /// NATS.
    pub nats: OnceLock<String>,
}

impl LockServer {
    /// The variable that `seckill` takes their addresses from, and the addresses.
    pub fn setting(&self) -> (String, String) {
        let (variable, addresses) = match self {
            Self::ZooKeeper(server) => ("ZOOKEEPER_URL", server.connect_string().to_owned()),
            Self::Ensemble(LockEnsemble::ZooKeeper(all)) => ("ZOOKEEPER_URL", all.connect_string()),
            Self::Etcd(server) => ("ETCD_ENDPOINTS", server.endpoint().to_owned()),
            Self::Nats(server) => ("NATS_URL", server.url().to_owned()),
            Self::Ensemble(LockEnsemble::Etcd(all)) => ("ETCD_ENDPOINTS", all.endpoints()),
        };
        (variable.to_owned(), addresses)
    }

    /// The processes that it consists of, each with its name in reports.
    pub(super) fn processes(&self) -> Vec<(&'static str, u32)> {
        match self {
            Self::ZooKeeper(server) => vec![("zookeeper", server.pid())],
            Self::Etcd(server) => vec![("etcd", server.pid())],
            Self::Nats(server) => vec![("nats", server.pid())],
            Self::Ensemble(LockEnsemble::ZooKeeper(all)) => {
                all.members().iter().map(|member| ("zookeeper", member.pid())).collect()
            }
            Self::Ensemble(LockEnsemble::Etcd(all)) => {
                all.members().iter().map(|member| ("etcd", member.pid())).collect()
            }
        }
    }

    /// Where faults reach it: the laboratory has none on the way to three servers, to an etcd or
    /// to a NATS.
    pub(super) fn zookeeper(&self) -> Option<SocketAddr> {
        match self {
            Self::ZooKeeper(server) => Some(server.addr()),
            Self::Etcd(_) | Self::Nats(_) | Self::Ensemble(_) => None,
        }
    }

    /// The three servers, if it is three.
    pub(super) fn ensemble(&self) -> Option<&LockEnsemble> {
        match self {
            Self::Ensemble(ensemble) => Some(ensemble),
            Self::ZooKeeper(_) | Self::Etcd(_) | Self::Nats(_) => None,
        }
    }
}

impl Cluster {
    /// Starts what that lock lives on alone, if it needs such servers.
    pub(super) async fn start_lock_server(
        &self,
        needs: ExtraServers,
        topology: Topology,
        requirements: FaultRequirements,
    ) -> Result<Option<LockServer>> {
        let has_ensemble = topology.has_ensemble();
        Ok(Some(match needs {
            ExtraServers::Nothing | ExtraServers::IndependentRedis => return Ok(None),
            ExtraServers::ZooKeeper if has_ensemble => {
                let ensemble =
                    Arc::new(self.start_zookeeper_ensemble(requirements.full_disk).await?);
                LockServer::Ensemble(LockEnsemble::ZooKeeper(ensemble))
            }
            ExtraServers::Etcd if has_ensemble => {
                let cluster = Arc::new(self.start_etcd_cluster().await?);
                LockServer::Ensemble(LockEnsemble::Etcd(cluster))
            }
            ExtraServers::ZooKeeper => {
                LockServer::ZooKeeper(Box::new(self.start_zookeeper().await?))
            }
            ExtraServers::Etcd => LockServer::Etcd(Box::new(self.start_etcd().await?)),
            ExtraServers::Nats => LockServer::Nats(Box::new(self.start_nats().await?)),
        }))
    }

    /// Starts one such server, if such a lock needs any.
    pub async fn start_one_lock_server(&self, needs: ExtraServers) -> Result<Option<LockServer>> {
        self.start_lock_server(needs, Topology::Single, FaultRequirements::default()).await
    }

    async fn start_zookeeper_ensemble(&self, disk: bool) -> Result<ZooKeeperEnsemble> {
        // No machine loses its power here, and what a killed server wrote the kernel has. A disk
        // that is busy with a build would make each purchase wait instead.
        let extra = vec!["forceSync=no".to_owned()];
        let options = ZooKeeperOptions { disk, extra, ..ZooKeeperOptions::default() };
        let bed = self.bed.clone();
        let (ensemble, said) = blocking(move || {
            let ensemble = bed.zookeeper_ensemble(options)?;
            let said = ensemble.members()[ensemble.leader()?].four_letter_word("srvr")?;
            Ok((ensemble, said))
        })
        .await?;
        self.lock_server_versions.zookeeper.get_or_init(|| zookeeper_version(&said));
        Ok(ensemble)
    }

    /// Starts a `ZooKeeper`.
    async fn start_zookeeper(&self) -> Result<ZooKeeper> {
        let (bed, options) = (self.bed.clone(), ZooKeeperOptions::default());
        let (zookeeper, said) = blocking(move || {
            let zookeeper = bed.zookeeper(options)?;
            let said = zookeeper.four_letter_word("srvr")?;
            Ok((zookeeper, said))
        })
        .await?;
        self.lock_server_versions.zookeeper.get_or_init(|| zookeeper_version(&said));
        Ok(zookeeper)
    }

    async fn start_etcd_cluster(&self) -> Result<EtcdCluster> {
        let bed = self.bed.clone();
        let cluster = blocking(move || bed.etcd_cluster(EtcdOptions::default())).await?;
        let version = version_of(cluster.members()[0].pid(), "etcd", "--version").await;
        self.lock_server_versions.etcd.get_or_init(|| version);
        Ok(cluster)
    }

    /// Starts an etcd.
    async fn start_etcd(&self) -> Result<Etcd> {
        let bed = self.bed.clone();
        let etcd = blocking(move || bed.etcd(EtcdOptions::default())).await?;
        let version = version_of(etcd.pid(), "etcd", "--version").await;
        self.lock_server_versions.etcd.get_or_init(|| version);
        Ok(etcd)
    }

    /// Starts a NATS server.
    async fn start_nats(&self) -> Result<Nats> {
        let bed = self.bed.clone();
        let nats = blocking(move || bed.nats(&NatsOptions::default())).await?;
        let version = version_of(nats.pid(), "nats-server", "--version").await;
        self.lock_server_versions.nats.get_or_init(|| version);
        Ok(nats)
    }
}
