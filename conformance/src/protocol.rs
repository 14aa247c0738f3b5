//! The protocol of a contender: one JSON object a line, in both directions.
//!
//! The first line in is a [`Setup`]; the answer is [`Response::Ready`]. Each later line is a
//! [`Command`] with a number. Commands run concurrently, and each is answered once, by a line with
//! its number. Lines without a number are news. All times are those of
//! [`now_ns`](crate::clock::now_ns).

use std::collections::BTreeMap;
use std::path::PathBuf;

use distlock::{LossCause, Release};
use serde::{Deserialize, Serialize};

use crate::addresses::Addresses;
pub use crate::failure::Failure;
pub use crate::section_record::SectionRecord;
use crate::variant::Variant;

/// The first line in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The kind, as [`LockKind`](distlock::LockKind) is written.
    pub kind: String,
    /// How its mechanism differs from the usual one.
    #[serde(default)]
    pub variant: Variant,
    /// The servers.
    #[serde(default)]
    pub addresses: Addresses,
    /// Whether tasks of the process queue in the process, where the kind does that.
    #[serde(default = "yes")]
    pub local_queue: bool,
    /// Whether an unused lock is taken and released first, so that no later command has to wait for
    /// a connection.
    #[serde(default = "yes")]
    pub warm_up: bool,
    /// The source of fencing tokens; none without it.
    #[serde(default)]
    pub token_source: Option<TokenSource>,
}

/// A source of fencing tokens that all processes share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// A folder.
    Folder(PathBuf),
    /// The database.
    Database,
}

fn yes() -> bool {
    true
}

/// A command with its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Its number, which the answer carries.
    pub id: u64,
    /// What to do.
    pub command: Command,
}

/// What a contender can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Take a lock: [`Response::Held`] or [`Response::Failed`]. A loss is reported by
    /// [`Response::Lost`].
    Lock(LockRequest),
    /// Release it: [`Response::Released`] or [`Response::Failed`].
    Release {
        /// The hold.
        handle: u64,
    },
    /// Drop its guard: [`Response::Done`].
    Drop {
        /// The hold.
        handle: u64,
    },
    /// Look whether it is lost: [`Response::Looked`].
    IsLost {
        /// The hold.
        handle: u64,
    },
    /// Return its validity: [`Response::Validity`].
    Validity {
        /// The hold.
        handle: u64,
    },
    /// Unless the hold is lost, add one to the number in the file: [`Response::Effected`].
    Effect {
        /// The hold.
        handle: u64,
        /// Made if it is not there.
        file: PathBuf,
    },
    /// Until the hold is lost: check it, and if it is held add one to the number in the file.
    /// [`Response::Done`] after the first time, [`Response::Watched`] at the end.
    Watch {
        /// The hold.
        handle: u64,
        /// Made if it is not there.
        file: PathBuf,
        /// The pause between two looks.
        pause_us: u64,
    },
    /// Read the stock of a name in the database, or replace it, whether the hold is lost or not:
    /// [`Response::Stock`].
    Stock {
        /// The hold.
        handle: u64,
        /// Whose stock.
        name: String,
        /// What it will be.
        units: Option<i64>,
        /// Whether the hold's fencing token is shown to the stock's fence first.
        fenced: bool,
    },
    /// Take one unit out of stock in the lock's own transaction, and commit that:
    /// [`Response::Stock`].
    SellInside {
        /// The hold.
        handle: u64,
        /// Whose stock.
        name: String,
    },
    /// Look at a lock of the kind `redisson` from outside: [`Response::Inspected`].
    Inspect {
        /// Its name.
        name: String,
    },
    /// Free such a lock, whatever its holder: [`Response::Freed`].
    ForceUnlock {
        /// Its name.
        name: String,
    },
    /// Take away rows of the database's locks that were free for so long: [`Response::Reaped`].
    Reap {
        /// For how long.
        unused_ms: u64,
    },
    /// Let tasks contend: [`Response::Contended`].
    Contend(Contest),
    /// Say how often a lock was busy: [`Response::Counted`].
    Count,
    /// Wait until no release and no abandoned attempt is under way: [`Response::Done`].
    Flush,
}

/// A lock to be taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockRequest {
    /// Its name.
    pub name: String,
    /// How long to wait for it.
    pub wait_ms: u64,
    /// Its lease.
    pub lease_ms: u64,
    /// Whether the lease is renewed; where this is not said, it is if the kind can.
    #[serde(default)]
    pub renewed: Option<bool>,
    /// How long it may be held.
    #[serde(default)]
    pub max_hold_ms: Option<u64>,
    /// Whether a fencing token is asked for.
    #[serde(default)]
    pub fenced: bool,
    /// The owner of a hold there is, for re-entry.
    #[serde(default)]
    pub as_owner: Option<String>,
}

/// Tasks that each take a lock, add one to a number in a file without any other guard, release,
/// and so on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contest {
    /// How each takes the lock.
    pub request: LockRequest,
    /// The number of tasks.
    pub tasks: u32,
    /// Each enters so often; a failure counts.
    pub rounds: u64,
    /// No new round is begun after that.
    #[serde(default)]
    pub until_ns: Option<u64>,
    /// Between reading the number and writing it; 0 yields once.
    pub hold_us: u64,
    /// The number; it has to be there.
    pub counter: PathBuf,
    /// Writes also if the lock was lost meanwhile.
    #[serde(default)]
    pub ignore_loss: bool,
}

/// A line from a contender.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// The number of the answered command; none if it is news.
    pub id: Option<u64>,
    /// When it was said.
    pub at_ns: u64,
    /// What is said.
    pub response: Response,
}

/// A response or a piece of news.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// It is connected.
    Ready,
    /// That is done.
    Done,
    /// The lock is held.
    Held(AcquiredLock),
    /// It is not, or could not be released.
    Failed(Failure),
    /// How a release ended.
    Released(Outcome),
    /// News: a hold is lost. At most once per hold, and never after its release.
    Lost(LossReport),
    /// Whether it is lost.
    Looked {
        /// Whether it is.
        lost: bool,
    },
    /// Until when it is valid.
    Validity(ValidityReport),
    /// The outcome of an effect.
    Effected {
        /// False if the lock was lost.
        done: bool,
    },
    /// What is in stock now.
    Stock {
        /// None if the fence refused the token.
        units: Option<i64>,
    },
    /// What a lock looks like from outside.
    Inspected(LockInspection),
    /// The outcome of a lock that was freed from outside.
    Freed {
        /// Whether it was held.
        was_held: bool,
    },
    /// The number of rows that were removed.
    Reaped {
        /// Of all tables.
        rows: u64,
    },
    /// News: the end of a watch.
    Watched(WatchReport),
    /// The end of a contest.
    Contended(ContestResult),
    /// How often, in this process so far.
    Counted {
        /// A server was asked.
        attempts: u64,
        /// The server said that another owner holds the lock.
        busy: u64,
        /// A task got a lock after waiting for it.
        hand_offs: u64,
    },
}

/// A held lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AcquiredLock {
    /// Its handle in later commands; never 0, never used again.
    pub handle: u64,
    /// Its owner, for re-entry.
    pub owner: String,
    /// Its fencing token.
    pub token: Option<u64>,
    /// When it was asked for.
    pub asked_ns: u64,
    /// When it was there.
    pub acquired_ns: u64,
    /// Until when it is valid unless it is renewed; none if that never ends.
    pub valid_until_ns: Option<u64>,
}

/// The validity of a hold.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ValidityReport {
    /// Its end, unless it is renewed; none if it never ends.
    pub until_ns: Option<u64>,
    /// An instant at which that was known.
    pub looked_ns: u64,
}

/// A lock, seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInspection {
    /// Whether it is held.
    pub is_locked: bool,
    /// How long its lease lasts; as PTTL says it, negative if there is none.
    pub left_ms: i64,
}

/// A lost lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LossReport {
    /// The hold.
    pub handle: u64,
    /// Why.
    pub cause: Cause,
    /// When `lost()` said so.
    pub told_ns: u64,
    /// When its validity ended by the clock; none if it would not have.
    pub valid_until_ns: Option<u64>,
}

/// Why a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Its lease was not renewed in time.
    Expired,
    /// The server says so.
    Taken,
}

impl From<LossCause> for Cause {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Expired => Self::Expired,
            LossCause::Taken => Self::Taken,
        }
    }
}

/// What a watch saw.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct WatchReport {
    /// The hold.
    pub handle: u64,
    /// The number of effects.
    pub effects: u64,
    /// When the last look that found the lock held was begun.
    pub valid_ns: u64,
    /// When the last effect was done.
    pub last_effect_ns: u64,
    /// When the look that found the lock lost had ended.
    pub looked_ns: u64,
    /// The last instant before the longest time in which the loop did not run.
    pub slept_ns: u64,
    /// The first one after it.
    pub woke_ns: u64,
    /// Effects begun after that.
    pub effects_since: u64,
}

/// What a contest brought.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ContestResult {
    /// The record of every section, of each task in order.
    pub records: Vec<SectionRecord>,
    /// How often each failure was met, by [`Failure::code`].
    pub failures: BTreeMap<String, u64>,
}

/// How a release ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was the caller's and is free.
    Released,
    /// Another owner holds it.
    HeldByOther,
    /// No owner held it.
    Gone,
}

impl From<Release> for Outcome {
    fn from(release: Release) -> Self {
        match release {
            Release::Released => Self::Released,
            Release::HeldByOther => Self::HeldByOther,
            Release::Gone => Self::Gone,
        }
    }
}
