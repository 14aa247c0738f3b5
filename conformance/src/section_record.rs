//! The record of one critical section of a contest, as a contender reports it.

use serde::{Deserialize, Serialize};

/// One critical section of a task. Written as an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct SectionRecord {
    /// Which task.
    pub task: u32,
    /// When the lock was asked for.
    pub asked_ns: u64,
    /// When the mechanism first and when it next said that another owner holds it; 0 if it did not.
    pub busy_ns: (u64, u64),
    /// When it was there.
    pub acquired_ns: u64,
    /// When the work was done or, if that was earlier, the lock's validity ended.
    pub valid_until_ns: u64,
    /// When the release was answered.
    pub released_ns: u64,
    /// Whether the number was written.
    pub wrote: bool,
    /// The fencing token; 0 if there is none.
    pub token: u64,
}

type Row = (u32, u64, (u64, u64), u64, u64, u64, bool, u64);

impl From<Row> for SectionRecord {
    fn from(row: Row) -> Self {
        let (task, asked_ns, busy_ns, acquired_ns, valid_until_ns, released_ns, wrote, token) = row;
        Self { task, asked_ns, busy_ns, acquired_ns, valid_until_ns, released_ns, wrote, token }
    }
}

impl From<SectionRecord> for Row {
    fn from(record: SectionRecord) -> Self {
        let SectionRecord { task, asked_ns, busy_ns, acquired_ns, .. } = record;
        let SectionRecord { valid_until_ns, released_ns, wrote, token, .. } = record;
        (task, asked_ns, busy_ns, acquired_ns, valid_until_ns, released_ns, wrote, token)
    }
}
