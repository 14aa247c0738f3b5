//! The critical section: one order, one transaction, one answer.
//!
//! Order of events: lock, BEGIN, the writer's statements, COMMIT, answer, release. The lock is
//! checked before each round trip to the database; if it is lost, the transaction is rolled back.
//! If the answer to COMMIT is lost, its outcome is resolved before the answer and the release.
//!
//! A lock that is a database transaction lends it to the writer. Such a lock begins and ends with
//! each try: a rolled back try has lost it, and the next try takes it again.

use std::sync::Arc;
use std::time::Instant;

use distlock::mysql::LockTransaction;
use distlock::{Guard, HoldKind, LockKind, LockName, Locks, LostSignal};
use tokio::time::sleep;
use tracing::Instrument;

use super::attempt::{AttemptError, PurchaseAttempt};
use super::batch_writer::BatchWriter;
use super::in_flight_requests::IdempotentRequest;
use super::lab_hooks::{LabHooks, on_release};
use super::outcome::{Outcome, Refusal};
use super::retry::{FEW_TRIES, MAX_RETRY_TIME, MAX_TRIES, jitter};
use super::{InjectedBug, LockOrder, OnLost, Parts, SaleConfig, Scope, Writer};
use crate::domain::{OrderId, VoucherId};
use crate::failpoint::{self, reach};
use crate::store::{
    CommitError, ConnectionIdentity, Duplicate, Health, NewOrder, OrderIds, Orders, Resolution,
    StoreError, Transaction, resolve,
};
use crate::telemetry::{DurationMetric, record_duration, traces};

/// The distance of whole numbers that JavaScript can tell apart at the size of order ids.
const JAVASCRIPT_STEP: u64 = 128;

/// What purchases do under their locks.
pub(super) struct CriticalSection {
    pub(super) config: Arc<SaleConfig>,
    pub(super) orders: Orders,
    batch_writer: BatchWriter,
    pub(super) pool: sqlx::MySqlPool,
    ids: OrderIds,
    locks: Locks,
    /// The read side of the locks, if they have one (laboratory).
    pub(super) read_locks: Option<Locks>,
    pub(super) lock_kind: LockKind,
    pub(super) lock_server: &'static str,
    /// Whether the lock is a transaction, in which the order is written.
    pub(super) lock_is_transaction: bool,
    pub(super) health: Health,
    pub(super) hooks: LabHooks,
}

impl CriticalSection {
    pub(super) fn new(config: Arc<SaleConfig>, parts: Parts, batch_writer: BatchWriter) -> Self {
        let Parts { pool, orders, ids, locks, lock_kind, lock_server, health, .. } = parts;
        let hold = locks.guarantees().hold;
        Self {
            hooks: LabHooks::new(&config, hold),
            config,
            orders,
            batch_writer,
            pool,
            ids,
            read_locks: locks.read_side(),
            locks,
            lock_kind,
            lock_server,
            lock_is_transaction: hold == HoldKind::Transaction,
            health,
        }
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Runs the section without the release. The caller releases the guard that comes with the
    /// outcome, before or after the answer.
    pub(super) async fn run(&self, attempt: &Arc<PurchaseAttempt>) -> (Outcome, Option<Guard>) {
        reach(failpoint::ADMITTED);
        let mut guard = None;
        if self.config.lock_order != LockOrder::Inside && !self.lock_is_transaction {
            guard = match self.enter(attempt).await {
                Ok(guard) => Some(guard),
                Err(Refusal::InProgress)
                    if self.hooks.has_bug(InjectedBug::LockRefusalAcknowledged) =>
                {
                    return (self.acknowledge_unwritten(attempt).await, None);
                }
                Err(refusal) => return (Outcome::Refused(refusal), None),
            };
        }
        let written = self.write_order(attempt, &mut guard);
        let mut outcome = written.instrument(traces::write_span()).await;
        if let Outcome::Bought(order) = &mut outcome
            && self.hooks.has_bug(InjectedBug::RoundedOrderIds)
        {
            order.id = OrderId((order.id.0 + JAVASCRIPT_STEP / 2) & !(JAVASCRIPT_STEP - 1));
        }
        if let Some(guard) = &guard {
            on_release(attempt.hold_times.as_deref(), guard);
        }
        // A next holder could not know whether this order exists.
        if matches!(outcome, Outcome::Unknown(_) | Outcome::Failed)
            && let Some(guard) = guard.take()
        {
            guard.leave_to_lease();
        }
        (outcome, guard)
    }

    /// The answer to a purchase that did not get its lock, as an injected bug gives it.
    async fn acknowledge_unwritten(&self, attempt: &PurchaseAttempt) -> Outcome {
        match self.ids.draw().await {
            Ok(id) => Outcome::Bought(attempt.order(&attempt.new_order(id))),
            Err(error) => Outcome::Refused(error.into()),
        }
    }

    /// Takes the lock of a purchase.
    pub(super) async fn lock(&self, attempt: &PurchaseAttempt) -> Result<Guard, Refusal> {
        let started = Instant::now();
        let locked = self.locks.lock(&self.lock_name(attempt), &self.config.lock).await;
        record_duration(DurationMetric::Lock, started.elapsed());
        let guard = locked.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        self.hooks.on_locked(attempt.hold_times.as_deref());
        Ok(guard)
    }

    /// The name of a purchase's lock.
    pub(super) fn lock_name(&self, attempt: &PurchaseAttempt) -> LockName {
        let name = match self.config.scope {
            Scope::User => format!("lock:order:{}", attempt.user),
            Scope::Voucher => format!("lock:voucher:{}", attempt.voucher),
        };
        LockName::new(name).expect("a prefix and a number make a valid name")
    }

    /// Has the order written, under its lock if that is taken already.
    async fn write_order(
        &self,
        attempt: &Arc<PurchaseAttempt>,
        guard: &mut Option<Guard>,
    ) -> Outcome {
        match self.config.writer {
            // Boxed: it is large, and would be part of every task of the batch writer as well.
            Writer::Single => {
                let started = Instant::now();
                let outcome = Box::pin(self.write_with_retries(attempt, guard)).await;
                record_duration(DurationMetric::Transaction, started.elapsed());
                outcome
            }
            Writer::Grouped => {
                let lost_signal = guard.as_ref().map(Guard::lost_signal);
                self.batch_writer.write(attempt, lost_signal).await
            }
        }
    }

    async fn write_with_retries(
        &self,
        attempt: &PurchaseAttempt,
        guard: &mut Option<Guard>,
    ) -> Outcome {
        let (mut bucket, began) = (attempt.bucket(), Instant::now());
        for tries in 1.. {
            match self.try_once(attempt, bucket, guard).await {
                Ok(new_order) => return Outcome::Bought(attempt.order(&new_order)),
                Err(AttemptError::Refused(refusal)) => return Outcome::Refused(refusal),
                Err(AttemptError::Replayed(order)) => return Outcome::Replayed(order),
                Err(AttemptError::Unknown(order)) => return Outcome::Unknown(order),
                Err(AttemptError::Failed(error))
                    if tries < max_tries(&error) && began.elapsed() < MAX_RETRY_TIME =>
                {
                    bucket = bucket.filter(|_| !matches!(error, StoreError::InsufficientStock));
                    sleep(jitter(tries)).await;
                }
                Err(AttemptError::Failed(error)) => return Outcome::Refused(error.into()),
            }
        }
        Outcome::Failed
    }

    async fn try_once(
        &self,
        attempt: &PurchaseAttempt,
        bucket: Option<u32>,
        guard: &mut Option<Guard>,
    ) -> Result<NewOrder, AttemptError> {
        let mut new_order = attempt.new_order(self.ids.draw().await?);
        if self.hooks.has_bug(InjectedBug::RetryWithFreshId) {
            // The key's row would show the next try that this one has bought.
            new_order.key = None;
        }
        let written = if self.config.is_stepwise() {
            self.write_stepwise(attempt, &new_order, guard).await
        } else {
            self.write_single(attempt, &new_order, bucket, guard).await
        };
        match written {
            Ok(()) => Ok(new_order),
            Err(error) => Err(self.classify_error(error, attempt, &new_order).await),
        }
    }

    /// Takes a lock that is a transaction: the transaction, and the rest of the lock.
    pub(super) async fn lock_and_open(
        &self,
        attempt: &PurchaseAttempt,
    ) -> Result<(Transaction, Guard), AttemptError> {
        let mut guard = self.lock(attempt).await?;
        let lent = guard.take_transaction().ok_or(Refusal::Defect)?;
        Ok((transaction_of(lent), guard))
    }

    /// The signal that the purchase checks, unless it ignores losses.
    pub(super) fn lost_signal(&self, guard: Option<&Guard>) -> Option<LostSignal> {
        guard.map(Guard::lost_signal).filter(|_| self.config.on_lost == OnLost::Stop)
    }

    /// Finds out how a transaction ended whose COMMIT was not answered.
    pub(super) async fn resolve_commit(
        &self,
        committed: Result<(), CommitError>,
        new_order: &NewOrder,
    ) -> Result<(), AttemptError> {
        let connection = match committed {
            Ok(()) => {
                reach(failpoint::COMMITTED);
                return Ok(());
            }
            Err(CommitError::Refused(error)) => return Err(error.into()),
            Err(CommitError::Unknown(connection)) => connection,
        };
        reach(failpoint::COMMIT_IN_DOUBT);
        if self.hooks.has_bug(InjectedBug::RetryWithFreshId) {
            return Err(StoreError::Conflict.into());
        }
        match resolve(&self.pool, self.orders.tables.orders, &connection, &[new_order.id]).await {
            Resolution::Committed => Ok(()),
            Resolution::Absent => Err(Refusal::Unavailable("database").into()),
            Resolution::Unknown => Err(AttemptError::Unknown(new_order.id)),
        }
    }

    /// Finds the reason of a refusal by the database: an earlier order of the user, an earlier
    /// request with the key, or no unit left.
    async fn classify_error(
        &self,
        error: AttemptError,
        attempt: &PurchaseAttempt,
        new_order: &NewOrder,
    ) -> AttemptError {
        let AttemptError::Failed(failure) = error else { return error };
        match (failure, new_order.key) {
            (StoreError::Duplicate(Duplicate::Request), Some(key)) => {
                let (user, operation) = (new_order.user, attempt.operation);
                let request = IdempotentRequest { user, key, operation };
                match request.replay(&self.orders).await {
                    Ok(Some(order)) => AttemptError::Replayed(order),
                    // Housekeeping has just deleted the key.
                    Ok(None) => StoreError::Conflict.into(),
                    Err(refusal) => refusal.into(),
                }
            }
            (StoreError::InsufficientStock, _) => {
                self.classify_insufficient_stock(new_order.voucher).await
            }
            (StoreError::Duplicate(Duplicate::Business), _) => {
                // The refusal holds without the order's id as well.
                let (user, voucher) = (new_order.user, new_order.voucher);
                let earlier = self.orders.of_pair(user, voucher).await.ok().flatten();
                Refusal::AlreadyOrdered(earlier).into()
            }
            (failure, _) => failure.into(),
        }
    }

    /// Nothing is left, or an admin has deleted the voucher. Units that are in other rows of the
    /// stock, or came back since, are for another try, which takes from the stock row.
    async fn classify_insufficient_stock(&self, voucher: VoucherId) -> AttemptError {
        let precheck = match self.orders.precheck(voucher, std::iter::empty()).await {
            Ok(precheck) => precheck,
            Err(error) => return error.into(),
        };
        match precheck.left {
            None => return Refusal::VoucherNotFound.into(),
            Some(..=0) => return Refusal::SoldOut.into(),
            Some(_) => {}
        }
        if precheck.in_buckets > 0
            && let Err(error) = self.orders.gather_buckets(voucher).await
        {
            return error.into();
        }
        StoreError::InsufficientStock.into()
    }
}

/// The transaction that a lock lends.
pub fn transaction_of(lent: LockTransaction) -> Transaction {
    let (id, server) = (lent.connection_id(), lent.server_identity().to_owned());
    let is_on_galera = lent.is_on_galera();
    let connection = ConnectionIdentity { id, server };
    Transaction::from_lent(lent.into_connection(), connection, is_on_galera)
}

/// Refuses if the lock is lost; called before each statement.
pub(super) fn ensure_held(lost_signal: Option<&LostSignal>) -> Result<(), Refusal> {
    if lost_signal.is_some_and(LostSignal::is_lost) {
        return Err(Refusal::LockLost);
    }
    Ok(())
}

/// Releases the lock. The outcome is known by now: a failure leaves the lock to its lease.
pub(super) async fn release(guard: Option<Guard>, attempt: &PurchaseAttempt) {
    let Some(guard) = guard else { return };
    on_release(attempt.hold_times.as_deref(), &guard);
    let started = Instant::now();
    let released = guard.release().await;
    record_duration(DurationMetric::Release, started.elapsed());
    if let Err(error) = released {
        tracing::warn!(%error, "lock not released; its lease ends it");
    }
}

/// How often a transaction is tried that failed so.
fn max_tries(error: &StoreError) -> u32 {
    match error {
        StoreError::Conflict => MAX_TRIES,
        StoreError::Duplicate(Duplicate::Primary) | StoreError::InsufficientStock => FEW_TRIES,
        StoreError::PoolTimedOut
        | StoreError::TimedOut { .. }
        | StoreError::Unavailable { .. }
        | StoreError::AccessDenied { .. }
        | StoreError::LockWait
        | StoreError::Duplicate(_)
        | StoreError::Unexpected(_) => 1,
    }
}
