//! The table of planted bugs: what each breaks, and how soon which rule caught it.

use serde::Serialize;

use crate::lab::planting::{Planted, Plants};

/// The table, and what it comes to.
#[derive(Debug, Serialize)]
pub struct PlantTable {
    /// How many were planted and caught, and in how many rounds.
    pub sum: String,
    /// One line a bug.
    pub lines: Vec<PlantLine>,
}

/// One planted bug.
#[derive(Debug, Serialize)]
pub struct PlantLine {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: &'static str,
    /// Where and when it was to show.
    pub shown_by: String,
    /// What caught it.
    pub caught_by: String,
    /// Rounds until then, for each seed.
    pub rounds: String,
    /// What each seed saw, in full.
    pub seen: Vec<String>,
    /// Whether nothing was found without it.
    pub clean: bool,
    /// Whether it was caught with every seed, and nothing found without it.
    pub ok: bool,
}

impl PlantTable {
    /// The table of these bugs.
    pub fn of(plants: &Plants) -> Self {
        Self { sum: plants.sum(), lines: plants.bugs.iter().map(line).collect() }
    }
}

fn line(bug: &Planted) -> PlantLine {
    let seen = bug.attempts.iter().map(crate::report::plants::words);
    PlantLine {
        name: bug.name,
        breaks: bug.breaks,
        shown_by: bug.shown_by.clone(),
        caught_by: bug.sign().to_owned(),
        rounds: bug.rounds(),
        seen: seen.collect(),
        clean: bug.is_clean(),
        ok: bug.is_caught() && bug.is_clean(),
    }
}
