//! A list of the inspector as a page gets it: bounded, with the replica of each holder.

use std::time::{SystemTime, UNIX_EPOCH};

use loadtest_lab::deployment::replica_name;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::commands::short;
use crate::lab_text::lab_text;

/// Most locks that a page gets of a lane. Those whose holders asked first are shown.
pub(crate) const MAX_LOCKS: usize = 20;
/// Most holders and most waiters that a page gets of a lock.
const MAX_OF_LOCK: usize = 5;

/// What is known of the locks of a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListState {
    /// Nothing was read yet.
    #[default]
    Opening,
    /// These are the locks.
    Listed,
    /// No server knows the lock.
    NoServer,
    /// The server cannot list locks of this kind.
    Unlisted,
    /// The inspector waits for a server.
    Silent,
    /// The inspector failed, or a server did.
    Failed,
}

impl ListState {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] =
        [Self::Opening, Self::Listed, Self::NoServer, Self::Unlisted, Self::Silent, Self::Failed];
}

/// What a page gets.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct HeldLocks {
    pub(crate) state: ListState,
    /// Why it failed, or cannot be listed.
    #[serde(serialize_with = "in_both_languages")]
    pub(crate) reason: Option<String>,
    /// How old the list is.
    pub(crate) age_ms: Option<u64>,
    pub(crate) locks: Vec<LockRow>,
    /// How many locks there are, those that are not in `locks` included.
    pub(crate) count: usize,
}

/// A lock. Fields that are only passed on have the form of `seckill lock ls --json`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct LockRow {
    name: String,
    state: String,
    #[serde(serialize_with = "in_both_languages")]
    reason: Option<String>,
    holders: Vec<HolderRow>,
    /// How many holders there are, those that are not in `holders` included.
    #[serde(default)]
    holder_count: usize,
    waiters: WaiterRows,
}

/// Writes a reason of the inspector, which is English, with its Chinese.
#[expect(clippy::ref_option, reason = "serde calls it so")]
fn in_both_languages<S: Serializer>(reason: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
    reason.as_deref().map(lab_text).serialize(to)
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct HolderRow {
    id: String,
    owner: Option<String>,
    tag: Option<HolderTag>,
    holds: Option<u64>,
    shares: bool,
    lease: Value,
    token: Option<String>,
    place: Option<String>,
    servers: u64,
    /// The replica whose process holds it.
    replica: Option<String>,
    /// How long ago the holder asked for the lock.
    asked_ms_ago: Option<u64>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct HolderTag {
    host: String,
    process: u32,
    asked_at_ms: u64,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
struct WaiterRows {
    known: bool,
    #[serde(default)]
    ordered: bool,
    #[serde(default)]
    complete: bool,
    #[serde(default)]
    ids: Vec<String>,
    /// Who each of `ids` is, if it says so.
    #[serde(default, skip_serializing)]
    tags: Vec<Option<HolderTag>>,
    /// The replica of each of `ids`, where it is known.
    #[serde(default)]
    replicas: Vec<Option<String>>,
    /// How many the server named.
    #[serde(default)]
    count: usize,
}

/// A list of `seckill lock ls --json`.
#[derive(Debug, Deserialize)]
struct InspectorList {
    locks: Vec<LockRow>,
    failures: Vec<InspectorFailure>,
}

#[derive(Debug, Deserialize)]
struct InspectorFailure {
    reason: String,
}

/// Which process is which replica: the process ids, that of `r1` first.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaProcesses(pub(crate) Vec<u32>);

impl ReplicaProcesses {
    fn name_of(&self, process: u32) -> Option<String> {
        self.0.iter().position(|id| *id == process).map(replica_name)
    }
}

impl HeldLocks {
    /// A state without locks.
    pub(crate) fn of_state(state: ListState) -> Self {
        Self { state, ..Self::default() }
    }

    pub(crate) fn failed(why: &str) -> Self {
        Self { reason: Some(short(why)), ..Self::of_state(ListState::Failed) }
    }

    /// Reads a list; `None` if it is none.
    pub(crate) fn parse(list: &str, replicas: &ReplicaProcesses) -> Option<Self> {
        let InspectorList { mut locks, failures } = serde_json::from_str(list).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let count = locks.len();
        locks.sort_by_key(LockRow::asked_first);
        locks.truncate(MAX_LOCKS);
        for lock in &mut locks {
            lock.complete(replicas, now_ms);
        }
        let reason = failures.first().map(|failure| short(&failure.reason));
        let state = if reason.is_some() { ListState::Failed } else { ListState::Listed };
        Some(Self { state, reason, age_ms: None, locks, count })
    }
}

impl LockRow {
    /// When its first holder asked for it; a lock without a tag comes last.
    fn asked_first(&self) -> u64 {
        let tags = self.holders.iter().filter_map(|holder| holder.tag.as_ref());
        tags.map(|tag| tag.asked_at_ms).min().unwrap_or(u64::MAX)
    }

    /// Shortens what other programs may have written, and names replicas.
    fn complete(&mut self, replicas: &ReplicaProcesses, now_ms: u64) {
        self.name = short(&self.name);
        self.reason = self.reason.as_deref().map(short);
        self.holder_count = self.holders.len();
        self.holders.truncate(MAX_OF_LOCK);
        for holder in &mut self.holders {
            let HolderRow { id, owner, place, .. } = holder;
            *id = short(id);
            for text in [owner, place] {
                *text = text.as_deref().map(short);
            }
            let tag = holder.tag.as_mut();
            if let Some(HolderTag { host, process, asked_at_ms }) = tag {
                *host = short(host);
                holder.replica = replicas.name_of(*process);
                holder.asked_ms_ago = Some(now_ms.saturating_sub(*asked_at_ms));
            }
        }
        let WaiterRows { ids, tags, count, replicas: names, .. } = &mut self.waiters;
        *count = ids.len();
        ids.truncate(MAX_OF_LOCK);
        tags.truncate(MAX_OF_LOCK);
        *names = tags.iter().map(|tag| replicas.name_of(tag.as_ref()?.process)).collect();
        for id in ids {
            *id = short(id);
        }
    }
}

#[cfg(test)]
#[path = "lock_rows_tests.rs"]
mod tests;
