//! The planted bugs, as data: what each breaks, under what load and fault it must show, and by what
//! it is caught. [`crate::lab::planting`] runs them.
//!
//! Each row is run with its bug, and without it: then nothing may be found. So a row's place, load
//! and fault are such that the sound service keeps every promise.

use serde::{Deserialize, Serialize};

use crate::judge::verdict::Rule;
use crate::lab::cell::{CellReport, demanded};
use crate::lab::faults::{Aim, FaultKind, Schedule};
use crate::lab::lock::Lock;
use crate::lab::place::{Load, Path, Place, Plant, set};
use crate::lab::predict::{Case, Circumstance, Guards, Prediction, Scope, prediction};
use crate::lab::staged::Staged;
use crate::lab::trial::Trial;

/// Where a bug is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// In the service or in its locks.
    Service(Plant),
    /// In the settings of the database: it acknowledges what it has not written yet.
    Forgetful,
}

/// A planted bug.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where it is.
    pub bug: Bug,
    /// What it breaks.
    pub breaks: &'static str,
    /// Where and when it must show.
    pub trial: Trial,
    /// The load, if it is not that of such cells.
    pub load: Option<Load>,
    /// Flags of `seckill serve` besides those of such cells, or other values of them.
    pub flags: &'static [(&'static str, &'static str)],
    /// How long the fault lasts in milliseconds, if it is not as long as in such cells.
    pub lasts_ms: Option<u64>,
    /// By what it is caught: any of these rules is broken.
    pub signs: &'static [Rule],
}

/// What a run of a row brought to light.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
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
    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Service(plant) => plant.name(),
            Self::Forgetful => "flush-log-later",
        }
    }
}

impl Row {
    /// The run of that seed, with the bug or without it.
    pub fn staged(&self, seed: u64, planted: bool) -> Staged {
        let trial = self.trial;
        let mut load = self.load.clone().unwrap_or_else(|| trial.load(&Load::USUAL));
        load.plant = match self.bug {
            Bug::Service(plant) if planted => Some(plant),
            Bug::Service(_) | Bug::Forgetful => None,
        };
        let mut schedule = Schedule::of(seed, self.bug.name(), trial.place.replicas);
        schedule.lasts_ms = self.lasts_ms.unwrap_or(schedule.lasts_ms);
        let mut flags = trial.flags(&load, trial.equipment(&schedule));
        for (flag, value) in self.flags {
            set(&mut flags, flag, value);
        }
        // The two runs take the same way through the code, so that the bug alone tells them apart.
        if let (Bug::Service(plant), false) = (self.bug, planted) {
            set(&mut flags, "--plant-control", plant.name());
        }
        Staged { trial, load, schedule, flags, seed, history: None }
    }

    /// What such a cell breaks without any bug.
    fn prediction(&self) -> Prediction {
        let Trial { place: Place { lock, scope, guards, replicas }, circumstance, .. } = self.trial;
        let case = Case { family: lock.family(), scope, guards, replicas, circumstance };
        prediction(case).unwrap_or(Prediction::HOLDS)
    }

    /// What a run brought to light. A sign counts if its run saw its fault.
    pub fn found(&self, report: &CellReport) -> Found {
        let mut found = Found { invalid: report.invalid_because.clone(), ..Found::default() };
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
const SOLD_WRONG: &[Rule] = &[Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp];

/// A buyer waited longer than the round allows.
const WAITED: &[Rule] = &[
    Rule::ServedAfterFault,
    Rule::AnsweredAfterFault,
    Rule::EachReplicaServes,
    Rule::LocksAreHandedOn,
    Rule::TicketsEnd,
];

const fn at(lock: Lock, scope: Scope, guards: Guards) -> Place {
    Place { lock, scope, guards, replicas: 2 }
}

const fn row(
    bug: Bug,
    breaks: &'static str,
    (place, circumstance): (Place, Circumstance),
    fault: Option<FaultKind>,
    signs: &'static [Rule],
) -> Row {
    let trial = Trial { place, circumstance, fault };
    Row { bug, breaks, trial, load: None, flags: &[], lasts_ms: None, signs }
}

impl Row {
    const fn load(mut self, users: usize, stock: u64, work_ms: u64, at_once: usize) -> Self {
        let (connections, requests_per_user) = (600, at_once);
        let load = Load { users, stock, connections, requests_per_user, work_ms, ..Load::USUAL };
        self.load = Some(load);
        self
    }

    /// On the path `queued`, where no work is done under a lock.
    const fn queued(self, users: usize, stock: u64) -> Self {
        let mut row = self.load(users, stock, 0, 1);
        if let Some(load) = &mut row.load {
            load.path = Path::Queued;
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
use Circumstance::{FrozenFenced, LongWorkKept, ShortWork};
use FaultKind as F;
use Lock as L;

const PER_VOUCHER: Scope = Scope::Voucher;
const PER_USER: Scope = Scope::User;

/// The usual place of bugs that are not those of the lock.
const GUARDED: (Place, Circumstance) = (at(L::Redisson, PER_USER, Guards::On), ShortWork);
/// The usual place of those that are: nothing but the lock keeps purchases apart.
const LOCKED: (Place, Circumstance) = (at(L::Redisson, PER_VOUCHER, Guards::Off), ShortWork);

/// The bugs, in the order of the table.
pub const ROWS: [Row; 22] = [
    row(
        S(Plant::SetnxWithoutExpire),
        "the lock of a holder that dies stays for ever",
        (at(L::SetNx, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::Aimed(Aim::KillAtWork)),
        WAITED,
    ),
    row(
        S(Plant::DelWithoutOwnerCheck),
        "a holder whose lease has ended frees its successor's lock",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Aimed(Aim::LateRelease)),
        SOLD_WRONG,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(Plant::GetThenDel),
        "between GET and DEL the lock becomes another's, and is deleted",
        (at(L::LuaRelease, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Aimed(Aim::LateRelease)),
        SOLD_WRONG,
    )
    .load(2500, 100, 70, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(Plant::NoWatchdog),
        "work that outlasts the lease is not alone",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), LongWorkKept),
        None,
        SOLD_WRONG,
    )
    .load(60, 12, 700, 3)
    .with(&[("--lease-ms", "500"), ("--on-lost", "ignore")]),
    row(
        S(Plant::WatchdogNotRearmed),
        "a short outage of Redis costs a lock that should outlive it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::CUT_REDIS),
        &[Rule::OneOrderPerUser],
    )
    // The sound one has half of the lease to get through on a new connection; work outlasts the
    // lease by so much that the next holder comes in also if the second renewal was the last one.
    .load(1000, 1000, 3600, 2)
    .with(&[
        ("--lease-ms", "2400"),
        ("--lock-wait-ms", "6000"),
        ("--db-pool", "128"),
        ("--on-lost", "ignore"),
    ])
    .lasting(180),
    row(
        S(Plant::RenewWithoutOwnerCheck),
        "a holder that has lost its lock is told that it still has it",
        LOCKED,
        Some(F::Aimed(Aim::ForceUnlock)),
        SOLD_WRONG,
    )
    .load(1000, 40, 600, 1)
    .with(&[("--lease-ms", "600")]),
    row(
        S(Plant::TokenFromRedis),
        "a failover sets the counter back, and a later holder has a lower token",
        (at(L::Redisson, PER_VOUCHER, Guards::On), ShortWork),
        Some(F::FailOverRedis),
        &[Rule::TokensRise],
    )
    .with(&[("--fenced", "")]),
    row(
        S(Plant::FenceAtWriteOnly),
        "a frozen holder and its successor both sell what they read before",
        (at(L::Redisson, PER_VOUCHER, Guards::Off), FrozenFenced),
        Some(F::FreezeReplica),
        SOLD_WRONG,
    ),
    row(
        S(Plant::CommitAfterLockWait),
        "an order is committed whose unit was not taken",
        GUARDED,
        Some(F::Aimed(Aim::LateCommit)),
        &[Rule::StockAddsUp],
    ),
    row(
        S(Plant::RetryWithFreshId),
        "who has bought is told that somebody else's request has",
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
        S(Plant::NoStockCondition),
        "units are sold that are not there",
        GUARDED,
        None,
        &[Rule::OrdersWithinStock],
    ),
    row(
        S(Plant::AnswerBeforeCommit),
        "orders are acknowledged whose COMMIT never arrives",
        GUARDED,
        Some(F::Aimed(Aim::CommitsNeverArrive)),
        &[Rule::AcknowledgedExist],
    ),
    row(
        S(Plant::LostWakeUp),
        "who misses a message waits on for a lock that is free",
        GUARDED,
        Some(F::Aimed(Aim::DropMessages)),
        WAITED,
    )
    .with(&[("--lock-wait-ms", "6000")])
    .lasting(2500),
    row(
        S(Plant::WaitOnAnotherConnection),
        "a lock counts as confirmed that no replica has, and a failover forgets it",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        Some(F::Aimed(Aim::FailOverAndFollow)),
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
        S(Plant::RedWithoutElapsedTime),
        "a lock is believed in whose lease was over when it was granted",
        (at(L::Red, PER_VOUCHER, Guards::Off), ShortWork),
        Some(F::Aimed(Aim::SlowGrants)),
        SOLD_WRONG,
    )
    .load(2500, 200, 20, 1)
    .with(&[("--lease-ms", "200")])
    .lasting(4000),
    row(
        S(Plant::ReleaseBeforeCommit),
        "the next holder does not see the last one's order",
        LOCKED,
        None,
        SOLD_WRONG,
    ),
    row(
        S(Plant::OwnerCheckAlwaysTrue),
        "a holder whose lease has ended frees its successor's lock",
        LOCKED,
        Some(F::Aimed(Aim::FreezeAtWork)),
        SOLD_WRONG,
    )
    .load(2500, 120, 40, 1),
    row(
        S(Plant::LyingAudit),
        "the service's own account hides what it has done",
        (at(L::Redisson, PER_USER, Guards::Off), ShortWork),
        None,
        &[Rule::AuditAgrees],
    ),
    row(
        S(Plant::AbortWithClient),
        "a purchase ends with its client, and the next one commits what it had written",
        GUARDED,
        Some(F::HangUp),
        &[Rule::StockAddsUp],
    ),
    row(
        S(Plant::SoldOutForEver),
        "units that are added to a voucher that was sold out are never sold",
        GUARDED,
        Some(F::Aimed(Aim::AddStock)),
        &[Rule::SoldOutIsTrue],
    )
    .load(2500, 60, 0, 3),
    // A queue that is rebuilt does not know who has bought, and admits whoever asks again.
    row(
        S(Plant::LostCompensation),
        "who was admitted and cannot buy holds a ticket that never ends",
        (at(L::None, PER_USER, Guards::On), ShortWork),
        Some(F::FlushRedis),
        WAITED,
    )
    .queued(1000, 400),
];

#[cfg(test)]
#[path = "plants_tests.rs"]
mod tests;
