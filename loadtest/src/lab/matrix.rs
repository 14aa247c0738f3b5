//! The matrix: any product of locks, scopes, guards, replicas, circumstances and faults, or a
//! preset of cells, each held against what it is predicted to show.
//!
//! A cell that was to break and did not is run again, a bounded number of times, and is then *not
//! shown*, which fails the run; one that was to hold and broke is not run again. A combination
//! without a prediction is not generated, and the reason is counted. Bugs that are planted after
//! the cells ([`crate::lab::planting`]) show that the same judge would have found something.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::error::{Error, Result};
use crate::lab::cell::CellReport;
use crate::lab::compare::{MAX_REPLICAS, on_path};
use crate::lab::faults::FaultKind;
use crate::lab::histories::Histories;
use crate::lab::lock::Lock;
use crate::lab::machine::Machine;
use crate::lab::place::{Load, Path, Place};
use crate::lab::planting::Planting;
use crate::lab::predict::{Circumstance, Guards, Scope};
use crate::lab::presets::Preset;
use crate::lab::runner::{Parts, Runner};
use crate::lab::staged::{Staged, Wanted};
use crate::lab::state::{Key, State};
use crate::lab::trial::Trial;
use crate::report::Report;
use crate::report::conclusion::{self, Conclusion};
use crate::report::matrix::{Selection, line, summary};
use crate::say::tell;

/// Most cells of one run.
pub const MAX_CELLS: usize = 10_000;
/// How often a cell is run that does not show what it is to show.
pub const TRIES: u32 = 3;

/// What the cells are the product of.
#[derive(Debug, Clone)]
pub struct Axes {
    /// Locks.
    pub locks: Vec<Lock>,
    /// What they are held for.
    pub scopes: Vec<Scope>,
    /// With and without the database's guards.
    pub guards: Vec<Guards>,
    /// Numbers of replicas.
    pub replicas: Vec<u16>,
    /// What happens around the locked section.
    pub circumstances: Vec<Circumstance>,
    /// Faults; `None` is no fault.
    pub faults: Vec<Option<FaultKind>>,
    /// When replicas answer.
    pub path: Path,
}

/// Combinations that are not generated, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotGenerated {
    /// The reason.
    pub because: &'static str,
    /// How many.
    pub combinations: usize,
}

/// A run of the matrix.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// What clusters are made of.
    pub parts: Parts,
    /// The cells.
    pub trials: Vec<Trial>,
    /// Combinations that are none.
    pub not_generated: Vec<NotGenerated>,
    /// The flag that names the cells, if one does.
    pub preset: Option<Preset>,
    /// How many of the preset's cells were drawn, if not all.
    pub sample: Option<usize>,
    /// The load of cells that have none of their own.
    pub load: Load,
    /// What settles all schedules.
    pub seed: u64,
    /// Bugs that are planted after the cells.
    pub planting: Planting,
    /// Where what is finished is remembered.
    pub resume: Option<PathBuf>,
    /// Where the histories of its cells are.
    pub histories: Option<Histories>,
}

impl Axes {
    /// All cells, each once, and what is none.
    pub fn trials(&self) -> (Vec<Trial>, Vec<NotGenerated>) {
        let (mut trials, mut skipped) = (Vec::new(), BTreeMap::<&'static str, usize>::new());
        for place in self.places() {
            for &fault in &self.faults {
                for &circumstance in &self.circumstances {
                    let trial = Trial { place, circumstance, fault };
                    match trial.goes_on(self.path).and_then(|()| trial.expectation()) {
                        Ok(_) if !trials.contains(&trial) => trials.push(trial),
                        Ok(_) => {}
                        Err(because) => *skipped.entry(because).or_default() += 1,
                    }
                }
            }
        }
        let not_generated = skipped
            .into_iter()
            .map(|(because, combinations)| NotGenerated { because, combinations })
            .collect();
        (trials, not_generated)
    }

    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for &guards in &self.guards {
            for &scope in &self.scopes {
                for &replicas in &self.replicas {
                    for &lock in &self.locks {
                        places.push(Place { lock, scope, guards, replicas });
                    }
                }
            }
        }
        places
    }
}

/// Checks the bounds of a matrix before anything is started.
pub fn check(trials: &[Trial], not_generated: &[NotGenerated]) -> Result<()> {
    let cells = trials.len();
    if cells > MAX_CELLS {
        return Err(Error::Usage(format!("{cells} cells are more than {MAX_CELLS}")));
    }
    if cells == 0 {
        let why: Vec<_> = not_generated.iter().map(|one| one.because).collect();
        return Err(Error::Usage(format!("there is no cell to run: {}", why.join("; "))));
    }
    let wrong = |trial: &Trial| !(1..=MAX_REPLICAS).contains(&trial.place.replicas);
    if trials.iter().any(wrong) {
        return Err(Error::Usage(format!("replicas must be 1 to {MAX_REPLICAS}")));
    }
    Ok(())
}

impl Matrix {
    /// Runs every cell and every planted bug that is not finished; one that fails is reported and
    /// the others go on.
    pub async fn run(&self, stop: &CancellationToken) -> Result<Report> {
        let (began, started_at) = (Instant::now(), api::rfc3339(time::OffsetDateTime::now_utc()));
        let mut state = State::open(self.resume.as_deref())?;
        let trials: Vec<Trial> =
            self.trials.iter().copied().chain(self.planting.trials()).collect();
        let mut runner = Runner::start(self.parts.clone(), &trials, stop).await?;
        let mut cells = Vec::with_capacity(self.trials.len());
        let mut resumed = 0;
        for &trial in &self.trials {
            let key = self.key(trial, &runner);
            if let Some(finished) = state.cell(&key) {
                resumed += 1;
                cells.push(finished);
                continue;
            }
            let cell = self.until_shown(trial, &mut runner, stop).await;
            if !stop.is_cancelled() {
                tell(format_args!("{:>3}/{} {}", cells.len() + 1, self.trials.len(), line(&cell)));
                if says_something(&cell) {
                    state.remember_cell(&key, &cell)?;
                }
            }
            cells.push(cell);
        }
        let planted = match &self.planting.rows[..] {
            [] => None,
            _ => Some(self.planting.run(&mut runner, &mut state, stop).await?),
        };
        Ok(Report {
            ok: cells.iter().all(CellReport::ok) && planted.as_ref().is_none_or(|all| all.ok),
            conclusion: Conclusion {
                setting: on_path(self.load.path),
                ..conclusion::of_matrix(&cells)
            },
            not_applicable: Vec::new(),
            selection: Some(Selection {
                summary: summary(&cells),
                not_generated: self.not_generated.clone(),
                resumed,
                seed: self.seed,
                preset: self.preset,
                sample: self.sample,
            }),
            cells,
            changes: None,
            planted,
            load: self.load.clone(),
            chosen: self.parts.chosen.clone(),
            settings: runner.settings(),
            versions: runner.versions(),
            machine: Machine::read(),
            started_at,
            took_s: began.elapsed().as_secs_f64(),
        })
    }

    /// Runs a cell until it shows what it is to show, at most [`TRIES`] times. The seed rises with
    /// each try, or the same schedule would miss again.
    async fn until_shown(
        &self,
        trial: Trial,
        runner: &mut Runner,
        stop: &CancellationToken,
    ) -> CellReport {
        let mut tries = 1;
        loop {
            let seed = self.seed.wrapping_add(u64::from(tries) - 1);
            let wanted = Wanted { trial, usual: &self.load, seed };
            let is_last = |report: &CellReport| {
                tries == TRIES || !may_be_shown(report) || stop.is_cancelled()
            };
            let is_red = |report: &CellReport| is_last(report) && !report.ok();
            let report = runner.run(&wanted, self.histories.as_ref(), is_red, stop).await;
            if is_last(&report) {
                return CellReport { seed, tries, ..report };
            }
            tries += 1;
        }
    }

    fn key(&self, trial: Trial, runner: &Runner) -> Key {
        let staged = Staged::of(&Wanted { trial, usual: &self.load, seed: self.seed });
        Key::of(&staged.what(), runner)
    }
}

/// Whether another try may show what this one did not: it kept more promises than predicted, its
/// fault missed the moment it was made for, or its load did not come so far. Never if it has found
/// something.
fn may_be_shown(report: &CellReport) -> bool {
    let missed = report.spoiled || report.circumstance.is_frozen() && !report.valid;
    let not_shown = report.valid && report.observed != report.predicted;
    !has_found(report) && (missed || not_shown)
}

/// Whether a cell, valid or not, has found a promise that was not kept and should have been.
fn has_found(report: &CellReport) -> bool {
    let breaks_more = report.observed.oversells && !report.predicted.oversells
        || report.observed.duplicates && !report.predicted.duplicates;
    breaks_more || !report.broken_rules.is_empty() || report.died
}

/// Whether a cell is finished: another run of it could only say the same, or would hide what this
/// one has found.
fn says_something(report: &CellReport) -> bool {
    report.died || report.error.is_none() && (report.valid || has_found(report))
}

#[cfg(test)]
#[path = "matrix_tests.rs"]
mod tests;
