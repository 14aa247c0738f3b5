//! Which user asks for which voucher, and a rejection of that before anything was tried.

use super::in_flight_requests::IdempotentRequest;
use super::outcome::Refusal;
use crate::domain::{IdempotencyKeyHash, Operation, OrderId, UserId, VoucherId};

/// Which user asks for which voucher.
#[derive(Debug, Clone, Copy)]
pub struct PurchaseRequest {
    /// The buyer.
    pub user: UserId,
    /// What is bought.
    pub voucher: VoucherId,
    /// The hash of its `Idempotency-Key`, if it has one.
    pub key: Option<IdempotencyKeyHash>,
    /// The price in cents that the client states. At another price nothing is sold.
    pub price_cents: Option<u64>,
}

impl PurchaseRequest {
    /// What it asks for.
    pub(super) fn operation(&self) -> Operation {
        Operation::Purchase { voucher: self.voucher, price_cents: self.price_cents }
    }

    /// Whether it buys at that price.
    pub(super) fn accepts(&self, price_cents: u64) -> bool {
        self.price_cents.is_none_or(|stated| stated == price_cents)
    }

    /// The request as its key stands for it; `None` without a key.
    pub(super) fn idempotent(&self) -> Option<IdempotentRequest> {
        let operation = self.operation();
        self.key.map(|key| IdempotentRequest { user: self.user, key, operation })
    }
}

/// A rejection before anything was tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarlyRejection {
    pub(super) refusal: Refusal,
    /// Whether it is certain that no request of this user has bought the voucher, or not this one.
    pub(super) has_no_order: bool,
}

impl From<Refusal> for EarlyRejection {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, has_no_order: false }
    }
}

impl EarlyRejection {
    /// For a voucher that is sold out; `order` is the one that the user has of it.
    pub(super) fn sold_out(order: Option<OrderId>) -> Self {
        let refusal = order.map_or(Refusal::SoldOut, |order| Refusal::AlreadyOrdered(Some(order)));
        Self { refusal, has_no_order: order.is_none() }
    }

    /// Whether an earlier request with the same key may have had another answer, which stands.
    pub(super) fn may_be_repeat(&self) -> bool {
        self.refusal.is_of_the_sale() && !self.has_no_order
    }
}
