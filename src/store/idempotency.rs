//! Requests that had an effect: which `Idempotency-Key` has made, paid or cancelled which order.
//!
//! A key is written in the transaction of its effect, before the effect itself, so the two exist
//! together or not at all, and the unique key of the table is what tells a repeat: also one that
//! came to another replica at the same time, which waits at that row for the first to end. An order
//! without a key costs nothing; one with a key costs a row, in the packet of its INSERT.
//!
//! What is not written: requests that were refused. They had no effect, and a repeat of one is
//! judged anew. Answers are not written either; they are made of the order again.

use std::collections::HashMap;
use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};

use super::orders::order_of;
use super::{Entry, Orders, Session, StoreError, Transaction};
use crate::domain::{Order, OrderId, OrderStatus, RequestKey, UserId, Wish};

/// For so long a key is kept at least, in hours.
const KEPT_H: u32 = 24;
/// Keys that one statement cleans away.
const BATCH: u64 = 1000;

/// What an earlier request with that key has done.
#[derive(Debug, Clone)]
pub struct Kept {
    /// What it asked for.
    pub wish: Wish,
    /// The order, as that request was told of it.
    pub order: Order,
}

/// The beginning of a statement that writes keys; rows follow.
const INSERT: &str =
    "INSERT INTO idempotency_keys (order_id, action, user_id, request_key, created_at) VALUES ";

/// The statement that writes the keys of those orders in their order; empty if they have none.
pub(super) fn insert_of(entries: &[Entry]) -> String {
    let mut sql = String::new();
    for entry in entries {
        let Some(key) = &entry.key else { continue };
        sql.push_str(if sql.is_empty() { INSERT } else { "," });
        push_row(&mut sql, (entry.id, "purchase"), (entry.user, key));
    }
    if !sql.is_empty() {
        sql.push_str("; ");
    }
    sql
}

fn push_row(
    sql: &mut String,
    (order, action): (OrderId, &str),
    (user, key): (UserId, &RequestKey),
) {
    // Writing to a string cannot fail.
    let _always = write!(sql, "({order},'{action}',{user},x'{key}',UTC_TIMESTAMP())");
}

impl Orders {
    /// Writes the key of a request that pays or cancels an order. [`StoreError::Duplicate`] tells
    /// whether the key was used, or the order paid or cancelled, before.
    pub(super) async fn insert_key(
        &self,
        tx: &mut Transaction,
        (order, action): (OrderId, &str),
        (user, key): (UserId, &RequestKey),
    ) -> Result<(), StoreError> {
        let mut sql = String::from(INSERT);
        push_row(&mut sql, (order, action), (user, key));
        tx.run(AssertSqlSafe(sql)).await
    }

    /// What that user's earlier request with that key has done, if it has done something.
    pub async fn of_key(&self, user: UserId, key: RequestKey) -> Result<Option<Kept>, StoreError> {
        Ok(self.of_keys([(user, key)].into_iter()).await?.remove(&(user, key)))
    }

    /// The same for many.
    pub async fn of_keys(
        &self,
        asked: impl Iterator<Item = (UserId, RequestKey)>,
    ) -> Result<HashMap<(UserId, RequestKey), Kept>, StoreError> {
        let mut sql = String::from(self.tables.find_keys);
        for (number, (user, key)) in asked.enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let _always = write!(sql, "{comma}({user},x'{key}')");
        }
        sql.push(')');
        let mut session = Session::open(&self.pool).await?;
        let rows = session.raw(AssertSqlSafe(sql)).await?;
        let found = rows.iter().map(|row| {
            let order = order_of(row)?;
            let key: Vec<u8> = row.try_get(10)?;
            let key = key.try_into().map_err(|_| unexpected("a key of another length"))?;
            Ok(((order.user_id, RequestKey(key)), kept(order, row.try_get(11)?)?))
        });
        found.collect()
    }

    /// Cleans away old keys, at most so many of them that nobody notices; how many.
    pub async fn forget_old_keys(&self) -> Result<u64, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        // No key is older than its order. An hour more, because the seconds in an order's id are of
        // another clock.
        let query = sqlx::query(
            "DELETE FROM idempotency_keys WHERE order_id < \
             (TIMESTAMPDIFF(SECOND, '2022-01-01', UTC_TIMESTAMP()) - (? - 1) * 3600) << 32 \
             AND created_at < UTC_TIMESTAMP() - INTERVAL ? HOUR ORDER BY order_id LIMIT ?",
        );
        let query = query.bind(KEPT_H).bind(KEPT_H).bind(BATCH);
        Ok(session.execute(query).await?.rows_affected())
    }
}

/// The order as it was told of then: whatever was done, it was done once and is what it is; only
/// what an order began as may have changed.
fn kept(mut order: Order, action: &str) -> Result<Kept, StoreError> {
    let wish = match action {
        "purchase" => {
            (order.status, order.settled_at) = (OrderStatus::Unpaid, None);
            Wish::Purchase(order.voucher_id)
        }
        "pay" => Wish::Pay(order.id),
        "cancel" => Wish::Cancel(order.id),
        _ => return Err(unexpected("unknown action")),
    };
    Ok(Kept { wish, order })
}

fn unexpected(text: &str) -> StoreError {
    StoreError::Unexpected(text.to_owned())
}
