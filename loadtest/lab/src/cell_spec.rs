//! A cell of the matrix: its axes, the scenario around the locked section, and a fault. It knows
//! what it is expected to show and why, and which load and flags make it.

use std::fmt;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use serde::{Deserialize, Serialize};
use testbed::Replication;

use crate::cell_axes::{CellAxes, Load, PurchaseMode};
use crate::faults::{
    FaultKind, FaultRequirements, Link, PairFault, Schedule, TargetedFault, TopologyFault,
};
use crate::lock::{ExtraServers, Lock};
use crate::predict::{Case, Family, Prediction, Scenario, expectation};
use crate::topology::Topology;

/// The lease in cells with a fault, in milliseconds: a fault that outlasts it is soon over.
pub const FAULT_LEASE_MS: u64 = 1000;
/// The lease where all work outlasts it.
const SHORT_LEASE_MS: u64 = 50;
/// The lease where some work outlasts it, and the rest is far from it on any machine.
const STOPPED_LEASE_MS: u64 = 400;
/// The lease where it is renewed: the shortest that every renewed lock accepts.
const KEPT_LEASE_MS: u64 = 100;
/// Work that outlasts it so far that several holders overlap.
const OVERLAPPING_WORK_MS: u64 = 500;
/// Work that outlasts it, of holders who follow each other.
const LONG_WORK_MS: u64 = 150;
/// Longer than all of those who follow each other take.
const LONG_WAIT_MS: u64 = 20_000;
/// Work in cells with a fault: a purchase holds its lock for some time.
pub(super) const FAULT_WORK_MS: u64 = 10;

/// Why orders are lost.
const LOST: &str = "it had answered before its replica had the orders";

/// A cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellSpec {
    /// Lock, scope, guards, replicas.
    #[serde(flatten)]
    pub axes: CellAxes,
    /// What happens around the locked section.
    #[serde(alias = "circumstance")]
    pub scenario: Scenario,
    /// What happens to the deployment.
    pub fault: Option<FaultKind>,
    /// Which servers it runs on.
    #[serde(default, skip_serializing_if = "Topology::is_single")]
    pub topology: Topology,
}

/// What a cell should show, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Expectation {
    /// Which promises it breaks.
    pub prediction: Prediction,
    /// The reason in words.
    pub because: String,
}

impl CellSpec {
    /// The cell of the comparison at that place: short work and no fault.
    pub fn plain(axes: CellAxes) -> Self {
        Self::of(axes, Scenario::ShortWork, None)
    }

    /// A cell on one server of each.
    pub const fn of(axes: CellAxes, scenario: Scenario, fault: Option<FaultKind>) -> Self {
        Self { axes, scenario, fault, topology: Topology::Single }
    }

    /// Whether it is one of the comparison's.
    pub fn is_plain(self) -> bool {
        self.scenario_or_fault().is_none() && self.topology.is_single()
    }

    /// Whether each of its orders has to carry a fencing token.
    pub fn is_fenced(self) -> bool {
        self.scenario == Scenario::FrozenFenced && self.axes.lock.has_tokens()
    }

    /// Whether its lock lets one in at a time, as replicas report: without a fault, and with work
    /// that ends long before the lease. They do not report a lock that is the transaction.
    pub fn excludes_others(self) -> bool {
        let CellAxes { lock, replicas, .. } = self.axes;
        let excludes = lock.is_distributed() && lock.family() != Family::Transaction
            || lock == Lock::Local && replicas == 1;
        let is_calm = matches!(self.scenario, Scenario::ShortWork | Scenario::Inside);
        excludes && is_calm && self.fault.is_none()
    }

    /// The rules on faults that it has to keep under this load.
    pub fn demands(self, load: &Load) -> Vec<Rule> {
        let Some(fault) = self.fault else { return Vec::new() };
        let mut rules = vec![Rule::EachReplicaServes, Rule::TicketsEnd];
        // A crowd whose work is longer waits on purpose.
        if load.work_ms <= FAULT_WORK_MS {
            rules.extend([Rule::ServedAfterFault, Rule::AnsweredAfterFault]);
        }
        // What has no prediction is one of an injected bug, and has to hold without it.
        if self.expectation().map_or(true, |it| it.prediction.holds()) {
            rules.push(Rule::SoldOutStaysSoldOut);
        }
        match fault {
            FaultKind::Targeted(TargetedFault::DropMessages) => rules.push(Rule::LocksAreHandedOn),
            FaultKind::Targeted(TargetedFault::ClosedSales) => rules.push(Rule::SoldWithinWindow),
            FaultKind::RollingRestart if self.axes.replicas > 1 => {
                rules.push(Rule::NoFailureInRestart);
            }
            FaultKind::HangUp if load.mode == PurchaseMode::Direct => {
                rules.push(Rule::PurchasesEnd);
            }
            _ => {}
        }
        rules
    }

    /// Whether nothing but the validity time keeps its holders apart: one that is stopped between
    /// its last look and its COMMIT works on beside the next one.
    pub fn rests_on_validity(self) -> bool {
        let is_long = matches!(self.scenario, Scenario::LongWorkKept | Scenario::LongWorkStopped);
        is_long && self.fault.is_none() && self.axes.guards == Guards::Off
    }

    /// The name of what distinguishes it from the comparison's cell at its place.
    pub fn scenario_or_fault(self) -> Option<&'static str> {
        match self.scenario {
            Scenario::ShortWork => self.fault.map(FaultKind::name),
            scenario => Some(scenario.name()),
        }
    }

    /// The cell's name in links and file names.
    pub fn id(self) -> String {
        let axes = self.axes;
        let (lock, scope, guards) = (axes.lock.name(), axes.scope.name(), axes.guards.name());
        let what = self.scenario_or_fault().map_or(String::new(), |what| format!("-{what}"));
        let on = match self.topology {
            Topology::Single => String::new(),
            topology => format!("-on-{}", topology.name()),
        };
        format!("{lock}-{scope}-{guards}-{}{what}{on}", axes.replicas)
    }

    /// What that does, in a sentence without a subject.
    pub fn description(self) -> Option<&'static str> {
        match self.scenario {
            Scenario::ShortWork => self.fault.map(FaultKind::description),
            scenario => Some(scenario.description()),
        }
    }

    /// What the cell should show, or why it is not generated.
    pub fn expectation(self) -> Result<Expectation, &'static str> {
        self.fits()?;
        // Which server a fault hits depends on the schedule, and what it needs hardly.
        let requirements = self.requirements(&Schedule::of(1, "", self.axes.replicas));
        self.topology.fits(self.axes, self.fault, requirements)?;
        let CellAxes { lock, scope, guards, replicas } = self.axes;
        let (family, scenario) = (lock.family(), self.scenario);
        let case = Case { family, scope, guards, replicas, scenario };
        let (prediction, because) =
            expectation(case).ok_or("the table says nothing about that lock, scope and number")?;
        let (prediction, because) = match self.fault {
            Some(FaultKind::FailOverDatabase(Replication::Async)) => (Prediction::LOSES, LOST),
            _ => (prediction, because),
        };
        let because = match self.fault {
            Some(fault) if !scenario.is_frozen() => format!("{}; {because}", fault.description()),
            _ => because.to_owned(),
        };
        Ok(Expectation { prediction, because })
    }

    /// Whether it is a cell of that mode, or why not.
    pub fn supports_mode(self, mode: PurchaseMode) -> Result<(), &'static str> {
        let CellAxes { lock, scope, guards, .. } = self.axes;
        if mode == PurchaseMode::Direct {
            self.fault.map_or(Ok(()), |fault| fault.suits(lock, mode))
        } else if lock != Lock::None || scope != Scope::User {
            Err("the mode queued takes no lock: it goes with the lock none per user")
        } else if guards == Guards::Off {
            Err("the mode queued is refused without guards")
        } else if self.scenario != Scenario::ShortWork {
            Err("the queued mode holds no lock that could be outlasted or lost")
        } else if self.topology == Topology::Sharded {
            Err("the mode queued was not tried on shards")
        } else if self.fault == Some(FaultKind::Failpoint) {
            Err("a failpoint of the matrix is one of a purchase that is written at once")
        } else {
            self.fault.map_or(Ok(()), |fault| fault.suits(lock, mode))
        }
    }

    /// Whether these belong together at all.
    fn fits(self) -> Result<(), &'static str> {
        let CellAxes { lock, guards, .. } = self.axes;
        let family = lock.family();
        match self.scenario {
            Scenario::ShortWork => match (self.fault, guards) {
                (Some(_), Guards::Off) => {
                    Err("without guards the table says nothing about a fault at a random moment")
                }
                _ => Ok(()),
            },
            Scenario::FrozenUnfenced | Scenario::FrozenFenced => {
                let fenced = self.scenario == Scenario::FrozenFenced;
                if self.fault != Some(FaultKind::FreezeReplica) {
                    Err("a frozen holder is a cell of the fault freeze")
                } else if guards == Guards::On {
                    Err("with guards on the fault freeze is a cell already")
                } else if fenced && !lock.has_tokens() && family != Family::Transaction {
                    Err("that lock has no fencing tokens")
                } else {
                    Ok(())
                }
            }
            _ if self.fault.is_some() => Err("faults come with short work"),
            Scenario::Inside if family == Family::Transaction => {
                Err("a lock that is the transaction cannot be taken inside it")
            }
            Scenario::LongWorkStopped | Scenario::LongWorkKept if family == Family::None => {
                Err("without a lock there is none to be lost or kept")
            }
            Scenario::LongWorkStopped if guards == Guards::Off && lock.may_free_others() => {
                Err("a holder that lost that lock may free its successor's when it stops")
            }
            Scenario::LongWorkIgnored | Scenario::LongWorkStopped
                if guards == Guards::On && family != Family::Lease =>
            {
                Err("work outlasts only leases that are not renewed")
            }
            Scenario::LongWorkKept if guards == Guards::On && !outlives_its_work(family) => {
                Err("only some locks live as long as their holder works")
            }
            _ => Ok(()),
        }
    }

    /// What its deployment needs besides what its lock needs.
    pub fn requirements(self, schedule: &Schedule) -> FaultRequirements {
        match self.fault {
            // A COMMIT is held, or slow.
            _ if self.scenario.is_frozen() => FaultRequirements::link(Link::Database),
            None if matches!(self.scenario, Scenario::Inside | Scenario::LongWorkStopped) => {
                FaultRequirements::link(Link::Database)
            }
            Some(fault) => fault.requirements(schedule),
            None => FaultRequirements::default(),
        }
    }

    /// The load it gets: that of the comparison, unless the work or a fault makes it last longer.
    pub fn load(self, default_load: &Load) -> Load {
        let small = Load {
            users: 100,
            stock: 20,
            connections: 48,
            requests_per_user: 3,
            work_ms: LONG_WORK_MS,
            injected_bug: default_load.injected_bug,
            mode: default_load.mode,
            writer: default_load.writer,
            fleet: default_load.fleet,
        };
        match self.scenario {
            // Nothing ends it but the last request: each lock is waited for while a lease lasts.
            Scenario::LongWorkIgnored => {
                Load { users: 60, stock: 12, work_ms: OVERLAPPING_WORK_MS, ..small }
            }
            Scenario::LongWorkKept => small,
            // What outlasts the lease is one write in some; see the cell.
            Scenario::LongWorkStopped => Load { work_ms: 0, ..small },
            Scenario::FrozenUnfenced | Scenario::FrozenFenced => Load {
                users: 2500,
                stock: 160,
                connections: 150,
                requests_per_user: 1,
                work_ms: FAULT_WORK_MS,
                ..small
            },
            // There is no lock to be held for some time, and users come again anyway.
            Scenario::ShortWork
                if self.fault.is_some() && default_load.mode == PurchaseMode::Queued =>
            {
                Load {
                    users: 2500,
                    stock: self.stock_under_fault(),
                    connections: 150,
                    requests_per_user: 1,
                    work_ms: 0,
                    ..small
                }
            }
            Scenario::ShortWork if self.fault.is_some() => Load {
                users: 2500,
                // The sale goes on while a JVM starts again.
                stock: self.stock_under_fault() * if small.fleet.has_jvms() { 2 } else { 1 },
                connections: 150,
                work_ms: FAULT_WORK_MS,
                ..small
            },
            Scenario::ShortWork | Scenario::Inside => default_load.clone(),
        }
    }

    /// Enough that something is left to be sold after the fault: a rolling restart takes some
    /// seconds for each replica, other faults two or three in all. Where all purchases follow one
    /// another, fewer come.
    fn stock_under_fault(self) -> u64 {
        let (default_load, restarted) = match self.axes.scope {
            Scope::User => (250, 200),
            Scope::Voucher => (120, 60),
        };
        match self.fault {
            Some(FaultKind::RollingRestart) => 150 + restarted * u64::from(self.axes.replicas),
            // The sale goes on while an old primary becomes a replica. MySQL copies its successor
            // for that and starts twice, which takes some seconds.
            Some(
                FaultKind::FailOverDatabase(Replication::SemiSync)
                | FaultKind::OnTopology(TopologyFault::Pair(PairFault::OldPrimaryReturns)),
            ) => 4 * default_load,
            // The sale goes on while a server returns. Without all three it does not.
            Some(FaultKind::OnTopology(fault)) if fault != TopologyFault::ThreeAtOnce => {
                2 * default_load
            }
            // No purchase passes a point once the voucher is sold out.
            Some(FaultKind::Failpoint) => 2 * default_load,
            _ => default_load,
        }
    }

    /// Flags of `seckill serve` that make the cell.
    pub fn flags(self, load: &Load, requirements: FaultRequirements) -> Vec<String> {
        let mut flags = self.axes.flags(load);
        let mut with = |words: &[&str]| flags.extend(words.iter().map(|word| (*word).to_owned()));
        let lease_ms = match self.scenario {
            Scenario::LongWorkIgnored => Some(SHORT_LEASE_MS),
            Scenario::LongWorkStopped => Some(STOPPED_LEASE_MS),
            Scenario::LongWorkKept => Some(KEPT_LEASE_MS),
            // No work outlasts a lease here, and no request may fail because a machine renewed
            // late.
            _ if self.fault == Some(FaultKind::RollingRestart) => None,
            _ if self.fault.is_some() => Some(FAULT_LEASE_MS),
            _ => None,
        };
        if let Some(ms) = lease_ms {
            let ms = ms.max(self.axes.lock.least_lease_ms());
            with(&["--lease-ms", &ms.to_string()]);
        }
        match self.scenario {
            Scenario::LongWorkIgnored => with(&["--on-lost", "ignore"]),
            Scenario::LongWorkStopped | Scenario::LongWorkKept => {
                with(&["--lock-wait-ms", &LONG_WAIT_MS.to_string()]);
            }
            Scenario::Inside => with(&["--lock-order", "inside"]),
            _ if self.is_fenced() => with(&["--fenced"]),
            _ => {}
        }
        if requirements.eviction {
            with(&["--allow-eviction"]);
        }
        // Each replica has a way of its own to the same servers, which look like others to it.
        let has_proxies = match self.axes.lock.needs() {
            ExtraServers::Nothing | ExtraServers::Etcd | ExtraServers::Nats => false,
            ExtraServers::IndependentRedis => requirements.has(Link::Redis),
            ExtraServers::ZooKeeper => requirements.has(Link::Zookeeper),
        };
        if has_proxies {
            with(&["--allow-mixed"]);
        }
        flags
    }
}

/// Whether such a lock lives as long as its holder works.
fn outlives_its_work(family: Family) -> bool {
    matches!(family, Family::RenewedLease | Family::Session | Family::Transaction)
}

impl fmt::Display for CellSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.axes.to_string();
        let what = self.scenario_or_fault().map(|what| format!(", {what}")).unwrap_or_default();
        let on = match self.topology {
            Topology::Single => String::new(),
            topology => format!(", on {}", topology.name()),
        };
        f.pad(&format!("{text}{what}{on}"))
    }
}

#[cfg(test)]
#[path = "cell_spec_tests.rs"]
mod tests;
