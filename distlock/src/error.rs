//! What can go wrong. Busy is not an error: it becomes one only when the caller's wait is over.

use std::time::Duration;

use crate::LockHolder;

/// Why a lock was not taken, not kept or not released.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another owner held the lock during the whole wait.
    #[error(
        "the lock was still held by another owner after {} ms{}{}",
        waited.as_millis(),
        if *has_no_expiry { ", and has no lease or session that could end" } else { "" },
        holder.as_ref().map(|holder| format!("; last seen: {holder}")).unwrap_or_default()
    )]
    TimedOut {
        /// How long the caller waited.
        waited: Duration,
        /// Whether the key in the way has no lease or session that could end, although its kind has
        /// them (docs/locks/odd-states.md). No holder of that kind leaves such a key. If its holder
        /// is dead, it stays until an operator deletes it.
        has_no_expiry: bool,
        /// The holder that was seen last, where the wait was half a second or longer and the
        /// server knows its holder.
        holder: Option<Box<LockHolder>>,
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
    /// There was no connection to the lock's server: the pool has none free, or none can be made.
    /// Nothing was sent.
    #[error("no connection to the lock's server: {0}")]
    NoConnection(String),
    /// The server denies access: the login is refused, or the user lacks a right, which the text
    /// names. The outcome is as unknown as with [`LockError::Backend`]: a script may end halfway.
    #[error("the lock's server denies access: {0}")]
    AccessDenied(String),
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
        matches!(self, Self::Backend(_) | Self::AccessDenied(_))
    }

    /// The error of a grant whose lease had ended when its answer came.
    pub(crate) fn lease_expired(lease: Duration) -> Self {
        let lease_ms = lease.as_millis();
        Self::Backend(format!("its answer took longer than the lease of {lease_ms} ms"))
    }
}

/// The outcome of a wait; `None` for a time-out.
pub(crate) fn timeout_as_none<T>(outcome: Result<T, LockError>) -> Result<Option<T>, LockError> {
    match outcome {
        Ok(taken) => Ok(Some(taken)),
        Err(LockError::TimedOut { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How the error text begins where a script runs a command that its user may not run: that of
/// Redis 7.0, then that of Valkey. It has no error code of its own.
#[cfg(feature = "redis")]
const DENIED_TO_SCRIPT: [&str; 2] =
    ["The user executing the script can't run this command", "ACL failure in script"];

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
        let detail = error.detail().unwrap_or("its login is refused");
        if matches!(error.code(), Some("NOPERM" | "NOAUTH" | "WRONGPASS"))
            || error.kind() == ::redis::ErrorKind::AuthenticationFailed
            || DENIED_TO_SCRIPT.iter().any(|text| detail.starts_with(text))
        {
            return Self::AccessDenied(detail.to_owned());
        }
        Self::Backend(error.to_string())
    }
}
