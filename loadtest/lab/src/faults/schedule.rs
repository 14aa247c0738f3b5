//! The schedule of a round, decided before it begins by its seed and the name of its cell. The same
//! seed gives the same schedule; it does not decide what the machine does meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FaultKind, pairs, replica_name};
use crate::cell_axes::PurchaseMode;
use crate::lock::Lock;
use crate::seeded_rng::SeededRng;

/// The schedule of one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Milliseconds from the first request to the fault; more if the load is not steady by then.
    pub strike_after_ms: u64,
    /// Milliseconds that the fault lasts, where that is for us to say.
    pub lasts_ms: u64,
    /// The replica that it hits, from 0.
    pub victim: usize,
    /// Draws the variants of faults: directions, sizes, kinds of loss.
    pub variation: u64,
    /// Two faults, for cells with two at once.
    pub pair: [FaultKind; 2],
}

impl Schedule {
    /// The schedule of a cell with `replicas` replicas. A freeze lasts 1.2 to 1.8 s: past a lease
    /// of 1 s, and short enough to leave time for the load around it.
    pub fn of(seed: u64, cell: &str, replicas: u16) -> Self {
        let mut rng = SeededRng::of(seed, cell);
        let victim = rng.between(0, replicas.into());
        Self {
            strike_after_ms: rng.between(900, 1400),
            lasts_ms: rng.between(1200, 1800),
            victim: usize::try_from(victim).unwrap_or(0),
            variation: rng.next(),
            pair: pairs::draw((Lock::DEFAULT, PurchaseMode::Direct), rng.next()),
        }
    }

    /// This schedule with two faults that the lock can have in that mode.
    #[must_use]
    pub fn for_lock(mut self, lock: Lock, mode: PurchaseMode) -> Self {
        self.pair = pairs::draw((lock, mode), self.variation);
        self
    }

    /// How long the fault lasts.
    pub fn lasts(&self) -> Duration {
        Duration::from_millis(self.lasts_ms)
    }

    /// In words.
    pub fn words(&self, fault: Option<FaultKind>) -> String {
        let what = match fault {
            Some(FaultKind::TwoAtOnce) => self.pair.map(FaultKind::name).join(" and "),
            Some(fault) => fault.name().to_owned(),
            None => "nothing".to_owned(),
        };
        let (after_ms, lasts_ms, victim) =
            (self.strike_after_ms, self.lasts_ms, self.victim_name());
        format!("{what} {}, for {lasts_ms} ms, {victim}", due(after_ms))
    }

    /// The plan for a frozen holder, in words: it lasts until another replica has written, or
    /// cannot.
    pub fn words_of_frozen_holder(&self) -> String {
        let (after_ms, victim) = (self.strike_after_ms, self.victim_name());
        format!("freeze {}, until another has bought or cannot, {victim}", due(after_ms))
    }

    /// The name of the replica that it hits.
    pub fn victim_name(&self) -> String {
        replica_name(self.victim)
    }
}

/// From when on: on a busy machine a load may be steady much later.
fn due(after_ms: u64) -> String {
    format!("once the load is steady, {after_ms} ms after its first request at the earliest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_a_cell_the_same_schedule_again_and_another_seed_another_one() {
        let of = |seed| Schedule::of(seed, "redisson per user", 3);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_ne!(of(1), Schedule::of(1, "redlock per user", 3));
        for seed in 0..500 {
            let schedule = of(seed);
            assert!(schedule.victim < 3 && (1200..1800).contains(&schedule.lasts_ms));
        }
    }

    #[test]
    fn a_plan_says_what_its_time_counts_from_and_that_the_load_may_have_to_be_waited_for() {
        let schedule = Schedule { strike_after_ms: 1128, ..Schedule::of(1, "a cell", 2) };
        let due = "once the load is steady, 1128 ms after its first request at the earliest";
        let words = schedule.words(Some(FaultKind::FreezeReplica));
        assert!(words.starts_with(&format!("freeze {due}, for ")), "{words}");
        let words = schedule.words_of_frozen_holder();
        assert!(words.starts_with(&format!("freeze {due}, until ")), "{words}");
    }

    #[test]
    fn two_at_once_are_two_that_the_lock_can_have() {
        for seed in 0..200 {
            let (lock, mode) = (Lock::MysqlRow, PurchaseMode::Direct);
            let schedule = Schedule::of(seed, "a cell", 2).for_lock(lock, mode);
            assert!(pairs::all(lock, mode).any(|pair| pair == schedule.pair), "{seed}");
        }
    }
}
