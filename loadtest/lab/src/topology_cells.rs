//! Which cells there are on a topology of several servers. A fault that needs the one server that
//! the topology replaces has none.

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
        if !self.is_single() && fault == Some(FaultKind::TwoAtOnce) {
            Err("two faults at once are those of single servers")
        } else if self.has_own_redis()
            && (requirements.has_redis() || requirements.has(Link::Redis))
        {
            Err("its fault needs one Redis that is its own")
        } else if self.has_own_database()
            && (requirements.replication.is_some()
                || requirements.has(Link::Database)
                || fault.is_some_and(FaultKind::stops_database))
        {
            Err("its fault needs the one database of all cells")
        } else if self.has_ensemble() && requirements.has(Link::Zookeeper) {
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
}
