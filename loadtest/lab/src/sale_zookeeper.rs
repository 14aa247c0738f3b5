//! The `ZooKeeper` of a deployment: one server, or an ensemble of three.

use std::net::SocketAddr;

use testbed::{ZooKeeper, ZooKeeperEnsemble};

/// Where the `ZooKeeper` of a deployment is.
#[derive(Debug)]
pub(super) enum SaleZooKeeper {
    /// One server.
    Single(Box<ZooKeeper>),
    /// Three of them.
    Ensemble(ZooKeeperEnsemble),
}

impl SaleZooKeeper {
    /// The servers' addresses, as clients want them.
    pub(super) fn connect_string(&self) -> String {
        match self {
            Self::Single(server) => server.connect_string().to_owned(),
            Self::Ensemble(ensemble) => ensemble.connect_string(),
        }
    }

    /// The address that a proxy can stand before: that of the one server.
    pub(super) fn addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Single(server) => Some(server.addr()),
            Self::Ensemble(_) => None,
        }
    }

    /// The process of the one server, or of the first.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Single(server) => server.pid(),
            Self::Ensemble(ensemble) => ensemble.members()[0].pid(),
        }
    }
}
