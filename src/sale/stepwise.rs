//! One order, one statement a trip: for the laboratory, which has something to do between the
//! statements of a transaction. That is naive code, which reads, reads and writes; fencing tokens,
//! which are shown first; a lock inside the transaction; and bugs that are planted in the writer
//! `single`, with the runs that they are compared with. Every other order goes the way of
//! [`super::single`].
//!
//! Here the lock is looked at before every statement and before COMMIT.

use std::time::Duration;

use distlock::mysql::Fence;
use distlock::{Guard, LockName, Loss, Token};
use tokio::time::sleep;

use super::outcome::Refusal;
use super::section::{Section, Stop, Ticket, release, still_held, work};
use super::{Guards, LockOrder, Plant, Rules, naive};
use crate::failpoint::{self, reach};
use crate::store::{Entry, StoreError, Transaction, leave_effect};

/// Between a planted release and the commit that comes too late: on a fast disk the bug would show
/// too seldom for a short run.
const PLANTED_GAP: Duration = Duration::from_millis(5);

/// What a lock protects, and the token of who holds it.
type Fenced = (LockName, Token);

impl Rules {
    /// Whether something happens between the statements of an order that only the laboratory asks
    /// for, so that each of them has to be a trip of its own.
    pub(super) fn is_stepwise(&self) -> bool {
        self.guards == Guards::Off
            || self.lock_order == LockOrder::Inside
            || self.lock.fenced
            || self.plant.or(self.control).is_some_and(Plant::is_of_single)
    }
}

impl Section {
    /// Writes the order, one statement a trip.
    pub(super) async fn write_stepwise(
        &self,
        ticket: &Ticket,
        entry: &Entry,
        guard: &mut Option<Guard>,
    ) -> Result<(), Stop> {
        let mut tx = if self.lock_is_transaction {
            let (tx, lock) = self.lock_and_open(ticket).await?;
            *guard = Some(lock);
            tx
        } else {
            self.open().await?
        };
        if self.has(Plant::AbortWithClient) {
            tx.goes_back_as_it_is();
        }
        reach(failpoint::BEGUN);
        if self.rules.lock_order == LockOrder::Inside {
            *guard = Some(self.lock(ticket).await?);
        }
        let written = match self.write(ticket, &mut tx, entry, guard.as_ref()).await {
            Err(Stop::Failed(StoreError::LockWait)) if self.has(Plant::CommitAfterLockWait) => {
                Ok(())
            }
            written => written,
        };
        if let Err(stop) = written {
            reach(failpoint::BEFORE_ROLLBACK);
            tx.rollback().await;
            reach(failpoint::ROLLED_BACK);
            if self.rules.lock_order == LockOrder::Inside || self.lock_is_transaction {
                release(guard.take(), ticket).await;
            }
            return Err(stop);
        }
        if self.rules.lock_order == LockOrder::Inside {
            release(guard.take(), ticket).await;
        }
        if self.has(Plant::ReleaseBeforeCommit) {
            release(guard.take(), ticket).await;
            sleep(PLANTED_GAP).await;
        }
        if self.has(Plant::AnswerBeforeCommit) {
            tokio::spawn(async move { drop(tx.commit().await) });
            return Ok(());
        }
        reach(failpoint::BEFORE_COMMIT);
        self.settle(tx.commit().await, entry).await
    }

    /// A transaction; waiting for a connection ends as soon as the database is known to be away.
    async fn open(&self) -> Result<Transaction, Stop> {
        tokio::select! {
            biased;
            opened = Transaction::open(&self.pool) => Ok(opened?),
            () = self.health.until_database_is_down() => {
                Err(Refusal::Unavailable("database").into())
            }
        }
    }

    /// What the lock protects and its token, if holders are fenced and it has one.
    fn fence(&self, ticket: &Ticket, guard: Option<&Guard>) -> Result<Option<Fenced>, Stop> {
        let token = guard.and_then(Guard::token).filter(|_| self.rules.lock.fenced);
        let Some(token) = token else { return Ok(None) };
        let resource = LockName::new(format!("{}:{}", self.lock_kind, self.lock_of(ticket)));
        let resource = resource.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        Ok(Some((resource, token)))
    }

    /// All that stands between BEGIN and COMMIT. The token is shown first: as the first statement
    /// of the transaction that reads and writes what the lock protects, once is enough, because the
    /// fence stays locked to its end and a later holder reads only after it. What was done under it
    /// comes last.
    async fn write(
        &self,
        ticket: &Ticket,
        tx: &mut Transaction,
        entry: &Entry,
        guard: Option<&Guard>,
    ) -> Result<(), Stop> {
        let loss = self.loss(guard);
        let loss = loss.as_ref();
        let fenced = self.fence(ticket, guard)?;
        let (first, last) = match self.rules.plant {
            Some(Plant::FenceAtWriteOnly) => (false, true),
            Some(Plant::TokenFromRedis) => (false, false),
            _ => (true, false),
        };
        if let Some(fenced) = fenced.as_ref().filter(|_| first) {
            show(fenced, tx).await?;
        }
        reach(failpoint::TOKEN_SHOWN);
        match self.rules.guards {
            Guards::On => self.write_guarded(tx, entry, loss).await?,
            Guards::Off => naive::write(self, tx, entry, loss).await?,
        }
        reach(failpoint::UNIT_TAKEN);
        if let Some(fenced) = fenced.as_ref().filter(|_| last) {
            show(fenced, tx).await?;
        }
        if let Some((resource, Token(token))) = &fenced {
            leave_effect(tx, entry, (resource.as_str(), *token)).await?;
        }
        still_held(loss)
    }

    /// The INSERT, which the unique key may refuse, and the UPDATE, which its condition may.
    async fn write_guarded(
        &self,
        tx: &mut Transaction,
        entry: &Entry,
        loss: Option<&Loss>,
    ) -> Result<(), Stop> {
        still_held(loss)?;
        self.orders.insert(tx, entry).await?;
        reach(failpoint::ORDER_INSERTED);
        work(&self.rules).await;
        still_held(loss)?;
        let taken = if self.has(Plant::NoStockCondition) {
            self.orders.take_unit_unchecked(tx, entry.voucher).await?
        } else {
            self.orders.take_unit(tx, entry.voucher).await?
        };
        if taken { Ok(()) } else { Err(StoreError::TooFew.into()) }
    }
}

/// Shows the token to what the lock protects. A stale one is a lost lock.
async fn show((resource, token): &Fenced, tx: &mut Transaction) -> Result<(), Stop> {
    let fence = Fence { resource, token: *token };
    let answer = tx.execute(fence.statement()).await?;
    fence.check(&answer).map_err(|error| {
        tracing::warn!(%error, "a purchase was refused");
        Refusal::LockLost.into()
    })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use distlock::{Lease, LockOptions};

    use super::*;
    use crate::sale::{GroupLimits, OnLost, Scope, Writer};

    fn sound() -> Rules {
        Rules {
            scope: Scope::User,
            guards: Guards::On,
            writer: Writer::Single,
            groups: GroupLimits { size: 1, queue: 1 },
            lock_order: LockOrder::Outside,
            on_lost: OnLost::Stop,
            lock: LockOptions::new(Duration::ZERO, Lease::Fixed(LockOptions::WATCHDOG_LEASE)),
            work: Duration::ZERO,
            plant: None,
            control: None,
            max_orders: 1,
        }
    }

    #[test]
    fn what_a_planted_bug_is_compared_with_goes_its_way_without_it() {
        let way = |rules: &Rules| (rules.is_stepwise(), rules.remember_the_late());
        assert_eq!(way(&sound()), (false, true));
        for plant in Plant::value_variants() {
            let planted = Rules { plant: Some(*plant), ..sound() };
            let control = Rules { control: Some(*plant), ..sound() };
            assert_eq!(way(&control), way(&planted), "{plant:?}");
        }
        let control = Rules { control: Some(Plant::NoStockCondition), ..sound() };
        assert_eq!((way(&control), control.plant), ((true, false), None));
    }
}
