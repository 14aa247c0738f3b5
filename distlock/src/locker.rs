//! The interface that a mechanism implements: acquire and release, and giving back what an attempt
//! without an answer may have taken.

use std::time::Duration;

use async_trait::async_trait;

use crate::{Belief, Guarantees, LockError, LockName, Owner, Wake};

/// One acquisition, described.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to lock.
    pub name: LockName,
    /// Who asks; the same value in every attempt of one acquisition.
    pub owner: Owner,
    /// How long the server keeps the lock if it is never released.
    pub lease: Duration,
}

/// The answer to one attempt.
pub enum Attempt {
    /// The caller holds the lock.
    Held(Box<dyn Hold>),
    /// Somebody else does; look again when the wake says so.
    Busy(Wake),
}

/// How a release ended. Only the first is what a holder hopes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The caller's own hold was freed.
    Released,
    /// The lock is somebody else's by now; nothing was done.
    HeldByOther,
    /// Nobody holds it: the lease ended, or somebody removed it; nothing was done.
    Gone,
}

/// A lock mechanism.
#[async_trait]
pub trait Locker: Send + Sync + 'static {
    /// What the mechanism promises.
    fn guarantees(&self) -> Guarantees;

    /// One attempt. Never waits for the holder. Fails with [`LockError::Backend`] if the server
    /// does not answer: the outcome is then unknown, and [`Locker::abandon`] follows.
    async fn acquire(&self, request: &Request) -> Result<Attempt, LockError>;

    /// Gives back whatever an attempt with an unknown outcome may have taken.
    async fn abandon(&self, request: &Request) -> Result<(), LockError>;
}

/// A held lock.
#[async_trait]
pub trait Hold: Send + 'static {
    /// Until when the hold may be believed.
    fn belief(&self) -> Belief;

    /// Frees the lock if it is still this hold's.
    async fn release(self: Box<Self>) -> Result<Release, LockError>;
}
