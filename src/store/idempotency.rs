//! Requests that had an effect: which `Idempotency-Key` has made, paid or cancelled which order.
//!
//! A key is written in the transaction of its effect, before the effect itself, so both exist or
//! neither. The table's unique key finds a repeat. A concurrent one on another replica waits at
//! that row for the first to end. A key costs a row, in the packet of its order's INSERT.
//!
//! Refused requests are not written: they had no effect, and a repeat is a new request. Answers are
//! not written either; they are made from the order again.

use std::collections::HashMap;
use std::fmt::Write;

use sqlx::{AssertSqlSafe, Row};

use super::orders::order_of;
use super::{NewOrder, Orders, Session, StoreError, Transaction};
use crate::domain::{IdempotencyKeyHash, Operation, Order, OrderId, OrderStatus, UserId};

/// The retention of a key, in hours.
const RETENTION_H: u32 = 24;
/// The most keys that one statement deletes.
const BATCH: u64 = 1000;

/// An earlier request with that key, which had an effect.
#[derive(Debug, Clone)]
pub struct StoredRequest {
    /// What it asked for.
    pub operation: Operation,
    /// The order, as that request was answered.
    pub order: Order,
}

/// The beginning of a statement that writes keys; rows follow.
const INSERT: &str =
    "INSERT INTO idempotency_keys (order_id, action, user_id, request_key, created_at) VALUES ";

/// The statement that writes the keys of those orders in their order, if they have any.
pub(super) fn insert_of(new_orders: &[NewOrder]) -> Option<String> {
    let mut sql = String::new();
    for new_order in new_orders {
        let Some(key) = &new_order.key else { continue };
        sql.push_str(if sql.is_empty() { INSERT } else { "," });
        push_row(&mut sql, (new_order.id, "purchase"), (new_order.user, key));
    }
    (!sql.is_empty()).then_some(sql)
}

fn push_row(
    sql: &mut String,
    (order, action): (OrderId, &str),
    (user, key): (UserId, &IdempotencyKeyHash),
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
        (user, key): (UserId, &IdempotencyKeyHash),
    ) -> Result<(), StoreError> {
        let mut sql = String::from(INSERT);
        push_row(&mut sql, (order, action), (user, key));
        tx.run(AssertSqlSafe(sql)).await
    }

    /// What that user's earlier request with that key has done, if it has done something.
    pub async fn find_by_key(
        &self,
        user: UserId,
        key: IdempotencyKeyHash,
    ) -> Result<Option<StoredRequest>, StoreError> {
        Ok(self.find_by_keys([(user, key)].into_iter()).await?.remove(&(user, key)))
    }

    /// What earlier requests with those keys have done.
    pub async fn find_by_keys(
        &self,
        keys: impl Iterator<Item = (UserId, IdempotencyKeyHash)>,
    ) -> Result<HashMap<(UserId, IdempotencyKeyHash), StoredRequest>, StoreError> {
        let mut sql = String::from(self.tables.find_keys);
        for (number, (user, key)) in keys.enumerate() {
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
            Ok(((order.user_id, IdempotencyKeyHash(key)), stored_request(order, row.try_get(11)?)?))
        });
        found.collect()
    }

    /// Deletes a batch of old keys; how many.
    pub async fn delete_old_keys(&self) -> Result<u64, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        // No key is older than its order. An hour more, because the seconds in an order's id are of
        // another clock.
        let query = sqlx::query(
            "DELETE FROM idempotency_keys WHERE order_id < \
             (TIMESTAMPDIFF(SECOND, '2022-01-01', UTC_TIMESTAMP()) - (? - 1) * 3600) << 32 \
             AND created_at < UTC_TIMESTAMP() - INTERVAL ? HOUR ORDER BY order_id LIMIT ?",
        );
        let query = query.bind(RETENTION_H).bind(RETENTION_H).bind(BATCH);
        Ok(session.execute(query).await?.rows_affected())
    }
}

/// The order as the earlier answer had it. A purchase answered an unpaid order; payments and
/// cancellations are final.
fn stored_request(mut order: Order, action: &str) -> Result<StoredRequest, StoreError> {
    let operation = match action {
        "purchase" => {
            (order.status, order.settled_at) = (OrderStatus::Unpaid, None);
            Operation::Purchase { voucher: order.voucher_id, price_cents: Some(order.price_cents) }
        }
        "pay" => Operation::Pay(order.id),
        "cancel" => Operation::Cancel(order.id),
        _ => return Err(unexpected("unknown action")),
    };
    Ok(StoredRequest { operation, order })
}

fn unexpected(text: &str) -> StoreError {
    StoreError::Unexpected(text.to_owned())
}
