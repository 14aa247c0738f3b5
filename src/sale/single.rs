//! The writer `single`: one order, one transaction, two round trips.
//!
//! - BEGIN and INSERT are one packet: the unique key refuses a second order of a user.
//! - UPDATE and COMMIT are the other: the condition of the UPDATE refuses if nothing is left, and
//!   the server stops there ([`Orders::take_and_commit`]). No round trip is made under the hot
//!   row's lock.
//!
//! The lock is checked before each packet, not while the second waits for the hot row: then the
//! unique key and the condition hold. Orders with steps between the statements are written by
//! [`super::stepwise`].
//!
//! [`Orders::take_and_commit`]: crate::store::Orders::take_and_commit

use distlock::{Guard, LostSignal};

use super::attempt::{AttemptError, PurchaseAttempt};
use super::critical_section::{CriticalSection, ensure_held, release};
use super::outcome::Refusal;
use crate::failpoint::{self, reach};
use crate::store::{NewOrder, StoreError, Transaction};

/// An open transaction, and whether its order is inserted.
type OpenTransaction = (Transaction, Result<(), StoreError>);

impl CriticalSection {
    /// Writes the order. A lock that is its transaction is taken here, and released again unless
    /// the order is or may be written.
    pub(super) async fn write_single(
        &self,
        attempt: &PurchaseAttempt,
        new_order: &NewOrder,
        bucket: Option<u32>,
        guard: &mut Option<Guard>,
    ) -> Result<(), AttemptError> {
        let written = self.write_in_two_trips(attempt, new_order, bucket, guard).await;
        let is_over = matches!(written, Err(AttemptError::Refused(_) | AttemptError::Failed(_)));
        if is_over && self.lock_is_transaction {
            release(guard.take(), attempt).await;
        }
        written
    }

    async fn write_in_two_trips(
        &self,
        attempt: &PurchaseAttempt,
        new_order: &NewOrder,
        bucket: Option<u32>,
        guard: &mut Option<Guard>,
    ) -> Result<(), AttemptError> {
        let (tx, inserted) = if self.lock_is_transaction {
            let (mut tx, lock) = self.lock_and_open(attempt).await?;
            *guard = Some(lock);
            let inserted = self.orders.insert(&mut tx, new_order).await;
            (tx, inserted)
        } else {
            ensure_held(self.lost_signal(guard.as_ref()).as_ref())?;
            self.insert(new_order).await?
        };
        reach(failpoint::BEGUN);
        let ready = match inserted {
            Ok(()) => self.prepare(self.lost_signal(guard.as_ref()).as_ref()).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = ready {
            reach(failpoint::BEFORE_ROLLBACK);
            tx.rollback().await;
            reach(failpoint::ROLLED_BACK);
            return Err(error);
        }
        reach(failpoint::BEFORE_COMMIT);
        let NewOrder { voucher, .. } = *new_order;
        let committed = match bucket {
            Some(bucket) => self.orders.take_from_bucket_and_commit(tx, voucher, bucket).await,
            None => self.orders.take_and_commit(tx, voucher, 1).await,
        };
        self.resolve_commit(committed, new_order).await
    }

    /// BEGIN and INSERT; the wait ends as soon as the database is known to be down.
    async fn insert(&self, new_order: &NewOrder) -> Result<OpenTransaction, AttemptError> {
        tokio::select! {
            biased;
            inserted = self.orders.open_with_all(std::slice::from_ref(new_order)) => Ok(inserted?),
            () = self.health.until_database_is_down() => {
                Err(Refusal::Unavailable("database").into())
            }
        }
    }

    /// The steps between the two round trips.
    async fn prepare(&self, lost_signal: Option<&LostSignal>) -> Result<(), AttemptError> {
        self.hooks.on_order_inserted().await;
        Ok(ensure_held(lost_signal)?)
    }
}
