//! Runs injected bugs until each is caught, and the same without them.
//!
//! For each bug and seed, rounds with the bug run until one of its signs is seen, at most
//! [`MAX_ROUNDS`], each on its own deployment. Then one round runs without the bug, in which
//! nothing may be found. A round that shows nothing (too little load, a fault without a witness) is
//! repeated.

use std::time::Instant;

use loadtest_load::moment::rfc3339;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::Machine;
use tokio_util::sync::CancellationToken;

use crate::cell_spec::CellSpec;
use crate::injected_bugs::{BUG_CASES, Bug, BugCase, RoundFindings};
use crate::injection_results::{Attempt, BugResults, InjectionReport, InjectionResults};
use crate::results::{RunEvent, RunObserver};
use crate::resume_state::{ResumeKey, ResumeState};
use crate::runner::{ClusterSpec, Runner};

/// Most rounds until a bug must have been caught.
pub const MAX_ROUNDS: u64 = 5;
/// How often a round without a bug is run that shows nothing.
const MAX_CLEAN_TRIES: u64 = 3;

/// Bugs to be injected.
#[derive(Debug, Clone)]
pub struct InjectionRun {
    /// Which.
    pub rows: Vec<BugCase>,
    /// Seeds of each: 1, 2 and so on.
    pub seeds: u64,
}

/// The rows of those names, each once; `all` is every row, and `none` or no name none.
pub fn rows(names: &[String]) -> Result<Vec<BugCase>> {
    let mut rows: Vec<BugCase> = Vec::new();
    for name in names {
        let known = BUG_CASES.iter().filter(|row| name == "all" || row.bug.name() == name);
        let known: Vec<&BugCase> = known.collect();
        if known.is_empty() && name != "none" {
            let names = BUG_CASES.iter().map(|row| row.bug.name());
            let names: Vec<_> = ["all", "none"].into_iter().chain(names).collect();
            return Err(Error::unknown("injected bug", name, &names));
        }
        for row in known {
            if rows.iter().all(|one| one.bug != row.bug) {
                rows.push(row.clone());
            }
        }
    }
    Ok(rows)
}

impl InjectionRun {
    /// The cells in which they should show.
    pub fn trials(&self) -> impl Iterator<Item = CellSpec> {
        self.rows.iter().map(|row| row.trial)
    }

    /// Runs all of them on a cluster of their own.
    pub async fn run_alone(
        &self,
        parts: ClusterSpec,
        observer: RunObserver<'_>,
        stop: &CancellationToken,
    ) -> Result<InjectionReport> {
        let (began, started_at) = (Instant::now(), rfc3339(time::OffsetDateTime::now_utc()));
        let trials: Vec<CellSpec> = self.trials().collect();
        let mut runner = Runner::start(parts, &trials, stop).await?;
        let results = self.run(&mut runner, &mut ResumeState::default(), observer, stop).await?;
        Ok(InjectionReport {
            results,
            versions: runner.versions(),
            machine: Machine::read(),
            started_at,
            took_s: began.elapsed().as_secs_f64(),
        })
    }

    /// Runs those that are not finished. Those that `stop` leaves undone do not count as caught.
    pub async fn run(
        &self,
        runner: &mut Runner,
        state: &mut ResumeState,
        observer: RunObserver<'_>,
        stop: &CancellationToken,
    ) -> Result<InjectionResults> {
        let mut bugs = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut attempts = Vec::new();
            for seed in 1..=self.seeds {
                let key = key(row, seed, runner);
                if let Some(finished) = state.attempt(&key) {
                    attempts.push(finished);
                    continue;
                }
                let attempt = attempt(row, seed, runner, stop).await?;
                if stop.is_cancelled() {
                    break;
                }
                let bug = row.bug.name();
                observer(RunEvent::SeedFinished { bug, attempt: &attempt });
                if attempt.is_conclusive() {
                    state.remember_attempt(&key, &attempt)?;
                }
                attempts.push(attempt);
            }
            let (name, breaks, shown_by) = (row.bug.name(), row.breaks, row.trial.to_string());
            let seeds = self.seeds;
            bugs.push(BugResults { name, breaks, shown_by, seeds, attempts });
        }
        Ok(InjectionResults::of(bugs, self.seeds))
    }
}

fn key(row: &BugCase, seed: u64, runner: &Runner) -> ResumeKey {
    let cell_plan = row.cell_plan(seed_of(seed, 1), true);
    let what = serde_json::json!({ "bug": row.bug.name(), "staged": cell_plan.identity() });
    ResumeKey::of(&what, runner)
}

async fn attempt(
    row: &BugCase,
    seed: u64,
    runner: &mut Runner,
    stop: &CancellationToken,
) -> Result<Attempt> {
    let mut caught_by = Vec::new();
    let mut missed = Vec::new();
    let mut rounds = 0;
    while caught_by.is_empty() && rounds < MAX_ROUNDS && !stop.is_cancelled() {
        rounds += 1;
        let found = round(row, (seed_of(seed, rounds), true), runner, stop).await?;
        if found.signs.is_empty() {
            missed.push(found);
        } else {
            caught_by = found.signs;
        }
    }
    let mut without = RoundFindings::default();
    for number in 1..=MAX_CLEAN_TRIES {
        without = round(row, (seed_of(seed, number), false), runner, stop).await?;
        if without.invalid.is_empty() || !without.wrong.is_empty() || stop.is_cancelled() {
            break;
        }
    }
    let clean = without.wrong.is_empty() && without.invalid.is_empty();
    Ok(Attempt { seed, rounds, caught_by, missed, clean, without })
}

/// The rounds of a seed differ, and those of another seed are others.
fn seed_of(seed: u64, round: u64) -> u64 {
    seed * 1000 + round
}

async fn round(
    row: &BugCase,
    (seed, with_bug): (u64, bool),
    runner: &mut Runner,
    stop: &CancellationToken,
) -> Result<RoundFindings> {
    let forgetful = with_bug && row.bug == Bug::Forgetful;
    if forgetful {
        runner.set_forgetful(true).await?;
    }
    let report = runner.run_plan(&row.cell_plan(seed, with_bug), stop).await;
    if forgetful {
        runner.set_forgetful(false).await?;
    }
    Ok(row.found(&report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_a_usage_error_that_lists_the_known_ones() {
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
            rows(&names).map(|rows| rows.len())
        };
        assert_eq!(count(&["all", "lying-audit"]).expect("each once"), BUG_CASES.len());
        assert_eq!(count(&["lying-audit", "get-then-del"]).expect("two"), 2);
        assert_eq!(count(&["none"]).expect("none"), 0);
        let error = count(&["gremlin"]).expect_err("none");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("values: all, none, setnx-without-expire"), "{error}");
    }
}
