//! Charges: taking the money for an order, and resuming charges that were cut off.
//!
//! A charge is recorded (`store/charges`) before the provider is asked. From then on the answer is
//! paid, declined, cancelled or unknown, never "nothing was done": the provider may have the money.
//!
//! A recorded charge is resumed by the buyer's next request, the provider's callback or
//! housekeeping. An unpaid order is charged again, which is the same payment. An order that was
//! cancelled meanwhile is refunded. An order with a recorded charge is not timed out.

use std::time::Instant;

use time::OffsetDateTime;
use tokio::time::sleep;

use super::order_settlement::{OrderSettlement, SettlementError, SettlementRequest};
use super::outcome::Refusal;
use super::retry::{MAX_RETRY_TIME, MAX_TRIES, jitter};
use crate::domain::{Order, OrderStatus};
use crate::payment::{Bill, PaymentStatus, Payments};
use crate::store::{SettleError, Settlement, StoreError, resolve_status};

/// The age at which a charge is resumed. It exceeds the provider's time-out, so concurrent charges
/// are rare; they would be the same payment.
const RESUME_CHARGE_AFTER_S: u32 = 20;
/// How many answers to its COMMIT may be lost until a charge is left to housekeeping.
const MAX_DOUBTS: u32 = 5;

impl OrderSettlement {
    /// Records a charge; `false` if the order is no longer unpaid, or the key is another request's.
    pub(super) async fn begin_charge(
        &self,
        request: SettlementRequest,
        order: &Order,
    ) -> Result<bool, SettlementError> {
        let (mut doubts, began) = (0, Instant::now());
        for tries in 1..=MAX_TRIES {
            match self.orders.begin_charge(order, request.key).await {
                Ok(()) => return Ok(true),
                Err(SettleError::Superseded) => return Ok(false),
                Err(SettleError::Failed(StoreError::Conflict))
                    if tries < MAX_TRIES && began.elapsed() < MAX_RETRY_TIME =>
                {
                    sleep(jitter(tries)).await;
                }
                Err(SettleError::Failed(_)) if doubts > 0 => break,
                Err(SettleError::Failed(error)) => return Err(error.into()),
                Err(SettleError::Unknown(connection)) => {
                    // Recorded or not: once that COMMIT cannot arrive, it can be recorded again.
                    // (On Galera it may arrive: then its row of `charges` conflicts.)
                    doubts += 1;
                    let tables = self.orders.tables;
                    let status = resolve_status(&self.pool, tables, &connection, order.id).await;
                    if status.is_none() || doubts == MAX_DOUBTS {
                        break;
                    }
                }
            }
        }
        // If it is recorded, housekeeping will resume it.
        Err(SettlementError::Unknown)
    }

    /// Takes the money and marks the order as paid; the order as it is then. Refused only if the
    /// provider declines.
    pub(super) async fn charge(
        &self,
        payments: &Payments,
        order: &Order,
        now: OffsetDateTime,
    ) -> Result<Order, SettlementError> {
        let notice = payments.charge(bill(order)).await.map_err(|error| {
            tracing::warn!(%error, order = %order.id, "charge without an answer; to be resumed");
            SettlementError::Unknown
        })?;
        if notice.status == PaymentStatus::Declined {
            self.delete_charge(order).await;
            return Err(Refusal::PaymentDeclined.into());
        }
        let wanted = Settlement { order, to: OrderStatus::Paid, at: now, key: None };
        let became = self.settle(&wanted).await.map_err(|why| {
            if let SettlementError::Refused(refusal) = why {
                let why = refusal.name();
                tracing::warn!(order = %order.id, why, "order not marked as paid; to be resumed");
            }
            SettlementError::Unknown
        })?;
        match became.status {
            OrderStatus::Paid => {}
            OrderStatus::Cancelled(_) => {
                // Housekeeping resumes it if this fails.
                let _resumed_later = self.refund(payments, &became).await;
            }
            OrderStatus::Unpaid => return Err(SettlementError::Unknown),
        }
        Ok(became)
    }

    /// Refunds an order that was cancelled.
    pub(super) async fn refund(
        &self,
        payments: &Payments,
        order: &Order,
    ) -> Result<(), SettlementError> {
        payments.refund(bill(order)).await.map_err(|error| {
            tracing::error!(%error, order = %order.id, "refund failed; it will be tried again");
            SettlementError::from(Refusal::Unavailable("payments"))
        })?;
        self.delete_charge(order).await;
        Ok(())
    }

    async fn delete_charge(&self, order: &Order) {
        if let Err(error) = self.orders.delete_charge(order.id).await {
            tracing::warn!(%error, order = %order.id, "charge not deleted; to be resumed");
        }
    }

    /// Whether there are charges to resume.
    pub(super) async fn has_open_charges(&self) -> Result<bool, StoreError> {
        Ok(!self.orders.open_charges(RESUME_CHARGE_AFTER_S).await?.is_empty())
    }

    /// Resumes a batch of charges that were cut off.
    pub(super) async fn resume_charges(&self) -> Result<(), StoreError> {
        let Some(payments) = &self.payments else { return Ok(()) };
        for order in self.orders.open_charges(RESUME_CHARGE_AFTER_S).await? {
            // First, so that a failing charge does not block those behind it.
            self.orders.defer_charge(order.id).await?;
            let ended = match order.status {
                OrderStatus::Unpaid => match self.orders.find_any(order.id).await? {
                    Some((order, now)) => self.charge(payments, &order, now).await,
                    None => continue,
                },
                OrderStatus::Paid => {
                    self.delete_charge(&order).await;
                    continue;
                }
                OrderStatus::Cancelled(_) => {
                    self.refund(payments, &order).await.map(|()| order.clone())
                }
            };
            let outcome = match ended {
                Ok(order) => order.status.as_str(),
                Err(SettlementError::Refused(refusal)) => refusal.name(),
                Err(SettlementError::Unknown) => "unknown",
            };
            tracing::info!(order = %order.id, outcome, "charge resumed");
            metrics::counter!("seckill_charges_resumed_total", "outcome" => outcome).increment(1);
        }
        Ok(())
    }
}

fn bill(order: &Order) -> Bill {
    Bill { order: order.id, amount_cents: order.price_cents }
}
