//! Runs injected bugs until each is caught, and the same without them.
//!
//! For each bug and seed, rounds with the bug run until one of its signs is seen, at most
//! [`MAX_ROUNDS`], each on its own deployment. Then one round runs without the bug, in which
//! nothing may be found. A round that shows nothing (too little load, a fault without a witness) is
//! repeated.

use std::time::Instant;

use loadtest_load::moment::rfc3339;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::{Machine, Versions};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::cell_spec::CellSpec;
use crate::injected_bugs::{BUG_CASES, Bug, BugCase, RoundFindings};
use crate::results::{RunEvent, RunObserver};
use crate::resume_state::{ResumeKey, ResumeState};
use crate::runner::{ClusterSpec, Runner};

/// Most rounds until a bug must have been caught.
pub const MAX_ROUNDS: u64 = 5;
/// Seeds of each bug, unless something else is asked for.
pub const DEFAULT_SEEDS: u64 = 3;
/// Most of them.
pub const MAX_SEEDS: u64 = 100;
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

/// What came of one bug and one seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// The seed.
    pub seed: u64,
    /// Rounds with the bug.
    pub rounds: u64,
    /// The findings that caught it in the last round; empty if it was not caught.
    pub caught_by: Vec<String>,
    /// What the rounds were like that did not catch it.
    pub missed: Vec<RoundFindings>,
    /// Whether nothing was found without the bug.
    pub clean: bool,
    /// What was found without it, and why that round showed nothing.
    pub without: RoundFindings,
}

/// What came of one bug.
#[derive(Debug, Clone, Serialize)]
pub struct BugResults {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: &'static str,
    /// Where and when it was to show.
    pub shown_by: String,
    /// How many seeds it is to be planted with.
    pub seeds: u64,
    /// Each seed that was run to its end.
    pub attempts: Vec<Attempt>,
}

/// What came of all of them.
#[derive(Debug, Clone, Serialize)]
pub struct InjectionResults {
    /// Whether each was caught with each seed, and nothing found without it.
    pub ok: bool,
    /// How many bugs were injected.
    pub planted: usize,
    /// How many of them were caught with every seed.
    pub caught: usize,
    /// How many had a clean run without them for every seed.
    pub clean: usize,
    /// Rounds until a bug was caught: half of the bugs and seeds took no more.
    pub median_rounds: u64,
    /// Seeds of each.
    pub seeds: u64,
    /// The bugs.
    pub bugs: Vec<BugResults>,
}

/// The report on injected bugs alone.
#[derive(Debug, Serialize)]
pub struct InjectionReport {
    /// What came of them.
    #[serde(flatten)]
    pub plants: InjectionResults,
    /// Versions of all that took part.
    pub versions: Versions,
    /// The machine.
    pub machine: Machine,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// The rows of those names, each once; `all` is every row, and `none` or no name none.
pub fn rows(names: &[String]) -> Result<Vec<BugCase>> {
    let mut rows: Vec<BugCase> = Vec::new();
    for name in names {
        let known = BUG_CASES.iter().filter(|row| name == "all" || row.bug.name() == name);
        let known: Vec<&BugCase> = known.collect();
        if known.is_empty() && name != "none" {
            let names: Vec<&str> = BUG_CASES.iter().map(|row| row.bug.name()).collect();
            return Err(Error::Usage(format!(
                "there is no injected bug {name:?} [possible values: all, none, {}]",
                names.join(", ")
            )));
        }
        for row in known {
            if rows.iter().all(|one| one.bug != row.bug) {
                rows.push(row.clone());
            }
        }
    }
    Ok(rows)
}

impl BugResults {
    /// Whether it was caught with every seed.
    pub fn is_caught(&self) -> bool {
        is_caught(&self.attempts, self.seeds)
    }

    /// Whether nothing was found without it.
    pub fn is_clean(&self) -> bool {
        is_clean(&self.attempts, self.seeds)
    }
}

/// Whether a bug was caught with each of its seeds, of which there is at least one.
pub fn is_caught(attempts: &[Attempt], seeds: u64) -> bool {
    all_seeds(attempts, seeds) && attempts.iter().all(|one| !one.caught_by.is_empty())
}

/// Whether nothing was found without it.
pub fn is_clean(attempts: &[Attempt], seeds: u64) -> bool {
    all_seeds(attempts, seeds) && attempts.iter().all(|one| one.clean)
}

/// Seeds that an interruption left undone show nothing.
fn all_seeds(attempts: &[Attempt], seeds: u64) -> bool {
    attempts.len() as u64 >= seeds.max(1)
}

impl Attempt {
    /// Whether it is finished: another one could only say the same, or would hide what this one
    /// has found. What was merely invalid says nothing.
    fn is_conclusive(&self) -> bool {
        let of_sound = self.clean || !self.without.wrong.is_empty();
        let of_bug =
            !self.caught_by.is_empty() || self.missed.iter().any(|one| one.invalid.is_empty());
        of_sound && of_bug
    }
}

impl InjectionResults {
    /// What these come to.
    pub fn of(bugs: Vec<BugResults>, seeds: u64) -> Self {
        let count = |is: fn(&BugResults) -> bool| bugs.iter().filter(|bug| is(bug)).count();
        let (planted, caught) = (bugs.len(), count(BugResults::is_caught));
        let clean = count(BugResults::is_clean);
        let ok = caught == planted && clean == planted;
        Self { ok, planted, caught, clean, median_rounds: median_rounds(&bugs), seeds, bugs }
    }
}

/// The median number of rounds of the seeds that caught their bug.
fn median_rounds(bugs: &[BugResults]) -> u64 {
    let attempts = bugs.iter().flat_map(|bug| &bug.attempts);
    let mut rounds: Vec<u64> =
        attempts.filter(|one| !one.caught_by.is_empty()).map(|one| one.rounds).collect();
    rounds.sort_unstable();
    rounds.get(rounds.len() / 2).copied().unwrap_or(0)
}

impl InjectionRun {
    /// The cells in which they are to show.
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
        let plants = self.run(&mut runner, &mut ResumeState::default(), observer, stop).await?;
        Ok(InjectionReport {
            plants,
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
    let what = serde_json::json!({ "plant": row.bug.name(), "staged": cell_plan.identity() });
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
    (seed, planted): (u64, bool),
    runner: &mut Runner,
    stop: &CancellationToken,
) -> Result<RoundFindings> {
    let forgetful = planted && row.bug == Bug::Forgetful;
    if forgetful {
        runner.set_forgetful(true).await?;
    }
    let report = runner.run_plan(&row.cell_plan(seed, planted), stop).await;
    if forgetful {
        runner.set_forgetful(false).await?;
    }
    Ok(row.found(&report))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(rounds: u64, caught: bool) -> Attempt {
        Attempt {
            seed: 1,
            rounds,
            caught_by: if caught { vec!["seen".to_owned()] } else { Vec::new() },
            missed: Vec::new(),
            clean: true,
            without: RoundFindings::default(),
        }
    }

    fn plant(attempts: Vec<Attempt>) -> BugResults {
        BugResults { name: "a", breaks: "b", shown_by: "c".to_owned(), seeds: 3, attempts }
    }

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

    #[test]
    fn a_bug_is_caught_only_if_every_seed_caught_it_and_missed_ones_do_not_count_as_rounds() {
        let caught = plant(vec![attempt(1, true), attempt(3, true), attempt(2, true)]);
        let missed = plant(vec![attempt(1, true), attempt(2, true), attempt(5, false)]);
        assert!(caught.is_caught() && !missed.is_caught() && !plant(Vec::new()).is_caught());
        let plants = InjectionResults::of(vec![caught.clone(), missed], 3);
        assert_eq!((plants.planted, plants.caught, plants.median_rounds), (2, 1, 2));
        assert!(!plants.ok && InjectionResults::of(vec![caught], 3).ok);
    }

    #[test]
    fn a_bug_that_an_interruption_left_without_some_of_its_seeds_is_neither_caught_nor_clean() {
        let two = plant(vec![attempt(1, true), attempt(1, true)]);
        assert!(!two.is_caught() && !two.is_clean());
        assert!(!InjectionResults::of(vec![two], 3).ok);
    }

    #[test]
    fn a_seed_whose_rounds_were_merely_invalid_is_not_finished() {
        let invalid = || RoundFindings {
            invalid: vec!["too little load".to_owned()],
            ..RoundFindings::default()
        };
        let wrong = || RoundFindings { wrong: vec!["oversold".to_owned()], ..invalid() };
        let not_clean = |without| Attempt { clean: false, without, ..attempt(1, true) };
        assert!(attempt(1, true).is_conclusive());
        assert!(!not_clean(invalid()).is_conclusive());
        assert!(not_clean(wrong()).is_conclusive(), "something was found without the bug");
        let missed = |found| Attempt { missed: vec![invalid(), found], ..attempt(5, false) };
        assert!(missed(RoundFindings::default()).is_conclusive(), "a real load did not show it");
        assert!(!missed(invalid()).is_conclusive());
    }
}
