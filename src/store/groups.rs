//! The statements of a group: many orders of one voucher in one transaction.
//!
//! They are text, because the number of rows changes from group to group and a prepared statement
//! for each number would crowd out all others; nothing goes into it but numbers and a moment.
//! MySQL and MariaDB treat all of it alike:
//!
//! - A multi-row INSERT that meets one duplicate writes no row at all, and names only the first. So
//!   who has bought already is asked in one statement afterwards ([`Orders::survey`]).
//! - The rows go in one packet with START TRANSACTION.
//! - The stock row is locked by the last of two trips, in which UPDATE, question and COMMIT go
//!   together: nobody waits for it for as long as our next statement is on its way. The question,
//!   whether the UPDATE has found enough units, has to fail if it has not, because a server stops
//!   only at a failure; a power of e that no number can hold is one (1690), and a cheap one.

use std::collections::HashMap;
use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};

use super::vouchers::naive;
use super::{CommitError, Entry, Opened, Orders, Session, StoreError, Transaction, idempotency};
use crate::domain::{OrderId, UserId, VoucherId};

/// What stands in the way of a group, all of one moment.
#[derive(Debug)]
pub struct Survey {
    /// Units left; `None` if the voucher is gone.
    pub left: Option<i64>,
    /// The orders that its users already have.
    pub earlier: HashMap<UserId, OrderId>,
}

impl Orders {
    /// Opens a transaction and writes all of the orders in it, in one round trip; otherwise as
    /// [`Self::insert_all`].
    pub async fn open_with_all(&self, entries: &[Entry]) -> Result<Opened, StoreError> {
        let mut sql = idempotency::insert_of(entries);
        self.push_insert(&mut sql, entries);
        Transaction::open_with(&self.pool, &sql).await
    }

    /// Writes all of the orders with the keys of their requests, or none. [`StoreError::Duplicate`]
    /// tells which key was hit, and not by whom. Their order is that in which rows are locked.
    pub async fn insert_all(
        &self,
        tx: &mut Transaction,
        entries: &[Entry],
    ) -> Result<(), StoreError> {
        let mut sql = idempotency::insert_of(entries);
        self.push_insert(&mut sql, entries);
        tx.run(AssertSqlSafe(sql)).await
    }

    /// The statement that inserts these orders.
    fn push_insert(&self, sql: &mut String, entries: &[Entry]) {
        sql.push_str(self.tables.insert_orders);
        for (number, entry) in entries.iter().enumerate() {
            let Entry { id, user, voucher, price_cents, created_at, key: _ } = entry;
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
    }

    /// Takes so many units if they are left, and commits; [`StoreError::TooFew`] if they are not.
    pub async fn take_and_commit(
        &self,
        tx: Transaction,
        voucher: VoucherId,
        units: usize,
    ) -> Result<(), CommitError> {
        let stock = self.tables.stock;
        tx.commit_by(AssertSqlSafe(format!(
            "UPDATE {stock} SET stock = stock - {units} \
             WHERE voucher_id = {voucher} AND stock >= {units}; \
             SELECT EXP(710 * (ROW_COUNT() <> 1)); \
             COMMIT"
        )))
        .await
    }

    /// What is left of a voucher, and which of these users have bought it. One statement, so that
    /// nobody counts as late whose own order took the last unit.
    pub async fn survey(
        &self,
        voucher: VoucherId,
        users: impl Iterator<Item = UserId>,
    ) -> Result<Survey, StoreError> {
        let (orders, stock) = (self.tables.orders, self.tables.stock);
        let mut sql = format!(
            "SELECT CAST(stock AS SIGNED), CAST(0 AS UNSIGNED), CAST(0 AS UNSIGNED) FROM {stock} \
             WHERE voucher_id = {voucher} UNION ALL SELECT CAST(0 AS SIGNED), id, user_id \
             FROM {orders} FORCE INDEX (uq_orders_user_voucher) \
             WHERE voucher_id = {voucher} AND user_id IN (0"
        );
        for user in users {
            let _always = write!(sql, ",{user}");
        }
        sql.push(')');
        let mut session = Session::open(&self.pool).await?;
        let mut survey = Survey { left: None, earlier: HashMap::new() };
        for row in session.raw(AssertSqlSafe(sql)).await? {
            let (left, id, user) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if id == 0 {
                survey.left = Some(left);
            } else {
                survey.earlier.insert(UserId(user), OrderId(id));
            }
        }
        Ok(survey)
    }
}
