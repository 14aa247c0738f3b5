//! Settlement of an order: it is paid, cancelled, or timed out.
//!
//! Each is one conditional UPDATE of the order's row, `... AND status = 'unpaid'`. Of concurrent
//! ones exactly one finds it unpaid, on whichever replica and under whatever lock. A cancelled
//! order returns its unit in the same transaction.
//!
//! Settlements lock rows in one order, as purchases do: key, orders by their ids, charge, then the
//! stock row in the packet of the COMMIT. So none of them waits for an order while it has the stock
//! row.

use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};
use time::OffsetDateTime;

use super::vouchers::naive;
use super::{CommitError, ConnectionIdentity, Orders, Session, StoreError, Transaction};
use crate::domain::{CancelledBy, IdempotencyKeyHash, Order, OrderId, OrderStatus, VoucherId};

/// The most orders that one transaction times out: it has their rows, and the stock's, for so long.
const BATCH: u32 = 256;
/// The most vouchers that are looked through at once for orders to time out.
const VOUCHERS: u32 = 64;

/// What an unpaid order shall become.
#[derive(Debug, Clone, Copy)]
pub struct Settlement<'a> {
    /// Which, as it was read.
    pub order: &'a Order,
    /// Paid or cancelled.
    pub to: OrderStatus,
    /// When, by the database's clock.
    pub at: OffsetDateTime,
    /// The key of the request that cancels, if it has one. (That of a payment is written before.)
    pub key: Option<IdempotencyKeyHash>,
}

/// Why the order did not change.
pub enum SettleError {
    /// The order is no longer unpaid, or the key was used before; nothing was written.
    Superseded,
    /// Nothing was written.
    Failed(StoreError),
    /// The answer to COMMIT on this connection is lost.
    Unknown(Box<ConnectionIdentity>),
}

impl From<StoreError> for SettleError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Duplicate(_) => Self::Superseded,
            error => Self::Failed(error),
        }
    }
}

impl From<CommitError> for SettleError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Refused(error) => Self::Failed(error),
            CommitError::Unknown(connection) => Self::Unknown(connection),
        }
    }
}

impl Orders {
    /// Pays or cancels an order, unless it is settled already.
    pub async fn settle(&self, wanted: &Settlement<'_>) -> Result<(), SettleError> {
        let mut tx = Transaction::open(&self.pool).await?;
        match self.write_change(&mut tx, wanted).await {
            Ok(true) => {}
            Ok(false) => {
                tx.rollback().await;
                return Err(SettleError::Superseded);
            }
            Err(error) => {
                tx.rollback().await;
                return Err(error.into());
            }
        }
        let units = u64::from(matches!(wanted.to, OrderStatus::Cancelled(_)));
        Ok(self.return_and_commit(tx, wanted.order.voucher_id, units).await?)
    }

    /// Whether the order was unpaid.
    async fn write_change(
        &self,
        tx: &mut Transaction,
        wanted: &Settlement<'_>,
    ) -> Result<bool, StoreError> {
        let Settlement { order, to, at, key } = wanted;
        if let Some(key) = key {
            self.insert_key(tx, (order.id, "cancel"), (order.user_id, key)).await?;
        }
        let query = sqlx::query(self.tables.settle_order)
            .bind(to.as_str())
            .bind(to.cancelled_by())
            .bind(naive(*at))
            .bind(order.id.0);
        let was_unpaid = tx.execute(query).await?.rows_affected() == 1;
        if was_unpaid && *to == OrderStatus::Paid {
            let done = sqlx::query("DELETE FROM charges WHERE order_id = ?").bind(order.id.0);
            tx.execute(done).await?;
        }
        Ok(was_unpaid)
    }

    /// Returns units to the stock, and commits.
    async fn return_and_commit(
        &self,
        tx: Transaction,
        voucher: VoucherId,
        units: u64,
    ) -> Result<(), CommitError> {
        if units == 0 {
            return tx.commit().await;
        }
        let stock = self.tables.stock;
        tx.commit_after(vec![format!(
            "UPDATE {stock} SET stock = stock + {units} WHERE voucher_id = {voucher}"
        )])
        .await
    }

    /// Vouchers with orders that were not paid in time, at most a batch. Only the oldest unpaid
    /// order of each is read, the first of its key. (The statement orders by the whole key,
    /// although two columns are given: MySQL sorts otherwise.)
    pub async fn with_late_orders(&self, timeout_s: u32) -> Result<Vec<VoucherId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.late_vouchers).bind(timeout_s).bind(VOUCHERS);
        let rows = session.fetch_all(query).await?;
        rows.iter().map(|row| Ok(VoucherId(row.try_get(0)?))).collect()
    }

    /// Cancels a batch of orders that were not paid in time, in one transaction; how many.
    ///
    /// Orders that are settled meanwhile, or have an open charge, are skipped. An order whose
    /// payment begins just now may be cancelled; then it is refunded.
    ///
    /// The ids are read first, without a lock, and rows are locked by primary key alone. An UPDATE
    /// by age would lock the entries of that index first, and a payment locks them last.
    pub async fn time_out(&self, voucher: VoucherId, timeout_s: u32) -> Result<u64, SettleError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.late_orders).bind(voucher.0);
        let rows = session.fetch_all(query.bind(timeout_s).bind(BATCH)).await?;
        drop(session);
        let ids = rows.iter().map(|row| Ok(OrderId(row.try_get(0)?)));
        let mut ids = ids.collect::<Result<Vec<_>, sqlx::Error>>().map_err(StoreError::from)?;
        if ids.is_empty() {
            return Ok(0);
        }
        ids.sort_unstable();
        let mut tx = Transaction::open(&self.pool).await?;
        let cancelled = match self.cancel_all(&mut tx, &ids).await {
            Ok(cancelled) => cancelled,
            Err(error) => {
                tx.rollback().await;
                return Err(error.into());
            }
        };
        self.return_and_commit(tx, voucher, cancelled).await?;
        Ok(cancelled)
    }

    async fn cancel_all(&self, tx: &mut Transaction, ids: &[OrderId]) -> Result<u64, StoreError> {
        let (orders, to) = (self.tables.orders, OrderStatus::Cancelled(CancelledBy::TimeOut));
        let (status, by) = (to.as_str(), to.cancelled_by().unwrap_or_default());
        let mut sql = format!(
            "UPDATE {orders} FORCE INDEX (PRIMARY) SET status = '{status}', cancelled_by = '{by}', \
             settled_at = UTC_TIMESTAMP(3) WHERE status = 'unpaid' AND id IN (0"
        );
        for id in ids {
            // Writing to a string cannot fail.
            let _always = write!(sql, ",{id}");
        }
        sql.push(')');
        Ok(tx.execute(sqlx::query(AssertSqlSafe(sql)).persistent(false)).await?.rows_affected())
    }
}
