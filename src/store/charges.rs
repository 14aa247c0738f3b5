//! Open charges: orders whose payment was requested from the provider and has no outcome yet.
//!
//! A charge is recorded before the provider is asked, in a transaction that finds the order unpaid
//! and the request's key unused or its own. The row is deleted when the order is paid, or when the
//! provider has declined or refunded. If the replica fails in between, housekeeping resumes it. An
//! order with an open charge is not timed out.
//!
//! Rows are locked in the order that holds everywhere: key, order, and then the charge.

use super::orders::order_of;
use super::resolve::status_of;
use super::{Duplicate, Orders, Session, SettleError, StoreError, Transaction};
use crate::domain::{IdempotencyKeyHash, Order, OrderId, OrderStatus};

/// The most charges of one read.
const BATCH: u32 = 32;

impl Orders {
    /// Records a charge of an unpaid order, and the key of the request; a repeat changes nothing.
    /// [`SettleError::Superseded`] if the order is no longer unpaid, or the key another request's.
    pub async fn begin_charge(
        &self,
        order: &Order,
        key: Option<IdempotencyKeyHash>,
    ) -> Result<(), SettleError> {
        let mut tx = Transaction::open(&self.pool).await?;
        match self.write_charge(&mut tx, order, key).await {
            Ok(true) => Ok(tx.commit().await?),
            Ok(false) => {
                tx.rollback().await;
                Err(SettleError::Superseded)
            }
            Err(error) => {
                tx.rollback().await;
                Err(error.into())
            }
        }
    }

    /// Whether the order is unpaid.
    async fn write_charge(
        &self,
        tx: &mut Transaction,
        order: &Order,
        key: Option<IdempotencyKeyHash>,
    ) -> Result<bool, StoreError> {
        if let Some(key) = key {
            match self.insert_key(tx, (order.id, "pay"), (order.user_id, &key)).await {
                // This order is being paid, by this request or another one: it is one payment.
                Ok(()) | Err(StoreError::Duplicate(Duplicate::Primary)) => {}
                Err(error) => return Err(error),
            }
        }
        let query = sqlx::query(self.tables.lock_status).bind(order.id.0);
        let status = tx.fetch_optional(query).await?.map(|row| status_of(&row)).transpose()?;
        if status != Some(OrderStatus::Unpaid) {
            return Ok(false);
        }
        let query = sqlx::query(
            "INSERT INTO charges (order_id, asked_at) VALUES (?, UTC_TIMESTAMP(3)) \
             ON DUPLICATE KEY UPDATE asked_at = UTC_TIMESTAMP(3)",
        );
        tx.execute(query.bind(order.id.0)).await?;
        Ok(true)
    }

    /// Deletes a charge and its key, if the provider does not have the order's money. The charge is
    /// last: housekeeping resumes one that is left.
    pub async fn delete_charge(&self, order: OrderId) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        for forget in [
            "DELETE FROM idempotency_keys WHERE order_id = ? AND action = 'pay'",
            "DELETE FROM charges WHERE order_id = ?",
        ] {
            session.execute(sqlx::query(forget).bind(order.0)).await?;
        }
        Ok(())
    }

    /// Orders whose charge was last tried at least `age_s` ago, oldest first, at most a batch.
    pub async fn open_charges(&self, age_s: u32) -> Result<Vec<Order>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.open_charges).bind(age_s).bind(BATCH);
        session.fetch_all(query).await?.iter().map(order_of).collect()
    }

    /// Moves a charge behind the others.
    pub async fn defer_charge(&self, order: OrderId) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query =
            sqlx::query("UPDATE charges SET asked_at = UTC_TIMESTAMP(3) WHERE order_id = ?");
        session.execute(query.bind(order.0)).await.map(drop)
    }
}
