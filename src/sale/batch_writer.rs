//! The batch writer: orders of a voucher that arrive during a transaction are committed together.
//!
//! A voucher with orders has a bounded queue and at most two workers. A worker takes what is
//! queued, writes it as one batch (`batch`) and looks again. If no batch is in flight, an order is
//! written at once. A second batch starts when it is as large as the first, or when the first takes
//! longer than 20 ms: smaller batches cost each order more. A worker ends when it may not start a
//! batch, so there are never more queues than purchases in flight (`--max-orders`).
//!
//! Each order gets what the writer `single` guarantees. Within a batch the outcomes are those that
//! `single` would give in the order of arrival. Between two concurrent batches that order is not
//! kept. Callers keep their locks until they have their outcome; one that hangs up leaves its order
//! in the batch. Tests: `tests/service/grouped/`.

mod batch;
mod transaction;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::LostSignal;
use tokio::sync::oneshot;
use tokio::task::{JoinError, yield_now};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span};

use super::attempt::PurchaseAttempt;
use super::lab_hooks::LabHooks;
use super::outcome::{Outcome, Refusal};
use super::{BatchLimits, OnLost, Parts, SaleConfig};
use crate::domain::{TicketState, VoucherId};
use crate::store::{Health, OrderIds, Orders, Tickets};
use crate::telemetry::{DurationMetric, record_duration};
use batch::Batch;

/// The most concurrent transactions of a voucher in a replica: one waits for the disk while the
/// other is with the server.
const MAX_CONCURRENT_BATCHES: usize = 2;
/// How often a worker yields before it takes a batch, at most.
const MAX_YIELDS: usize = 3;

/// An order on its way into the database.
struct PendingOrder {
    attempt: Arc<PurchaseAttempt>,
    /// The signal of its caller's lock, if that is checked.
    lost_signal: Option<LostSignal>,
    /// The span of its request, for the log.
    span: Span,
    since: Instant,
    /// How long it was in the queue.
    queued: Duration,
    /// Its place in the order of arrival within its batch.
    arrival: usize,
    /// How often it met another transaction while it was tried alone.
    tries: u32,
    result: oneshot::Sender<BatchResult>,
}

/// The result of an order in a batch.
pub(super) enum BatchResult {
    /// The outcome of the purchase.
    Outcome(Outcome),
    /// Its ticket had ended in that state before; nothing was written.
    Ended(TicketState),
    /// Its ticket is of another epoch than the current one; nothing was written.
    Stale,
    /// Another transaction has locked a row that the batch needs; nothing was written.
    LockWaitAborted,
}

impl PendingOrder {
    fn complete_with(self, outcome: Outcome) {
        self.complete(BatchResult::Outcome(outcome));
    }

    fn complete(self, result: BatchResult) {
        record_duration(
            DurationMetric::Transaction,
            self.since.elapsed().saturating_sub(self.queued),
        );
        // A caller that was dropped has lost its lock with its task; its order is kept.
        let _caller_is_gone = self.result.send(result);
    }
}

/// The queue of a voucher, and its workers.
#[derive(Default)]
struct BatchQueue {
    waiting: VecDeque<PendingOrder>,
    workers: usize,
    /// Orders in batches in flight, without slow ones.
    in_flight: usize,
    /// Whether the last batch left no unit.
    sold_out: bool,
}

impl BatchQueue {
    /// Whether a batch may start now.
    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.waiting.len() >= self.in_flight
    }

    /// Whether another worker should start; if so, it is counted.
    fn claim_worker(&mut self) -> bool {
        let wanted = self.workers < MAX_CONCURRENT_BATCHES && self.is_ready();
        self.workers += usize::from(wanted);
        wanted
    }
}

/// Executes batches.
struct BatchExecutor {
    config: Arc<SaleConfig>,
    pool: sqlx::MySqlPool,
    orders: Orders,
    tickets: Tickets,
    ids: OrderIds,
    health: Health,
    hooks: LabHooks,
}

/// Writes orders in batches. Cheap to clone.
#[derive(Clone)]
pub(super) struct BatchWriter {
    limits: BatchLimits,
    queues: Arc<Mutex<HashMap<VoucherId, BatchQueue>>>,
    executor: Arc<BatchExecutor>,
}

impl BatchWriter {
    pub(super) fn new(config: &Arc<SaleConfig>, parts: &Parts) -> Self {
        let executor = BatchExecutor {
            config: Arc::clone(config),
            pool: parts.pool.clone(),
            orders: parts.orders.clone(),
            tickets: Tickets::new(parts.pool.clone()),
            ids: parts.ids.clone(),
            health: parts.health.clone(),
            hooks: LabHooks::new(config, parts.locks.guarantees().hold),
        };
        Self { limits: config.batches, queues: Arc::default(), executor: Arc::new(executor) }
    }

    /// Writes the order in a batch. The caller holds its lock meanwhile; `lost_signal` is that
    /// lock's.
    pub(super) async fn write(
        &self,
        attempt: &Arc<PurchaseAttempt>,
        lost_signal: Option<LostSignal>,
    ) -> Outcome {
        let lost_signal = lost_signal.filter(|_| self.executor.config.on_lost == OnLost::Stop);
        let (order, result) = pending_order(attempt, lost_signal);
        if !self.enqueue(order) {
            return Outcome::Refused(Refusal::Overloaded);
        }
        match result.await {
            Ok(BatchResult::Outcome(outcome)) => outcome,
            // Without a result the batch has panicked; the others are results of tickets only.
            Err(_)
            | Ok(BatchResult::Ended(_) | BatchResult::Stale | BatchResult::LockWaitAborted) => {
                Outcome::Failed
            }
        }
    }

    /// Writes the order of a ticket, in a batch with others or alone.
    pub(super) async fn write_queued(
        &self,
        attempt: &Arc<PurchaseAttempt>,
        alone: bool,
    ) -> BatchResult {
        let (order, result) = pending_order(attempt, None);
        if alone {
            let batch = Batch::new(Arc::clone(&self.executor), vec![order], false);
            tokio::spawn(batch.write().in_current_span());
        } else if !self.enqueue(order) {
            return BatchResult::Outcome(Outcome::Refused(Refusal::Overloaded));
        }
        result.await.unwrap_or(BatchResult::Outcome(Outcome::Failed))
    }

    /// Queues the order; `false` if the queue is full.
    fn enqueue(&self, order: PendingOrder) -> bool {
        let voucher = order.attempt.voucher;
        let mut queues = self.queues();
        let queue = queues.entry(voucher).or_default();
        // A full queue is not empty: it was not created just now.
        if queue.waiting.len() >= self.limits.queue {
            return false;
        }
        queue.waiting.push_back(order);
        let wants_worker = queue.claim_worker();
        drop(queues);
        if wants_worker {
            self.spawn_worker(voucher);
        }
        true
    }

    fn spawn_worker(&self, voucher: VoucherId) {
        tokio::spawn(self.clone().work(voucher));
    }

    /// Writes batches until none may start.
    async fn work(self, voucher: VoucherId) {
        loop {
            self.yield_to_ready_tasks(voucher).await;
            let Some((batch, count)) = self.next_batch(voucher) else { return };
            metrics::counter!("seckill_groups_total").increment(1);
            let span = batch.span();
            if let Ok(sold_out) = self.write_batch(voucher, batch, count).await {
                self.with_queue(voucher, |queue| queue.sold_out = sold_out);
            } else {
                span.in_scope(
                    || tracing::error!(%voucher, "batch panicked; outcome of its orders unknown"),
                );
            }
        }
    }

    /// Yields up to three times, so that runnable tasks can join this batch.
    ///
    /// Redis grants many locks in one packet, and a spawned worker runs before the other holders.
    /// It yields again as long as orders have arrived meanwhile.
    async fn yield_to_ready_tasks(&self, voucher: VoucherId) {
        let waiting = || self.with_queue(voucher, |queue| queue.waiting.len());
        let mut before = waiting();
        for _ in 0..MAX_YIELDS {
            yield_now().await;
            let now = waiting();
            if now <= before || now >= self.limits.size {
                return;
            }
            before = now;
        }
    }

    /// Writes a batch of `count` orders; whether it left no unit. In a task of its own: a panic in
    /// one batch must not end the queue.
    async fn write_batch(
        &self,
        voucher: VoucherId,
        batch: Batch,
        count: usize,
    ) -> Result<bool, JoinError> {
        let span = batch.span();
        let mut writing = tokio::spawn(batch.write().instrument(span));
        let written = timeout(self.limits.slow, &mut writing).await;
        self.with_queue(voucher, |queue| queue.in_flight -= count);
        if let Ok(written) = written {
            return written;
        }
        if self.with_queue(voucher, BatchQueue::claim_worker) {
            self.spawn_worker(voucher);
        }
        writing.await
    }

    /// Changes the queue of a worker; a queue exists as long as it has workers.
    fn with_queue<T: Default>(
        &self,
        voucher: VoucherId,
        change: impl FnOnce(&mut BatchQueue) -> T,
    ) -> T {
        self.queues().get_mut(&voucher).map(change).unwrap_or_default()
    }

    /// The next batch and its number of orders; `None` ends the worker.
    fn next_batch(&self, voucher: VoucherId) -> Option<(Batch, usize)> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&voucher)?;
        if !queue.is_ready() {
            queue.workers -= 1;
            if queue.workers == 0 {
                queues.remove(&voucher);
            }
            return None;
        }
        let count = queue.waiting.len().min(self.limits.size);
        let mut pending: Vec<_> = queue.waiting.drain(..count).collect();
        for (arrival, order) in pending.iter_mut().enumerate() {
            order.arrival = arrival;
            order.queued = order.since.elapsed();
            record_duration(DurationMetric::Queue, order.queued);
        }
        queue.in_flight += count;
        Some((Batch::new(Arc::clone(&self.executor), pending, queue.sold_out), count))
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<VoucherId, BatchQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An order for the queue, and where its result arrives.
fn pending_order(
    attempt: &Arc<PurchaseAttempt>,
    lost_signal: Option<LostSignal>,
) -> (PendingOrder, oneshot::Receiver<BatchResult>) {
    let (result, receiver) = oneshot::channel();
    let order = PendingOrder {
        attempt: Arc::clone(attempt),
        lost_signal,
        span: Span::current(),
        since: Instant::now(),
        queued: Duration::ZERO,
        arrival: 0,
        tries: 0,
        result,
    };
    (order, receiver)
}
