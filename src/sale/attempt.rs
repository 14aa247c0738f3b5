//! A purchase that passed the checks, and why a try of it ended without an order.

use std::sync::Arc;

use time::OffsetDateTime;

use super::hold_times::LockHoldTimes;
use super::outcome::Refusal;
use super::voucher_cache::Terms;
use crate::domain::{
    IdempotencyKeyHash, Operation, Order, OrderId, OrderStatus, UserId, VoucherId,
};
use crate::store::{AdmittedTicket, NewOrder, StoreError};

/// A purchase that passed the checks.
pub(super) struct PurchaseAttempt {
    pub(super) user: UserId,
    pub(super) voucher: VoucherId,
    pub(super) terms: Arc<Terms>,
    pub(super) created_at: OffsetDateTime,
    /// The key of the request, if it has one.
    pub(super) key: Option<IdempotencyKeyHash>,
    /// What the request asks for.
    pub(super) operation: Operation,
    /// Its ticket, in the queued mode.
    pub(super) admitted: Option<AdmittedTicket>,
    /// When it holds its lock, if the laboratory asks for it.
    pub(super) hold_times: Option<Arc<LockHoldTimes>>,
}

impl PurchaseAttempt {
    /// The row to write, under that id.
    pub(super) fn new_order(&self, id: OrderId) -> NewOrder {
        NewOrder {
            id,
            user: self.user,
            voucher: self.voucher,
            price_cents: self.terms.price_cents,
            created_at: self.created_at,
            key: self.key,
        }
    }

    /// The bucket of the stock from which the buyer's unit is taken first, if there are any. The
    /// multiplication spreads ids evenly, also those that only grow in steps.
    pub(super) fn bucket(&self) -> Option<u32> {
        let spread = self.user.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let bucket = spread.checked_rem(self.terms.buckets.into())?;
        u32::try_from(bucket).ok()
    }

    /// The order as its buyer sees it, once that row is committed.
    pub(super) fn order(&self, new_order: &NewOrder) -> Order {
        Order {
            id: new_order.id,
            user_id: new_order.user,
            voucher_id: new_order.voucher,
            voucher_title: self.terms.title.clone(),
            price_cents: new_order.price_cents,
            created_at: new_order.created_at,
            status: OrderStatus::Unpaid,
            settled_at: None,
        }
    }
}

/// Why a try ended without an order.
pub(super) enum AttemptError {
    /// For good.
    Refused(Refusal),
    /// An earlier request with the same key made this order.
    Replayed(Order),
    /// Rolled back; may be tried again.
    Failed(StoreError),
    /// The outcome of COMMIT is not known.
    Unknown(OrderId),
}

impl From<StoreError> for AttemptError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for AttemptError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
