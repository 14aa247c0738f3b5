//! Supervises the lock of a command: how long it is valid, and when the command has to be ended.
//!
//! The lock library does not renew a lock that is a database transaction, because what is written
//! under it ends with the transaction. A command's effects do not. So a task checks the
//! transaction's connection at every third of the lease. The database ends a connection that is
//! silent for a lease.

use std::time::Duration;

use distlock::{Guard, LossCause, Validity};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::sale::transaction_of;
use crate::store::{StoreError, Transaction};

/// The longest single sleep: a process that is frozen while it sleeps notices the time this late.
const MAX_SLEEP: Duration = Duration::from_millis(25);

/// The shortest time for which a lock is left: within less, a server may not answer.
const MIN_REST: Duration = Duration::from_millis(100);

/// A held lock, for the run of a command.
pub(super) struct LockSupervisor {
    guard: Guard,
    transaction: Option<TransactionKeepAlive>,
    grace: Duration,
    since: Instant,
}

/// Why and by when a command has to be ended.
pub(super) struct Termination {
    pub(super) cause: LossCause,
    pub(super) kill_at: Instant,
}

impl LockSupervisor {
    /// Supervises a lock that was just taken. The command has `grace` to end after SIGTERM, and at
    /// most half of the validity: a server may give less than the lease that was asked for.
    pub(super) async fn new(
        mut guard: Guard,
        lease: Duration,
        grace: Duration,
    ) -> Result<Self, StoreError> {
        let since = Instant::now();
        let transaction = match guard.take_transaction() {
            Some(lent) => {
                let transaction = transaction_of(lent);
                Some(TransactionKeepAlive::new(transaction, lease).await?)
            }
            None => None,
        };
        let validity = guard.validity().deadline();
        let half = validity.map(|ends| ends.saturating_duration_since(since) / 2);
        let grace = half.map_or(grace, |half| grace.min(half));
        Ok(Self { guard, transaction, grace, since })
    }

    /// Whether the lock is no longer valid.
    pub(super) fn is_lost(&self) -> bool {
        match &self.transaction {
            Some(keep_alive) => keep_alive.validity.borrow().is_none_or(Validity::has_ended),
            None => self.guard.is_lost(),
        }
    }

    /// Resolves when the command must be ended: a grace before the validity time ends, or when the
    /// server says that the lock is gone. Renewals move that time.
    pub(super) async fn loss_deadline(&self) -> Termination {
        loop {
            let Some(validity) = self.validity() else {
                let kill_at = Instant::now() + self.grace;
                return Termination { cause: LossCause::Taken, kill_at };
            };
            let Some(deadline) = validity.deadline() else {
                self.changed().await;
                continue;
            };
            let due = deadline.checked_sub(self.grace).unwrap_or(deadline);
            tokio::select! {
                biased;
                () = sleep_until(due.min(Instant::now() + MAX_SLEEP)) => {
                    if Instant::now() >= due && self.validity() == Some(validity) {
                        return Termination { cause: LossCause::Expired, kill_at: deadline };
                    }
                }
                () = self.changed() => {}
            }
        }
    }

    /// The validity time as of now; `None` if the server says that the lock is not held.
    fn validity(&self) -> Option<Validity> {
        match &self.transaction {
            Some(keep_alive) => *keep_alive.validity.borrow(),
            None => match self.guard.lost_signal().cause() {
                Some(LossCause::Taken) => None,
                Some(LossCause::Expired) | None => Some(self.guard.validity()),
            },
        }
    }

    /// Resolves when the lock is lost or its validity changes; it may resolve early.
    async fn changed(&self) {
        match &self.transaction {
            Some(keep_alive) => {
                let mut validity = keep_alive.validity.clone();
                validity.mark_unchanged();
                if validity.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            None => drop(self.guard.lost().await),
        }
    }

    /// Leaves the lock to its server until it was held for `least_hold`, and releases it if it was.
    /// No clock of this machine tells a time of day: only a length is measured.
    pub(super) async fn leave_for(self, least_hold: Duration) {
        let rest = least_hold.saturating_sub(self.since.elapsed());
        if rest.is_zero() {
            return self.release().await;
        }
        if let Err(error) = self.guard.leave_for(rest.max(MIN_REST)).await {
            tracing::warn!(%error, "cannot keep the lock held; it may end with its lease");
        }
    }

    /// Releases the lock.
    pub(super) async fn release(self) {
        if let Some(keep_alive) = self.transaction {
            keep_alive.end().await;
        }
        if let Err(error) = self.guard.release().await {
            tracing::warn!(%error, "cannot release the lock; it ends with its lease");
        }
    }
}

/// A transaction whose connection a task checks.
struct TransactionKeepAlive {
    /// `None` after the transaction has ended.
    validity: watch::Receiver<Option<Validity>>,
    stop: CancellationToken,
    task: JoinHandle<Transaction>,
}

impl TransactionKeepAlive {
    async fn new(mut transaction: Transaction, lease: Duration) -> Result<Self, StoreError> {
        let asked = Instant::now();
        transaction.is_alive().await?;
        let (sender, receiver) = watch::channel(Some(Validity::of_lease(asked, lease)));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while stopped.run_until_cancelled(sleep(lease / 3)).await.is_some() {
                let asked = Instant::now();
                let alive = transaction.is_alive().await;
                if let Err(error) = &alive {
                    tracing::warn!(%error, "the lock's transaction has ended; the lock is lost");
                }
                sender.send_replace(alive.is_ok().then(|| Validity::of_lease(asked, lease)));
            }
            transaction
        });
        Ok(Self { validity: receiver, stop, task })
    }

    async fn end(self) {
        self.stop.cancel();
        if let Ok(transaction) = self.task.await {
            transaction.rollback().await;
        }
    }
}
