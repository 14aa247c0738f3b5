//! Orders.

use time::OffsetDateTime;

use super::{OrderId, UserId, VoucherId};

/// One unit of a voucher, sold to a user.
#[derive(Debug, Clone)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Who bought.
    pub user_id: UserId,
    /// What was bought.
    pub voucher_id: VoucherId,
    /// What the voucher is called now.
    pub voucher_title: String,
    /// What was paid, in cents.
    pub price_cents: u64,
    /// When the order was asked for, by the database's clock.
    pub created_at: OffsetDateTime,
}
