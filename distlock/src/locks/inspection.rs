//! The calls of [`Locks`] that read locks from outside and free them by force.

use std::sync::Arc;

use super::Locks;
use crate::inspector::MAX_PAGE;
use crate::{ListCursor, LockError, LockInspector, LockName, LockPage, LockSnapshot};

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

    /// Frees the hold of that [`LockHolder::id`](crate::LockHolder::id) by force, and wakes a
    /// waiter as a release does. Another owner that has come meanwhile keeps the lock. Returns
    /// whether it was still held.
    ///
    /// The holder is not stopped: it learns of the loss at its next renewal or release, and works
    /// beside its successor until then. Fails as [`Locks::inspect`] does.
    pub async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        self.inspector()?.force_release(name, id).await
    }

    fn inspector(&self) -> Result<Arc<dyn LockInspector>, LockError> {
        self.locker.inspector().ok_or(LockError::Unsupported("a server, to be inspected"))
    }
}
