//! Challenges: a given race in which the lock breaks, and what a reader may change so that exactly
//! the stock is sold. The left lane is the given one. The same fault happens to both lanes at the
//! same moment, and the judge decides.

use std::time::Duration;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::faults::FaultAction;
use loadtest_lab::lock::Lock;
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::setup::LaneSetup;

/// Users of each challenge.
pub const USERS: u64 = 600;
/// Units of each challenge.
pub const STOCK: u64 = 100;
/// From the begin of the race to the fault: by then purchases wait for the lock.
const FAULT_AFTER: Duration = Duration::from_millis(800);

/// A challenge.
#[derive(Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The number, from 1.
    pub number: u64,
    /// What the reader begins with.
    pub given: LaneSetup,
    /// What happens to the first replica, or to Redis.
    pub fault: Option<FaultAction>,
    /// The fields of the lane that may be changed.
    pub may_change: &'static [&'static str],
    /// One of the answers.
    pub solution: LaneSetup,
}

/// A fault that the race itself injects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedFault {
    pub(crate) action: FaultAction,
    pub(crate) after: Duration,
}

/// One lock for the whole sale; the database guards nothing.
const fn naked(lock: Lock, replicas: u16) -> LaneSetup {
    let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas };
    LaneSetup { axes, fenced: false, bug: None }
}

const fn per_user(mut lane: LaneSetup) -> LaneSetup {
    lane.axes.scope = Scope::User;
    lane
}

const fn fenced(mut lane: LaneSetup) -> LaneSetup {
    lane.fenced = true;
    lane
}

const fn guarded(mut lane: LaneSetup) -> LaneSetup {
    lane.axes.guards = Guards::On;
    lane
}

/// All challenges, in order.
pub static CHALLENGES: [Challenge; 6] = [
    Challenge {
        number: 1,
        given: naked(Lock::Local, 3),
        fault: None,
        may_change: &["lock"],
        solution: naked(Lock::Redisson, 3),
    },
    Challenge {
        number: 2,
        given: per_user(naked(Lock::Redisson, 3)),
        fault: None,
        may_change: &["scope"],
        solution: naked(Lock::Redisson, 3),
    },
    Challenge {
        number: 3,
        given: naked(Lock::Redisson, 2),
        fault: Some(FaultAction::FlushAtCommit),
        may_change: &["lock"],
        solution: naked(Lock::Redlock, 2),
    },
    Challenge {
        number: 4,
        given: naked(Lock::Multi, 2),
        fault: Some(FaultAction::FreezeRedis),
        may_change: &["lock"],
        solution: naked(Lock::Redlock, 2),
    },
    Challenge {
        number: 5,
        given: naked(Lock::Redisson, 2),
        fault: Some(FaultAction::FreezeHolder),
        may_change: &["fenced"],
        solution: fenced(naked(Lock::Redisson, 2)),
    },
    Challenge {
        number: 6,
        given: naked(Lock::SetNx, 2),
        fault: Some(FaultAction::FreezeHolder),
        may_change: &["guards", "replicas"],
        solution: guarded(naked(Lock::SetNx, 2)),
    },
];

impl Challenge {
    /// The challenge of that number.
    pub fn of(number: u64) -> Option<&'static Self> {
        CHALLENGES.iter().find(|challenge| challenge.number == number)
    }

    /// The first field in which the lane differs and may not.
    pub(crate) fn fixed_field(&self, lane: LaneSetup) -> Option<&'static str> {
        let (given, now) = (self.given, lane);
        let changed = [
            ("lock", given.axes.lock != now.axes.lock),
            ("scope", given.axes.scope != now.axes.scope),
            ("guards", given.axes.guards != now.axes.guards),
            ("replicas", given.axes.replicas != now.axes.replicas),
            ("fenced", given.fenced != now.fenced),
        ];
        let mut changed = changed.into_iter().filter(|(_, is_changed)| *is_changed);
        changed.find(|(name, _)| !self.may_change.contains(name)).map(|(name, _)| name)
    }

    pub(crate) fn planned_fault(&self) -> Option<PlannedFault> {
        self.fault.map(|action| PlannedFault { action, after: FAULT_AFTER })
    }

    /// What the judge's report on the reader's lane says of the challenge: a code that the page has
    /// a text for. `is_seen` says whether the fault was seen to happen.
    pub(crate) fn result(report: &CellReport, is_seen: bool) -> &'static str {
        let findings = report.verdict.iter().flat_map(|verdict| &verdict.findings);
        // A lock may admit two holders if what it protects refuses one of them.
        let rules = findings.filter(|finding| finding.rule != Rule::OneHolderAtATime);
        let is_broken = rules.filter_map(|finding| finding.held).any(|held| !held);
        if !is_seen {
            "fault_not_seen"
        } else if is_broken || report.oversold > 0 || report.duplicate_users > 0 {
            "broken"
        } else if report.orders != report.stock {
            "not_sold_out"
        } else {
            SOLVED
        }
    }
}

/// The result of a challenge that is solved.
pub(crate) const SOLVED: &str = "solved";

/// All results.
#[cfg(test)]
pub(crate) const RESULTS: [&str; 4] = [SOLVED, "broken", "not_sold_out", "fault_not_seen"];

impl Serialize for Challenge {
    /// What the page needs of it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { number, fault, may_change, given, .. } = self;
        let fault = fault.map(FaultAction::name);
        json!({"number": number, "fault": fault, "may_change": may_change, "given": given})
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_solution_changes_only_what_may_be_changed_and_something() {
        for (challenge, number) in CHALLENGES.iter().zip(1..) {
            assert_eq!(challenge.number, number);
            assert_ne!(challenge.solution, challenge.given, "{number}");
            assert_eq!(challenge.fixed_field(challenge.solution), None, "{number}");
        }
        let first = &CHALLENGES[0];
        assert_eq!(first.fixed_field(guarded(first.given)), Some("guards"));
    }
}
