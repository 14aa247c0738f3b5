//! The wait-for graph: which task waits for a lock that another one holds, and its cycles.
//!
//! Tasks of which each waits for a lock of the next, and the last for one of the first, wait for
//! ever (Coffman, Elphick and Shoshani, "System Deadlocks", 1971).

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use uuid::Uuid;

/// The most cycles that one look finds.
pub(crate) const MAX_CYCLES: usize = 16;

/// A lock as a task holds it, or as it wants it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockUse {
    /// The name of the kind.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// Whether other owners may hold it at the same time.
    pub(crate) shares: bool,
}

impl LockUse {
    /// Whether one task cannot have the lock while the other has it.
    fn excludes(&self, other: &Self) -> bool {
        self.kind == other.kind && self.name == other.name && !(self.shares && other.shares)
    }
}

/// A task that waits for one lock while it holds others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingTask {
    /// This wait and no other.
    pub(crate) wait: Uuid,
    pub(crate) wants: LockUse,
    pub(crate) waited: Duration,
    /// Each with its owner, which no other hold has.
    pub(crate) holds: Vec<(LockUse, String)>,
}

/// What one process published of its waiting tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingProcess {
    pub(crate) process: Uuid,
    /// How many exchanges the process had completed when it read its tasks.
    pub(crate) sequence: u64,
    /// The process, for people.
    pub(crate) label: String,
    pub(crate) tasks: Vec<WaitingTask>,
}

/// One task of a [`Deadlock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlockedTask {
    /// The process: label, host and process id.
    pub process: String,
    /// The lock that the task before it wants: kind and name.
    pub holds: (String, String),
    /// The lock that it waits for: kind and name.
    pub waits_for: (String, String),
    /// For how long.
    pub waited: Duration,
}

/// Tasks of which each waits for a lock that the next one holds, and the last for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// At least one: a task can wait for a lock that it holds itself.
    pub tasks: Vec<DeadlockedTask>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, task) in self.tasks.iter().enumerate() {
            let DeadlockedTask { process, holds, waits_for, waited } = task;
            let process = process.escape_debug();
            let (separator, waited) = (if number == 0 { "" } else { "; " }, waited.as_secs_f64());
            write!(
                f,
                "{separator}{process} holds {} ({}) and waits for {} ({}) since {waited:.1} s",
                holds.1.escape_debug(),
                holds.0.escape_debug(),
                waits_for.1.escape_debug(),
                waits_for.0.escape_debug(),
            )?;
        }
        Ok(())
    }
}

/// One step of a cycle: a wait, and the hold by which the task before it waits for this one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CycleStep {
    pub(crate) process: Uuid,
    wait: Uuid,
    owner: String,
}

/// What a cycle consists of, the same in each look at the same cycle.
pub(crate) type CycleKey = Vec<CycleStep>;

/// The cycles of the graph, at most [`MAX_CYCLES`], each once.
pub(crate) fn cycles(processes: &[WaitingProcess]) -> BTreeMap<CycleKey, Deadlock> {
    let tasks: Vec<(&WaitingProcess, &WaitingTask)> =
        processes.iter().flat_map(|one| one.tasks.iter().map(move |task| (one, task))).collect();
    let mut found = BTreeMap::new();
    let mut in_cycles = HashSet::new();
    for start in 0..tasks.len() {
        if found.len() == MAX_CYCLES {
            break;
        }
        if in_cycles.contains(&start) {
            continue;
        }
        if let Some(cycle) = shortest_cycle(&tasks, start) {
            in_cycles.extend(cycle.iter().map(|(task, _)| *task));
            let (key, deadlock) = describe(&tasks, &cycle);
            found.insert(key, deadlock);
        }
    }
    found
}

/// The tasks of the shortest cycle through `start`, each with the hold that the one before wants.
fn shortest_cycle(
    tasks: &[(&WaitingProcess, &WaitingTask)],
    start: usize,
) -> Option<Vec<(usize, usize)>> {
    // By task: the one that waits for it, and for which of its holds.
    let mut found_from: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(waiter) = queue.pop_front() {
        for (holder, (_, task)) in tasks.iter().enumerate() {
            let wants = &tasks[waiter].1.wants;
            let Some(hold) = task.holds.iter().position(|(held, _)| wants.excludes(held)) else {
                continue;
            };
            if found_from.contains_key(&holder) {
                continue;
            }
            found_from.insert(holder, (waiter, hold));
            if holder == start {
                return Some(walk_back(&found_from, start));
            }
            queue.push_back(holder);
        }
    }
    None
}

fn walk_back(found_from: &BTreeMap<usize, (usize, usize)>, start: usize) -> Vec<(usize, usize)> {
    let mut steps = Vec::new();
    let mut task = start;
    loop {
        let (waiter, hold) = found_from[&task];
        steps.push((task, hold));
        task = waiter;
        if task == start {
            steps.reverse();
            return steps;
        }
    }
}

fn describe(
    tasks: &[(&WaitingProcess, &WaitingTask)],
    cycle: &[(usize, usize)],
) -> (CycleKey, Deadlock) {
    let mut steps: Vec<(CycleStep, DeadlockedTask)> = cycle
        .iter()
        .map(|(task, hold)| {
            let (process, task) = tasks[*task];
            let (held, owner) = &task.holds[*hold];
            let step =
                CycleStep { process: process.process, wait: task.wait, owner: owner.clone() };
            let of_people = DeadlockedTask {
                process: process.label.clone(),
                holds: (held.kind.clone(), held.name.clone()),
                waits_for: (task.wants.kind.clone(), task.wants.name.clone()),
                waited: task.waited,
            };
            (step, of_people)
        })
        .collect();
    // A cycle has no first step: the least one is.
    let least = (0..steps.len()).min_by_key(|number| &steps[*number].0).unwrap_or(0);
    steps.rotate_left(least);
    let (key, tasks) = steps.into_iter().unzip();
    (key, Deadlock { tasks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> LockUse {
        LockUse { kind: "redisson".into(), name: name.into(), shares: false }
    }

    /// A process with one task that holds and wants these locks.
    fn process(number: u128, holds: &[&str], wants: &str) -> WaitingProcess {
        let holds =
            holds.iter().map(|name| (lock(name), format!("owner {number} {name}"))).collect();
        let (wait, waited) = (Uuid::from_u128(100 + number), Duration::from_millis(300));
        let task = WaitingTask { wait, wants: lock(wants), waited, holds };
        let label = format!("job {number}");
        WaitingProcess { process: Uuid::from_u128(number), sequence: 0, label, tasks: vec![task] }
    }

    fn sentences(processes: &[WaitingProcess]) -> Vec<String> {
        cycles(processes).values().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cycle_is_found_once_whatever_the_order_of_the_processes() {
        let [a, b, c] =
            [process(1, &["x"], "y"), process(2, &["y", "w"], "z"), process(3, &["z"], "x")];
        let outside = process(4, &["v"], "x");
        let expected = "job 1 holds x (redisson) and waits for y (redisson) since 0.3 s; \
             job 2 holds y (redisson) and waits for z (redisson) since 0.3 s; \
             job 3 holds z (redisson) and waits for x (redisson) since 0.3 s";
        for order in [[&outside, &a, &b, &c], [&c, &b, &outside, &a], [&b, &outside, &a, &c]] {
            let processes: Vec<_> = order.into_iter().cloned().collect();
            assert_eq!(sentences(&processes), [expected]);
        }
    }

    #[test]
    fn the_sentence_of_a_deadlock_escapes_what_processes_have_written() {
        let mut processes = [process(1, &["x"], "x")];
        processes[0].label = "a\u{1b}[2J".to_owned();
        let task = &mut processes[0].tasks[0];
        task.wants.kind = "b\u{7}".to_owned();
        task.holds[0].0.kind = "b\u{7}".to_owned();
        let escaped = "a\\u{1b}[2J holds x (b\\u{7}) and waits for x (b\\u{7}) since 0.3 s";
        assert_eq!(sentences(&processes), [escaped]);
    }

    #[test]
    fn a_chain_of_waiters_is_no_cycle() {
        let processes = [process(1, &["x"], "y"), process(2, &["y"], "z"), process(3, &["w"], "x")];
        assert_eq!(sentences(&processes), Vec::<String>::new());
    }

    #[test]
    fn two_cycles_are_two_and_a_task_can_wait_for_itself() {
        let processes = [
            process(1, &["x"], "y"),
            process(2, &["y"], "x"),
            process(3, &["z"], "z"),
            process(4, &["w"], "y"),
        ];
        let found = sentences(&processes);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("job 3 holds z"), "{found:?}");
    }

    #[test]
    fn readers_do_not_wait_for_readers_and_names_of_two_kinds_are_two_locks() {
        let mut processes = [process(1, &["x"], "y"), process(2, &["y"], "x")];
        assert_eq!(cycles(&processes).len(), 1);
        processes[0].tasks[0].wants.shares = true;
        assert_eq!(cycles(&processes).len(), 1, "a reader waits for a writer");
        processes[1].tasks[0].holds[0].0.shares = true;
        assert_eq!(cycles(&processes).len(), 0, "a reader does not wait for a reader");
        processes[0].tasks[0].wants.shares = false;
        assert_eq!(cycles(&processes).len(), 1, "a writer waits for a reader");
        processes[1].tasks[0].holds[0].0.kind = "fair".into();
        assert_eq!(cycles(&processes).len(), 0, "another kind's lock");
    }
}
