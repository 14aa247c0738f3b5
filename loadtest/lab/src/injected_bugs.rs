//! The injected bugs as data: what each breaks, the load and fault under which it shows, and by
//! what it is caught. [`crate::injection_run`] runs them.
//!
//! Each row is run with its bug, and without it: then nothing may be found. So a row's place, load
//! and fault are such that the sound service keeps every promise.

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use serde::{Deserialize, Serialize};

use crate::cell::{CellReport, demanded};
use crate::cell_axes::{CellAxes, InjectedBug, Load, PurchaseMode, set};
use crate::cell_plan::CellPlan;
use crate::cell_spec::CellSpec;
use crate::faults::{FaultKind, Schedule, TargetedFault};
use crate::lock::Lock;
use crate::predict::{Case, Prediction, Scenario, prediction};

/// Seeds of each bug, unless something else is asked for.
pub const DEFAULT_SEEDS: u64 = 3;
/// Most of them.
pub const MAX_SEEDS: u64 = 100;

/// Where a bug is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// In the service or in its locks.
    Service(InjectedBug),
    /// In the settings of the database: it acknowledges what it has not written yet.
    Forgetful,
}

/// An injected bug.
#[derive(Debug, Clone)]
pub struct BugCase {
    /// Where it is.
    pub bug: Bug,
    /// What it breaks.
    pub breaks: &'static str,
    /// Where and when it must show.
    pub trial: CellSpec,
    /// The load, if it is not that of such cells.
    pub load: Option<Load>,
    /// Flags of `seckill serve` besides those of such cells, or other values of them.
    pub flags: &'static [(&'static str, &'static str)],
    /// How long the fault lasts in milliseconds, if it is not as long as in such cells.
    pub lasts_ms: Option<u64>,
    /// The rules of which any one, when broken, catches the bug.
    pub signs: &'static [Rule],
}

/// What a run of a row brought to light.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RoundFindings {
    /// Signs of the bug, in words.
    pub signs: Vec<String>,
    /// Everything that speaks against the sound service.
    pub wrong: Vec<String>,
    /// Why the run shows nothing.
    pub invalid: Vec<String>,
    /// What was seen of the fault.
    pub witness: Vec<String>,
}

impl Bug {
    /// The bug's name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service(bug) => bug.name(),
            Self::Forgetful => "flush-log-later",
        }
    }
}

impl BugCase {
    /// The run of that seed, with the bug or without it.
    pub fn cell_plan(&self, seed: u64, with_bug: bool) -> CellPlan {
        let trial = self.trial;
        let mut load = self.load.clone().unwrap_or_else(|| trial.load(&Load::DEFAULT));
        load.injected_bug = match self.bug {
            Bug::Service(bug) if with_bug => Some(bug),
            Bug::Service(_) | Bug::Forgetful => None,
        };
        let mut schedule = Schedule::of(seed, self.bug.name(), trial.axes.replicas);
        schedule.lasts_ms = self.lasts_ms.unwrap_or(schedule.lasts_ms);
        let mut flags = trial.flags(&load, trial.requirements(&schedule));
        for (flag, value) in self.flags {
            set(&mut flags, flag, value);
        }
        // The two runs take the same way through the code, so that only the bug distinguishes them.
        if let (Bug::Service(bug), false) = (self.bug, with_bug) {
            set(&mut flags, "--inject-bug-control", bug.name());
        }
        CellPlan { trial, load, schedule, flags, seed, history: None }
    }

    /// What such a cell breaks without any bug.
    fn prediction(&self) -> Prediction {
        let CellSpec { axes: CellAxes { lock, scope, guards, replicas }, scenario, .. } =
            self.trial;
        let case = Case { family: lock.family(), scope, guards, replicas, scenario };
        prediction(case).unwrap_or(Prediction::HOLDS)
    }

    /// What a run brought to light. A sign counts if its run saw its fault.
    pub fn found(&self, report: &CellReport) -> RoundFindings {
        let mut found =
            RoundFindings { invalid: report.invalid_because.clone(), ..RoundFindings::default() };
        let error = report.error.iter().filter_map(|one| one.lines().next()).map(str::to_owned);
        let strikes = report.round.iter().flat_map(|round| &round.faults);
        found.witness.extend(strikes.map(|strike| {
            format!("{} ms: {}", (strike.end_ns - strike.begin_ns) / 1_000_000, strike.witness)
        }));
        if report.died { &mut found.wrong } else { &mut found.invalid }.extend(error);
        let Some(verdict) = &report.verdict else { return found };
        if self.flags.iter().any(|(flag, _)| *flag == "--fenced") && !verdict.fenced() {
            found.invalid.push("the tokens' order was not recorded".to_owned());
        }
        for finding in verdict.broken(&demanded(self.prediction(), verdict)) {
            let text = format!("{}: {}", finding.rule.words(), finding.detail);
            if self.signs.contains(&finding.rule) {
                found.signs.push(text.clone());
            }
            found.wrong.push(text);
        }
        found
    }
}

/// The sale itself is wrong.
const SALE_RULES: &[Rule] = &[Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp];

/// A buyer waited longer than the round allows.
const WAIT_RULES: &[Rule] = &[
    Rule::ServedAfterFault,
    Rule::AnsweredAfterFault,
    Rule::EachReplicaServes,
    Rule::LocksAreHandedOn,
    Rule::TicketsEnd,
];

const fn at(lock: Lock, scope: Scope, guards: Guards) -> CellAxes {
    CellAxes { lock, scope, guards, replicas: 2 }
}

const fn row(
    bug: Bug,
    breaks: &'static str,
    (axes, scenario): (CellAxes, Scenario),
    fault: Option<FaultKind>,
    signs: &'static [Rule],
) -> BugCase {
    let trial = CellSpec { axes, scenario, fault };
    BugCase { bug, breaks, trial, load: None, flags: &[], lasts_ms: None, signs }
}

impl BugCase {
    const fn load(mut self, users: usize, stock: u64, work_ms: u64, at_once: usize) -> Self {
        let (connections, requests_per_user) = (600, at_once);
        let load = Load { users, stock, connections, requests_per_user, work_ms, ..Load::DEFAULT };
        self.load = Some(load);
        self
    }

    /// In the mode `queued`, where no work is done under a lock.
    const fn queued(self, users: usize, stock: u64) -> Self {
        let mut row = self.load(users, stock, 0, 1);
        if let Some(load) = &mut row.load {
            load.mode = PurchaseMode::Queued;
        }
        row
    }

    const fn with(mut self, flags: &'static [(&'static str, &'static str)]) -> Self {
        self.flags = flags;
        self
    }

    const fn lasting(mut self, ms: u64) -> Self {
        self.lasts_ms = Some(ms);
        self
    }
}

use Bug::Service as S;
use FaultKind as F;
use Lock as L;
use Scenario::{FrozenFenced, LongWorkKept, ShortWork};

const PER_VOUCHER: Scope = Scope::Voucher;
const PER_USER: Scope = Scope::User;

/// The usual place of bugs that are not those of the lock.
const GUARDED: (CellAxes, Scenario) = (at(L::Redisson, PER_USER, Guards::On), ShortWork);
/// The usual place of those that are: nothing but the lock keeps purchases apart.
const LOCKED: (CellAxes, Scenario) = (at(L::Redisson, PER_VOUCHER, Guards::Off), ShortWork);

/// The bugs, in the order of the table.
pub const BUG_CASES: [BugCase; 22] = [
    row(
        S(InjectedBug::SetnxWithoutExpire),
        "the lock of a holder that dies stays for ever",
        (at(L::SetNx, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::Targeted(TargetedFault::KillAtWork)),
        WAIT_RULES,
    ),
    row(
        S(InjectedBug::DelWithoutOwnerCheck),
        "a holder whose lease has ended frees its successor's lock",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::LateRelease)),
        SALE_RULES,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::GetThenDel),
        "between GET and DEL the lock becomes another's, and is deleted",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::LateRelease)),
        SALE_RULES,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::NoWatchdog),
        "work that outlasts the lease is not alone",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), LongWorkKept),
        None,
        SALE_RULES,
    )
    .load(60, 12, 700, 3)
    .with(&[("--lease-ms", "500"), ("--on-lost", "ignore")]),
    row(
        S(InjectedBug::WatchdogNotRearmed),
        "a short outage of Redis costs a lock that should outlive it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::CUT_REDIS),
        &[Rule::OneOrderPerUser],
    )
    // The sound renewal has half of the lease for a new connection. The work outlasts the lease by
    // so much that the next holder comes in even if the second renewal was the last one.
    .load(1000, 1000, 3600, 2)
    .with(&[
        ("--lease-ms", "2400"),
        ("--lock-wait-ms", "6000"),
        ("--db-pool", "128"),
        ("--on-lost", "ignore"),
    ])
    .lasting(180),
    row(
        S(InjectedBug::RenewWithoutOwnerCheck),
        "a holder that has lost its lock gets the answer that it still has it",
        LOCKED,
        Some(F::Targeted(TargetedFault::ForceUnlock)),
        SALE_RULES,
    )
    .load(1000, 40, 600, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(InjectedBug::TokenFromRedis),
        "a failover sets the counter back, and a later holder has a lower token",
        (at(L::Redisson, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::FailOverRedis),
        &[Rule::TokensRise],
    )
    .with(&[("--fenced", "")]),
    row(
        S(InjectedBug::FenceAtWriteOnly),
        "a frozen holder and its successor both sell what they read before",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), FrozenFenced),
        Some(F::FreezeReplica),
        SALE_RULES,
    ),
    row(
        S(InjectedBug::CommitAfterLockWait),
        "an order is committed whose unit was not taken",
        GUARDED,
        Some(F::Targeted(TargetedFault::LateCommit)),
        &[Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::RetryWithFreshId),
        "a buyer gets the answer that another request has bought",
        GUARDED,
        Some(F::LoseCommit),
        &[Rule::RefusalsLeftNoRow],
    ),
    row(
        Bug::Forgetful,
        "a killed database forgets orders that were acknowledged",
        GUARDED,
        Some(F::RestartDatabase),
        &[Rule::AcknowledgedExist],
    ),
    row(
        S(InjectedBug::NoStockCondition),
        "units are sold that are not there",
        GUARDED,
        None,
        &[Rule::OrdersWithinStock],
    ),
    row(
        S(InjectedBug::AnswerBeforeCommit),
        "orders are acknowledged whose COMMIT never arrives",
        GUARDED,
        Some(F::Targeted(TargetedFault::CommitsNeverArrive)),
        &[Rule::AcknowledgedExist],
    ),
    row(
        S(InjectedBug::LostWakeUp),
        "a waiter that misses a message waits on for a free lock",
        GUARDED,
        Some(F::Targeted(TargetedFault::DropMessages)),
        WAIT_RULES,
    )
    .with(&[("--lock-wait-ms", "6000")])
    .lasting(2500),
    row(
        S(InjectedBug::WaitOnAnotherConnection),
        "a lock counts as confirmed that no replica has, and a failover forgets it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::FailOverAndFollow)),
        &[Rule::OneOrderPerUser],
    )
    // The work outlasts what the successor needs to have a replica of its own, and no renewal tells
    // its holder meanwhile that the lock is gone.
    .load(1000, 1000, 4500, 2)
    .with(&[
        ("--lease-ms", "20000"),
        ("--lock-wait-ms", "6000"),
        ("--db-pool", "128"),
        ("--lock-replication", "1"),
    ]),
    row(
        S(InjectedBug::RedlockWithoutElapsedTime),
        "a lock counts as held though its lease was over when it was granted",
        (at(L::Redlock, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Targeted(TargetedFault::SlowGrants)),
        SALE_RULES,
    )
    .load(2500, 200, 20, 1)
    .with(&[("--lease-ms", "200")])
    .lasting(4000),
    row(
        S(InjectedBug::ReleaseBeforeCommit),
        "the next holder does not see the last one's order",
        LOCKED,
        None,
        SALE_RULES,
    ),
    row(
        S(InjectedBug::OwnerCheckAlwaysTrue),
        "a holder whose lease has ended frees its successor's lock",
        LOCKED,
        Some(F::Targeted(TargetedFault::FreezeAtWork)),
        SALE_RULES,
    )
    .load(2500, 120, 40, 1),
    row(
        S(InjectedBug::LyingAudit),
        "the service's own account hides what it has done",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        None,
        &[Rule::AuditAgrees],
    ),
    row(
        S(InjectedBug::AbortWithClient),
        "a purchase ends with its client, and the next one commits what it had written",
        GUARDED,
        Some(F::HangUp),
        &[Rule::StockAddsUp],
    ),
    row(
        S(InjectedBug::SoldOutForEver),
        "units that are added to a voucher that was sold out are never sold",
        GUARDED,
        Some(F::Targeted(TargetedFault::AddStock)),
        &[Rule::SoldOutIsTrue],
    )
    .load(2500, 60, 0, 3),
    // A rebuilt queue does not know who has bought, and admits a buyer again.
    row(
        S(InjectedBug::LostCompensation),
        "a buyer that was admitted and cannot buy has a ticket that never ends",
        (at(L::None, PER_USER, Guards::On), ShortWork),
        Some(F::FlushRedis),
        WAIT_RULES,
    )
    .queued(1000, 400),
];

#[cfg(test)]
#[path = "injected_bugs_tests.rs"]
mod tests;
