//! What can go wrong. Busy is not an error: it becomes one only when the caller's wait is over.

use std::time::Duration;

/// Why a lock was not taken, not kept or not released.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else held the lock for as long as the caller was willing to wait.
    #[error(
        "the lock was still held by somebody else after {} ms{}",
        waited.as_millis(),
        if *is_endless { ", and has no lease or session that could end" } else { "" }
    )]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// Whether what is held has no lease or session that could end, though its kind has them,
        /// as far as the kind sees it (docs/locks.md, "Odd states"): no holder of that kind leaves
        /// it so, and if its holder is dead it stays until somebody frees it by force.
        is_endless: bool,
    },
    /// The lock was lost before the work was done, or before its owner wanted to enter it again.
    #[error("the lock was lost before the work was done")]
    Lost,
    /// The caller does not hold what it wants to release or change.
    #[error("the lock is not the caller's")]
    NotOwner,
    /// The key holds a lock of another kind, or something that is no lock.
    #[error("the name is in use by a lock of another kind")]
    HeldByOtherKind,
    /// The server did not answer, or answered with an error. Whatever the call may have left
    /// there is given back in the background, and otherwise ends with its lease.
    #[error("the lock's server failed: {0}")]
    Backend(String),
    /// There was no connection to the lock's server: the pool is dry, or none can be made. Nothing
    /// was asked.
    #[error("no connection to the lock's server: {0}")]
    NoConnection(String),
    /// The request was refused before a server was asked.
    #[error("{field}: {limit}")]
    BadRequest {
        /// The offending field.
        field: &'static str,
        /// What it has to be.
        limit: String,
    },
    /// This kind cannot do that, or needs a server that the caller did not configure.
    #[error("the lock kind needs {0}")]
    Unsupported(&'static str),
}

impl LockError {
    /// Whether the outcome of the call is unknown: the server may have acted.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Backend(_))
    }
}

/// The outcome of a wait; `None` if it was over too soon.
pub(crate) fn in_time<T>(outcome: Result<T, LockError>) -> Result<Option<T>, LockError> {
    match outcome {
        Ok(taken) => Ok(Some(taken)),
        Err(LockError::TimedOut { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(feature = "redis")]
impl From<::redis::RedisError> for LockError {
    fn from(error: ::redis::RedisError) -> Self {
        if error.code() == Some("WRONGTYPE") {
            return Self::HeldByOtherKind;
        }
        if error.code() == Some("LOST") {
            return Self::Lost;
        }
        if error.code() == Some("MOVED") {
            let needed = "it is a node of a Redis Cluster, whose address begins redis+cluster://";
            return Self::Backend(needed.into());
        }
        Self::Backend(error.to_string())
    }
}
