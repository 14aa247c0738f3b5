//! Bugs that were planted in the running service to see whether they are caught.

use serde::Serialize;

/// What became of one planted bug.
#[derive(Debug, Clone, Serialize)]
pub struct Planted {
    /// Its name on command lines.
    pub name: String,
    /// What it does.
    pub what: String,
    /// The rules that caught it, in words; empty if nothing did.
    pub caught_by: Vec<String>,
    /// Rounds until it was caught, for each seed; `None` where it never was.
    pub rounds: Vec<Option<u32>>,
    /// Whether the same rounds without it broke no rule.
    pub clean_without: bool,
}

impl Planted {
    /// Whether it was caught with every seed.
    pub fn caught(&self) -> bool {
        !self.rounds.is_empty() && self.rounds.iter().all(Option::is_some)
    }
}
