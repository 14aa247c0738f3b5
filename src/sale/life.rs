//! The rest of an order's life: it is paid, or cancelled by its user. (`housekeeping` cancels what
//! nobody pays.)
//!
//! No lock is taken. Which of those that come together wins is decided by the order's row alone
//! (`store/settle`): one finds it unpaid, all others read what has become of it and are told that.
//! An order that is paid or cancelled stays so, and asking for what it is already is no error.
//!
//! Money is taken before the order is marked as paid (`charge`), by a provider that takes it once
//! for an order however often it is asked. If it was cancelled meanwhile the money is given back.

use std::sync::Arc;

use sqlx::MySqlPool;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::Sale;
use super::catalogue::Catalogue;
use super::outcome::{Refusal, Settled};
use super::section::{TRIES, jitter};
use super::twins::Request;
use crate::domain::{CancelledBy, Order, OrderId, OrderStatus, RequestKey, UserId, Wish};
use crate::payment::{Notice, PaymentStatus, Payments, Unproven};
use crate::store::{Orders, SettleError, Settlement, StoreError, resolve_status};

/// What paying and cancelling needs.
pub(super) struct Life {
    pub(super) orders: Orders,
    pub(super) pool: MySqlPool,
    pub(super) payments: Option<Payments>,
}

/// Who asks for which order to be paid or cancelled.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    user: UserId,
    order: OrderId,
    pub(super) key: Option<RequestKey>,
}

/// Why an order did not become what it was to.
pub(super) enum End {
    /// Nothing was done, and nothing will be.
    Refused(Refusal),
    /// It may have been done, or may be done later.
    Unknown,
}

impl<T: Into<Refusal>> From<T> for End {
    fn from(why: T) -> Self {
        Self::Refused(why.into())
    }
}

impl Sale {
    /// Pays an order of that user.
    pub async fn pay(&self, user: UserId, order: OrderId, key: Option<RequestKey>) -> Settled {
        let (asked, life) = (Asked { user, order, key: self.kept(key) }, Arc::clone(&self.life));
        let work = async move { settled(order, life.pay(asked).await) };
        self.run("pay", Wish::Pay(order), asked, work).await
    }

    /// Cancels an order of that user, and returns its unit.
    pub async fn cancel(&self, user: UserId, order: OrderId, key: Option<RequestKey>) -> Settled {
        let (asked, life) = (Asked { user, order, key: self.kept(key) }, Arc::clone(&self.life));
        let catalogue = self.catalogue.clone();
        let work = async move { settled(order, life.cancel(asked, &catalogue).await) };
        self.run("cancel", Wish::Cancel(order), asked, work).await
    }

    /// In a task of its own, which a client that hangs up does not abort, unless a twin of the
    /// request is under way.
    async fn run(
        &self,
        action: &'static str,
        wish: Wish,
        asked: Asked,
        work: impl Future<Output = Settled> + Send + 'static,
    ) -> Settled {
        let request = asked.key.map(|key| Request { user: asked.user, key, wish });
        let entered = match self.twins.enter(request) {
            Ok(entered) => entered,
            Err(refusal) => return count(action, refusal.into()),
        };
        let task = self.tasks.spawn(async move {
            let settled = count(action, work.await);
            drop(entered);
            settled
        });
        task.await.unwrap_or(Settled::Failed)
    }

    /// Takes note of what the payment provider says, if it proves that it is the one who speaks.
    /// A word that it has said before changes nothing.
    pub async fn hear(&self, body: &[u8], signature: &[u8]) -> Result<Settled, Unproven> {
        let notice = self.life.payments.as_ref().ok_or(Unproven)?.check(body, signature)?;
        let life = Arc::clone(&self.life);
        let work = async move {
            let Ok(order) = notice.order_id.parse() else { return Refusal::OrderNotFound.into() };
            settled(order, life.hear(order, &notice).await)
        };
        let task = self.tasks.spawn(async move { count("callback", work.await) });
        Ok(task.await.unwrap_or(Settled::Failed))
    }
}

impl Life {
    async fn pay(&self, asked: Asked) -> Result<Order, End> {
        let payments = self.payments.as_ref().ok_or(Refusal::NoPayments)?;
        // Its key stands for this payment, or for none: whether that was made the order tells.
        self.replay(asked, Wish::Pay(asked.order)).await?;
        let (order, now) = self.find(asked).await?;
        if order.status != OrderStatus::Unpaid {
            return paid(order);
        }
        if self.begin_charge(asked, &order).await? {
            return paid(self.charge(payments, &order, now).await?);
        }
        // Somebody was faster, with the order or with the key.
        self.replay(asked, Wish::Pay(asked.order)).await?;
        paid(self.find(asked).await?.0)
    }

    async fn cancel(&self, asked: Asked, catalogue: &Catalogue) -> Result<Order, End> {
        if let Some(order) = self.replay(asked, Wish::Cancel(asked.order)).await? {
            return Ok(order);
        }
        let (order, now) = self.find(asked).await?;
        let to = OrderStatus::Cancelled(CancelledBy::Buyer);
        let wanted = Settlement { order: &order, to, at: now, key: asked.key };
        let became = match order.status {
            OrderStatus::Unpaid => {
                let became = self.settle(&wanted).await?;
                // A unit came back. Who asks again for the same has nothing read anew.
                catalogue.forget(became.voucher_id);
                became
            }
            OrderStatus::Paid | OrderStatus::Cancelled(_) => order,
        };
        match became.status {
            OrderStatus::Cancelled(_) => Ok(became),
            OrderStatus::Paid => Err(Refusal::OrderPaid.into()),
            OrderStatus::Unpaid => Err(Refusal::KeyReused.into()),
        }
    }

    async fn hear(&self, order: OrderId, notice: &Notice) -> Result<Order, End> {
        let payments = self.payments.as_ref().ok_or(Refusal::NoPayments)?;
        let (order, now) = self.orders.find_any(order).await?.ok_or(Refusal::OrderNotFound)?;
        if notice.amount_cents != order.price_cents {
            tracing::error!(order = %order.id, notice.amount_cents, "a wrong amount was paid");
            return Err(Refusal::WrongAmount.into());
        }
        if notice.status == PaymentStatus::Declined || order.status == OrderStatus::Paid {
            return Ok(order);
        }
        let wanted = Settlement { order: &order, to: OrderStatus::Paid, at: now, key: None };
        let became = match order.status {
            OrderStatus::Unpaid => self.settle(&wanted).await?,
            OrderStatus::Paid | OrderStatus::Cancelled(_) => order,
        };
        // If this fails the provider says it again.
        if matches!(became.status, OrderStatus::Cancelled(_)) {
            self.give_back(payments, &became).await?;
        }
        Ok(became)
    }

    /// Tries to make of an unpaid order what is wanted; what it has become. It is still unpaid only
    /// if the key stands for another request.
    pub(super) async fn settle(&self, wanted: &Settlement<'_>) -> Result<Order, End> {
        let order = wanted.order;
        let as_wanted =
            || Order { status: wanted.to, settled_at: Some(wanted.at), ..order.clone() };
        for attempt in 1..=TRIES {
            match self.orders.settle(wanted).await {
                Ok(()) => return Ok(as_wanted()),
                Err(SettleError::Beaten) => break,
                Err(SettleError::Failed(StoreError::Conflict)) if attempt < TRIES => {
                    sleep(jitter(attempt)).await;
                }
                Err(SettleError::Failed(error)) => return Err(error.into()),
                Err(SettleError::Unknown(connection)) => {
                    let tables = self.orders.tables;
                    match resolve_status(&self.pool, tables, connection, order.id).await {
                        Some(status) if status == wanted.to => return Ok(as_wanted()),
                        Some(OrderStatus::Unpaid) => {
                            return Err(Refusal::Unavailable("database").into());
                        }
                        Some(_) => break,
                        None => return Err(End::Unknown),
                    }
                }
            }
        }
        let read = self.orders.find(order.user_id, order.id).await?;
        Ok(read.ok_or(Refusal::OrderNotFound)?.0)
    }

    async fn find(&self, asked: Asked) -> Result<(Order, OffsetDateTime), End> {
        let found = self.orders.find(asked.user, asked.order).await?;
        Ok(found.ok_or(Refusal::OrderNotFound)?)
    }

    async fn replay(&self, asked: Asked, wish: Wish) -> Result<Option<Order>, End> {
        let Some(key) = asked.key else { return Ok(None) };
        Ok(Request { user: asked.user, key, wish }.replay(&self.orders).await?)
    }
}

/// The order, if it is paid. It is unpaid if the request's key is another request's.
fn paid(order: Order) -> Result<Order, End> {
    match order.status {
        OrderStatus::Paid => Ok(order),
        OrderStatus::Cancelled(_) => Err(Refusal::OrderCancelled.into()),
        OrderStatus::Unpaid => Err(Refusal::KeyReused.into()),
    }
}

/// Counts how it ended, also if its client has gone.
fn count(action: &'static str, settled: Settled) -> Settled {
    let labels = [("action", action), ("outcome", settled.name())];
    metrics::counter!("seckill_settlements_total", &labels).increment(1);
    settled
}

fn settled(order: OrderId, ended: Result<Order, End>) -> Settled {
    match ended {
        Ok(order) => Settled::Done(order),
        Err(End::Refused(refusal)) => Settled::Refused(refusal),
        Err(End::Unknown) => Settled::Unknown(order),
    }
}
