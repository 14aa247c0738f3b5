//! Charges whose end is not known yet: what was asked of the payment provider for which order.
//!
//! A charge is noted before the provider is asked, in a transaction that has found the order unpaid
//! and the request's key unused or its own. The note goes with the order's payment, or once the
//! provider has declined or given back the money. Whoever is cut off in between leaves it, and
//! housekeeping goes on with it. Until then the order's time does not run out.
//!
//! Rows are locked in the order that holds everywhere: key, order, and then the charge.

use sqlx::AssertSqlSafe;

use super::orders::order_of;
use super::resolve::status_of;
use super::{Duplicate, Orders, Session, SettleError, StoreError, Transaction};
use crate::domain::{Order, OrderId, OrderStatus, RequestKey};

/// The most charges that are looked at together.
const BATCH: u32 = 32;

impl Orders {
    /// Notes that an unpaid order is about to be charged, and the key of the request. Done again it
    /// changes nothing. [`SettleError::Beaten`] if the order is not unpaid any more, or the key
    /// stands for another request.
    pub async fn begin_charge(
        &self,
        order: &Order,
        key: Option<RequestKey>,
    ) -> Result<(), SettleError> {
        let mut tx = Transaction::open(&self.pool).await?;
        match self.write_charge(&mut tx, order, key).await {
            Ok(true) => Ok(tx.commit().await?),
            Ok(false) => {
                tx.rollback().await;
                Err(SettleError::Beaten)
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
        key: Option<RequestKey>,
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

    /// The provider does not have the order's money: forgets the charge, and who asked for it.
    pub async fn forget_charge(&self, order: OrderId) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let forget = format!(
            "DELETE FROM idempotency_keys WHERE order_id = {order} AND action = 'pay'; \
             DELETE FROM charges WHERE order_id = {order}"
        );
        session.raw(AssertSqlSafe(forget)).await.map(drop)
    }

    /// Orders whose charge was begun, or gone on with, so long ago or longer: those that waited
    /// longest, at most some.
    pub async fn open_charges(&self, age_s: u32) -> Result<Vec<Order>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.open_charges).bind(age_s).bind(BATCH);
        session.fetch_all(query).await?.iter().map(order_of).collect()
    }

    /// Lets a charge wait behind the others.
    pub async fn put_off_charge(&self, order: OrderId) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query =
            sqlx::query("UPDATE charges SET asked_at = UTC_TIMESTAMP(3) WHERE order_id = ?");
        session.execute(query.bind(order.0)).await.map(drop)
    }
}
