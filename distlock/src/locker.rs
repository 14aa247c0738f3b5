//! The interface that a mechanism implements: acquire, renew, release, and giving back what an
//! attempt without an answer may have taken. Waiting, retries, the watchdog, loss and metrics are
//! written once, above it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::keyed::KeyedMutex;
use crate::{Belief, Guarantees, LockError, LockName, Owner, Token, Wake};

/// One acquisition, described.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to lock.
    pub name: LockName,
    /// Who asks; the same value in every attempt of one acquisition, and in a re-entry.
    pub owner: Owner,
    /// Whether the owner may hold the lock already: a caller passed it in, for re-entry. If not,
    /// nobody has used it before, and what it holds was taken by an earlier attempt of this very
    /// acquisition, whose answer was lost.
    pub may_hold: bool,
    /// This acquisition and no other: a re-entry has the owner of the first one, but another id.
    pub id: Uuid,
    /// How long the server keeps the lock if nobody renews or releases it.
    pub lease: Duration,
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

/// How a renewal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold may be believed until then.
    Renewed(Belief),
    /// The server says that it is not the caller's any more.
    Lost,
    /// No answer: neither success nor loss.
    Unknown,
}

/// A lock mechanism.
#[async_trait]
pub trait Locker: Send + Sync + 'static {
    /// Its name in metrics and tables.
    fn name(&self) -> &'static str;

    /// What the mechanism promises.
    fn guarantees(&self) -> Guarantees;

    /// An owner for a new acquisition, in the mechanism's own format.
    fn fresh_owner(&self) -> Owner {
        Owner::fresh()
    }

    /// Whether of all tasks of this process that want one name only one goes to the server, while
    /// the others queue in the process. Not for readers, who share, nor where the server queues.
    fn has_first_stage(&self) -> bool {
        let guarantees = self.guarantees();
        guarantees.is_on_a_server() && !guarantees.fair.is_yes()
    }

    /// Whether its servers answer, as far as an acquisition needs them: one round trip, for health
    /// checks. Fails with [`LockError::Backend`]. Mechanisms that do not say otherwise do not look.
    async fn check_servers(&self) -> Result<(), LockError> {
        Ok(())
    }

    /// Waits until nothing is under way that the mechanism itself has left to the background.
    /// Mechanisms that do not say otherwise leave nothing there.
    async fn flush(&self) {}

    /// The turns that are the whole lock, where there is nothing else to it: nothing that can fail,
    /// end by itself or be left behind, and so nothing of what stands above mechanisms is needed.
    #[doc(hidden)]
    fn turns(&self) -> Option<&KeyedMutex> {
        None
    }

    /// Starts an acquisition. Asks no server yet.
    fn begin(&self, request: Request) -> Box<dyn Acquisition>;
}

/// One acquisition on its way.
#[async_trait]
pub trait Acquisition: Send + 'static {
    /// One attempt; `None` if somebody else holds the lock. It never waits for the holder. Fails
    /// with [`LockError::Backend`] if the server does not answer: the outcome is then unknown, and
    /// [`Acquisition::abandon`] follows. Once begun it is always finished, in the background if
    /// the caller has gone.
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError>;

    /// When to look again after an attempt that found the lock busy. The signal is dropped when
    /// the caller's wait is over or the caller has gone.
    fn wake(&mut self) -> Wake<'_> {
        Wake::Poll
    }

    /// Whether what was last found in the way has no lease or session, though the kind has them.
    fn is_endless(&self) -> bool {
        false
    }

    /// Whether this acquisition has something to give back although its attempts were answered:
    /// a place in a queue, a connection. Then [`Acquisition::abandon`] is called when the caller
    /// gives up.
    fn is_queued(&self) -> bool {
        false
    }

    /// Leaves nothing behind: gives back whatever an attempt with an unknown outcome may have
    /// taken, and leaves the queue.
    async fn abandon(&mut self) -> Result<(), LockError>;
}

/// A held lock.
#[async_trait]
pub trait Hold: Send + 'static {
    /// Until when the hold may be believed, unless it is renewed.
    fn belief(&self) -> Belief;

    /// The fencing token of this ownership, where the mechanism makes one itself.
    fn token(&self) -> Option<Token> {
        None
    }

    /// What the watchdog needs to keep the hold alive; `None` if it cannot be renewed.
    fn upkeep(&self) -> Option<Upkeep> {
        None
    }

    /// Frees the lock if it is still this hold's. Called again, if the mechanism is idempotent and
    /// the answer was lost.
    async fn release(&mut self) -> Result<Release, LockError>;

    /// Hands out the database transaction that the hold lives in; from then on its end is the end
    /// of the hold.
    #[cfg(feature = "mysql")]
    fn lend(&mut self) -> Option<crate::mysql::LentTransaction> {
        None
    }
}

/// How a hold is kept alive. Holds with the same renewer are renewed together.
#[derive(Clone)]
pub struct Upkeep {
    /// Who renews it.
    pub renewer: Arc<dyn Renewer>,
    /// The hold.
    pub request: Request,
}

/// Renews holds, many at a time.
#[async_trait]
pub trait Renewer: Send + Sync + 'static {
    /// Renews the holds of these requests by their own leases: one answer each, in their order.
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal>;

    /// The most holds of one call.
    fn batch(&self) -> usize {
        100
    }
}
