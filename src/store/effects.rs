//! What fenced holders did, for the laboratory's judge: tokens must not fall in the order in which
//! a resource's transactions commit.

use super::{Entry, StoreError, Transaction};

const LEAVE: &str =
    "INSERT INTO lab_effects (voucher_id, resource, token, order_id) VALUES (?, ?, ?, ?)";

/// Leaves a line about an order in the order's own transaction. It must come after the statement
/// that locks the voucher's stock row: so numbers are drawn in the order of commits, and no lock is
/// taken that would hide an overlap.
pub async fn leave_effect(
    tx: &mut Transaction,
    entry: &Entry,
    (resource, token): (&str, u64),
) -> Result<(), StoreError> {
    let query = sqlx::query(LEAVE)
        .bind(entry.voucher.0)
        .bind(resource.as_bytes())
        .bind(token)
        .bind(entry.id.0);
    tx.execute(query).await.map(drop)
}
