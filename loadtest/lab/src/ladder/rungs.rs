//! The rungs, in the order of the tutorial, and what they are made of.

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;

use super::{Rung, RungCell, one_key, renewal, servers};
use crate::cell_axes::{CellAxes, InjectedBug, Load};
use crate::cell_spec::CellSpec;
use crate::faults::FaultKind;
use crate::lock::Lock;
use crate::predict::Scenario;

/// The ladder.
pub const RUNGS: &[Rung] = &[
    one_key::NO_LOCK,
    one_key::JVM_LOCK,
    one_key::SETNX,
    one_key::SETNX_EXPIRE,
    one_key::SET_NX,
    one_key::OWNER_CHECK,
    renewal::LUA_RELEASE,
    renewal::REENTRANT,
    renewal::RETRY,
    renewal::WATCHDOG,
    renewal::REDISSON,
    renewal::FAIR,
    renewal::READ_WRITE,
    servers::MULTI,
    servers::REDLOCK,
    servers::MYSQL_ROW,
    servers::MYSQL_TABLE,
    servers::MYSQL_NAMED,
    servers::ZOOKEEPER,
    servers::FENCING,
];

/// The sale itself is wrong.
pub(super) const SALE_RULES: &[Rule] =
    &[Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp];
/// A buyer waits longer than a sound lock lets it.
pub(super) const WAIT_RULES: &[Rule] = &[
    Rule::ServedAfterFault,
    Rule::AnsweredAfterFault,
    Rule::EachReplicaServes,
    Rule::LocksAreHandedOn,
];

/// Nothing but the lock of the voucher keeps purchases apart.
pub(super) const fn naked(lock: Lock, replicas: u16) -> CellAxes {
    CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas }
}

/// Two replicas under one lock of the voucher, with the database's guards.
pub(super) const fn guarded(lock: Lock) -> CellAxes {
    CellAxes { lock, scope: Scope::Voucher, guards: Guards::On, replicas: 2 }
}

/// Two replicas under a lock of each user.
pub(super) const fn per_user(lock: Lock, guards: Guards) -> CellAxes {
    CellAxes { lock, scope: Scope::User, guards, replicas: 2 }
}

impl RungCell {
    pub(super) const fn of(axes: CellAxes, scenario: Scenario, fault: Option<FaultKind>) -> Self {
        let trial = CellSpec::of(axes, scenario, fault);
        Self { trial, bug: None, load: None, flags: &[], lasts_ms: None }
    }

    /// Work that is shorter than the lease.
    pub(super) const fn short(axes: CellAxes, fault: Option<FaultKind>) -> Self {
        Self::of(axes, Scenario::ShortWork, fault)
    }

    pub(super) const fn bug(mut self, bug: InjectedBug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Users, units, milliseconds of work, and simultaneous requests of each user.
    pub(super) const fn load(
        mut self,
        users: usize,
        stock: u64,
        work_ms: u64,
        requests_per_user: usize,
    ) -> Self {
        let connections = 600;
        let load = Load { users, stock, connections, requests_per_user, work_ms, ..Load::DEFAULT };
        self.load = Some(load);
        self
    }

    /// Fewer connections than a crowd of [`Self::load`] has.
    pub(super) const fn connections(mut self, connections: usize) -> Self {
        if let Some(load) = &mut self.load {
            load.connections = connections;
        }
        self
    }

    pub(super) const fn with(mut self, flags: &'static [(&'static str, &'static str)]) -> Self {
        self.flags = flags;
        self
    }

    pub(super) const fn lasting(mut self, ms: u64) -> Self {
        self.lasts_ms = Some(ms);
        self
    }
}
