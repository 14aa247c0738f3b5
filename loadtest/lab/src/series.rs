//! Answers over time: the answers of each outcome, counted in steps of equal length.
//!
//! A load of any length has at most [`MAX_POINTS`] steps, longer ones for a longer load. An answer
//! counts in the step in which it was complete.

use std::collections::BTreeMap;

use loadtest_load::history::record::{NO_END, Record};
use loadtest_load::outcome::Outcome;
use serde::{Deserialize, Serialize};

/// Most steps of one series.
pub const MAX_POINTS: u64 = 240;
/// Lengths of a step, in milliseconds, each with the most steps of it; beyond the last one it is
/// multiplied by as much as it takes. In a step that is too short chance is all there is to see.
const STEPS_MS: [(u64, u64); 8] = [
    (20, 50),
    (50, 50),
    (100, MAX_POINTS),
    (200, MAX_POINTS),
    (500, MAX_POINTS),
    (1000, MAX_POINTS),
    (2000, MAX_POINTS),
    (5000, MAX_POINTS),
];

/// Answers over time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Length of a step.
    pub step_ms: u64,
    /// Answers in each step, for every outcome that came at all; the first step begins with the
    /// load.
    pub answers: BTreeMap<Outcome, Vec<u32>>,
}

impl Series {
    /// Counts the answers of a load.
    pub fn of(records: &[Record]) -> Self {
        let ended = || records.iter().filter(|record| record.end_ns != NO_END);
        let last_ms = ended().map(|record| record.end_ns / 1_000_000).max().unwrap_or(0);
        let step_ms = step_for(last_ms);
        let steps = usize::try_from(last_ms / step_ms + 1).unwrap_or(1);
        let mut answers = BTreeMap::new();
        for outcome in Outcome::ALL {
            let mut counts = vec![0_u32; steps];
            let mut any = false;
            for record in ended().filter(|record| record.outcome == outcome) {
                let step = usize::try_from(record.end_ns / 1_000_000 / step_ms).unwrap_or(steps);
                if let Some(count) = counts.get_mut(step) {
                    *count = count.saturating_add(1);
                    any = true;
                }
            }
            if any {
                answers.insert(outcome, counts);
            }
        }
        Self { step_ms, answers }
    }
}

/// The shortest step of which so long a load has no more than its number.
fn step_for(last_ms: u64) -> u64 {
    let fits = |(step, most): &(u64, u64)| last_ms / step < *most;
    let (longest, _) = STEPS_MS[STEPS_MS.len() - 1];
    let beyond = || longest * (last_ms / longest / MAX_POINTS + 1);
    STEPS_MS.into_iter().find(fits).map_or_else(beyond, |(step, _)| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcome: Outcome, at_ms: u64) -> Record {
        Record { start_ns: 0, end_ns: at_ms * 1_000_000, ..Record::that_ended(outcome) }
    }

    #[test]
    fn every_answer_is_in_the_step_of_its_arrival() {
        let records = [
            record(Outcome::Bought, 0),
            record(Outcome::Bought, 19),
            record(Outcome::Bought, 20),
            record(Outcome::SoldOut, 65),
        ];
        let series = Series::of(&records);
        assert_eq!(series.step_ms, 20);
        assert_eq!(series.answers[&Outcome::Bought], [2, 1, 0, 0]);
        assert_eq!(series.answers[&Outcome::SoldOut], [0, 0, 0, 1]);
        assert_eq!(series.answers.len(), 2, "what never came has no series");
        let unending = Record { end_ns: NO_END, ..record(Outcome::Unknown, 0) };
        let with_it = [records.to_vec(), vec![unending]].concat();
        assert_eq!(Series::of(&with_it), series, "what never ended came in no step");
    }

    #[test]
    fn a_load_of_any_length_has_a_bounded_number_of_steps_and_loses_no_answer() {
        for last_ms in [0, 1, 999, 2500, 24_000, 60_000, 1_199_999, 1_200_000, 86_400_000] {
            let records = [record(Outcome::Bought, last_ms / 2), record(Outcome::Bought, last_ms)];
            let series = Series::of(&records);
            let counts = &series.answers[&Outcome::Bought];
            assert!(counts.len() as u64 <= MAX_POINTS, "{last_ms}: {} steps", counts.len());
            assert_eq!(counts.iter().sum::<u32>(), 2, "{last_ms}");
        }
    }
}
