//! The interface that a mechanism implements: acquire, renew, release, and giving back what an
//! attempt without an answer may have taken. Waiting, retries, the watchdog, loss and metrics are
//! written once, above it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::{
    Guarantees, LockError, LockInspector, LockName, Owner, RenewalKind, Token, Validity,
    WakeStrategy,
};

/// One acquisition, described.
#[derive(Debug, Clone)]
pub struct Request {
    /// What to lock.
    pub name: LockName,
    /// The owner: the same value in every attempt of one acquisition, and in a re-entry.
    pub owner: Owner,
    /// Whether the owner may hold the lock already, because a caller passed it in for re-entry. If
    /// not, the owner is new: a hold of it was taken by an earlier attempt of this acquisition,
    /// whose answer was lost.
    pub may_hold: bool,
    /// This acquisition and no other: a re-entry has the owner of the first one, but another id.
    pub id: Uuid,
    /// How long the server keeps the lock without a renewal or a release.
    pub lease: Duration,
}

/// How a release ended. Only the first is what a holder hopes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// The caller's own hold was freed.
    Released,
    /// Another owner holds the lock; nothing was done.
    HeldByOther,
    /// No owner holds it: the lease ended or the key was deleted; nothing was done.
    Gone,
}

/// How a renewal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold was renewed until then.
    Renewed(Validity),
    /// The server says that it is not the caller's any more.
    Lost,
    /// No answer: neither success nor loss.
    Unknown,
}

/// A lock mechanism.
// `Any`, so that `Locks` recognizes `local`, whose whole lock is a queue of this process: with
// attempts and boxed futures it had a sixth of its speed (docs/locks/cost-history.md). That queue
// is private, so no method of a public trait can name it.
pub trait Locker: Any + Send + Sync {
    /// The mechanism's name in metrics and tables.
    fn name(&self) -> &'static str;

    /// What the mechanism promises.
    fn guarantees(&self) -> Guarantees;

    /// An owner for a new acquisition, in the mechanism's own format.
    fn fresh_owner(&self) -> Owner {
        Owner::fresh()
    }

    /// Whether only one task of this process goes to the server for a name, while the others queue
    /// in the process. `false` for readers, which share, and where the server itself queues.
    fn uses_local_queue(&self) -> bool {
        let guarantees = self.guarantees();
        guarantees.is_on_a_server() && !guarantees.fair.is_yes()
    }

    /// Whether a hold can be left to its servers for a time: all of it ends with a lease that can
    /// be renewed. A session or a transaction ends with its process.
    fn has_renewable_lease(&self) -> bool {
        self.guarantees().renewal == RenewalKind::Yes
    }

    /// Whether its servers answer, as far as an acquisition needs them: one round trip, for health
    /// checks. Fails with [`LockError::Backend`], or with [`LockError::Unsupported`] for good.
    /// Mechanisms that do not say otherwise do not look.
    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }

    /// Waits until nothing is under way that the mechanism itself has left to the background.
    /// Mechanisms that do not say otherwise leave nothing there.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {})
    }

    /// The mechanism by which many share a lock that this one takes alone; `None` for mechanisms
    /// without one.
    fn read_side(&self) -> Option<Arc<dyn Locker>> {
        None
    }

    /// What reads its locks from outside; `None` for mechanisms without a server.
    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        None
    }

    /// Starts an acquisition. Asks no server yet.
    fn begin(&self, request: Request) -> Box<dyn Acquisition>;
}

/// One acquisition on its way.
pub trait Acquisition: Send + 'static {
    /// Makes one attempt; returns `None` if another owner holds the lock. It never waits for the
    /// holder. Fails with [`LockError::Backend`] if the server does not answer: the outcome is then
    /// unknown, and [`Acquisition::abandon`] follows. An attempt always runs to its end, in the
    /// background if the caller was dropped.
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>>;

    /// When to look again after an attempt that found the lock busy. The signal is dropped when
    /// the caller's wait is over or its future was dropped.
    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Poll
    }

    /// Whether what was last found in the way has no lease or session, though the kind has them.
    /// Asked once, at the end of a wait; may ask the server.
    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move { false })
    }

    /// Whether this acquisition has something to give back although its attempts were answered:
    /// a place in a queue, a connection. Then [`Acquisition::abandon`] is called when the caller
    /// gives up.
    fn is_queued(&self) -> bool {
        false
    }

    /// Leaves nothing behind: gives back whatever an attempt with an unknown outcome may have
    /// taken, and leaves the queue.
    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>>;
}

/// A held lock.
pub trait Hold: Send + 'static {
    /// The validity of the hold without a renewal.
    fn validity(&self) -> Validity;

    /// The owner on the servers, where it is another one than the request's: some mechanisms change
    /// it after an attempt.
    fn owner(&self) -> Option<&Owner> {
        None
    }

    /// The fencing token of this ownership, where the mechanism makes one itself.
    fn token(&self) -> Option<Token> {
        None
    }

    /// What the watchdog needs to keep the hold alive; `None` if it cannot be renewed.
    fn renewal_target(&self) -> Option<RenewalTarget> {
        None
    }

    /// Frees the lock if it is still this hold's. Called again, if the mechanism is idempotent and
    /// the answer was lost.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>>;

    /// Hands out the database transaction that the hold lives in; from then on its end is the end
    /// of the hold.
    #[cfg(feature = "mysql")]
    fn take_transaction(&mut self) -> Option<crate::lock_transaction::LockTransaction> {
        None
    }
}

/// How a hold is kept alive. Holds with the same renewer are renewed together.
#[derive(Clone)]
pub struct RenewalTarget {
    /// Renews the hold.
    pub renewer: Arc<dyn Renewer>,
    /// The hold.
    pub request: Request,
}

/// Renews holds, many at a time.
pub trait Renewer: Send + Sync + 'static {
    /// Renews the holds of these requests by their own leases: one answer each, in their order.
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>>;

    /// The most holds of one call.
    fn batch(&self) -> usize {
        100
    }
}
