//! Payment and cancellation of an order. (`housekeeping` cancels orders that are not paid in time.)
//!
//! No lock is taken. Which of concurrent requests wins is decided by the order's row alone
//! (`store/settlement`): one finds it unpaid, the others read what it has become and answer that. A
//! paid or cancelled order stays so, and a repeated request is no error.
//!
//! Money is taken before the order is marked as paid (`charge`), by a provider that takes it once
//! for an order however often it is asked. If the order was cancelled meanwhile, the money is
//! refunded.

use std::sync::Arc;
use std::time::Instant;

use sqlx::MySqlPool;
use time::OffsetDateTime;
use tokio::time::sleep;
use tracing::Instrument;

use super::Sale;
use super::in_flight_requests::IdempotentRequest;
use super::outcome::{Refusal, SettlementOutcome};
use super::retry::{MAX_RETRY_TIME, MAX_TRIES, jitter};
use super::voucher_cache::VoucherCache;
use crate::domain::{
    CancelledBy, IdempotencyKeyHash, Operation, Order, OrderId, OrderStatus, UserId,
};
use crate::payment::{Notice, PaymentStatus, Payments, Unproven};
use crate::store::{Orders, SettleError, Settlement, StoreError, resolve_status};

/// Pays and cancels orders.
pub(super) struct OrderSettlement {
    pub(super) orders: Orders,
    pub(super) pool: MySqlPool,
    pub(super) payments: Option<Payments>,
}

/// A request to pay or cancel an order.
#[derive(Clone, Copy)]
pub(super) struct SettlementRequest {
    user: UserId,
    order: OrderId,
    pub(super) key: Option<IdempotencyKeyHash>,
}

/// Why an order was not paid or cancelled.
pub(super) enum SettlementError {
    /// Nothing was done, and nothing will be.
    Refused(Refusal),
    /// It may have been done, or may be done later.
    Unknown,
}

impl<T: Into<Refusal>> From<T> for SettlementError {
    fn from(why: T) -> Self {
        Self::Refused(why.into())
    }
}

impl Sale {
    /// Pays an order of that user.
    pub async fn pay(
        &self,
        user: UserId,
        order: OrderId,
        key: Option<IdempotencyKeyHash>,
    ) -> SettlementOutcome {
        let request = SettlementRequest { user, order, key: self.idempotency_key(key) };
        let settlement = Arc::clone(&self.settlement);
        // Boxed: tasks move their futures.
        let work = Box::pin(async move { settled(order, settlement.pay(request).await) });
        self.run("pay", Operation::Pay(order), request, work).await
    }

    /// Cancels an order of that user, and returns its unit.
    pub async fn cancel(
        &self,
        user: UserId,
        order: OrderId,
        key: Option<IdempotencyKeyHash>,
    ) -> SettlementOutcome {
        let request = SettlementRequest { user, order, key: self.idempotency_key(key) };
        let settlement = Arc::clone(&self.settlement);
        let vouchers = self.voucher_cache.clone();
        let work =
            Box::pin(async move { settled(order, settlement.cancel(request, &vouchers).await) });
        self.run("cancel", Operation::Cancel(order), request, work).await
    }

    /// Runs the work in a task of its own, which a client that hangs up does not abort. Refuses a
    /// request whose key is in flight.
    async fn run(
        &self,
        action: &'static str,
        operation: Operation,
        request: SettlementRequest,
        work: impl Future<Output = SettlementOutcome> + Send + 'static,
    ) -> SettlementOutcome {
        let request =
            request.key.map(|key| IdempotentRequest { user: request.user, key, operation });
        let in_flight = match self.in_flight.enter(request) {
            Ok(in_flight) => in_flight,
            Err(refusal) => return count(action, refusal.into()),
        };
        let work = async move {
            let settled = work.await;
            drop(in_flight);
            settled
        };
        self.run_in_slot(action, work).await
    }

    /// Runs the work in a task, if one of `max_orders` places is free. A client that hangs up gives
    /// its place back only when the work has ended.
    async fn run_in_slot(
        &self,
        action: &'static str,
        work: impl Future<Output = SettlementOutcome> + Send + 'static,
    ) -> SettlementOutcome {
        let Ok(slot) = Arc::clone(&self.settlement_slots).try_acquire_owned() else {
            return count(action, Refusal::Overloaded.into());
        };
        let work = async move {
            let settled = count(action, work.await);
            drop(slot);
            settled
        };
        let task = self.tasks.spawn(work.in_current_span());
        task.await.unwrap_or(SettlementOutcome::Failed)
    }

    /// Handles a callback of the payment provider, if its signature is right. A repeated callback
    /// changes nothing.
    pub async fn handle_callback(
        &self,
        body: &[u8],
        signature: &[u8],
    ) -> Result<SettlementOutcome, Unproven> {
        let notice = self.settlement.payments.as_ref().ok_or(Unproven)?.check(body, signature)?;
        let settlement = Arc::clone(&self.settlement);
        let work = async move {
            let Ok(order) = notice.order_id.parse() else { return Refusal::OrderNotFound.into() };
            settled(order, settlement.handle_callback(order, &notice).await)
        };
        Ok(self.run_in_slot("callback", work).await)
    }
}

impl OrderSettlement {
    async fn pay(&self, request: SettlementRequest) -> Result<Order, SettlementError> {
        let payments = self.payments.as_ref().ok_or(Refusal::NoPayments)?;
        // Only for a reused key: the order's row shows whether this payment was made.
        self.replay(request, Operation::Pay(request.order)).await?;
        let (order, now) = self.find(request).await?;
        if order.status != OrderStatus::Unpaid {
            return paid(order);
        }
        if self.begin_charge(request, &order).await? {
            return paid(self.charge(payments, &order, now).await?);
        }
        // Another request was faster, with the order or with the key.
        self.replay(request, Operation::Pay(request.order)).await?;
        paid(self.find(request).await?.0)
    }

    async fn cancel(
        &self,
        request: SettlementRequest,
        vouchers: &VoucherCache,
    ) -> Result<Order, SettlementError> {
        if let Some(order) = self.replay(request, Operation::Cancel(request.order)).await? {
            return Ok(order);
        }
        let (order, now) = self.find(request).await?;
        let to = OrderStatus::Cancelled(CancelledBy::Buyer);
        let wanted = Settlement { order: &order, to, at: now, key: request.key };
        let became = match order.status {
            OrderStatus::Unpaid => {
                let became = self.settle(&wanted).await?;
                // A unit came back. A repeated cancellation invalidates nothing.
                vouchers.invalidate(became.voucher_id);
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

    async fn handle_callback(
        &self,
        order: OrderId,
        notice: &Notice,
    ) -> Result<Order, SettlementError> {
        let payments = self.payments.as_ref().ok_or(Refusal::NoPayments)?;
        let (order, now) = self.orders.find_any(order).await?.ok_or(Refusal::OrderNotFound)?;
        if notice.amount_cents != order.price_cents {
            tracing::error!(order = %order.id, notice.amount_cents, "wrong amount; refused");
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
        // If this fails, the provider repeats its callback.
        if matches!(became.status, OrderStatus::Cancelled(_)) {
            self.refund(payments, &became).await?;
        }
        Ok(became)
    }

    /// Settles an unpaid order; the order as it is then. It is still unpaid only if the key stands
    /// for another request.
    pub(super) async fn settle(&self, wanted: &Settlement<'_>) -> Result<Order, SettlementError> {
        let order = wanted.order;
        let as_wanted =
            || Order { status: wanted.to, settled_at: Some(wanted.at), ..order.clone() };
        let began = Instant::now();
        for tries in 1..=MAX_TRIES {
            match self.orders.settle(wanted).await {
                Ok(()) => return Ok(as_wanted()),
                Err(SettleError::Superseded) => break,
                Err(SettleError::Failed(StoreError::Conflict))
                    if tries < MAX_TRIES && began.elapsed() < MAX_RETRY_TIME =>
                {
                    sleep(jitter(tries)).await;
                }
                Err(SettleError::Failed(error)) => return Err(error.into()),
                Err(SettleError::Unknown(connection)) => {
                    let tables = self.orders.tables;
                    match resolve_status(&self.pool, tables, &connection, order.id).await {
                        Some(status) if status == wanted.to => return Ok(as_wanted()),
                        Some(OrderStatus::Unpaid) => {
                            return Err(Refusal::Unavailable("database").into());
                        }
                        Some(_) => break,
                        None => return Err(SettlementError::Unknown),
                    }
                }
            }
        }
        let read = self.orders.find(order.user_id, order.id).await?;
        Ok(read.ok_or(Refusal::OrderNotFound)?.0)
    }

    async fn find(
        &self,
        request: SettlementRequest,
    ) -> Result<(Order, OffsetDateTime), SettlementError> {
        let found = self.orders.find(request.user, request.order).await?;
        Ok(found.ok_or(Refusal::OrderNotFound)?)
    }

    async fn replay(
        &self,
        request: SettlementRequest,
        operation: Operation,
    ) -> Result<Option<Order>, SettlementError> {
        let Some(key) = request.key else { return Ok(None) };
        Ok(IdempotentRequest { user: request.user, key, operation }.replay(&self.orders).await?)
    }
}

/// The order, if it is paid. It is unpaid if the request's key is another request's.
fn paid(order: Order) -> Result<Order, SettlementError> {
    match order.status {
        OrderStatus::Paid => Ok(order),
        OrderStatus::Cancelled(_) => Err(Refusal::OrderCancelled.into()),
        OrderStatus::Unpaid => Err(Refusal::KeyReused.into()),
    }
}

/// Counts the outcome, also if its client has disconnected.
fn count(action: &'static str, settled: SettlementOutcome) -> SettlementOutcome {
    let labels = [("action", action), ("outcome", settled.name())];
    metrics::counter!("seckill_settlements_total", &labels).increment(1);
    settled
}

fn settled(order: OrderId, ended: Result<Order, SettlementError>) -> SettlementOutcome {
    match ended {
        Ok(order) => SettlementOutcome::Done(order),
        Err(SettlementError::Refused(refusal)) => SettlementOutcome::Refused(refusal),
        Err(SettlementError::Unknown) => SettlementOutcome::Unknown(order),
    }
}
