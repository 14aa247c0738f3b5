//! Locks seen from outside: the holders of a lock, their leases, and its waiters
//! ([`LockSnapshot`]).
//!
//! Each kind that lives on a server has a [`LockInspector`]. Reading takes, renews and changes no
//! lock. What a server does not store, a snapshot does not claim: the fields say so.

use futures_util::future::BoxFuture;

use crate::{LockError, LockName, LockSnapshot};

/// The most locks of one page.
pub(crate) const MAX_PAGE: usize = 1000;

/// The most waiters of one snapshot.
#[cfg(any(feature = "etcd", feature = "redis", feature = "mysql", feature = "zookeeper"))]
pub(crate) const MAX_WAITERS: usize = 1000;

/// Why a name is shown as damaged that no lock can have.
pub(crate) const NO_LOCK_NAME: &str = "its name is no name of a lock";

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
    #[cfg(any(feature = "etcd", feature = "mysql", feature = "zookeeper"))]
    After(Vec<u8>),
    /// The keys that are left.
    #[cfg(feature = "nats")]
    Keys(Vec<String>),
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
pub trait LockInspector: Send + Sync + 'static {
    /// Reads one lock.
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>>;

    /// Reads a page of the locks whose names begin with `prefix`.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>>;

    /// Frees the hold with that [`LockHolder::id`](crate::LockHolder::id), and wakes a waiter as
    /// its release does. Returns whether it was still held.
    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>>;
}
