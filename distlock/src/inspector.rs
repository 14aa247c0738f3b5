//! Locks seen from outside: the holders of a lock, their leases, and its waiters.
//!
//! Each kind that lives on a server has a [`LockInspector`]. Reading takes, renews and changes no
//! lock. What a server does not store, a snapshot does not claim: the fields say so.

use std::time::Duration;

use async_trait::async_trait;

use crate::{LockError, LockName, Locks, RenewalKind, Token};

/// The most locks of one page.
pub(crate) const MAX_PAGE: usize = 1000;

/// The most waiters of one snapshot.
#[cfg(any(feature = "redis", feature = "mysql", feature = "zookeeper"))]
pub(crate) const MAX_WAITERS: usize = 1000;

/// Why a name is shown as damaged that no lock can have.
pub(crate) const NO_LOCK_NAME: &str = "its name is no name of a lock";

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
    /// The server does not say; the text is the reason.
    Unknown(&'static str),
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
    /// How often the owner has entered; `None` if the server does not count.
    pub holds: Option<u64>,
    /// Whether other owners may hold the lock at the same time, as readers do.
    pub shares: bool,
    /// How long the server keeps the hold.
    pub lease: RemainingLease,
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
    Ordered(Vec<String>),
    /// In no order; at most 1,000.
    Unordered(Vec<String>),
}

/// One page of locks.
#[derive(Debug)]
pub struct LockPage {
    /// The locks that are not free, at most as many as were asked for. A page may be empty although
    /// others follow. A lock that is moved or taken again meanwhile may appear twice.
    pub locks: Vec<LockSnapshot>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<ListCursor>,
}

/// Where a page of locks begins.
pub struct ListCursor(pub(crate) CursorPosition);

/// What a cursor remembers, by backend.
pub(crate) enum CursorPosition {
    /// The last name of the page before, which need not be UTF-8.
    #[cfg(any(feature = "mysql", feature = "zookeeper"))]
    After(Vec<u8>),
    /// The last row of the page before.
    #[cfg(feature = "mysql")]
    Row(crate::mysql::row_inspector::RowPosition),
    /// Where SCAN continues.
    #[cfg(feature = "redis")]
    Scan(crate::redis::scan::ScanPosition),
    /// Where the list of a member continues.
    Member(crate::composite_inspector::MemberPosition),
}

/// Reads locks of one kind, and frees them by force.
#[async_trait]
pub trait LockInspector: Send + Sync + 'static {
    /// Reads one lock.
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError>;

    /// Reads a page of the locks whose names begin with `prefix`.
    async fn list(
        &self,
        prefix: &str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> Result<LockPage, LockError>;

    /// Frees the hold with that [`LockHolder::id`], and wakes a waiter as its release does. Returns
    /// whether it was still held.
    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError>;
}

impl Locks {
    /// Reads what the servers know of a lock; takes and changes nothing.
    ///
    /// Fails with [`LockError::Backend`], [`LockError::AccessDenied`],
    /// [`LockError::NoConnection`], or with [`LockError::Unsupported`] for a kind without a server.
    pub async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        self.inspector()?.inspect(name).await
    }

    /// Reads a page of 1 to 1000 locks that are not free and whose names begin with `prefix`.
    /// `None` begins the list; each page has the cursor of the next.
    ///
    /// Redis is read by SCAN, so a prefix that other keys share shows them as damaged locks. Fails
    /// as [`Locks::inspect`] does; `mysql-named` cannot be listed, because its server stores hashes
    /// of names.
    pub async fn list(
        &self,
        prefix: &str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> Result<LockPage, LockError> {
        if !(1..=MAX_PAGE).contains(&limit) {
            let limit = format!("must be 1 to {MAX_PAGE}, is {limit}");
            return Err(LockError::BadRequest { field: "page", limit });
        }
        self.inspector()?.list(prefix, cursor, limit).await
    }

    /// Frees the hold of that [`LockHolder::id`] by force, and wakes a waiter as a release does.
    /// Another owner that has come meanwhile keeps the lock. Returns whether it was still held.
    ///
    /// The holder is not stopped: it learns of the loss at its next renewal or release, and works
    /// beside its successor until then. Fails as [`Locks::inspect`] does.
    pub async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        self.inspector()?.force_release(name, id).await
    }

    fn inspector(&self) -> Result<std::sync::Arc<dyn LockInspector>, LockError> {
        self.locker.inspector().ok_or(LockError::Unsupported("a server, to be inspected"))
    }
}

#[cfg(any(feature = "redis", feature = "mysql", feature = "zookeeper"))]
impl LockHolder {
    /// A hold of that owner on one server, of which nothing else is known.
    pub(crate) fn of_owner(owner: String, lease: RemainingLease) -> Self {
        Self {
            id: owner.clone(),
            owner: Some(owner),
            holds: None,
            shares: false,
            lease,
            token: None,
            place: None,
            servers: 1,
        }
    }
}

impl LockState {
    /// The owners that are stored.
    #[must_use]
    pub fn holders(&self) -> &[LockHolder] {
        match self {
            Self::Held(holders) | Self::Partial(holders) => holders,
            Self::Free | Self::Unknown(_) | Self::Damaged(_) => &[],
        }
    }

    /// Held by these, or free without any.
    #[cfg(any(feature = "redis", feature = "mysql", feature = "zookeeper"))]
    pub(crate) fn of(holders: Vec<LockHolder>) -> Self {
        if holders.is_empty() { Self::Free } else { Self::Held(holders) }
    }
}
