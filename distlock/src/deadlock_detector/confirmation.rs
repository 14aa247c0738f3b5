//! When a cycle that was seen is a deadlock.
//!
//! Processes publish at different moments, so a reading can join a wait that has ended with one
//! that began later. A cycle counts once every process of it has published the same waits and
//! holds again, with a sequence number two higher than in the first reading. The higher number is
//! used only after an exchange with the one before has been answered. That exchange came after
//! the first reading, which did not see it. So the process read its tasks before the first reading
//! and after it, and found the same wait and hold: both existed at the moment of that reading.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::wait_graph::{CycleKey, Deadlock, WaitingProcess, cycles};

/// How many sequence numbers a process has to go on.
const CONFIRMING_STEPS: u64 = 2;
/// How many readings in a row may miss a confirmed cycle that is no new one afterwards: a process
/// that starves publishes late. It has the same waits, so it is the same deadlock.
const MAX_MISSED: u32 = 40;

/// The cycles that were seen, until they are confirmed or gone.
#[derive(Debug, Default)]
pub(crate) struct CycleConfirmation(BTreeMap<CycleKey, SeenCycle>);

#[derive(Debug)]
struct SeenCycle {
    /// The sequence number of each process in the first reading.
    first: BTreeMap<Uuid, u64>,
    is_confirmed: bool,
    /// The last readings that did not show it.
    missed: u32,
}

/// What one reading says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CycleReading {
    /// All that are certain.
    pub(crate) confirmed: Vec<Deadlock>,
    /// Those of them that this reading has confirmed.
    pub(crate) new: Vec<Deadlock>,
    /// Whether others were seen that are not certain yet.
    pub(crate) has_candidates: bool,
}

impl CycleConfirmation {
    /// Takes a reading of all processes.
    pub(crate) fn read(&mut self, processes: &[WaitingProcess]) -> CycleReading {
        let sequence_of = |process: Uuid| {
            processes.iter().find(|one| one.process == process).map_or(0, |one| one.sequence)
        };
        let found = cycles(processes);
        self.0.retain(|key, seen| {
            seen.missed = if found.contains_key(key) { 0 } else { seen.missed + 1 };
            seen.missed == 0 || seen.is_confirmed && seen.missed <= MAX_MISSED
        });
        let mut reading = CycleReading::default();
        for (key, deadlock) in found {
            let first = key.iter().map(|step| (step.process, sequence_of(step.process)));
            let first = first.collect();
            let new = SeenCycle { first, is_confirmed: false, missed: 0 };
            let seen = self.0.entry(key).or_insert(new);
            let confirms = |(process, first): (&Uuid, &u64)| {
                sequence_of(*process) >= first.saturating_add(CONFIRMING_STEPS)
            };
            if !seen.is_confirmed && seen.first.iter().all(confirms) {
                seen.is_confirmed = true;
                reading.new.push(deadlock.clone());
            }
            if seen.is_confirmed {
                reading.confirmed.push(deadlock);
            } else {
                reading.has_candidates = true;
            }
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::wait_graph::{LockUse, WaitingTask};
    use super::*;

    fn process(number: u128, (holds, wants): (&str, &str), sequence: u64) -> WaitingProcess {
        let lock = |name: &str| LockUse { kind: "fair".into(), name: name.into(), shares: false };
        let task = WaitingTask {
            wait: Uuid::from_u128(100 + number),
            wants: lock(wants),
            waited: Duration::from_millis(300),
            holds: vec![(lock(holds), format!("owner {number}"))],
        };
        let (process, label) = (Uuid::from_u128(number), format!("job {number}"));
        WaitingProcess { process, sequence, label, tasks: vec![task] }
    }

    fn pair(sequences: [u64; 2]) -> [WaitingProcess; 2] {
        let [first, second] = sequences;
        [process(1, ("x", "y"), first), process(2, ("y", "x"), second)]
    }

    #[test]
    fn a_cycle_counts_once_all_its_processes_have_published_it_twice_more() {
        let mut confirmation = CycleConfirmation::default();
        for sequences in [[5, 9], [7, 10], [8, 10]] {
            let reading = confirmation.read(&pair(sequences));
            assert_eq!((reading.confirmed.len(), reading.has_candidates), (0, true));
        }
        let reading = confirmation.read(&pair([8, 11]));
        assert_eq!((reading.confirmed.len(), reading.new.len()), (1, 1));
        let reading = confirmation.read(&pair([9, 12]));
        assert_eq!((reading.confirmed.len(), reading.new.len()), (1, 0), "it is no new one");
        for _ in 0..MAX_MISSED {
            assert_eq!(confirmation.read(&[]), CycleReading::default());
        }
        let reading = confirmation.read(&pair([10, 13]));
        assert_eq!((reading.confirmed.len(), reading.new.len()), (1, 0), "it was missed");
    }

    #[test]
    fn a_wait_that_ended_meanwhile_begins_the_confirmation_anew() {
        let mut confirmation = CycleConfirmation::default();
        confirmation.read(&pair([5, 9]));
        let mut processes = pair([7, 11]);
        processes[1].tasks[0].wait = Uuid::from_u128(200);
        let reading = confirmation.read(&processes);
        assert_eq!((reading.confirmed.len(), reading.has_candidates), (0, true), "another wait");
        processes[1].tasks[0].holds[0].1 = "another owner".into();
        processes[1].sequence = 13;
        processes[0].sequence = 9;
        let reading = confirmation.read(&processes);
        assert_eq!((reading.confirmed.len(), reading.has_candidates), (0, true), "another hold");
        assert_eq!(confirmation.read(&processes[..1]), CycleReading::default());
    }
}
