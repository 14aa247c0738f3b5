//! What fenced holders did, for the laboratory's judge: tokens must not fall in the order in which
//! a resource's transactions commit.

use super::{NewOrder, StoreError, Transaction};

const LEAVE: &str =
    "INSERT INTO lab_effects (voucher_id, resource, token, order_id) VALUES (?, ?, ?, ?)";

/// Records an order's fencing token in the order's own transaction.
///
/// It must follow the statement that locks the voucher's stock row. Then rows are numbered in the
/// order of commits, and no additional lock hides an overlap.
pub async fn leave_effect(
    tx: &mut Transaction,
    new_order: &NewOrder,
    resource: &str,
    token: u64,
) -> Result<(), StoreError> {
    let query = sqlx::query(LEAVE)
        .bind(new_order.voucher.0)
        .bind(resource.as_bytes())
        .bind(token)
        .bind(new_order.id.0);
    tx.execute(query).await.map(drop)
}
