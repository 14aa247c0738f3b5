//! A batch, from its orders to an outcome for each of them.
//!
//! All orders are tried in one transaction. After a rollback its error decides what follows:
//!
//! - A duplicate, or too few units: one read finds earlier requests with the same keys, one the
//!   buyers and the units left (`BatchPrecheck`). As many of the other orders as there are units
//!   are tried, in the order of arrival.
//! - A ticket that has ended (an entry of the queued mode that was delivered before): one read
//!   finds which have, and how. The others are tried.
//! - A ticket of another epoch: it is `Stale`. The others are tried.
//! - A deadlock (1213), an id that is taken, or an unexpected error: half as many are tried, after
//!   a pause if another transaction was met. Halving isolates an order that fails by itself.
//! - A row that stays locked (1205): orders are tried one by one from then on.
//! - A row that stays locked, in the queued mode: all are `LockWaitAborted` after 0.3 s, and are
//!   tried again one by one (`queued::entry_processing`).
//! - Anything else refuses all that were tried.
//!
//! Each success doubles the number that is tried next. A user's second order in a batch is tried
//! after the first has its outcome. A batch ends: no order is tried that has waited for longer than
//! `MAX_BATCH_WAIT`, and a batch has at most `MAX_TRIES` tries for each order.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::Span;

use super::transaction::BatchError;
use super::{BatchExecutor, BatchResult, PendingOrder};
use crate::domain::{OrderId, UserId};
use crate::sale::attempt::PurchaseAttempt;
use crate::sale::outcome::{Outcome, Refusal};
use crate::sale::retry::{MAX_TRIES, jitter};
use crate::store::{Duplicate, NewOrder, StoreError};

/// An order that has waited for longer is refused, not tried.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(10);

/// Orders that are written together.
pub(super) struct Batch {
    executor: Arc<BatchExecutor>,
    /// Orders without an outcome, in the order of arrival.
    waiting: Vec<PendingOrder>,
    /// The most orders of the next transaction.
    limit: usize,
    /// The most that `limit` grows to.
    max_limit: usize,
    /// Units left, if that was read.
    left: Option<usize>,
    /// Transactions that may still be tried.
    tries: usize,
}

impl Batch {
    /// A batch. If the voucher was sold out, it reads the stock before it writes.
    ///
    /// Tickets are tried in any case: they may have ended before, or be of an earlier epoch.
    pub(super) fn new(
        executor: Arc<BatchExecutor>,
        waiting: Vec<PendingOrder>,
        sold_out: bool,
    ) -> Self {
        let size = waiting.len();
        let reads_first = sold_out && waiting.iter().all(|order| order.attempt.admitted.is_none());
        Self {
            executor,
            waiting,
            limit: size,
            max_limit: size,
            left: reads_first.then_some(0),
            tries: size * MAX_TRIES as usize,
        }
    }

    /// The span of the first request: log lines of a batch name that request.
    pub(super) fn span(&self) -> Span {
        self.waiting.first().map_or_else(Span::none, |order| order.span.clone())
    }

    /// Writes until each order has a result; whether no unit is left then, as far as known.
    pub(super) async fn write(mut self) -> bool {
        loop {
            self.reject_expired();
            if self.waiting.is_empty() {
                return self.left == Some(0);
            }
            if self.left == Some(0) {
                self.query_state().await;
                continue;
            }
            if self.tries == 0 {
                self.refuse_all(Refusal::Overloaded);
                continue;
            }
            self.tries -= 1;
            let batch = self.pick();
            match self.executor.write(&batch).await {
                Ok(new_orders) => self.complete(batch, &new_orders),
                Err(error) => self.handle_error(batch, error).await,
            }
        }
    }

    /// Refuses orders that have lost their lock or waited for too long.
    fn reject_expired(&mut self) {
        for order in mem::take(&mut self.waiting) {
            if order.has_lost_lock() {
                order.complete_with(Outcome::Refused(Refusal::LockLost));
            } else if order.since.elapsed() > MAX_BATCH_WAIT {
                order.complete_with(Outcome::Refused(Refusal::Overloaded));
            } else {
                self.waiting.push(order);
            }
        }
    }

    /// Takes the orders of the next transaction, each user once, in the order of arrival.
    fn pick(&mut self) -> Vec<PendingOrder> {
        let limit = self.left.map_or(self.limit, |left| left.min(self.limit));
        let mut users = HashSet::new();
        let (mut batch, mut others) = (Vec::new(), Vec::new());
        for order in mem::take(&mut self.waiting) {
            if batch.len() < limit && users.insert(order.attempt.user) {
                batch.push(order);
            } else {
                others.push(order);
            }
        }
        self.waiting = others;
        batch
    }

    /// Completes a committed batch, and the duplicates among the waiting orders.
    fn complete(&mut self, batch: Vec<PendingOrder>, new_orders: &[NewOrder]) {
        self.left = self.left.map(|left| left.saturating_sub(new_orders.len()));
        self.limit = (self.limit * 2).min(self.max_limit);
        if !self.waiting.is_empty() {
            let bought =
                new_orders.iter().map(|new_order| (new_order.user, new_order.id)).collect();
            self.complete_duplicates(&bought);
        }
        for (order, new_order) in batch.into_iter().zip(new_orders) {
            let bought = order.attempt.order(new_order);
            order.complete_with(Outcome::Bought(bought));
        }
    }

    /// Refuses waiting orders of users who have an order.
    fn complete_duplicates(&mut self, earlier: &HashMap<UserId, OrderId>) {
        for order in mem::take(&mut self.waiting) {
            match earlier.get(&order.attempt.user) {
                Some(id) => {
                    let refusal = Refusal::AlreadyOrdered(Some(*id));
                    order.complete_with(Outcome::Refused(refusal));
                }
                None => self.waiting.push(order),
            }
        }
    }

    /// Handles a transaction that was not committed.
    async fn handle_error(&mut self, batch: Vec<PendingOrder>, error: BatchError) {
        match error {
            BatchError::Unknown(new_orders) => {
                for (order, new_order) in batch.into_iter().zip(new_orders) {
                    order.complete_with(Outcome::Unknown(new_order.id));
                }
            }
            BatchError::Stale(epoch) => {
                let (fresh, stale) = batch.into_iter().partition(|order| {
                    order.attempt.admitted.map(|admitted| admitted.epoch) == epoch
                });
                self.requeue(fresh);
                Vec::into_iter(stale).for_each(|order| order.complete(BatchResult::Stale));
            }
            BatchError::LockWaitAborted => {
                Vec::into_iter(batch)
                    .for_each(|order| order.complete(BatchResult::LockWaitAborted));
            }
            BatchError::DatabaseDown => refuse(batch, Refusal::Unavailable("database")),
            BatchError::LockLost => self.requeue(batch),
            BatchError::Failed(error) => self.handle_store_error(batch, error).await,
        }
    }

    /// Handles an error of a server, after the rollback.
    async fn handle_store_error(&mut self, mut batch: Vec<PendingOrder>, error: StoreError) {
        let together = batch.len();
        metrics::counter!("seckill_batch_failures_total", "cause" => cause(&error)).increment(1);
        match error {
            StoreError::Duplicate(Duplicate::Business | Duplicate::Request)
            | StoreError::InsufficientStock => {
                self.requeue(batch);
                self.query_state().await;
            }
            StoreError::Duplicate(Duplicate::Ticket) => {
                self.requeue(batch);
                self.complete_ended().await;
            }
            StoreError::Conflict | StoreError::Duplicate(Duplicate::Primary) => {
                let mut tries = 1;
                if let [alone] = &mut batch[..] {
                    alone.tries += 1;
                    tries = alone.tries;
                    if tries >= MAX_TRIES {
                        return refuse(batch, error.into());
                    }
                }
                self.limit = together.div_ceil(2);
                self.requeue(batch);
                sleep(jitter(tries)).await;
            }
            StoreError::LockWait if together > 1 => {
                (self.limit, self.max_limit) = (1, 1);
                self.requeue(batch);
            }
            StoreError::Unexpected(_) if together > 1 => {
                self.limit = together / 2;
                self.requeue(batch);
            }
            error => refuse(batch, error.into()),
        }
    }

    /// Reads buyers and stock, and completes the orders that cannot be written.
    async fn query_state(&mut self) {
        let Some(voucher) = self.waiting.first().map(|order| order.attempt.voucher) else {
            return;
        };
        if let Err(error) = self.replay().await {
            return self.refuse_all(error.into());
        }
        let users = self.waiting.iter().map(|order| order.attempt.user);
        let precheck = match self.executor.orders.precheck(voucher, users).await {
            Ok(precheck) => precheck,
            Err(error) => return self.refuse_all(error.into()),
        };
        if precheck.in_buckets > 0
            && let Err(error) = self.executor.orders.gather_buckets(voucher).await
        {
            return self.refuse_all(error.into());
        }
        self.complete_duplicates(&precheck.earlier);
        match precheck.left.map(usize::try_from) {
            None => self.refuse_all(Refusal::VoucherNotFound),
            Some(Ok(0) | Err(_)) => {
                self.left = Some(0);
                self.refuse_all(Refusal::SoldOut);
            }
            Some(Ok(left)) => self.left = Some(left),
        }
    }

    /// Completes orders whose tickets have ended before.
    async fn complete_ended(&mut self) {
        let tickets = self.waiting.iter().filter_map(|order| order.attempt.admitted);
        let ended = match self.executor.tickets.ended(tickets.map(|admitted| admitted.ticket)).await
        {
            Ok(ended) => ended,
            Err(error) => return self.refuse_all(error.into()),
        };
        for order in mem::take(&mut self.waiting) {
            match order.attempt.admitted.and_then(|admitted| ended.get(&admitted.ticket)) {
                Some(state) => order.complete(BatchResult::Ended(*state)),
                None => self.waiting.push(order),
            }
        }
    }

    /// Completes orders whose request was made before, with that one's answer.
    async fn replay(&mut self) -> Result<(), StoreError> {
        let key = |attempt: &PurchaseAttempt| Some((attempt.user, attempt.key?));
        let keys: Vec<_> = self.waiting.iter().filter_map(|order| key(&order.attempt)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let stored = self.executor.orders.find_by_keys(keys.into_iter()).await?;
        for order in mem::take(&mut self.waiting) {
            match key(&order.attempt).and_then(|key| stored.get(&key)) {
                Some(earlier) if earlier.operation.matches(order.attempt.operation) => {
                    order.complete_with(Outcome::Replayed(earlier.order.clone()));
                }
                Some(_) => order.complete_with(Outcome::Refused(Refusal::KeyReused)),
                None => self.waiting.push(order),
            }
        }
        Ok(())
    }

    /// Puts orders back, in the order of arrival.
    fn requeue(&mut self, batch: Vec<PendingOrder>) {
        self.waiting.extend(batch);
        self.waiting.sort_unstable_by_key(|order| order.arrival);
    }

    fn refuse_all(&mut self, refusal: Refusal) {
        refuse(mem::take(&mut self.waiting), refusal);
    }
}

fn refuse(pending: Vec<PendingOrder>, refusal: Refusal) {
    for order in pending {
        order.complete_with(Outcome::Refused(refusal));
    }
}

/// The label of an error in the metric.
fn cause(error: &StoreError) -> &'static str {
    match error {
        StoreError::PoolTimedOut => "pool_timed_out",
        StoreError::TimedOut { .. } => "timed_out",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::AccessDenied { .. } => "access_denied",
        StoreError::Conflict => "conflict",
        StoreError::LockWait => "lock_wait",
        StoreError::Duplicate(Duplicate::Primary) => "id_taken",
        StoreError::Duplicate(Duplicate::Business) => "duplicate",
        StoreError::Duplicate(Duplicate::Ticket) => "ticket_ended",
        StoreError::Duplicate(Duplicate::Request) => "repeated",
        StoreError::InsufficientStock => "insufficient_stock",
        StoreError::Unexpected(_) => "unexpected",
    }
}
