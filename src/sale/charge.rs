//! Taking the money for an order, and what is done about charges that were cut off.
//!
//! Before the provider is asked it is noted that it will be (`store/charges`). From then on the
//! answer is "paid", "declined", "cancelled" or "unknown", and never "nothing was done": whatever
//! fails now, the provider may have the money. What is noted and not ended is taken up again by the
//! buyer, who asks again, by the provider, which calls back, or by housekeeping: an order that is
//! still unpaid is charged again, which is the same payment; one that was cancelled meanwhile has
//! its money given back. An order with such a note is not timed out.

use time::OffsetDateTime;
use tokio::time::sleep;

use super::life::{Asked, End, Life};
use super::outcome::Refusal;
use super::section::{TRIES, jitter};
use crate::domain::{Order, OrderStatus};
use crate::payment::{Bill, PaymentStatus, Payments};
use crate::store::{SettleError, Settlement, StoreError, resolve_status};

/// A charge that was begun so long ago, or longer, is gone on with. Longer than the provider is
/// waited for, so that two seldom ask at a time; if they do, it is the same payment.
const CUT_OFF_AFTER_S: u32 = 20;

impl Life {
    /// Notes that the order is about to be charged; `false` if it is not unpaid any more, or the
    /// request's key is another one's.
    pub(super) async fn begin_charge(&self, asked: Asked, order: &Order) -> Result<bool, End> {
        let mut in_doubt = false;
        for attempt in 1..=TRIES {
            match self.orders.begin_charge(order, asked.key).await {
                Ok(()) => return Ok(true),
                Err(SettleError::Beaten) => return Ok(false),
                Err(SettleError::Failed(StoreError::Conflict)) if attempt < TRIES => {
                    sleep(jitter(attempt)).await;
                }
                Err(SettleError::Failed(_)) if in_doubt => break,
                Err(SettleError::Failed(error)) => return Err(error.into()),
                Err(SettleError::Unknown(connection)) => {
                    // Noted or not, it can be noted again, once that COMMIT cannot arrive any more.
                    in_doubt = true;
                    let tables = self.orders.tables;
                    if resolve_status(&self.pool, tables, connection, order.id).await.is_none() {
                        break;
                    }
                }
            }
        }
        // If it is noted, housekeeping will charge it.
        Err(End::Unknown)
    }

    /// Has the money taken and marks the order as paid; what has become of it. It is refused only
    /// if the provider has declined.
    pub(super) async fn charge(
        &self,
        payments: &Payments,
        order: &Order,
        now: OffsetDateTime,
    ) -> Result<Order, End> {
        let notice = payments.charge(bill(order)).await.map_err(|error| {
            tracing::warn!(%error, order = %order.id, "nobody knows how a payment went");
            End::Unknown
        })?;
        if notice.status == PaymentStatus::Declined {
            self.forget_charge(order).await;
            return Err(Refusal::PaymentDeclined.into());
        }
        let wanted = Settlement { order, to: OrderStatus::Paid, at: now, key: None };
        let became = self.settle(&wanted).await.map_err(|why| {
            if let End::Refused(refusal) = why {
                let why = refusal.name();
                tracing::warn!(order = %order.id, why, "a payment is not marked yet");
            }
            End::Unknown
        })?;
        match became.status {
            OrderStatus::Paid => {}
            OrderStatus::Cancelled(_) => {
                // What fails now is tried again later.
                let _noted = self.give_back(payments, &became).await;
            }
            OrderStatus::Unpaid => return Err(End::Unknown),
        }
        Ok(became)
    }

    /// Gives back the money for an order that was cancelled.
    pub(super) async fn give_back(&self, payments: &Payments, order: &Order) -> Result<(), End> {
        payments.refund(bill(order)).await.map_err(|error| {
            tracing::error!(%error, order = %order.id, "a payment was not given back");
            End::from(Refusal::Unavailable("payments"))
        })?;
        self.forget_charge(order).await;
        Ok(())
    }

    async fn forget_charge(&self, order: &Order) {
        if let Err(error) = self.orders.forget_charge(order.id).await {
            tracing::warn!(%error, order = %order.id, "the provider will be asked again");
        }
    }

    /// Whether there are charges that were cut off.
    pub(super) async fn has_open_charges(&self) -> Result<bool, StoreError> {
        Ok(!self.orders.open_charges(CUT_OFF_AFTER_S).await?.is_empty())
    }

    /// Goes on with the charges that were cut off, some of them.
    pub(super) async fn finish_charges(&self) -> Result<(), StoreError> {
        let Some(payments) = &self.payments else { return Ok(()) };
        for order in self.orders.open_charges(CUT_OFF_AFTER_S).await? {
            // Before it fails, so that those behind it have their turn.
            self.orders.put_off_charge(order.id).await?;
            let ended = match order.status {
                OrderStatus::Unpaid => match self.orders.find_any(order.id).await? {
                    Some((order, now)) => self.charge(payments, &order, now).await,
                    None => continue,
                },
                OrderStatus::Paid => {
                    self.forget_charge(&order).await;
                    continue;
                }
                OrderStatus::Cancelled(_) => {
                    self.give_back(payments, &order).await.map(|()| order.clone())
                }
            };
            let outcome = match ended {
                Ok(order) => order.status.as_str(),
                Err(End::Refused(refusal)) => refusal.name(),
                Err(End::Unknown) => "unknown",
            };
            tracing::info!(order = %order.id, outcome, "a charge that was cut off is gone on with");
            metrics::counter!("seckill_charges_taken_up_total", "outcome" => outcome).increment(1);
        }
        Ok(())
    }
}

fn bill(order: &Order) -> Bill {
    Bill { order: order.id, amount_cents: order.price_cents }
}
