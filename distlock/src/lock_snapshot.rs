//! What servers know of a lock: its state, holders and waiters.

use std::fmt;
use std::time::Duration;

use crate::{OwnerTag, RenewalKind, Token};

/// What servers know of one lock at one moment; out of date when it arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockSnapshot {
    /// The kind as which the lock was read. Kinds with one form of keys cannot be distinguished.
    pub kind: &'static str,
    /// The lock's name. A name that no lock can have is shown with escapes, as damaged.
    pub name: String,
    /// Whether it is held, and by which owners.
    pub state: LockState,
    /// The contenders that wait for it.
    pub waiters: LockWaiters,
    /// Whether further contenders wait beyond those.
    pub has_more_waiters: bool,
    /// How holds of this kind are kept alive. Whether a hold is renewed, only its process knows.
    pub renewal: RenewalKind,
}

/// Whether a lock is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// No owner holds it.
    Free,
    /// These owners hold it; more than one only if they share it.
    Held(Vec<LockHolder>),
    /// Some servers store these owners, but too few of them for a hold: an attempt on its way, or
    /// the remains of one.
    Partial(Vec<LockHolder>),
    /// The server does not say.
    Unknown {
        /// Why.
        reason: &'static str,
        /// Whether it will not say it later either: to this user, or at all.
        is_final: bool,
    },
    /// The name stores something that is no lock of this kind; the text says what.
    Damaged(String),
}

/// One owner of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// What distinguishes this hold on its server: the owner, a znode, or a connection.
    pub id: String,
    /// The owner as the server stores it; `None` if the kind stores none.
    pub owner: Option<String>,
    /// What the owner says of its process, if it says it
    /// ([`Locks::with_owner_tag`](crate::Locks::with_owner_tag)).
    pub tag: Option<OwnerTag>,
    /// How often the owner has entered; `None` if the server does not count.
    pub holds: Option<u64>,
    /// Whether other owners may hold the lock at the same time, as readers do.
    pub shares: bool,
    /// How long the server keeps the hold.
    pub lease: RemainingLease,
    /// How long the owner has held the lock, by the server's clock; `None` if the server does not
    /// store since when.
    pub held_for: Option<Duration>,
    /// The fencing token, if it is stored with the lock.
    pub token: Option<Token>,
    /// The holder's host and process or port, if the server stores them.
    pub place: Option<String>,
    /// How many servers or members store this hold; 1 for kinds of one server.
    pub servers: usize,
}

/// How long a hold lasts without a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingLease {
    /// The server ends it after this time.
    Ends(Duration),
    /// Nothing ends it but a release: a dead holder keeps it.
    NoExpiry,
    /// The session or transaction of its holder ends it.
    Session,
    /// The holder's own clock ends it, at this time in ms since 1970; the server does not.
    ClientClock(u64),
}

/// The contenders that wait for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockWaiters {
    /// The server does not know its waiters.
    Unknown,
    /// In the order in which they get the lock; at most the first 1,000.
    Ordered(Vec<LockWaiter>),
    /// In no order; at most 1,000.
    Unordered(Vec<LockWaiter>),
}

/// One contender that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaiter {
    /// What distinguishes it on its server: a request, a znode, a lease, or a connection.
    pub id: String,
    /// What its owner says of its process, if the server stores it
    /// ([`Locks::with_owner_tag`](crate::Locks::with_owner_tag)).
    pub tag: Option<OwnerTag>,
}

#[cfg(any(
    feature = "etcd",
    feature = "mysql",
    feature = "nats",
    feature = "redis",
    feature = "zookeeper"
))]
impl LockHolder {
    /// A hold of that owner on one server, of which nothing else is known.
    pub(crate) fn of_owner(owner: String, lease: RemainingLease) -> Self {
        Self {
            id: owner.clone(),
            tag: OwnerTag::find(&owner),
            owner: Some(owner),
            holds: None,
            shares: false,
            lease,
            held_for: None,
            token: None,
            place: None,
            servers: 1,
        }
    }
}

/// The waiter with that id, and the tag that is in it.
impl From<String> for LockWaiter {
    fn from(id: String) -> Self {
        Self { tag: OwnerTag::find(&id), id }
    }
}

/// The owner, its tag, and how long the server keeps the hold.
impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.as_deref().unwrap_or(&self.id);
        write!(f, "{}", owner.escape_debug())?;
        if let Some(tag) = &self.tag {
            write!(f, " ({tag})")?;
        }
        write!(f, ", {}", self.lease)
    }
}

impl fmt::Display for RemainingLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends(left) => write!(f, "lease {:.1} s", left.as_secs_f64()),
            Self::NoExpiry => f.write_str("no expiry"),
            Self::Session => f.write_str("until its session ends"),
            Self::ClientClock(until_ms) => write!(f, "until {until_ms} by its own clock"),
        }
    }
}

impl LockState {
    /// The owners that are stored.
    #[must_use]
    pub fn holders(&self) -> &[LockHolder] {
        match self {
            Self::Held(holders) | Self::Partial(holders) => holders,
            Self::Free | Self::Unknown { .. } | Self::Damaged(_) => &[],
        }
    }

    /// Held by these, or free without any.
    #[cfg(any(
        feature = "etcd",
        feature = "mysql",
        feature = "nats",
        feature = "redis",
        feature = "zookeeper"
    ))]
    pub(crate) fn of(holders: Vec<LockHolder>) -> Self {
        if holders.is_empty() { Self::Free } else { Self::Held(holders) }
    }
}
