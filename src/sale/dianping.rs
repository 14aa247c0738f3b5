//! The purchase on hm-dianping's tables, as its own replicas make it with Redisson: the user's lock
//! around one transaction. Replicas of both may serve one sale.
//!
//! - The lock `lock:order:<userId>` and the read of earlier orders under it refuse a second order;
//!   the unique key that `seckill adopt` adds refuses it as well.
//! - The condition of the stock's UPDATE refuses if no unit is left.
//! - The lock is checked before each round trip; if the answer to COMMIT is lost, its outcome is
//!   resolved before the answer and the release.

use std::sync::Arc;
use std::time::Instant;

use distlock::{Guard, LockName, LockOptions, Locks};
use time::{PrimitiveDateTime, UtcOffset};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::critical_section::ensure_held;
use super::outcome::Refusal;
use super::retry::{MAX_RETRY_TIME, MAX_TRIES, jitter};
use crate::domain::{OrderId, UserId, VoucherId};
use crate::store::dianping::{DianpingOrders, DianpingTerms};
use crate::store::{CommitError, Duplicate, Health, OrderIds, Resolution, StoreError};
use crate::telemetry::{DurationMetric, count_purchase, record_duration};

/// The purchase on hm-dianping's tables. Cheap to clone.
#[derive(Clone)]
pub struct DianpingSale {
    /// Orders and stock.
    pub orders: DianpingOrders,
    /// Numbers for orders.
    pub ids: OrderIds,
    /// Locks of the kind `redisson`.
    pub locks: Locks,
    /// How long a purchase waits for its lock, and its lease.
    pub options: LockOptions,
    /// The name of the server that has the locks.
    pub lock_server: &'static str,
    /// Whether the servers answer.
    pub health: Health,
    /// The zone of the tables' times.
    pub zone: UtcOffset,
    /// Places for purchases in progress.
    pub admission: Arc<Semaphore>,
}

/// How a purchase ended.
#[derive(Debug)]
pub enum DianpingOutcome {
    /// The order is committed.
    Bought(OrderId),
    /// No order was written, and none will be.
    Refused(Refusal),
    /// The outcome of COMMIT is not known: the order may exist.
    Unknown(OrderId),
}

/// Why a try ended without an order.
enum TryError {
    Refused(Refusal),
    Failed(StoreError),
    Unknown(OrderId),
}

impl From<StoreError> for TryError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for TryError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl DianpingSale {
    /// Sells one unit of the voucher to the user, or says why not. Once begun it must run to its
    /// end.
    pub async fn purchase(&self, user: UserId, voucher: VoucherId) -> DianpingOutcome {
        let started = Instant::now();
        let outcome = match self.run(user, voucher).await {
            Ok(order) => DianpingOutcome::Bought(order),
            Err(TryError::Refused(refusal)) => DianpingOutcome::Refused(refusal),
            Err(TryError::Failed(error)) => DianpingOutcome::Refused(error.into()),
            Err(TryError::Unknown(order)) => DianpingOutcome::Unknown(order),
        };
        count_purchase(match &outcome {
            DianpingOutcome::Bought(_) => "bought",
            DianpingOutcome::Refused(refusal) => refusal.name(),
            DianpingOutcome::Unknown(_) => "unknown",
        });
        record_duration(DurationMetric::Purchase, started.elapsed());
        outcome
    }

    async fn run(&self, user: UserId, voucher: VoucherId) -> Result<OrderId, TryError> {
        if let Some(server) = self.health.down().next() {
            return Err(Refusal::Unavailable(server).into());
        }
        let terms = self.orders.terms(voucher).await?.ok_or(Refusal::VoucherNotFound)?;
        self.ensure_open(&terms)?;
        let _place = self.admission.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let name = LockName::new(format!("lock:order:{user}")).map_err(|_| Refusal::Defect)?;
        let guard = self.locks.lock(&name, &self.options).await;
        let guard = guard.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        let written = self.write_with_retries(user, voucher, &guard).await;
        if matches!(written, Err(TryError::Unknown(_))) {
            // A next holder could not know whether this order exists.
            guard.leave_to_lease();
        } else if let Err(error) = guard.release().await {
            tracing::warn!(%error, "lock not released; its lease ends it");
        }
        written
    }

    fn ensure_open(&self, terms: &DianpingTerms) -> Result<(), Refusal> {
        let moment = |local: PrimitiveDateTime| local.assume_offset(self.zone);
        if terms.now < terms.begins {
            return Err(Refusal::NotStarted(moment(terms.begins)));
        }
        if terms.now > terms.ends {
            return Err(Refusal::Ended(moment(terms.ends)));
        }
        if terms.stock < 1 { Err(Refusal::SoldOut) } else { Ok(()) }
    }

    async fn write_with_retries(
        &self,
        user: UserId,
        voucher: VoucherId,
        guard: &Guard,
    ) -> Result<OrderId, TryError> {
        let (mut tries, began) = (1, Instant::now());
        loop {
            match self.write(user, voucher, guard).await {
                Err(TryError::Failed(
                    StoreError::Conflict | StoreError::Duplicate(Duplicate::Primary),
                )) if tries < MAX_TRIES && began.elapsed() < MAX_RETRY_TIME => {
                    sleep(jitter(tries)).await;
                }
                Err(TryError::Failed(StoreError::Duplicate(Duplicate::Business))) => {
                    return Err(Refusal::AlreadyOrdered(None).into());
                }
                Err(TryError::Failed(StoreError::InsufficientStock)) => {
                    return Err(Refusal::SoldOut.into());
                }
                written => return written,
            }
            tries += 1;
        }
    }

    /// One transaction. The read of earlier orders sees all that earlier holders have committed.
    async fn write(
        &self,
        user: UserId,
        voucher: VoucherId,
        guard: &Guard,
    ) -> Result<OrderId, TryError> {
        let order = self.ids.draw().await?;
        let mut tx = self.orders.begin().await?;
        let lost = guard.lost_signal();
        let checked = async {
            ensure_held(Some(&lost))?;
            if self.orders.has_order(&mut tx, user, voucher).await? {
                return Err(Refusal::AlreadyOrdered(None).into());
            }
            ensure_held(Some(&lost))?;
            self.orders.insert(&mut tx, order, user, voucher).await?;
            Ok(ensure_held(Some(&lost))?)
        };
        let checked: Result<(), TryError> = checked.await;
        if let Err(error) = checked {
            tx.rollback().await;
            return Err(error);
        }
        match self.orders.take_and_commit(tx, voucher).await {
            Ok(()) => Ok(order),
            Err(CommitError::Refused(error)) => Err(error.into()),
            Err(CommitError::Unknown(connection)) => {
                match self.orders.resolve(&connection, order).await {
                    Resolution::Committed => Ok(order),
                    Resolution::Absent => Err(Refusal::Unavailable("database").into()),
                    Resolution::Unknown => Err(TryError::Unknown(order)),
                }
            }
        }
    }
}
