//! The table of planted bugs: what each did, and how soon which rule caught it.

use serde::Serialize;

use crate::report::planted::Planted;

/// The table, and what it comes to.
#[derive(Debug, Serialize)]
pub struct Plants {
    /// How many were planted and caught, and in how many rounds.
    pub summary: String,
    /// One line a bug.
    pub lines: Vec<PlantLine>,
}

/// One planted bug.
#[derive(Debug, Serialize)]
pub struct PlantLine {
    /// Its name.
    pub name: String,
    /// What it does.
    pub what: String,
    /// The rules that caught it.
    pub caught_by: String,
    /// Rounds until then, for each seed.
    pub rounds: String,
    /// Whether nothing was broken without it.
    pub clean: &'static str,
    /// Whether it was caught with every seed, and nothing without it.
    pub ok: bool,
}

impl Plants {
    /// The table of these bugs.
    pub fn of(planted: &[Planted]) -> Self {
        let caught = planted.iter().filter(|plant| plant.caught());
        let mut rounds: Vec<u32> =
            planted.iter().flat_map(|plant| plant.rounds.iter().flatten().copied()).collect();
        rounds.sort_unstable();
        let median = rounds.get(rounds.len() / 2).map_or("–".to_owned(), u32::to_string);
        let summary =
            format!("planted {}, caught {}, median rounds {median}", planted.len(), caught.count());
        Self { summary, lines: planted.iter().map(line).collect() }
    }
}

fn line(plant: &Planted) -> PlantLine {
    let round = |round: &Option<u32>| round.map_or("never".to_owned(), |round| round.to_string());
    PlantLine {
        name: plant.name.clone(),
        what: plant.what.clone(),
        caught_by: if plant.caught_by.is_empty() {
            "nothing".to_owned()
        } else {
            plant.caught_by.join("; ")
        },
        rounds: plant.rounds.iter().map(round).collect::<Vec<_>>().join(", "),
        clean: if plant.clean_without { "clean" } else { "not clean" },
        ok: plant.caught() && plant.clean_without,
    }
}
