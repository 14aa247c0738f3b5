//! What is done now and then by one replica at a time: charges that were cut off are gone on with,
//! unpaid orders are cancelled when their time is over, and old idempotency keys are forgotten.
//!
//! Every replica looks every second whether it can have the lock, works off at most `BATCHES`
//! batches under it, and gives it back. Whoever is refused does nothing: another one is at it. The
//! lock saves work and no more: if two should hold it, each order is still cancelled by one of them
//! and its unit returned once, since the row's status decides (`store/settle`). So it needs no
//! fencing token. It is a lock of the kind `redisson`, whatever purchases are locked by.

use std::sync::Arc;
use std::time::Duration;

use distlock::{Guard, Lease, LockName, Locks};
use tokio::time::sleep;

use super::Sale;
use super::life::Life;
use super::section::jitter;
use crate::store::{Orders, SettleError, StoreError};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Old keys are looked for at every so many looks.
const KEYS_EVERY: u32 = 60;
/// The most batches under one lock.
const BATCHES: u32 = 64;
/// How long a replica that dies keeps the others from it.
const LEASE: Duration = Duration::from_secs(30);

/// The work, and the lock that it is done under. Cheap to clone.
#[derive(Clone)]
pub struct Housekeeping {
    orders: Orders,
    life: Arc<Life>,
    locks: Locks,
    lease: Lease,
    unpaid_timeout_s: u32,
}

impl Sale {
    /// The housekeeping of these orders. They are cancelled if they were not paid for so long;
    /// never if that is 0.
    pub fn housekeeping(
        &self,
        orders: Orders,
        locks: Locks,
        unpaid_timeout_s: u32,
    ) -> Housekeeping {
        let (life, lease) = (Arc::clone(&self.life), locks.guarantees().lease(LEASE));
        Housekeeping { orders, life, locks, lease, unpaid_timeout_s }
    }
}

impl Housekeeping {
    /// Runs until it is dropped.
    pub async fn run(self) {
        for round in 1_u32.. {
            sleep(PERIOD).await;
            told(self.finish_charges().await);
            if self.unpaid_timeout_s > 0 {
                told(self.time_out_orders().await);
            }
            if round.is_multiple_of(KEYS_EVERY) {
                told(self.forget_keys().await);
            }
        }
    }

    /// Waits until the lock is given back that [`Self::run`] may have held when it was dropped.
    pub async fn finish(&self) {
        self.locks.flush().await;
    }

    async fn lock(&self, name: &str) -> Option<Guard> {
        let name = LockName::new(name).ok()?;
        let tried = self.locks.try_lock(&name, self.lease).await;
        tried.unwrap_or_else(|error| {
            tracing::debug!(%error, "nobody keeps house this time");
            None
        })
    }

    async fn finish_charges(&self) -> Result<(), StoreError> {
        if !self.life.has_open_charges().await? {
            return Ok(());
        }
        let Some(guard) = self.lock("lock:open-charges").await else { return Ok(()) };
        let done = self.life.finish_charges().await;
        release(guard).await;
        done
    }

    async fn time_out_orders(&self) -> Result<(), StoreError> {
        // Most of the time there is nothing to do, and a look costs less than a lock.
        if self.orders.with_late_orders(self.unpaid_timeout_s).await?.is_empty() {
            return Ok(());
        }
        let Some(guard) = self.lock("lock:unpaid-orders").await else { return Ok(()) };
        let done = self.time_out_under(&guard).await;
        release(guard).await;
        done
    }

    async fn time_out_under(&self, guard: &Guard) -> Result<(), StoreError> {
        let mut left = BATCHES;
        for voucher in self.orders.with_late_orders(self.unpaid_timeout_s).await? {
            while left > 0 && !guard.is_lost() {
                left -= 1;
                match self.orders.time_out(voucher, self.unpaid_timeout_s).await {
                    Ok(0) => break,
                    Ok(count) => {
                        metrics::counter!("seckill_orders_timed_out_total").increment(count);
                    }
                    // Whatever became of it, the next look sees it.
                    Err(SettleError::Failed(StoreError::Conflict)) => sleep(jitter(1)).await,
                    Err(SettleError::Failed(error)) => return Err(error),
                    Err(SettleError::Beaten | SettleError::Unknown(_)) => {}
                }
            }
        }
        Ok(())
    }

    async fn forget_keys(&self) -> Result<(), StoreError> {
        let Some(guard) = self.lock("lock:idempotency-keys").await else { return Ok(()) };
        for _ in 0..BATCHES {
            if guard.is_lost() || self.orders.forget_old_keys().await? == 0 {
                break;
            }
        }
        release(guard).await;
        Ok(())
    }
}

/// A server that does not answer is the health watch's affair.
fn told(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "housekeeping is put off");
    }
}

async fn release(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "a lock is left to its lease");
    }
}
