//! The matrix: any product of locks, scopes, guards, replicas, scenarios and faults, or a
//! preset of cells, each held against what it is predicted to show.
//!
//! A cell that was predicted to break and did not is run again, up to [`MAX_TRIES`] times. Then it
//! counts as *not shown*, which fails the run. A cell that was predicted to hold and broke is not
//! run again. Cells whose purchases mostly wait run several at once; all others have the machine
//! for themselves.
//!
//! A combination without a prediction is not generated, and the reason is counted. Bugs
//! injected after the cells ([`crate::injection_run`]) show that the same judge would have found a
//! breach.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use loadtest_judge::validity::is_of_stalls;
use loadtest_judge::verdict::Rule;
use loadtest_load::moment::rfc3339;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::Machine;
use tokio_util::sync::CancellationToken;

use crate::cell::CellReport;
use crate::cell_axes::Load;
use crate::cell_plan::{CellPlan, CellRequest};
use crate::cell_spec::CellSpec;
use crate::compare::MAX_REPLICAS;
use crate::faults::FaultKind;
use crate::histories::Histories;
use crate::injection_run::InjectionRun;
use crate::lock::ExtraServers;
use crate::matrix_axes::NotGenerated;
use crate::presets::Preset;
use crate::results::{CellSelection, RunEvent, RunObserver, RunResults};
use crate::resume_state::{ResumeKey, ResumeState};
use crate::runner::{ClusterSpec, Runner};

/// Most cells of one run.
pub const MAX_CELLS: usize = 10_000;
/// How often a cell is run that does not show what it should show.
pub const MAX_TRIES: u32 = 3;
/// Most replicas of cells at the same time: each keeps connections to the shared database.
const MAX_REPLICAS_TOGETHER: u16 = 15;

/// A run of the matrix.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// What clusters are made of.
    pub parts: ClusterSpec,
    /// The cells.
    pub trials: Vec<CellSpec>,
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
    /// Bugs that are injected after the cells.
    pub injection: InjectionRun,
    /// Where what is finished is remembered.
    pub resume: Option<PathBuf>,
    /// Where the histories of its cells are.
    pub histories: Option<Histories>,
}

/// Checks the bounds of a matrix before anything is started.
pub fn check(trials: &[CellSpec], not_generated: &[NotGenerated]) -> Result<()> {
    let cells = trials.len();
    if cells > MAX_CELLS {
        return Err(Error::Usage(format!("{cells} cells are more than {MAX_CELLS}")));
    }
    if cells == 0 {
        let why: Vec<_> = not_generated.iter().map(|one| one.because.as_str()).collect();
        return Err(Error::Usage(format!("there is no cell to run: {}", why.join("; "))));
    }
    let wrong = |trial: &CellSpec| !(1..=MAX_REPLICAS).contains(&trial.axes.replicas);
    if trials.iter().any(wrong) {
        return Err(Error::Usage(format!("replicas must be 1 to {MAX_REPLICAS}")));
    }
    Ok(())
}

impl Matrix {
    /// Runs every cell and every injected bug that is not finished; one that fails is reported and
    /// the others continue.
    pub async fn run(
        &self,
        observer: RunObserver<'_>,
        stop: &CancellationToken,
    ) -> Result<RunResults> {
        let (began, started_at) = (Instant::now(), rfc3339(time::OffsetDateTime::now_utc()));
        let mut state = ResumeState::open(self.resume.as_deref())?;
        let trials: Vec<CellSpec> =
            self.trials.iter().copied().chain(self.injection.trials()).collect();
        let mut runner = Runner::start(self.parts.clone(), &trials, stop).await?;
        let mut cells = Vec::with_capacity(self.trials.len());
        let mut resumed = 0;
        let mut first_tries = VecDeque::new();
        for (index, &trial) in self.trials.iter().enumerate() {
            let key = self.key(trial, &runner);
            if let Some(finished) = state.cell(&key) {
                resumed += 1;
                cells.push(finished);
                continue;
            }
            if first_tries.is_empty() {
                let is_left = |trial: &CellSpec| state.cell(&self.key(*trial, &runner)).is_none();
                let last = if self.load.fleet.has_jvms() { index + 1 } else { self.trials.len() };
                let together = run_together(&self.trials[index..last], is_left);
                first_tries.extend(self.run_once(together, 1, &mut runner, stop).await);
            }
            let first = first_tries.pop_front();
            let cell = self.run_until_shown((trial, first), &mut runner, stop).await;
            if !stop.is_cancelled() {
                let (number, total) = (cells.len() + 1, self.trials.len());
                observer(RunEvent::CellFinished { cell: &cell, number, total });
                if is_conclusive(&cell) {
                    state.remember_cell(&key, &cell)?;
                }
            }
            cells.push(cell);
        }
        let injected_bugs = match &self.injection.rows[..] {
            [] => None,
            _ => Some(self.injection.run(&mut runner, &mut state, observer, stop).await?),
        };
        Ok(RunResults {
            cells,
            not_applicable: Vec::new(),
            selection: Some(CellSelection {
                not_generated: self.not_generated.clone(),
                resumed,
                seed: self.seed,
                preset: self.preset,
                sample: self.sample,
                command: None,
            }),
            injected_bugs,
            load: self.load.clone(),
            chosen: self.parts.chosen.clone(),
            settings: runner.settings(),
            versions: runner.versions(),
            machine: Machine::read(),
            started_at,
            took_s: began.elapsed().as_secs_f64(),
        })
    }

    /// Runs a cell until it shows what it should show, at most [`MAX_TRIES`] times.
    async fn run_until_shown(
        &self,
        (trial, first): (CellSpec, Option<CellReport>),
        runner: &mut Runner,
        stop: &CancellationToken,
    ) -> CellReport {
        let (mut tries, mut first) = (1, first);
        loop {
            let report = match first.take() {
                Some(report) => report,
                None => self.run_once(&[trial], tries, runner, stop).await.remove(0),
            };
            if is_last(&report, tries, stop) {
                return CellReport { seed: self.seed_of(tries), tries, ..report };
            }
            tries += 1;
        }
    }

    /// Runs these cells at the same time, once; `tries` is which try of each it is.
    async fn run_once(
        &self,
        trials: &[CellSpec],
        tries: u32,
        runner: &mut Runner,
        stop: &CancellationToken,
    ) -> Vec<CellReport> {
        let (default_load, seed) = (&self.load, self.seed_of(tries));
        let wanted: Vec<_> =
            trials.iter().map(|&trial| CellRequest { trial, default_load, seed }).collect();
        let is_red = |report: &CellReport| is_last(report, tries, stop) && !report.ok();
        runner.run(&wanted, self.histories.as_ref(), is_red, stop).await
    }

    /// The seed rises with each try, or the same schedule would miss again.
    fn seed_of(&self, tries: u32) -> u64 {
        self.seed.wrapping_add(u64::from(tries) - 1)
    }

    fn key(&self, trial: CellSpec, runner: &Runner) -> ResumeKey {
        let cell_plan =
            CellPlan::of(&CellRequest { trial, default_load: &self.load, seed: self.seed });
        ResumeKey::of(&cell_plan.identity(), runner)
    }
}

/// The first of these, with those that follow it and can be run at the same time, of those that are
/// left.
fn run_together(trials: &[CellSpec], is_left: impl Fn(&CellSpec) -> bool) -> &[CellSpec] {
    let mut replicas = 0;
    let fits = |trial: &&CellSpec| {
        replicas += trial.axes.replicas;
        replicas <= MAX_REPLICAS_TOGETHER && mostly_waits(trial) && is_left(trial)
    };
    let count = trials.iter().take_while(fits).count();
    &trials[..count.max(1)]
}

/// Whether its purchases mostly wait, on the servers that cells share, and no fault hits these.
/// What such cells show are breaches, no rates.
fn mostly_waits(trial: &CellSpec) -> bool {
    trial.scenario.outlasts_the_lease()
        && matches!(trial.fault, None | Some(FaultKind::FreezeReplica))
        && trial.topology.is_single()
        && trial.axes.lock.needs() == ExtraServers::Nothing
}

/// Whether no other try follows.
fn is_last(report: &CellReport, tries: u32, stop: &CancellationToken) -> bool {
    tries == MAX_TRIES || !is_worth_retrying(report) || stop.is_cancelled()
}

/// Whether another try may show what this one did not. It kept more promises than predicted, its
/// fault missed its moment, or its load ended before the fault. Never if it has found a violation.
fn is_worth_retrying(report: &CellReport) -> bool {
    let missed = report.spoiled || report.scenario.is_frozen() && !report.valid;
    let not_shown = report.valid && report.observed != report.predicted;
    !report.found_violation() && (missed || not_shown)
}

impl CellReport {
    /// Whether the cell, valid or not, has found a promise that was not kept and should have been.
    /// Rules after a fault use lengths: one that is broken while the generator stood still for too
    /// long accuses nothing.
    pub fn found_violation(&self) -> bool {
        let stood_still = self.invalid_because.iter().any(|why| is_of_stalls(why));
        let counts = |rule: &Rule| !(stood_still && rule.is_of_faults());
        let breaks_more = self.observed.breaks_more_than(self.predicted);
        let is_broken = breaks_more || self.broken_rules.iter().any(counts);
        self.died || is_broken && self.committed_late == 0
    }
}

/// Whether a cell is finished: another run of it could only say the same, or would hide what this
/// one has found.
fn is_conclusive(report: &CellReport) -> bool {
    report.died || report.error.is_none() && (report.valid || report.found_violation())
}

#[cfg(test)]
#[path = "matrix_tests.rs"]
mod tests;
