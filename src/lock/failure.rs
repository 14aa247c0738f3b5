//! Why a command about locks fails: an exit code and a sentence. The codes are those of sysexits.h.

use std::io;

use distlock::LockError;

use crate::store::StoreError;

/// Bad usage, as in all commands of this program.
pub(super) const BAD_USAGE: u8 = 2;
/// The lock's server cannot be reached or failed; a retry may help (`EX_UNAVAILABLE`).
pub(super) const SERVER_FAILED: u8 = 69;
/// Another owner held the lock for the whole wait (`EX_TEMPFAIL`).
pub(super) const TIMED_OUT: u8 = 75;
/// The lock was lost (`EX_PROTOCOL`).
pub(super) const LOST: u8 = 76;
/// The server answers and refuses; a retry does not help (`EX_CONFIG`).
pub(super) const UNUSABLE: u8 = 78;
/// The command ran within its window. No number of sysexits.h: that list ends with 78.
pub(super) const RAN_ALREADY: u8 = 79;
/// The server stores no names of locks of that kind.
pub(super) const CANNOT_LIST: u8 = 80;

/// Why a command did not do its work, or ended early.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u8,
    pub(super) sentence: String,
}

impl Failure {
    pub(super) fn new(code: u8, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }

    /// A failure about that lock, or about a list.
    pub(super) fn about(what: impl std::fmt::Display, error: &LockError) -> Self {
        Self::new(code_of_error(error), format!("{what}: {error}"))
    }
}

/// What main prints and returns: the exit code, and the line for stderr if there is one.
pub(super) fn ended(outcome: Result<u8, Failure>) -> (u8, Option<String>) {
    match outcome {
        Ok(code) => (code, None),
        Err(failure) => (failure.code, Some(failure.sentence)),
    }
}

pub(super) fn code_of_opening(error: &anyhow::Error) -> u8 {
    if error.is::<io::Error>() {
        return BAD_USAGE; // A file that the command line names.
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => code_of_error(error),
        (None, Some(StoreError::Unexpected(_) | StoreError::AccessDenied { .. })) => UNUSABLE,
        (None, _) => SERVER_FAILED,
    }
}

pub(super) fn code_of_error(error: &LockError) -> u8 {
    match error {
        LockError::TimedOut { .. } => TIMED_OUT,
        LockError::BadRequest { .. } | LockError::Unsupported(_) => BAD_USAGE,
        LockError::HeldByOtherKind | LockError::AccessDenied(_) => UNUSABLE,
        LockError::Lost | LockError::NotOwner => LOST,
        LockError::Backend(_) | LockError::NoConnection(_) => SERVER_FAILED,
    }
}
