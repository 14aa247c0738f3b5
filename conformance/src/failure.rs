//! What went wrong in another process.

use distlock::LockError;
use serde::{Deserialize, Serialize};

/// A [`LockError`] that was sent to another process, or what else stopped a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which one, as in `timed_out`.
    pub code: String,
    /// Its words.
    pub message: String,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { code: "io".into(), message: error.to_string() }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self { code: "database".into(), message: error.to_string() }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match error {
            LockError::TimedOut { .. } => "timed_out",
            LockError::Lost => "lost",
            LockError::NotOwner => "not_owner",
            LockError::HeldByOtherKind => "held_by_other_kind",
            LockError::Backend(_) => "backend",
            LockError::AccessDenied(_) => "access_denied",
            LockError::NoConnection(_) => "no_connection",
            LockError::BadRequest { .. } => "bad_request",
            LockError::Unsupported(_) => "unsupported",
        };
        Self { code: code.into(), message: error.to_string() }
    }
}
