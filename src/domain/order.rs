//! Orders.

use time::OffsetDateTime;

use super::{OrderId, UserId, VoucherId};

/// One unit of a voucher, sold to a user.
#[derive(Debug, Clone)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// The buyer.
    pub user_id: UserId,
    /// What was bought.
    pub voucher_id: VoucherId,
    /// What the voucher is called now.
    pub voucher_title: String,
    /// What it costs, in cents.
    pub price_cents: u64,
    /// When the order was asked for, or written if it waited in a queue, by the database's clock.
    pub created_at: OffsetDateTime,
    /// How far it has come.
    pub status: OrderStatus,
    /// When it was paid or cancelled, by the database's clock.
    pub settled_at: Option<OffsetDateTime>,
}

/// How far an order has come. It begins unpaid; the other two are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderStatus {
    /// It has its unit, and can be paid or cancelled.
    Unpaid,
    /// It keeps its unit for ever.
    Paid,
    /// It has returned its unit, and its user may not buy another one.
    Cancelled(CancelledBy),
}

/// The side that cancelled an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CancelledBy {
    /// Its user.
    Buyer,
    /// The service, because it was not paid in time.
    TimeOut,
}

impl OrderStatus {
    /// The name in the database and in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unpaid => "unpaid",
            Self::Paid => "paid",
            Self::Cancelled(_) => "cancelled",
        }
    }

    /// The party that has cancelled it, in the database and in answers.
    pub const fn cancelled_by(self) -> Option<&'static str> {
        match self {
            Self::Unpaid | Self::Paid => None,
            Self::Cancelled(CancelledBy::Buyer) => Some("buyer"),
            Self::Cancelled(CancelledBy::TimeOut) => Some("time_out"),
        }
    }

    /// The status of those names.
    pub fn from_names(status: &str, cancelled_by: Option<&str>) -> Option<Self> {
        const ALL: [OrderStatus; 4] = [
            OrderStatus::Unpaid,
            OrderStatus::Paid,
            OrderStatus::Cancelled(CancelledBy::Buyer),
            OrderStatus::Cancelled(CancelledBy::TimeOut),
        ];
        let is = |one: &Self| (one.as_str(), one.cancelled_by()) == (status, cancelled_by);
        ALL.into_iter().find(is)
    }
}
