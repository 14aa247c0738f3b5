//! The statements of a purchase on hm-dianping's tables.

use sqlx::{MySqlPool, Row};
use time::{PrimitiveDateTime, UtcOffset};

use crate::domain::{OrderId, UserId, VoucherId};
use crate::store::batches::take_and_commit;
use crate::store::{
    CommitError, ConnectionIdentity, Resolution, Session, StoreError, Transaction, resolve,
};

const STOCK: &str = "tb_seckill_voucher";
const ORDERS: &str = "tb_voucher_order";

/// What a purchase has to know of a voucher. Its times have no zone.
#[derive(Debug, Clone, Copy)]
pub struct DianpingTerms {
    /// When the sale begins.
    pub begins: PrimitiveDateTime,
    /// When it ends.
    pub ends: PrimitiveDateTime,
    /// The units left.
    pub stock: i64,
    /// Now, by the database's clock, in the service's zone.
    pub now: PrimitiveDateTime,
}

/// The orders of hm-dianping.
#[derive(Clone)]
pub struct DianpingOrders {
    pool: MySqlPool,
    zone: UtcOffset,
}

impl DianpingOrders {
    /// Orders in that database, of a service in that zone.
    pub fn new(pool: MySqlPool, zone: UtcOffset) -> Self {
        Self { pool, zone }
    }

    /// The terms of a voucher, if it is one of a flash sale.
    pub async fn terms(&self, voucher: VoucherId) -> Result<Option<DianpingTerms>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(
            "SELECT CAST(begin_time AS DATETIME), CAST(end_time AS DATETIME), \
             CAST(stock AS SIGNED), \
             UTC_TIMESTAMP(3) + INTERVAL ? SECOND FROM tb_seckill_voucher WHERE voucher_id = ?",
        );
        let query = query.bind(self.zone.whole_seconds()).bind(voucher.0);
        let Some(row) = session.fetch_optional(query).await? else { return Ok(None) };
        Ok(Some(DianpingTerms {
            begins: row.try_get(0)?,
            ends: row.try_get(1)?,
            stock: row.try_get(2)?,
            now: row.try_get(3)?,
        }))
    }

    /// Opens a transaction.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        Transaction::open(&self.pool).await
    }

    /// Whether the user has an order of the voucher, by a plain read: it counts under the lock.
    pub async fn has_order(
        &self,
        tx: &mut Transaction,
        user: UserId,
        voucher: VoucherId,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(
            "SELECT 1 FROM tb_voucher_order WHERE user_id = ? AND voucher_id = ? LIMIT 1",
        );
        Ok(tx.fetch_optional(query.bind(user.0).bind(voucher.0)).await?.is_some())
    }

    /// Writes an unpaid order.
    pub async fn insert(
        &self,
        tx: &mut Transaction,
        order: OrderId,
        user: UserId,
        voucher: VoucherId,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, pay_type, status) \
             VALUES (?, ?, ?, 1, 1)",
        );
        tx.execute(query.bind(order.0).bind(user.0).bind(voucher.0)).await.map(drop)
    }

    /// Takes a unit and commits, or fails with [`StoreError::InsufficientStock`].
    pub async fn take_and_commit(
        &self,
        tx: Transaction,
        voucher: VoucherId,
    ) -> Result<(), CommitError> {
        take_and_commit(tx, STOCK, &format!("voucher_id = {voucher}"), 1).await
    }

    /// Finds out whether the transaction on that connection wrote the order.
    pub async fn resolve(&self, connection: &ConnectionIdentity, order: OrderId) -> Resolution {
        resolve(&self.pool, ORDERS, connection, &[order]).await
    }
}
