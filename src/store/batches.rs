//! The statements of a batch: many orders of one voucher in one transaction.
//!
//! They are text: the number of rows differs from batch to batch, and a prepared statement for each
//! number would evict all others. Only numbers and times go into the text. MySQL and MariaDB treat
//! it alike:
//!
//! - A multi-row INSERT with one duplicate writes no row and names only the first duplicate. So one
//!   statement reads the buyers afterwards ([`Orders::precheck`]).
//! - The rows go in one packet with START TRANSACTION.
//! - The stock row is locked by the last of two packets, which has UPDATE, a check and COMMIT. No
//!   round trip is made under that lock. (On Galera each statement is a packet of its own.)
//! - The check is whether the UPDATE found enough units. It has to fail if not, because a server
//!   stops only at an error: a power of e beyond any number is a cheap one (1690).

use std::collections::HashMap;
use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};

use super::tables::units_left;
use super::vouchers::naive;
use super::{
    CommitError, NewOrder, OpenedTransaction, Orders, Session, StoreError, Transaction, idempotency,
};
use crate::domain::{OrderId, UserId, VoucherId};

/// What a batch has to know before it is tried again, all of one moment.
#[derive(Debug)]
pub struct BatchPrecheck {
    /// Units left; `None` if the voucher was deleted.
    pub left: Option<i64>,
    /// Those of them that are in buckets.
    pub in_buckets: i64,
    /// The orders that its users already have.
    pub earlier: HashMap<UserId, OrderId>,
}

impl Orders {
    /// Opens a transaction and writes all of the orders in it, in one round trip; otherwise as
    /// [`Self::insert_all`].
    pub async fn open_with_all(
        &self,
        new_orders: &[NewOrder],
    ) -> Result<OpenedTransaction, StoreError> {
        Transaction::open_with(&self.pool, &self.inserts(new_orders)).await
    }

    /// Writes all of the orders with the keys of their requests, or none. [`StoreError::Duplicate`]
    /// tells which key was hit, and not by whom. Their order is that in which rows are locked.
    pub async fn insert_all(
        &self,
        tx: &mut Transaction,
        new_orders: &[NewOrder],
    ) -> Result<(), StoreError> {
        tx.run_all(&self.inserts(new_orders)).await.map(drop)
    }

    /// The statements that insert the keys of these orders, if they have any, and the orders.
    fn inserts(&self, new_orders: &[NewOrder]) -> Vec<String> {
        let mut sql = self.tables.insert_orders.to_owned();
        for (number, new_order) in new_orders.iter().enumerate() {
            let NewOrder { id, user, voucher, price_cents, created_at, key: _ } = new_order;
            let comma = if number == 0 { "" } else { "," };
            let at = naive(*created_at);
            // Writing to a string cannot fail.
            let _always = write!(
                sql,
                "{comma}({id},{user},{voucher},{price_cents},'{} {:02}:{:02}:{:02}.{:03}')",
                at.date(),
                at.hour(),
                at.minute(),
                at.second(),
                at.millisecond(),
            );
        }
        idempotency::insert_of(new_orders).into_iter().chain([sql]).collect()
    }

    /// Takes the units from the stock row and commits, or fails with
    /// [`StoreError::InsufficientStock`].
    pub async fn take_and_commit(
        &self,
        tx: Transaction,
        voucher: VoucherId,
        units: usize,
    ) -> Result<(), CommitError> {
        take_and_commit(tx, self.tables.stock, &format!("voucher_id = {voucher}"), units).await
    }

    /// Takes a unit from that bucket and commits, or fails with [`StoreError::InsufficientStock`].
    pub async fn take_from_bucket_and_commit(
        &self,
        tx: Transaction,
        voucher: VoucherId,
        bucket: u32,
    ) -> Result<(), CommitError> {
        let row = format!("voucher_id = {voucher} AND bucket = {bucket}");
        take_and_commit(tx, "voucher_stock_buckets", &row, 1).await
    }

    /// The units left of a voucher, and the orders of these users. One statement: a user whose own
    /// order took the last unit never gets "sold out".
    pub async fn precheck(
        &self,
        voucher: VoucherId,
        users: impl Iterator<Item = UserId>,
    ) -> Result<BatchPrecheck, StoreError> {
        let (orders, stock) = (self.tables.orders, self.tables.stock);
        let left = units_left!();
        let mut sql = format!(
            "SELECT {left}, {left} - s.stock, CAST(0 AS UNSIGNED), CAST(0 AS UNSIGNED) \
             FROM {stock} s WHERE s.voucher_id = {voucher} \
             UNION ALL SELECT CAST(0 AS SIGNED), CAST(0 AS SIGNED), id, user_id \
             FROM {orders} FORCE INDEX (uq_orders_user_voucher) \
             WHERE voucher_id = {voucher} AND user_id IN (0"
        );
        for user in users {
            let _always = write!(sql, ",{user}");
        }
        sql.push(')');
        let mut session = Session::open(&self.pool).await?;
        let mut precheck = BatchPrecheck { left: None, in_buckets: 0, earlier: HashMap::new() };
        for row in session.raw(AssertSqlSafe(sql)).await? {
            let (id, user) = (row.try_get(2)?, row.try_get(3)?);
            if id == 0 {
                (precheck.left, precheck.in_buckets) = (Some(row.try_get(0)?), row.try_get(1)?);
            } else {
                precheck.earlier.insert(UserId(user), OrderId(id));
            }
        }
        Ok(precheck)
    }
}

/// Takes units from that row of a table of stock and commits.
pub(super) async fn take_and_commit(
    tx: Transaction,
    stock: &'static str,
    row: &str,
    units: usize,
) -> Result<(), CommitError> {
    let take =
        format!("UPDATE {stock} SET stock = stock - {units} WHERE {row} AND stock >= {units}");
    tx.commit_after(vec![take, "SELECT EXP(710 * (ROW_COUNT() <> 1))".to_owned()]).await
}
