//! Which cells there are on a topology of several servers. A fault that needs the one server that
//! the topology replaces has none; a failover that needs the topology's own servers has one.

use loadtest_judge::setting::Guards;

use crate::cell_axes::CellAxes;
use crate::faults::{FaultKind, is_in_an_ensemble};
use crate::predict::Family;
use crate::requirements::{FaultRequirements, Link};
use crate::topology::Topology;

impl Topology {
    /// Whether it is a cell with those axes, that fault and what these need, or why not.
    pub(super) fn fits(
        self,
        CellAxes { lock, guards, .. }: CellAxes,
        fault: Option<FaultKind>,
        requirements: FaultRequirements,
    ) -> Result<(), &'static str> {
        if let Some(FaultKind::OnTopology(fault)) = fault {
            fault.fits(self, lock)?;
        }
        let unmet = self.unmet(requirements);
        if !self.is_single() && fault == Some(FaultKind::TwoAtOnce) {
            Err("two faults at once are those of single servers")
        } else if self.has_own_redis() && (unmet.has_redis() || unmet.has(Link::Redis)) {
            Err("its fault needs one Redis that is its own")
        } else if self.has_own_database()
            && (unmet.replication.is_some()
                || unmet.has(Link::Database)
                || unmet.database_disk
                || matches!(fault, Some(FaultKind::RestartDatabase | FaultKind::FreezeDatabase)))
        {
            Err("its fault needs the one database of all cells")
        } else if self.has_ensemble() && unmet.has(Link::Zookeeper) {
            Err("its fault needs one ZooKeeper")
        } else if self == Self::Galera && lock.is_in_the_database() {
            Err("the cells of Galera are those of locks outside the database")
        } else if self == Self::Sharded && guards == Guards::Off {
            Err("the laboratory's tables without guards lie on no shard")
        } else if self == Self::Sharded && lock.family() == Family::Transaction {
            Err("that lock is a row of the front, and its transaction is not one with a shard's")
        } else if self == Self::Ensemble && !is_in_an_ensemble(lock) {
            Err("only a lock in ZooKeeper or etcd uses an ensemble")
        } else {
            Ok(())
        }
    }

    /// What is needed besides its own servers: a Redis with sentinels, or a database of that
    /// replication.
    fn unmet(self, needed: FaultRequirements) -> FaultRequirements {
        let has_group = needed.sentinel && self.has_sentinels();
        FaultRequirements {
            own_redis: needed.own_redis && !has_group,
            sentinel: needed.sentinel && !has_group,
            replication: needed.replication.filter(|kind| self.replication() != Some(*kind)),
            ..needed
        }
    }
}
