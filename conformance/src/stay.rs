//! A stay in the section of a contest, as a contender reports it.

use serde::{Deserialize, Serialize};

/// One stay in the section. Written as an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Stay {
    /// Which task.
    pub task: u32,
    /// When the lock was asked for.
    pub asked_ns: u64,
    /// When the mechanism first and when it next said that somebody else holds it; 0 if it did not.
    pub busy_ns: (u64, u64),
    /// When it was there.
    pub acquired_ns: u64,
    /// When the work was done or, if that was earlier, belief in the lock ended.
    pub believed_until_ns: u64,
    /// When the release was answered.
    pub released_ns: u64,
    /// Whether the number was written.
    pub wrote: bool,
    /// The fencing token; 0 if there is none.
    pub token: u64,
}

type Row = (u32, u64, (u64, u64), u64, u64, u64, bool, u64);

impl From<Row> for Stay {
    fn from(row: Row) -> Self {
        let (task, asked_ns, busy_ns, acquired_ns, believed_until_ns, released_ns, wrote, token) =
            row;
        Self { task, asked_ns, busy_ns, acquired_ns, believed_until_ns, released_ns, wrote, token }
    }
}

impl From<Stay> for Row {
    fn from(stay: Stay) -> Self {
        let Stay { task, asked_ns, busy_ns, acquired_ns, .. } = stay;
        let Stay { believed_until_ns, released_ns, wrote, token, .. } = stay;
        (task, asked_ns, busy_ns, acquired_ns, believed_until_ns, released_ns, wrote, token)
    }
}
