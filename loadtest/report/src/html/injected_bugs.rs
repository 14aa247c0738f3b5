//! The table of injected bugs: what each breaks, and how soon which rule caught it.

use loadtest_lab::injected_bugs::BUG_CASES;
use loadtest_lab::injection_results::{BugResults, InjectionResults};
use serde::Serialize;

use crate::injected_bugs::{first_sign, list_problems, rounds_until_caught, sum};
use crate::names;
use crate::text::Text;

/// The table, and what it comes to.
#[derive(Debug, Serialize)]
pub struct InjectedBugTable {
    /// How many were injected and caught, and in how many rounds.
    pub sum: Text,
    /// Which were not caught, or not clean without the bug; `None` if all is in order.
    pub wrong: Option<Text>,
    /// One line a bug, those first that are not in order.
    pub lines: Vec<InjectedBugLine>,
}

/// One injected bug.
#[derive(Debug, Serialize)]
pub struct InjectedBugLine {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: Text,
    /// Where and when it should show.
    pub shown_by: Text,
    /// What caught it.
    pub caught_by: Text,
    /// Rounds until then, for each seed.
    pub rounds: Text,
    /// What each seed saw, in full.
    pub seen: Vec<Text>,
    /// Whether nothing was found without it.
    pub clean: bool,
    /// Why it is not in order; empty if it is.
    pub problems: Vec<Text>,
}

impl InjectedBugTable {
    /// The table of these bugs.
    pub fn of(results: &InjectionResults) -> Self {
        let mut lines: Vec<InjectedBugLine> = results.bugs.iter().map(line).collect();
        lines.sort_by_key(|line| line.problems.is_empty());
        Self { sum: sum(results), wrong: wrong(results), lines }
    }
}

fn wrong(results: &InjectionResults) -> Option<Text> {
    let named = |is_wrong: fn(&BugResults) -> bool, key: &'static str| {
        let wrong = results.bugs.iter().filter(|bug| is_wrong(bug));
        let names: Vec<Text> = wrong.map(|bug| bug.name.into()).collect();
        (!names.is_empty()).then(|| Text::of(key).with("names", Text::joined("comma", names)))
    };
    let parts = [
        named(|bug| !bug.is_caught(), "bugs_not_caught"),
        named(|bug| !bug.is_clean(), "bugs_not_clean"),
    ];
    let parts: Vec<Text> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| Text::sentences(parts))
}

fn line(bug: &BugResults) -> InjectedBugLine {
    let seen = bug.attempts.iter().map(crate::injected_bugs::words);
    let row = BUG_CASES.iter().find(|row| row.bug.name() == bug.name);
    let place = row.map(|row| names::cell(row.trial)).unwrap_or_default();
    InjectedBugLine {
        name: bug.name,
        breaks: Text::english(bug.breaks),
        shown_by: place.if_it_says(&bug.shown_by),
        caught_by: first_sign(bug),
        rounds: rounds_until_caught(bug),
        seen: seen.collect(),
        clean: bug.is_clean(),
        problems: list_problems(bug),
    }
}
