//! Periodic upkeep by one replica at a time: resumes charges that were cut off, cancels orders that
//! were not paid in time, deletes old idempotency keys.
//!
//! Every replica tries every second to take the lock, works off at most `MAX_BATCHES` batches under
//! it and releases it. A replica that does not get the lock does nothing. The lock only saves work:
//! with two holders each order is still cancelled once and its unit returned once, by the row's
//! status (`store/settlement`). So it needs no fencing token. Its kind is `redisson`, whatever
//! `--lock` is.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Guard, Lease, LockName, Locks};
use tokio::time::sleep;

use super::Sale;
use super::order_settlement::OrderSettlement;
use super::retry::jitter;
use crate::store::{Orders, SettleError, StoreError};

/// The pause between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Old keys are deleted every 60 rounds.
const KEY_CLEANUP_ROUNDS: u32 = 60;
/// The most batches under one lock.
const MAX_BATCHES: u32 = 64;
/// How long a replica that died keeps the others from the work.
const LEASE: Duration = Duration::from_secs(30);

/// The upkeep, and the lock that it runs under. Cheap to clone.
#[derive(Clone)]
pub struct Housekeeping {
    orders: Orders,
    settlement: Arc<OrderSettlement>,
    locks: Locks,
    lease: Lease,
    unpaid_timeout_s: u32,
}

impl Sale {
    /// The housekeeping of these orders. `unpaid_timeout_s` of 0: orders are never timed out.
    pub fn housekeeping(
        &self,
        orders: Orders,
        locks: Locks,
        unpaid_timeout_s: u32,
    ) -> Housekeeping {
        let (settlement, lease) = (Arc::clone(&self.settlement), locks.guarantees().lease(LEASE));
        Housekeeping { orders, settlement, locks, lease, unpaid_timeout_s }
    }
}

impl Housekeeping {
    /// Runs until it is dropped.
    pub async fn run(self) {
        // A provider that hangs takes ten seconds a charge.
        let charges = async {
            loop {
                sleep(INTERVAL).await;
                log_failure(self.resume_charges().await);
            }
        };
        let _never: ((), ()) = tokio::join!(charges, self.keep_orders());
    }

    async fn keep_orders(&self) {
        for round in 1_u32.. {
            sleep(INTERVAL).await;
            if self.unpaid_timeout_s > 0 {
                log_failure(self.time_out_orders().await);
            }
            if round.is_multiple_of(KEY_CLEANUP_ROUNDS) {
                log_failure(self.delete_old_keys().await);
            }
        }
    }

    /// Waits until a lock is released that [`Self::run`] held when it was dropped.
    pub async fn finish(&self) {
        self.locks.flush().await;
    }

    async fn lock(&self, name: &str) -> Option<Guard> {
        let name = LockName::new(name).ok()?;
        let tried = self.locks.try_lock(&name, self.lease).await;
        tried.unwrap_or_else(|error| {
            tracing::debug!(%error, "housekeeping lock unavailable; skipping this run");
            None
        })
    }

    async fn resume_charges(&self) -> Result<(), StoreError> {
        if !self.settlement.has_open_charges().await? {
            return Ok(());
        }
        let Some(guard) = self.lock("lock:open-charges").await else { return Ok(()) };
        let done = self.settlement.resume_charges().await;
        release(guard).await;
        done
    }

    async fn time_out_orders(&self) -> Result<(), StoreError> {
        // Mostly there is nothing to do, and a read costs less than a lock.
        if self.orders.with_late_orders(self.unpaid_timeout_s).await?.is_empty() {
            return Ok(());
        }
        let Some(guard) = self.lock("lock:unpaid-orders").await else { return Ok(()) };
        let done = self.time_out_under(&guard).await;
        release(guard).await;
        done
    }

    async fn time_out_under(&self, guard: &Guard) -> Result<(), StoreError> {
        let mut left = MAX_BATCHES;
        for voucher in self.orders.with_late_orders(self.unpaid_timeout_s).await? {
            while left > 0 && !guard.is_lost() {
                left -= 1;
                match self.orders.time_out(voucher, self.unpaid_timeout_s).await {
                    Ok(0) => break,
                    Ok(count) => {
                        metrics::counter!("seckill_orders_timed_out_total").increment(count);
                    }
                    // Whatever the outcome, the next round reads it.
                    Err(SettleError::Failed(StoreError::Conflict)) => sleep(jitter(1)).await,
                    // Its stock or one of its orders is locked, and those of others are not.
                    Err(SettleError::Failed(error @ StoreError::LockWait)) => {
                        tracing::warn!(%error, %voucher, "late orders stay for now");
                        break;
                    }
                    Err(SettleError::Failed(error)) => return Err(error),
                    Err(SettleError::Superseded | SettleError::Unknown(_)) => {}
                }
            }
        }
        Ok(())
    }

    async fn delete_old_keys(&self) -> Result<(), StoreError> {
        let Some(guard) = self.lock("lock:idempotency-keys").await else { return Ok(()) };
        for _ in 0..MAX_BATCHES {
            if guard.is_lost() || self.orders.delete_old_keys().await? == 0 {
                break;
            }
        }
        release(guard).await;
        Ok(())
    }
}

/// Logs a failure. A server that does not answer is reported by the health check.
fn log_failure(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "housekeeping failed; next try in a second");
    }
}

async fn release(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "housekeeping lock not released; its lease ends it");
    }
}
