//! The server that a lock lives on alone, one for each deployment.

use std::net::SocketAddr;

use testbed::{Etcd, ZooKeeper};

/// A server that is neither the database nor a Redis.
#[derive(Debug)]
pub(super) enum LockServer {
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
}

impl LockServer {
    /// The variable that `seckill` takes its address from, and the address.
    pub(super) fn setting(&self) -> (String, String) {
        let (variable, address) = match self {
            Self::ZooKeeper(zookeeper) => ("ZOOKEEPER_URL", zookeeper.connect_string()),
            Self::Etcd(etcd) => ("ETCD_ENDPOINTS", etcd.endpoint()),
        };
        (variable.to_owned(), address.to_owned())
    }

    /// The name of the server in reports, and its process.
    pub(super) fn process(&self) -> (&'static str, u32) {
        match self {
            Self::ZooKeeper(zookeeper) => ("zookeeper", zookeeper.pid()),
            Self::Etcd(etcd) => ("etcd", etcd.pid()),
        }
    }

    /// Where faults reach it: the laboratory has no faults on the way to an etcd.
    pub(super) fn zookeeper(&self) -> Option<SocketAddr> {
        match self {
            Self::ZooKeeper(zookeeper) => Some(zookeeper.addr()),
            Self::Etcd(_) => None,
        }
    }
}
