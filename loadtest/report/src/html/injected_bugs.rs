//! The table of injected bugs: what each breaks, and how soon which rule caught it.

use loadtest_lab::injection_results::{BugResults, InjectionResults};
use serde::Serialize;

use crate::injected_bugs::{first_sign, list_problems, rounds_until_caught, sum};

/// The table, and what it comes to.
#[derive(Debug, Serialize)]
pub struct InjectedBugTable {
    /// How many were injected and caught, and in how many rounds.
    pub sum: String,
    /// Which were not caught, or not clean without the bug; `None` if all is in order.
    pub wrong: Option<String>,
    /// One line a bug, those first that are not in order.
    pub lines: Vec<InjectedBugLine>,
}

/// One injected bug.
#[derive(Debug, Serialize)]
pub struct InjectedBugLine {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: &'static str,
    /// Where and when it should show.
    pub shown_by: String,
    /// What caught it.
    pub caught_by: String,
    /// Rounds until then, for each seed.
    pub rounds: String,
    /// What each seed saw, in full.
    pub seen: Vec<String>,
    /// Whether nothing was found without it.
    pub clean: bool,
    /// Why it is not in order; empty if it is.
    pub problems: Vec<String>,
}

impl InjectedBugTable {
    /// The table of these bugs.
    pub fn of(results: &InjectionResults) -> Self {
        let mut lines: Vec<InjectedBugLine> = results.bugs.iter().map(line).collect();
        lines.sort_by_key(|line| line.problems.is_empty());
        Self { sum: sum(results), wrong: wrong(results), lines }
    }
}

fn wrong(results: &InjectionResults) -> Option<String> {
    let named = |is_wrong: fn(&BugResults) -> bool, what: &str| {
        let names: Vec<&str> =
            results.bugs.iter().filter(|bug| is_wrong(bug)).map(|bug| bug.name).collect();
        (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
    };
    let parts = [
        named(|bug| !bug.is_caught(), "Injected and not caught"),
        named(|bug| !bug.is_clean(), "Not clean without the injected bug"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

fn line(bug: &BugResults) -> InjectedBugLine {
    let seen = bug.attempts.iter().map(crate::injected_bugs::words);
    InjectedBugLine {
        name: bug.name,
        breaks: bug.breaks,
        shown_by: bug.shown_by.clone(),
        caught_by: first_sign(bug).to_owned(),
        rounds: rounds_until_caught(bug),
        seen: seen.collect(),
        clean: bug.is_clean(),
        problems: list_problems(bug),
    }
}
