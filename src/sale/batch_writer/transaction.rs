//! One transaction of a batch.
//!
//! It makes two round trips: BEGIN and INSERT of all rows in the order of their users; UPDATE of
//! the stock and COMMIT. All batches lock rows in the same order and the stock row last, so they
//! cannot deadlock on them. The locks of all callers are checked before each round trip.
//!
//! A batch of admitted tickets makes three. A blocked transaction is killed by its connection id,
//! which BEGIN returns first.

use distlock::LostSignal;
use tokio::time::timeout;

use super::{BatchExecutor, PendingOrder};
use crate::domain::VoucherId;
use crate::failpoint::{self, reach};
use crate::store::{
    AdmittedTicket, CommitError, NewOrder, Resolution, StoreError, Transaction, resolve,
};

/// Why a transaction did not write its orders.
pub(super) enum BatchError {
    /// It was rolled back.
    Failed(StoreError),
    /// The lock of an order was lost meanwhile; it was rolled back.
    LockLost,
    /// Another transaction has locked a row that it needs; it was killed.
    LockWaitAborted,
    /// Some orders are not of this epoch, the current one; it was rolled back.
    Stale(Option<u64>),
    /// The database was down before anything was committed.
    DatabaseDown,
    /// The outcome of COMMIT is not known, for these orders.
    Unknown(Vec<NewOrder>),
}

/// An open transaction, and whether its orders are inserted.
type OpenBatch = (Transaction, Result<(), BatchError>);

impl From<StoreError> for BatchError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl BatchExecutor {
    /// Writes all orders or none. The rows that were written, in the order of `pending`.
    pub(super) async fn write(
        &self,
        pending: &[PendingOrder],
    ) -> Result<Vec<NewOrder>, BatchError> {
        let Some(voucher) = pending.first().map(|order| order.attempt.voucher) else {
            return Ok(Vec::new());
        };
        let ids = self.ids.draw_many(pending.len()).await?;
        let new_orders: Vec<_> =
            pending.iter().zip(ids).map(|(order, id)| order.attempt.new_order(id)).collect();
        ensure_all_held(pending)?;
        let (tx, inserted) = self.open(voucher, pending, &new_orders).await?;
        reach(failpoint::BEGUN);
        let ready = match inserted {
            Ok(()) => self.prepare(pending).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            reach(failpoint::BEFORE_ROLLBACK);
            match error {
                BatchError::LockWaitAborted => tx.kill_connection(&self.pool).await,
                _ => tx.rollback().await,
            }
            reach(failpoint::ROLLED_BACK);
            return Err(error);
        }
        reach(failpoint::BEFORE_COMMIT);
        let connection = match self.orders.take_and_commit(tx, voucher, new_orders.len()).await {
            Ok(()) => {
                reach(failpoint::COMMITTED);
                return Ok(new_orders);
            }
            Err(CommitError::Refused(error)) => return Err(error.into()),
            Err(CommitError::Unknown(connection)) => connection,
        };
        reach(failpoint::COMMIT_IN_DOUBT);
        let ids: Vec<_> = new_orders.iter().map(|new_order| new_order.id).collect();
        match resolve(&self.pool, self.orders.tables.orders, &connection, &ids).await {
            Resolution::Committed => Ok(new_orders),
            Resolution::Absent => Err(BatchError::DatabaseDown),
            Resolution::Unknown => Err(BatchError::Unknown(new_orders)),
        }
    }

    /// Opens a transaction and inserts the rows; the wait ends as soon as the database is known to
    /// be down.
    async fn open(
        &self,
        voucher: VoucherId,
        pending: &[PendingOrder],
        new_orders: &[NewOrder],
    ) -> Result<OpenBatch, BatchError> {
        tokio::select! {
            biased;
            inserted = self.insert(voucher, pending, new_orders) => Ok(inserted?),
            () = self.health.until_database_is_down() => Err(BatchError::DatabaseDown),
        }
    }

    async fn insert(
        &self,
        voucher: VoucherId,
        pending: &[PendingOrder],
        new_orders: &[NewOrder],
    ) -> Result<OpenBatch, StoreError> {
        let tickets: Option<Vec<AdmittedTicket>> =
            pending.iter().map(|order| order.attempt.admitted).collect();
        if let Some(tickets) = tickets {
            return self.insert_admitted(voucher, new_orders, &tickets).await;
        }
        let mut rows = new_orders.to_vec();
        rows.sort_unstable_by_key(|new_order| new_order.user);
        let (tx, written) = self.orders.open_with_all(&rows).await?;
        Ok((tx, written.map_err(BatchError::Failed)))
    }

    /// Inserts the rows with the ends of their tickets, under the epoch of their admission.
    async fn insert_admitted(
        &self,
        voucher: VoucherId,
        new_orders: &[NewOrder],
        tickets: &[AdmittedTicket],
    ) -> Result<OpenBatch, StoreError> {
        let mut rows: Vec<_> = new_orders.iter().copied().zip(tickets.iter().copied()).collect();
        rows.sort_unstable_by_key(|(new_order, _)| new_order.user);
        let mut tx = Transaction::open(&self.pool).await?;
        let inserting = self.orders.insert_admitted(&mut tx, voucher, &rows);
        let lock_wait_budget =
            tickets.iter().map(|ticket| ticket.lock_wait_budget).max().unwrap_or_default();
        let written = match timeout(lock_wait_budget, inserting).await {
            Err(_) => Err(BatchError::LockWaitAborted),
            Ok(Err(error)) => Err(BatchError::Failed(error)),
            Ok(Ok(epoch)) if tickets.iter().any(|ticket| Some(ticket.epoch) != epoch) => {
                Err(BatchError::Stale(epoch))
            }
            Ok(Ok(_)) => Ok(()),
        };
        Ok((tx, written))
    }

    /// The steps between the two round trips.
    async fn prepare(&self, pending: &[PendingOrder]) -> Result<(), BatchError> {
        self.hooks.on_order_inserted().await;
        ensure_all_held(pending)
    }
}

impl PendingOrder {
    pub(super) fn has_lost_lock(&self) -> bool {
        self.lost_signal.as_ref().is_some_and(LostSignal::is_lost)
    }
}

fn ensure_all_held(pending: &[PendingOrder]) -> Result<(), BatchError> {
    if pending.iter().any(PendingOrder::has_lost_lock) {
        return Err(BatchError::LockLost);
    }
    Ok(())
}
