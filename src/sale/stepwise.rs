//! The laboratory's writer: one order, one statement a round trip.
//!
//! It is for what happens between the statements of a transaction: naive code, fencing tokens, a
//! lock inside the transaction, bugs injected into the writer `single` and their control runs.
//! Every other order is written by [`super::single`]. The lock is checked before every statement
//! and COMMIT.

use std::time::Duration;

use distlock::mysql::Fence;
use distlock::{Guard, LockName, LostSignal, Token};
use tokio::time::sleep;

use super::attempt::{AttemptError, PurchaseAttempt};
use super::critical_section::{CriticalSection, ensure_held, release};
use super::hold_times::FenceReport;
use super::outcome::Refusal;
use super::{Guards, InjectedBug, LockOrder, SaleConfig, naive};
use crate::failpoint::{self, reach};
use crate::store::{NewOrder, StoreError, Transaction, leave_effect};

/// The pause after an injected early release. Without it a fast disk hides the bug in a short run.
const EARLY_RELEASE_GAP: Duration = Duration::from_millis(5);

/// What a lock protects, and the holder's token.
struct FencedResource {
    name: LockName,
    token: Token,
}

impl SaleConfig {
    /// Whether each statement of an order needs a round trip of its own.
    pub(super) fn is_stepwise(&self) -> bool {
        self.guards == Guards::Off
            || self.lock_order == LockOrder::Inside
            || self.lock.fenced
            || self.injected_bug.or(self.control_bug).is_some_and(InjectedBug::is_of_single_writer)
    }
}

impl CriticalSection {
    /// Writes the order, one statement a round trip.
    pub(super) async fn write_stepwise(
        &self,
        attempt: &PurchaseAttempt,
        new_order: &NewOrder,
        guard: &mut Option<Guard>,
    ) -> Result<(), AttemptError> {
        let mut tx = if self.lock_is_transaction {
            let (tx, lock) = self.lock_and_open(attempt).await?;
            *guard = Some(lock);
            tx
        } else {
            self.open().await?
        };
        if self.hooks.has_bug(InjectedBug::AbortWithClient) {
            tx.leak_open_transaction();
        }
        reach(failpoint::BEGUN);
        if self.config.lock_order == LockOrder::Inside {
            *guard = Some(self.lock(attempt).await?);
        }
        let written = match self.write(attempt, &mut tx, new_order, guard.as_ref()).await {
            Err(AttemptError::Failed(StoreError::LockWait))
                if self.hooks.has_bug(InjectedBug::CommitAfterLockWait) =>
            {
                Ok(())
            }
            written => written,
        };
        if let Err(error) = written {
            reach(failpoint::BEFORE_ROLLBACK);
            if self.hooks.has_bug(InjectedBug::DecrementBeforeDuplicateCheck)
                && matches!(error, AttemptError::Failed(StoreError::Duplicate(_)))
            {
                drop(tx.commit().await);
            } else {
                tx.rollback().await;
            }
            reach(failpoint::ROLLED_BACK);
            if self.config.lock_order == LockOrder::Inside || self.lock_is_transaction {
                release(guard.take(), attempt).await;
            }
            return Err(error);
        }
        if self.config.lock_order == LockOrder::Inside {
            release(guard.take(), attempt).await;
        }
        if self.hooks.has_bug(InjectedBug::ReleaseBeforeCommit) {
            release(guard.take(), attempt).await;
            sleep(EARLY_RELEASE_GAP).await;
        }
        if self.hooks.has_bug(InjectedBug::AnswerBeforeCommit) {
            tokio::spawn(async move { drop(tx.commit().await) });
            return Ok(());
        }
        reach(failpoint::BEFORE_COMMIT);
        self.resolve_commit(tx.commit().await, new_order).await
    }

    /// Opens a transaction; the wait ends as soon as the database is known to be down.
    async fn open(&self) -> Result<Transaction, AttemptError> {
        tokio::select! {
            biased;
            opened = Transaction::open(&self.pool) => Ok(opened?),
            () = self.health.until_database_is_down() => {
                Err(Refusal::Unavailable("database").into())
            }
        }
    }

    /// What the lock protects and its token, if holders are fenced and the lock has a token.
    fn fence(
        &self,
        attempt: &PurchaseAttempt,
        guard: Option<&Guard>,
    ) -> Result<Option<FencedResource>, AttemptError> {
        let token = guard.and_then(Guard::token).filter(|_| self.config.lock.fenced);
        let Some(token) = token else { return Ok(None) };
        let name = LockName::new(format!("{}:{}", self.lock_kind, self.lock_name(attempt)));
        let name = name.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        Ok(Some(FencedResource { name, token }))
    }

    /// The statements between BEGIN and COMMIT. The fence comes first: its row stays locked to the
    /// end of the transaction, so a later holder reads only after this one has written.
    async fn write(
        &self,
        attempt: &PurchaseAttempt,
        tx: &mut Transaction,
        new_order: &NewOrder,
        guard: Option<&Guard>,
    ) -> Result<(), AttemptError> {
        let lost_signal = self.lost_signal(guard);
        let lost_signal = lost_signal.as_ref();
        let fenced = self.fence(attempt, guard)?;
        let last = self.hooks.has_bug(InjectedBug::FenceAtWriteOnly);
        let first = !last && !self.hooks.has_bug(InjectedBug::TokenFromRedis);
        if let Some(fenced) = fenced.as_ref().filter(|_| first) {
            fenced.check(tx, attempt).await?;
        }
        reach(failpoint::TOKEN_SHOWN);
        match self.config.guards {
            Guards::On => self.write_guarded(tx, new_order, lost_signal).await?,
            Guards::Off => naive::write(self, tx, new_order, lost_signal).await?,
        }
        reach(failpoint::UNIT_TAKEN);
        if let Some(fenced) = fenced.as_ref().filter(|_| last) {
            fenced.check(tx, attempt).await?;
        }
        if let Some(FencedResource { name, token: Token(token) }) = &fenced {
            leave_effect(tx, new_order, name.as_str(), *token).await?;
        }
        Ok(ensure_held(lost_signal)?)
    }

    /// The INSERT, which the unique key may refuse, and the UPDATE, which its condition may.
    async fn write_guarded(
        &self,
        tx: &mut Transaction,
        new_order: &NewOrder,
        lost_signal: Option<&LostSignal>,
    ) -> Result<(), AttemptError> {
        ensure_held(lost_signal)?;
        if self.hooks.has_bug(InjectedBug::DecrementBeforeDuplicateCheck) {
            if !self.orders.take_unit(tx, new_order.voucher).await? {
                return Err(StoreError::InsufficientStock.into());
            }
            return Ok(self.orders.insert(tx, new_order).await?);
        }
        self.orders.insert(tx, new_order).await?;
        self.hooks.on_order_inserted().await;
        ensure_held(lost_signal)?;
        let taken = if self.hooks.has_bug(InjectedBug::NoStockCondition) {
            self.orders.take_unit_unchecked(tx, new_order.voucher).await?
        } else {
            self.orders.take_unit(tx, new_order.voucher).await?
        };
        let taken = taken || self.hooks.has_bug(InjectedBug::IgnoredDecrement);
        if taken { Ok(()) } else { Err(StoreError::InsufficientStock.into()) }
    }
}

impl FencedResource {
    /// Checks the token at the fence. A stale token is a lost lock.
    async fn check(
        &self,
        tx: &mut Transaction,
        attempt: &PurchaseAttempt,
    ) -> Result<(), AttemptError> {
        let fence = Fence { resource: &self.name, token: self.token };
        let answer = tx.execute(fence.statement()).await?;
        if let Some(times) = &attempt.hold_times {
            let Token(token) = self.token;
            times.show_token(FenceReport { token, highest: answer.last_insert_id() });
        }
        fence.check(&answer).map_err(|error| {
            tracing::warn!(%error, "token refused by the fence; purchase refused");
            Refusal::LockLost.into()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use distlock::{Lease, LockOptions};

    use super::*;
    use crate::sale::{BatchLimits, OnLost, Scope, Writer};

    fn sound() -> SaleConfig {
        SaleConfig {
            scope: Scope::User,
            guards: Guards::On,
            writer: Writer::Single,
            batches: BatchLimits { size: 1, queue: 1, slow: BatchLimits::SLOW },
            lock_order: LockOrder::Outside,
            on_lost: OnLost::Stop,
            lock: LockOptions::new(Duration::ZERO, Lease::Fixed(LockOptions::WATCHDOG_LEASE)),
            work: Duration::ZERO,
            injected_bug: None,
            control_bug: None,
            max_orders: 1,
        }
    }

    #[test]
    fn a_control_run_takes_the_code_path_of_its_bug_without_the_bug() {
        let way = |config: &SaleConfig| (config.is_stepwise(), config.uses_sold_out_cache());
        assert_eq!(way(&sound()), (false, true));
        for bug in InjectedBug::value_variants() {
            let injected = SaleConfig { injected_bug: Some(*bug), ..sound() };
            let control = SaleConfig { control_bug: Some(*bug), ..sound() };
            assert_eq!(way(&control), way(&injected), "{bug:?}");
        }
        let control = SaleConfig { control_bug: Some(InjectedBug::NoStockCondition), ..sound() };
        assert_eq!((way(&control), control.injected_bug), ((true, false), None));
    }
}
