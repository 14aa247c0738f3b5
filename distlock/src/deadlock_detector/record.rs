//! What a process publishes of its waiting tasks, as text: a line for the process, one for each
//! task, one for each hold of the task before it. Fields are separated by tabs, which no name and
//! no owner contains.

use std::time::Duration;

use uuid::Uuid;

use super::wait_graph::{LockUse, WaitingProcess, WaitingTask};

/// The longest record, in bytes. Tasks that do not fit are left out.
pub(crate) const MAX_RECORD: usize = 16 * 1024;

/// The record of a process; `None` if none of the tasks can be in a cycle.
pub(crate) fn encode(label: &str, tasks: &[WaitingTask]) -> Option<String> {
    let mut record = format!("process\t{label}\n");
    let mut is_empty = true;
    for task in tasks.iter().filter(|task| !task.holds.is_empty()) {
        let WaitingTask { wait, wants, waited, holds } = task;
        let (wants, holds) = (encode_lock(wants), encode_holds(holds));
        let lines = format!("task\t{wants}\t{wait}\t{}\n{holds}", waited.as_millis());
        if record.len() + lines.len() <= MAX_RECORD {
            record += &lines;
            is_empty = false;
        }
    }
    (!is_empty).then_some(record)
}

/// Holds as text, for a process that this one starts.
pub(crate) fn encode_holds(holds: &[(LockUse, String)]) -> String {
    let line = |(held, owner): &(LockUse, String)| {
        ["hold\t", &encode_lock(held), "\t", owner, "\n"].concat()
    };
    holds.iter().map(line).collect()
}

/// The holds in that text; `None` for a text of another form.
pub(crate) fn decode_holds(text: &str) -> Option<Vec<(LockUse, String)>> {
    text.lines().map(|line| decode_hold(&fields(line))).collect()
}

/// What a process published; `None` for a text of another form.
pub(crate) fn decode(process: Uuid, sequence: u64, record: &str) -> Option<WaitingProcess> {
    let mut lines = record.lines();
    let label = lines.next()?.strip_prefix("process\t")?.to_owned();
    let mut tasks: Vec<WaitingTask> = Vec::new();
    for line in lines {
        let fields = fields(line);
        if let ["task", kind, name, shares, wait, waited] = fields[..] {
            let wants = decode_lock(kind, name, shares);
            let waited = Duration::from_millis(waited.parse().ok()?);
            tasks.push(WaitingTask { wait: wait.parse().ok()?, wants, waited, holds: Vec::new() });
        } else {
            tasks.last_mut()?.holds.push(decode_hold(&fields)?);
        }
    }
    Some(WaitingProcess { process, sequence, label, tasks })
}

fn fields(line: &str) -> Vec<&str> {
    line.split('\t').collect()
}

fn encode_lock(lock: &LockUse) -> String {
    let LockUse { kind, name, shares } = lock;
    format!("{kind}\t{name}\t{}", if *shares { "shared" } else { "alone" })
}

fn decode_lock(kind: &str, name: &str, shares: &str) -> LockUse {
    LockUse { kind: kind.into(), name: name.into(), shares: shares == "shared" }
}

fn decode_hold(fields: &[&str]) -> Option<(LockUse, String)> {
    let ["hold", kind, name, shares, owner] = fields[..] else { return None };
    Some((decode_lock(kind, name, shares), owner.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str, shares: bool) -> LockUse {
        LockUse { kind: "read-write".into(), name: name.into(), shares }
    }

    fn task(number: u128, holds: Vec<(LockUse, String)>) -> WaitingTask {
        let (wait, waited) = (Uuid::from_u128(number), Duration::from_millis(250));
        WaitingTask { wait, wants: lock("wanted: by 17", false), waited, holds }
    }

    #[test]
    fn a_record_gives_the_tasks_back_that_hold_something() {
        let holds = vec![(lock("a", true), "o:1".to_owned()), (lock("ü {b}", false), "o".into())];
        let tasks = [task(1, holds.clone()), task(2, Vec::new()), task(3, holds.clone())];
        let record = encode("job on host, process 7", &tasks).expect("a record");
        let process = decode(Uuid::nil(), 3, &record).expect("a process");
        assert_eq!(process.label, "job on host, process 7");
        assert_eq!(process.tasks, [task(1, holds.clone()), task(3, holds.clone())]);
        assert_eq!(decode_holds(&encode_holds(&holds)), Some(holds));
        assert_eq!(encode("job", &tasks[1..2]), None);
    }

    #[test]
    fn a_record_is_bounded_and_a_damaged_one_is_none() {
        let tasks: Vec<WaitingTask> = (0..100)
            .map(|number| task(number, vec![(lock(&"n".repeat(512), false), "o".repeat(128))]))
            .collect();
        let record = encode("job", &tasks).expect("a record");
        assert!(record.len() <= MAX_RECORD && record.len() > MAX_RECORD - 1024);
        for damaged in ["", "x", "process\tjob\nhold\ta\tb\talone\to", "process\tjob\ntask\tx"] {
            assert_eq!(decode(Uuid::nil(), 0, damaged), None, "{damaged}");
        }
        assert_eq!(decode_holds("hold\ta"), None);
    }
}
