//! Pure rules: ids, phones, vouchers, orders, requests, tickets. No I/O stands here.

mod idempotency;
mod ids;
mod order;
mod phone;
mod ticket;
mod voucher;

pub use idempotency::{BadIdempotencyKeyHash, IdempotencyKeyHash, Operation};
pub use ids::{BadId, ID_DIGITS, LAST_ID, OrderId, UserId, VoucherId};
pub use order::{CancelledBy, Order, OrderStatus};
pub use phone::{BadCountry, BadPhone, Country, Phone};
pub use ticket::{BadTicket, TicketId, TicketState};
pub use voucher::{MAX_STOCK, MAX_STOCK_BUCKETS, Phase, Status, Voucher, Window};

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Buys.
    Buyer,
    /// Also keeps the vouchers.
    Admin,
}

impl Role {
    /// The name in tokens, in the database and in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buyer => "buyer",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Buyer, Self::Admin].into_iter().find(|role| role.as_str() == name)
    }
}
