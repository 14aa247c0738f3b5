//! The injected bugs as data: what each breaks, the load and fault under which it shows, and by
//! what it is caught. [`crate::injection_run`] runs them.
//!
//! Each row is run with its bug, and without it: then nothing may be found. So a row's place, load
//! and fault are such that the sound service keeps every promise.

use loadtest_judge::verdict::Rule;
use serde::{Deserialize, Serialize};

pub use crate::bug_cases::BUG_CASES;
use crate::cell::{CellReport, demanded};
use crate::cell_axes::{CellAxes, InjectedBug, Load, set};
use crate::cell_plan::CellPlan;
use crate::cell_spec::CellSpec;
use crate::faults::Schedule;
use crate::predict::{Case, Prediction, prediction};

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
        CellPlan { trial, load, schedule, flags, seed, history: None, together: false }
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
            if report.committed_late == 0 {
                found.wrong.push(text);
            }
        }
        found
    }
}

#[cfg(test)]
#[path = "injected_bugs_tests.rs"]
mod tests;
