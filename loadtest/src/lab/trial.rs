//! What a cell of the matrix is: a place, what happens around the locked section, and a fault; with
//! what it is expected to show and why, and what load and flags make it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::judge::verdict::Rule;
use crate::lab::faults::{Aim, Equipment, FaultKind, Link, Schedule};
use crate::lab::lock::{Lock, Needs};
use crate::lab::place::{Load, Path, Place};
use crate::lab::predict::{Case, Circumstance, Family, Guards, Prediction, Scope, expectation};

/// The lease in cells with a fault, in milliseconds: a fault that outlasts it is soon over.
pub const FAULT_LEASE_MS: u64 = 1000;
/// The lease where all work outlasts it.
const SHORT_LEASE_MS: u64 = 50;
/// The lease where some work outlasts it, and the rest is far from it on any machine.
const STOPPED_LEASE_MS: u64 = 400;
/// The same where it is kept alive: the shortest that every such lock takes.
const KEPT_LEASE_MS: u64 = 100;
/// Work that outlasts it so far that several holders overlap.
const OVERLAPPING_WORK_MS: u64 = 500;
/// Work that outlasts it, of holders who follow each other.
const LONG_WORK_MS: u64 = 150;
/// Longer than all of those who follow each other take.
const LONG_WAIT_MS: u64 = 20_000;
/// Work in cells with a fault: a purchase holds its lock for some time.
pub(super) const FAULT_WORK_MS: u64 = 10;

/// A cell of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trial {
    /// Lock, scope, guards, replicas.
    #[serde(flatten)]
    pub place: Place,
    /// What happens around the locked section.
    pub circumstance: Circumstance,
    /// What happens to the deployment.
    pub fault: Option<FaultKind>,
}

/// What a cell is to show, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Expectation {
    /// Which promises it breaks.
    pub prediction: Prediction,
    /// The reason in words.
    pub because: String,
}

impl Trial {
    /// The cell of the comparison at that place: short work and no fault.
    pub fn plain(place: Place) -> Self {
        Self { place, circumstance: Circumstance::ShortWork, fault: None }
    }

    /// Whether it is one of the comparison's.
    pub fn is_plain(self) -> bool {
        self.what().is_none()
    }

    /// Whether each of its orders has to carry a fencing token.
    pub fn is_fenced(self) -> bool {
        self.circumstance == Circumstance::FrozenFenced && self.place.lock.has_tokens()
    }

    /// Whether its lock lets one in at a time, as replicas tell: without a fault, and with work
    /// that ends long before the lease. Of a lock that is the transaction they tell nothing.
    pub fn keeps_apart(self) -> bool {
        let Place { lock, replicas, .. } = self.place;
        let excludes = lock.is_distributed() && lock.family() != Family::Transaction
            || lock == Lock::Local && replicas == 1;
        let is_calm = matches!(self.circumstance, Circumstance::ShortWork | Circumstance::Inside);
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
            FaultKind::Aimed(Aim::DropMessages) => rules.push(Rule::LocksAreHandedOn),
            FaultKind::RollingRestart if self.place.replicas > 1 => {
                rules.push(Rule::NoFailureInRestart);
            }
            FaultKind::HangUp if load.path == Path::Direct => rules.push(Rule::PurchasesEnd),
            _ => {}
        }
        rules
    }

    /// The name of what tells it from the comparison's cell at its place.
    pub fn what(self) -> Option<&'static str> {
        match self.circumstance {
            Circumstance::ShortWork => self.fault.map(FaultKind::name),
            circumstance => Some(circumstance.name()),
        }
    }

    /// What that does, in a sentence without a subject.
    pub fn does(self) -> Option<&'static str> {
        match self.circumstance {
            Circumstance::ShortWork => self.fault.map(FaultKind::does),
            circumstance => Some(circumstance.does()),
        }
    }

    /// What the cell is to show, or why it is not generated.
    pub fn expectation(self) -> Result<Expectation, &'static str> {
        self.fits()?;
        let Place { lock, scope, guards, replicas } = self.place;
        let (family, circumstance) = (lock.family(), self.circumstance);
        let case = Case { family, scope, guards, replicas, circumstance };
        let (prediction, because) =
            expectation(case).ok_or("the table says nothing about that lock, scope and number")?;
        let because = match self.fault {
            Some(fault) if !circumstance.is_frozen() => format!("{}; {because}", fault.does()),
            _ => because.to_owned(),
        };
        Ok(Expectation { prediction, because })
    }

    /// Whether it is a cell of that path, or why not.
    pub fn goes_on(self, path: Path) -> Result<(), &'static str> {
        let Place { lock, scope, guards, .. } = self.place;
        if path == Path::Direct {
            self.fault.map_or(Ok(()), |fault| fault.suits(lock, path))
        } else if lock != Lock::None || scope != Scope::User {
            Err("the path queued takes no lock: it goes with the lock none per user")
        } else if guards == Guards::Off {
            Err("the path queued is refused without guards")
        } else if self.circumstance != Circumstance::ShortWork {
            Err("on the path queued nobody holds a lock that could be outlasted or lost")
        } else if self.fault == Some(FaultKind::Failpoint) {
            Err("a failpoint of the matrix is one of a purchase that is written at once")
        } else {
            self.fault.map_or(Ok(()), |fault| fault.suits(lock, path))
        }
    }

    /// Whether these belong together at all.
    fn fits(self) -> Result<(), &'static str> {
        let Place { lock, guards, .. } = self.place;
        let family = lock.family();
        match self.circumstance {
            Circumstance::ShortWork => match (self.fault, guards) {
                (Some(_), Guards::Off) => {
                    Err("without guards the table says nothing about a fault at a random moment")
                }
                _ => Ok(()),
            },
            Circumstance::FrozenUnfenced | Circumstance::FrozenFenced => {
                let fenced = self.circumstance == Circumstance::FrozenFenced;
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
            Circumstance::Inside if family == Family::Transaction => {
                Err("a lock that is the transaction cannot be taken inside it")
            }
            Circumstance::LongWorkStopped | Circumstance::LongWorkKept
                if family == Family::None =>
            {
                Err("without a lock there is none to be lost or kept")
            }
            Circumstance::LongWorkStopped if guards == Guards::Off && lock.may_free_others() => {
                Err("who has lost that lock may free his successor's when he stops")
            }
            Circumstance::LongWorkIgnored | Circumstance::LongWorkStopped
                if guards == Guards::On && family != Family::Lease =>
            {
                Err("work outlasts only leases that are not renewed")
            }
            Circumstance::LongWorkKept if guards == Guards::On && !lives_on(family) => {
                Err("only some locks live as long as their holder works")
            }
            _ => Ok(()),
        }
    }

    /// What its deployment needs besides what its lock needs.
    pub fn equipment(self, schedule: &Schedule) -> Equipment {
        match self.fault {
            // A COMMIT is held, or slow.
            _ if self.circumstance.is_frozen() => Equipment::way(Link::Database),
            None if matches!(
                self.circumstance,
                Circumstance::Inside | Circumstance::LongWorkStopped
            ) =>
            {
                Equipment::way(Link::Database)
            }
            Some(fault) => fault.equipment(schedule),
            None => Equipment::default(),
        }
    }

    /// The load it gets: that of the comparison, unless the work or a fault makes it last longer.
    pub fn load(self, usual: &Load) -> Load {
        let small = Load {
            users: 100,
            stock: 20,
            connections: 48,
            requests_per_user: 3,
            work_ms: LONG_WORK_MS,
            plant: usual.plant,
            path: usual.path,
            writer: usual.writer,
        };
        match self.circumstance {
            Circumstance::LongWorkIgnored => Load { work_ms: OVERLAPPING_WORK_MS, ..small },
            Circumstance::LongWorkKept => small,
            // What outlasts the lease is one write in some; see the cell.
            Circumstance::LongWorkStopped => Load { work_ms: 0, ..small },
            Circumstance::FrozenUnfenced | Circumstance::FrozenFenced => Load {
                users: 2500,
                stock: 160,
                connections: 150,
                requests_per_user: 1,
                work_ms: FAULT_WORK_MS,
                ..small
            },
            // There is no lock to be held for some time, and users come again anyway.
            Circumstance::ShortWork if self.fault.is_some() && usual.path == Path::Queued => Load {
                users: 2500,
                stock: self.stock_under_fault(),
                connections: 150,
                requests_per_user: 1,
                work_ms: 0,
                ..small
            },
            Circumstance::ShortWork if self.fault.is_some() => Load {
                users: 2500,
                stock: self.stock_under_fault(),
                connections: 150,
                work_ms: FAULT_WORK_MS,
                ..small
            },
            Circumstance::ShortWork | Circumstance::Inside => usual.clone(),
        }
    }

    /// Enough that something is left to be sold after the fault: a rolling restart takes some
    /// seconds for each replica, other faults two or three in all. Where all purchases follow one
    /// another, fewer come.
    fn stock_under_fault(self) -> u64 {
        let (usual, restarted) = match self.place.scope {
            Scope::User => (250, 200),
            Scope::Voucher => (120, 60),
        };
        match self.fault {
            Some(FaultKind::RollingRestart) => 150 + restarted * u64::from(self.place.replicas),
            _ => usual,
        }
    }

    /// Flags of `seckill serve` that make the cell.
    pub fn flags(self, load: &Load, equipment: Equipment) -> Vec<String> {
        let mut flags = self.place.flags(load);
        let mut with = |words: &[&str]| flags.extend(words.iter().map(|word| (*word).to_owned()));
        let lease_ms = match self.circumstance {
            Circumstance::LongWorkIgnored => Some(SHORT_LEASE_MS),
            Circumstance::LongWorkStopped => Some(STOPPED_LEASE_MS),
            Circumstance::LongWorkKept => Some(KEPT_LEASE_MS),
            // Nobody outlasts anything, and no request may fail because a machine renewed late.
            _ if self.fault == Some(FaultKind::RollingRestart) => None,
            _ if self.fault.is_some() => Some(FAULT_LEASE_MS),
            _ => None,
        };
        if let Some(ms) = lease_ms {
            with(&["--lease-ms", &ms.to_string()]);
        }
        match self.circumstance {
            Circumstance::LongWorkIgnored => with(&["--on-lost", "ignore"]),
            Circumstance::LongWorkStopped | Circumstance::LongWorkKept => {
                with(&["--lock-wait-ms", &LONG_WAIT_MS.to_string()]);
            }
            Circumstance::Inside => with(&["--lock-order", "inside"]),
            _ if self.is_fenced() => with(&["--fenced"]),
            _ => {}
        }
        if equipment.eviction {
            with(&["--allow-eviction"]);
        }
        // Each replica has a way of its own to the same servers, which look like others to it.
        let has_ways = match self.place.lock.needs() {
            Needs::Nothing => false,
            Needs::IndependentRedis => equipment.has(Link::Redis),
            Needs::ZooKeeper => equipment.has(Link::Zookeeper),
        };
        if has_ways {
            with(&["--allow-mixed"]);
        }
        flags
    }
}

/// Whether such a lock lives as long as its holder works.
fn lives_on(family: Family) -> bool {
    matches!(family, Family::RenewedLease | Family::Session | Family::Transaction)
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.place.to_string();
        f.pad(&self.what().map_or(text.clone(), |what| format!("{text}, {what}")))
    }
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
