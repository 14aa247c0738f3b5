//! Stock in buckets: rows beside the stock row of a voucher, so that its orders do not all wait for
//! one row.
//!
//! A purchase takes its unit from one bucket. If that is empty, all buckets are gathered: their
//! units move to the stock row, from which the purchase is tried again. A voucher is sold out only
//! if one statement finds no unit in any row ([`Orders::precheck`]): it reads one snapshot. Rows
//! that are read one after the other may all be empty while a unit moves behind the reader.
//!
//! Transactions lock the buckets in the order of their numbers, then the stock row. Those that need
//! one row only, purchases and returns, lock it last. So none of these deadlock. A deletion may,
//! with a purchase whose order it waits for: the purchase is tried again, or the admin is refused.

use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};

use super::{CommitError, Orders, StoreError, Transaction};
use crate::domain::VoucherId;

/// What the buckets of a voucher have.
pub(super) struct StockBuckets {
    pub(super) count: u32,
    pub(super) units: i64,
}

impl Orders {
    /// Moves the units of all buckets of a voucher to its stock row. If the answer to COMMIT is
    /// lost it fails, and whether they moved does not matter.
    pub async fn gather_buckets(&self, voucher: VoucherId) -> Result<(), StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let units = match lock_buckets(&mut tx, voucher).await {
            // Another purchase has gathered them.
            Ok(StockBuckets { units: 0, .. }) => {
                tx.rollback().await;
                return Ok(());
            }
            Ok(StockBuckets { units, .. }) => units,
            Err(error) => {
                tx.rollback().await;
                return Err(error);
            }
        };
        let stock = self.tables.stock;
        let moved = tx.commit_after(vec![
            format!("UPDATE voucher_stock_buckets SET stock = 0 WHERE voucher_id = {voucher}"),
            format!("UPDATE {stock} SET stock = stock + {units} WHERE voucher_id = {voucher}"),
        ]);
        moved.await.map_err(|error| match error {
            CommitError::Refused(error) => error,
            CommitError::Unknown(_) => StoreError::TimedOut { server: "database" },
        })
    }
}

/// Locks the buckets of a voucher, if it has any.
pub(super) async fn lock_buckets(
    tx: &mut Transaction,
    voucher: VoucherId,
) -> Result<StockBuckets, StoreError> {
    let lock = sqlx::query(
        "SELECT CAST(COUNT(*) AS UNSIGNED), CAST(COALESCE(SUM(stock), 0) AS SIGNED) \
         FROM voucher_stock_buckets WHERE voucher_id = ? FOR UPDATE",
    );
    let Some(row) = tx.fetch_optional(lock.bind(voucher.0)).await? else {
        return Ok(StockBuckets { count: 0, units: 0 });
    };
    let count = u32::try_from(row.try_get::<u64, _>(0)?).unwrap_or(0);
    Ok(StockBuckets { count, units: row.try_get(1)? })
}

/// Adds that many units to each bucket.
pub(super) async fn add_to_buckets(
    tx: &mut Transaction,
    voucher: VoucherId,
    units: u32,
) -> Result<(), StoreError> {
    let add = "UPDATE voucher_stock_buckets SET stock = stock + ? WHERE voucher_id = ?";
    tx.execute(sqlx::query(add).bind(units).bind(voucher.0)).await.map(drop)
}

/// Writes that many empty buckets.
pub(super) async fn insert_buckets(
    tx: &mut Transaction,
    voucher: VoucherId,
    count: u32,
) -> Result<(), StoreError> {
    let mut sql =
        String::from("INSERT INTO voucher_stock_buckets (voucher_id, bucket, stock) VALUES ");
    for bucket in 0..count {
        let comma = if bucket == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _always = write!(sql, "{comma}({voucher},{bucket},0)");
    }
    tx.run(AssertSqlSafe(sql)).await
}
