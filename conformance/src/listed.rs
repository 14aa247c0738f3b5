//! A whole list of locks.

use distlock::{LockError, Locks};

/// The locks of a kind that lists its own, whose names begin so, of all pages.
pub async fn listed(locks: &Locks, prefix: &str) -> Result<Vec<String>, LockError> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor, 100).await?;
        names.extend(page.locks.into_iter().map(|lock| lock.name));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(names);
        }
    }
}
