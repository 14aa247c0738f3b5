//! How a purchase can end.

use distlock::LockError;
use time::OffsetDateTime;

use crate::domain::{Order, OrderId};
use crate::store::StoreError;

/// How a purchase ended.
#[derive(Debug)]
pub enum Outcome {
    /// The order is committed.
    Bought(Order),
    /// An earlier request with the same key has done it: its answer.
    Replayed(Order),
    /// No order was written, and none will be.
    Refused(Refusal),
    /// The outcome of COMMIT is not known: the order may exist.
    Unknown(OrderId),
    /// The purchase ended in a defect of ours; whether it had an effect is not known.
    Failed,
}

/// Why a purchase was refused.
#[derive(Debug, Clone, Copy)]
pub enum Refusal {
    /// There is no such voucher.
    VoucherNotFound,
    /// It is not for sale.
    NotOnSale,
    /// The sale has not begun; it does then.
    NotStarted(OffsetDateTime),
    /// The sale is over since then.
    Ended(OffsetDateTime),
    /// No unit is left.
    SoldOut,
    /// The request states another price; a unit costs that many cents.
    PriceChanged(u64),
    /// The user has bought it: this order, if it could be read.
    AlreadyOrdered(Option<OrderId>),
    /// Another purchase holds the lock.
    InProgress,
    /// The lock was lost before the order was committed; it was rolled back.
    LockLost,
    /// The service is overloaded.
    Overloaded,
    /// A server is down.
    Unavailable(&'static str),
    /// A defect of ours, before anything was written.
    Defect,
    /// The request's key stands for another request.
    KeyReused,
    /// The request with this key is being worked on.
    KeyInUse,
    /// The user has no such order.
    OrderNotFound,
    /// The order is paid and stays.
    OrderPaid,
    /// The order is cancelled for good.
    OrderCancelled,
    /// The provider does not take the money.
    PaymentDeclined,
    /// This deployment has no payment provider.
    NoPayments,
    /// The provider reports another amount than the order's price.
    WrongAmount,
}

/// How paying or cancelling an order ended.
#[derive(Debug)]
pub enum SettlementOutcome {
    /// The order is paid or cancelled as requested, by this request or before it.
    Done(Order),
    /// Nothing was written by this request.
    Refused(Refusal),
    /// The outcome of COMMIT is not known.
    Unknown(OrderId),
    /// It ended in a defect of ours; whether it had an effect is not known.
    Failed,
}

impl SettlementOutcome {
    /// The name in the metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Unknown(_) => "unknown",
            Self::Failed => "failed",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

impl From<Refusal> for SettlementOutcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Outcome {
    /// The name in the metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bought(_) => "bought",
            Self::Replayed(_) => "replayed",
            Self::Unknown(_) => "unknown",
            Self::Failed => "failed",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

impl Refusal {
    /// Whether it is about the request, and not about us: then an earlier request with its key may
    /// have had another answer, which counts.
    pub(super) fn is_of_the_sale(self) -> bool {
        matches!(
            self,
            Self::VoucherNotFound
                | Self::NotOnSale
                | Self::NotStarted(_)
                | Self::Ended(_)
                | Self::SoldOut
                | Self::PriceChanged(_)
                | Self::AlreadyOrdered(_)
        )
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::VoucherNotFound => "voucher_not_found",
            Self::NotOnSale => "not_on_sale",
            Self::NotStarted(_) => "not_started",
            Self::Ended(_) => "ended",
            Self::SoldOut => "sold_out",
            Self::PriceChanged(_) => "price_changed",
            Self::AlreadyOrdered(_) => "already_ordered",
            Self::InProgress => "order_in_progress",
            Self::LockLost => "lock_lost",
            Self::Overloaded => "overloaded",
            Self::Unavailable(_) => "dependency_unavailable",
            Self::Defect => "defect",
            Self::KeyReused => "idempotency_key_reused",
            Self::KeyInUse => "request_in_progress",
            Self::OrderNotFound => "order_not_found",
            Self::OrderPaid => "order_paid",
            Self::OrderCancelled => "order_cancelled",
            Self::PaymentDeclined => "payment_declined",
            Self::NoPayments => "payments_unavailable",
            Self::WrongAmount => "wrong_amount",
        }
    }
}

/// A failed statement of a transaction that was never committed, and so wrote nothing.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::PoolTimedOut
            | StoreError::Conflict
            | StoreError::LockWait
            | StoreError::InsufficientStock => Self::Overloaded,
            StoreError::TimedOut { server }
            | StoreError::Unavailable { server, .. }
            | StoreError::AccessDenied { server, .. } => {
                tracing::warn!(%error, "purchase refused");
                Self::Unavailable(server)
            }
            StoreError::Duplicate(_) | StoreError::Unexpected(_) => {
                tracing::error!(%error, "purchase failed");
                Self::Defect
            }
        }
    }
}

impl Refusal {
    /// A lock that could not be taken; `server` is where it lives.
    pub(super) fn of_lock(error: &LockError, server: &'static str) -> Self {
        match error {
            LockError::TimedOut { .. } => Self::InProgress,
            // The locks' pool is dry; a server that is away is noticed before.
            LockError::NoConnection(_) => Self::Overloaded,
            // A lease that was fine at the start is refused while the server is too slow for it.
            LockError::Backend(_) | LockError::AccessDenied(_) | LockError::BadRequest { .. } => {
                tracing::warn!(%error, server, "purchase refused");
                Self::Unavailable(server)
            }
            // The lock library has logged the key.
            LockError::HeldByOtherKind => Self::Unavailable(server),
            LockError::Lost => Self::LockLost,
            LockError::Unsupported(_) | LockError::NotOwner => {
                tracing::error!(%error, "purchase failed");
                Self::Defect
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_whose_server_fails_names_that_server() {
        let refusal = Refusal::of_lock(&LockError::Backend("it is away".into()), "zookeeper");
        assert!(matches!(refusal, Refusal::Unavailable("zookeeper")), "{refusal:?}");
        let dry = Refusal::of_lock(&LockError::NoConnection("none is free".into()), "database");
        assert!(matches!(dry, Refusal::Overloaded), "{dry:?}");
    }
}
