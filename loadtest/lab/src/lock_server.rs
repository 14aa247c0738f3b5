//! The servers that a lock lives on alone, their own for each deployment.

use std::net::SocketAddr;

use testbed::{Etcd, EtcdCluster, ZooKeeper, ZooKeeperEnsemble};

/// Servers that are neither the database nor a Redis: one, or three of them.
#[derive(Debug)]
pub(super) enum LockServer {
    ZooKeeper(Box<ZooKeeper>),
    ZooKeeperEnsemble(ZooKeeperEnsemble),
    Etcd(Box<Etcd>),
    EtcdCluster(EtcdCluster),
}

impl LockServer {
    /// The variable that `seckill` takes their addresses from, and the addresses.
    pub(super) fn setting(&self) -> (String, String) {
        let (variable, addresses) = match self {
            Self::ZooKeeper(server) => ("ZOOKEEPER_URL", server.connect_string().to_owned()),
            Self::ZooKeeperEnsemble(ensemble) => ("ZOOKEEPER_URL", ensemble.connect_string()),
            Self::Etcd(server) => ("ETCD_ENDPOINTS", server.endpoint().to_owned()),
            Self::EtcdCluster(cluster) => ("ETCD_ENDPOINTS", cluster.endpoints()),
        };
        (variable.to_owned(), addresses)
    }

    /// The name of the server in reports, and its process; of three the first one's.
    pub(super) fn process(&self) -> (&'static str, u32) {
        match self {
            Self::ZooKeeper(server) => ("zookeeper", server.pid()),
            Self::ZooKeeperEnsemble(ensemble) => ("zookeeper", ensemble.members()[0].pid()),
            Self::Etcd(server) => ("etcd", server.pid()),
            Self::EtcdCluster(cluster) => ("etcd", cluster.members()[0].pid()),
        }
    }

    /// Where faults reach it: the laboratory has none on the way to three servers, or to an etcd.
    pub(super) fn zookeeper(&self) -> Option<SocketAddr> {
        match self {
            Self::ZooKeeper(server) => Some(server.addr()),
            Self::ZooKeeperEnsemble(_) | Self::Etcd(_) | Self::EtcdCluster(_) => None,
        }
    }
}
