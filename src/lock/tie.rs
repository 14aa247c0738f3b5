//! What ties a command to its lock: until when the lock may be believed in, and when the command
//! has to be ended for that.
//!
//! A lock that is a database transaction is not renewed by the lock library, since its writes would
//! end with it. A command's do not, so here the transaction's connection is asked at every third of
//! the lease whether it still lives, and the database ends it if it hears nothing for a lease.

use std::time::Duration;

use distlock::{Belief, Guard, LossCause, Token};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::store::{StoreError, Transaction};

/// A process that is frozen as it goes to sleep sleeps on for so long after it is thawed.
const LONGEST_SLEEP: Duration = Duration::from_millis(25);

/// A held lock, as the run of a command sees it.
pub(super) struct Tie {
    guard: Guard,
    transaction: Option<Kept>,
    grace: Duration,
}

/// How a command has to be ended.
pub(super) struct End {
    pub(super) cause: LossCause,
    pub(super) kill_at: Instant,
}

impl Tie {
    /// The tie to a lock that was just taken. The command has `grace` to end by itself.
    pub(super) async fn new(
        mut guard: Guard,
        lease: Duration,
        grace: Duration,
    ) -> Result<Self, StoreError> {
        let transaction = match guard.lend() {
            Some(lent) => {
                let connection_id = lent.connection_id();
                let transaction = Transaction::from_lent(lent.into_connection(), connection_id);
                Some(Kept::new(transaction, lease).await?)
            }
            None => None,
        };
        Ok(Self { guard, transaction, grace })
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.guard.token()
    }

    /// Whether the lock can no longer be believed in.
    pub(super) fn is_lost(&self) -> bool {
        match &self.transaction {
            Some(kept) => kept.belief.borrow().is_none_or(Belief::is_over),
            None => self.guard.is_lost(),
        }
    }

    /// Resolves when the command has to be ended: a grace before the end of belief, which renewals
    /// move on, or when the server says that the lock is gone.
    pub(super) async fn ending(&self) -> End {
        loop {
            let Some(belief) = self.belief() else {
                let kill_at = Instant::now() + self.grace;
                return End { cause: LossCause::Taken, kill_at };
            };
            let Some(deadline) = belief.deadline() else {
                self.changed().await;
                continue;
            };
            let due = deadline.checked_sub(self.grace).unwrap_or(deadline);
            tokio::select! {
                biased;
                () = sleep_until(due.min(Instant::now() + LONGEST_SLEEP)) => {
                    if Instant::now() >= due && self.belief() == Some(belief) {
                        return End { cause: LossCause::Expired, kill_at: deadline };
                    }
                }
                () = self.changed() => {}
            }
        }
    }

    /// Until when the lock may be believed in, as of now; `None` if the server says it is gone.
    fn belief(&self) -> Option<Belief> {
        match &self.transaction {
            Some(kept) => *kept.belief.borrow(),
            None => match self.guard.loss().cause() {
                Some(LossCause::Taken) => None,
                Some(LossCause::Expired) | None => Some(self.guard.belief()),
            },
        }
    }

    /// Resolves when the lock is lost; may resolve earlier.
    async fn changed(&self) {
        match &self.transaction {
            Some(kept) => {
                let mut belief = kept.belief.clone();
                belief.mark_unchanged();
                if belief.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            None => drop(self.guard.lost().await),
        }
    }

    /// Frees the lock.
    pub(super) async fn release(self) {
        if let Some(kept) = self.transaction {
            kept.end().await;
        }
        if let Err(error) = self.guard.release().await {
            tracing::warn!(%error, "the lock could not be released and is left to its lease");
        }
    }
}

/// A transaction that a task asks whether it still lives.
struct Kept {
    /// `None`: it does not.
    belief: watch::Receiver<Option<Belief>>,
    stop: CancellationToken,
    task: JoinHandle<Transaction>,
}

impl Kept {
    async fn new(mut transaction: Transaction, lease: Duration) -> Result<Self, StoreError> {
        let asked = Instant::now();
        transaction.is_alive().await?;
        let (sender, receiver) = watch::channel(Some(Belief::in_lease(asked, lease)));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while stopped.run_until_cancelled(sleep(lease / 3)).await.is_some() {
                let asked = Instant::now();
                let alive = transaction.is_alive().await;
                if let Err(error) = &alive {
                    tracing::warn!(%error, "the lock's transaction is gone");
                }
                sender.send_replace(alive.is_ok().then(|| Belief::in_lease(asked, lease)));
            }
            transaction
        });
        Ok(Self { belief: receiver, stop, task })
    }

    async fn end(self) {
        self.stop.cancel();
        if let Ok(transaction) = self.task.await {
            transaction.rollback().await;
        }
    }
}
