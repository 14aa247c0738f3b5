//! What came of injected bugs: by seed, by bug, and together.

use loadtest_measure::machine::{Machine, Versions};
use serde::{Deserialize, Serialize};

use crate::injected_bugs::RoundFindings;

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
    /// Where and when it should show.
    pub shown_by: String,
    /// How many seeds inject it.
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
    pub injected: usize,
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
    pub results: InjectionResults,
    /// Versions of all that took part.
    pub versions: Versions,
    /// The machine.
    pub machine: Machine,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// How long it took, in seconds.
    pub took_s: f64,
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
    pub(super) fn is_conclusive(&self) -> bool {
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
        let (injected, caught) = (bugs.len(), count(BugResults::is_caught));
        let clean = count(BugResults::is_clean);
        let ok = caught == injected && clean == injected;
        Self { ok, injected, caught, clean, median_rounds: median_rounds(&bugs), seeds, bugs }
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

    fn bug_results(attempts: Vec<Attempt>) -> BugResults {
        BugResults { name: "a", breaks: "b", shown_by: "c".to_owned(), seeds: 3, attempts }
    }

    #[test]
    fn a_bug_is_caught_only_if_every_seed_caught_it_and_missed_ones_do_not_count_as_rounds() {
        let caught = bug_results(vec![attempt(1, true), attempt(3, true), attempt(2, true)]);
        let missed = bug_results(vec![attempt(1, true), attempt(2, true), attempt(5, false)]);
        assert!(caught.is_caught() && !missed.is_caught() && !bug_results(Vec::new()).is_caught());
        let results = InjectionResults::of(vec![caught.clone(), missed], 3);
        assert_eq!((results.injected, results.caught, results.median_rounds), (2, 1, 2));
        assert!(!results.ok && InjectionResults::of(vec![caught], 3).ok);
    }

    #[test]
    fn a_bug_that_an_interruption_left_without_some_of_its_seeds_is_neither_caught_nor_clean() {
        let two = bug_results(vec![attempt(1, true), attempt(1, true)]);
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
