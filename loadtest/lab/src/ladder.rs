//! The ladder: the lessons of the classic tutorial on distributed locks, in its order.
//!
//! A rung is two cells under one fault: a lock that breaks, and its repair, which withstands. Each
//! is a cell of the laboratory, so the judge, the witness and the report are those of a matrix. A
//! rung whose lock did not break, or whose repair did, fails.

mod one_key;
mod renewal;
mod rungs;
mod runner;
mod servers;
mod verdict;
mod watched;

use loadtest_judge::setting::Scope;
use loadtest_judge::verdict::Rule;

pub use self::rungs::RUNGS;
pub use self::runner::LadderRunner;
pub use self::watched::WatchedSide;
use crate::cell_axes::{CellAxes, InjectedBug, Load, set};
use crate::cell_plan::CellPlan;
use crate::cell_spec::CellSpec;
use crate::faults::Schedule;
use crate::predict::{Case, Prediction, prediction};

/// The flag of a sale that checks fencing tokens.
const FENCED: &str = "--fenced";

/// How the name of a rung's repaired side ends.
pub const REPAIRED: &str = "-repaired";

/// A lesson.
#[derive(Debug, Clone)]
pub struct Rung {
    /// The name on the command line and in links.
    pub slug: &'static str,
    /// What the lesson is about.
    pub lesson: &'static str,
    /// What happens to both cells, in words.
    pub fault: &'static str,
    /// What the first cell breaks, in words.
    pub breaks: &'static str,
    /// Why it breaks.
    pub because: &'static str,
    /// What repairs it, and why.
    pub repair: &'static str,
    /// The cell that breaks.
    pub broken: RungCell,
    /// How that is seen.
    pub breach: Breach,
    /// The cell that withstands.
    pub repaired: RungCell,
}

/// One side of a rung.
#[derive(Debug, Clone)]
pub struct RungCell {
    /// The cell.
    pub trial: CellSpec,
    /// A bug that every replica has.
    pub bug: Option<InjectedBug>,
    /// The load, if it is not that of such cells.
    pub load: Option<Load>,
    /// Flags of `seckill serve` besides those of such cells, or other values of them.
    pub flags: &'static [(&'static str, &'static str)],
    /// How long the fault lasts in milliseconds, if it is not as long as in such cells.
    pub lasts_ms: Option<u64>,
}

/// How it is seen that a rung's lock broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// One of these rules is broken.
    Rules(&'static [Rule]),
    /// No purchase is made while the fault lasts, or none at all where there is no moment of it.
    NoPurchase,
    /// The replica that the fault hits makes less than a quarter of the purchases that each other
    /// replica makes.
    Starvation,
    /// More than this share of the requests is refused with this status and code.
    Refusals {
        /// Status and code.
        code: &'static str,
        /// The share in percent.
        percent: u64,
    },
}

/// The sides of a rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RungSide {
    /// The lock that breaks.
    Broken,
    /// The one that withstands.
    Repaired,
}

impl Rung {
    /// The rung of that name.
    pub fn named(slug: &str) -> Option<&'static Self> {
        RUNGS.iter().find(|rung| rung.slug == slug)
    }

    /// The number in the ladder, from 1.
    pub fn number(&self) -> usize {
        RUNGS.iter().position(|rung| rung.slug == self.slug).map_or(0, |index| index + 1)
    }

    /// The rung after this one.
    pub fn next(&self) -> Option<&'static Self> {
        RUNGS.get(self.number())
    }

    /// The command that shows it.
    pub fn command(&self) -> String {
        format!("loadtest learn {}", self.slug)
    }

    /// The cell of that side.
    pub fn side(&self, side: RungSide) -> &RungCell {
        match side {
            RungSide::Broken => &self.broken,
            RungSide::Repaired => &self.repaired,
        }
    }

    /// The name of that side in reports.
    pub fn id(&self, side: RungSide) -> String {
        match side {
            RungSide::Broken => self.slug.to_owned(),
            RungSide::Repaired => format!("{}{REPAIRED}", self.slug),
        }
    }

    /// The run of that side. Both sides have one schedule, so the same happens to both.
    pub fn cell_plan(&self, side: RungSide, seed: u64) -> CellPlan {
        let RungCell { trial, bug, load, flags: more, lasts_ms } = self.side(side);
        let mut load = load.clone().unwrap_or_else(|| trial.load(&Load::DEFAULT));
        load.injected_bug = *bug;
        let mut schedule = Schedule::of(seed, self.slug, trial.axes.replicas);
        schedule.lasts_ms = lasts_ms.unwrap_or(schedule.lasts_ms);
        let mut flags = trial.flags(&load, trial.requirements(&schedule));
        for (flag, value) in *more {
            set(&mut flags, flag, value);
        }
        CellPlan { trial: *trial, load, schedule, flags, seed, history: None, together: false }
    }
}

impl RungCell {
    /// The lock in words, with its bug if it has one.
    pub fn lock(&self) -> String {
        let name = self.trial.axes.lock.name();
        match self.bug {
            Some(bug) => format!("{name} ({})", bug.name()),
            None if self.is_fenced() => format!("{name}, fenced"),
            None => name.to_owned(),
        }
    }

    /// Whether its holders show fencing tokens.
    pub fn is_fenced(&self) -> bool {
        self.trial.is_fenced() || self.flags.iter().any(|(flag, _)| *flag == FENCED)
    }

    /// What such a cell breaks by the laboratory's table, whatever the fault.
    fn prediction(&self) -> Prediction {
        let CellSpec { axes: CellAxes { lock, scope, guards, replicas }, scenario, .. } =
            self.trial;
        let case = Case { family: lock.family(), scope, guards, replicas, scenario };
        prediction(case).unwrap_or(Prediction::HOLDS)
    }

    /// What its lock is held for, in words.
    pub fn scope(&self) -> &'static str {
        match self.trial.axes.scope {
            Scope::User => "user",
            Scope::Voucher => "voucher",
        }
    }
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
