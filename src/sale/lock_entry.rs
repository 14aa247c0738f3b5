//! How a purchase enters its lock: once, or as the laboratory wants to see it.

use distlock::Guard;

use super::LockOrder;
use super::attempt::{AttemptError, PurchaseAttempt};
use super::critical_section::{CriticalSection, release};
use super::outcome::Refusal;
use crate::store::Transaction;

impl CriticalSection {
    /// Takes the lock around the transaction.
    pub(super) async fn enter(&self, attempt: &PurchaseAttempt) -> Result<Guard, Refusal> {
        if self.config.lock_order == LockOrder::ReadFirst {
            self.read_first(attempt).await?;
        }
        let guard = self.lock(attempt).await?;
        if self.config.lock_order == LockOrder::Nested
            && let Err(refusal) = self.enter_again(attempt, &guard).await
        {
            release(Some(guard), attempt).await;
            return Err(refusal);
        }
        Ok(guard)
    }

    /// Takes the lock once more and gives that hold back, as a method does that calls another one.
    async fn enter_again(&self, attempt: &PurchaseAttempt, outer: &Guard) -> Result<(), Refusal> {
        let (owner, name) = (outer.owner().clone(), self.lock_name(attempt));
        let inner = self.locks().lock_as(owner, &name, &self.config.lock).await;
        let inner = inner.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        if let Err(error) = inner.release().await {
            tracing::warn!(%error, "inner hold not released; its lease ends it");
        }
        Ok(())
    }

    /// Reads the stock under the lock, for as long as the laboratory's extra work takes. A lock
    /// with a read side is shared meanwhile.
    async fn read_first(&self, attempt: &PurchaseAttempt) -> Result<(), Refusal> {
        let (name, options) = (self.lock_name(attempt), &self.config.lock);
        let locked = match &self.read_locks {
            Some(shared) => shared.lock(&name, options).await,
            None => self.locks().lock(&name, options).await,
        };
        let guard = locked.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        self.hooks.simulate_work().await;
        let stock = self.read_stock(attempt).await;
        if let Err(error) = guard.release().await {
            tracing::warn!(%error, "read lock not released; its lease ends it");
        }
        match stock {
            Ok(stock) if stock <= 0 => Err(Refusal::SoldOut),
            Ok(_) => Ok(()),
            Err(AttemptError::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::Unavailable("database")),
        }
    }

    async fn read_stock(&self, attempt: &PurchaseAttempt) -> Result<i32, AttemptError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let stock = self.orders.read_stock(&mut tx, attempt.voucher).await;
        tx.rollback().await;
        Ok(stock?.ok_or(Refusal::VoucherNotFound)?)
    }
}
