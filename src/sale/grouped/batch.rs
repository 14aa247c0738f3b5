//! One transaction of a group.
//!
//! Three trips: BEGIN; INSERT all rows in the order of their users; UPDATE the stock and COMMIT.
//! Groups that meet lock rows in the same order, and the stock row last of all, so none waits for
//! one that waits for it. The locks of all callers are looked at before the second trip and before
//! the third.

use distlock::Loss;
use tokio::time::timeout;

use super::{Member, Press};
use crate::failpoint::{self, reach};
use crate::sale::section::work;
use crate::store::{CommitError, Entry, Pass, Resolution, StoreError, Transaction, resolve};

/// Why a transaction did not write its orders.
pub(super) enum Setback {
    /// It was rolled back.
    Failed(StoreError),
    /// Somebody's lock was lost meanwhile; it was rolled back.
    LockLost,
    /// Somebody else has locked a row that one of these needs; it is undone.
    HeldUp,
    /// Some are of another opening of the queue than this, which counts; it was rolled back.
    Stale(Option<u64>),
    /// The database was away before anything was committed.
    Away,
    /// Nobody knows whether these were written.
    Unknown(Vec<Entry>),
}

impl From<StoreError> for Setback {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl Press {
    /// Writes the orders of all members, or of none. What was written, in the members' order.
    pub(super) async fn write(&self, members: &[Member]) -> Result<Vec<Entry>, Setback> {
        let Some(voucher) = members.first().map(|member| member.ticket.voucher) else {
            return Ok(Vec::new());
        };
        let ids = self.ids.draw_many(members.len()).await?;
        let entries: Vec<_> = members.iter().zip(ids).map(|(m, id)| m.ticket.entry(id)).collect();
        let mut tx = self.open().await?;
        reach(failpoint::BEGUN);
        if let Err(setback) = self.insert(&mut tx, members, &entries).await {
            reach(failpoint::BEFORE_ROLLBACK);
            match setback {
                Setback::HeldUp => tx.cut_off(&self.pool).await,
                _ => tx.rollback().await,
            }
            reach(failpoint::ROLLED_BACK);
            return Err(setback);
        }
        reach(failpoint::BEFORE_COMMIT);
        let connection_id = match self.orders.take_and_commit(tx, voucher, entries.len()).await {
            Ok(()) => {
                reach(failpoint::COMMITTED);
                return Ok(entries);
            }
            Err(CommitError::Refused(error)) => return Err(error.into()),
            Err(CommitError::Unknown(connection_id)) => connection_id,
        };
        reach(failpoint::COMMIT_IN_DOUBT);
        let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
        match resolve(&self.pool, self.orders.tables, connection_id, &ids).await {
            Resolution::Committed => Ok(entries),
            Resolution::Absent => Err(Setback::Away),
            Resolution::Unknown => Err(Setback::Unknown(entries)),
        }
    }

    /// A transaction; waiting for a connection ends as soon as the database is known to be away.
    async fn open(&self) -> Result<Transaction, Setback> {
        tokio::select! {
            biased;
            opened = Transaction::open(&self.pool) => Ok(opened?),
            () = self.health.until_database_is_down() => Err(Setback::Away),
        }
    }

    async fn insert(
        &self,
        tx: &mut Transaction,
        members: &[Member],
        entries: &[Entry],
    ) -> Result<(), Setback> {
        still_held(members)?;
        let passes: Option<Vec<Pass>> = members.iter().map(|m| m.ticket.pass).collect();
        if let Some(passes) = passes {
            self.insert_queued(tx, entries, &passes).await?;
        } else {
            let mut rows = entries.to_vec();
            rows.sort_unstable_by_key(|entry| entry.user);
            self.orders.insert_all(tx, &rows).await?;
        }
        reach(failpoint::ORDER_INSERTED);
        work(&self.rules).await;
        still_held(members)
    }

    /// The same with the ends of their tickets, under the epoch in which they were admitted.
    async fn insert_queued(
        &self,
        tx: &mut Transaction,
        entries: &[Entry],
        passes: &[Pass],
    ) -> Result<(), Setback> {
        let mut rows: Vec<_> = entries.iter().copied().zip(passes.iter().copied()).collect();
        rows.sort_unstable_by_key(|(entry, _)| entry.user);
        let Some((Entry { voucher, .. }, _)) = rows.first().copied() else { return Ok(()) };
        let inserting = self.orders.insert_queued(tx, voucher, &rows);
        let patience = passes.iter().map(|pass| pass.patience).max().unwrap_or_default();
        let epoch = timeout(patience, inserting).await.map_err(|_| Setback::HeldUp)??;
        if passes.iter().any(|pass| Some(pass.epoch) != epoch) {
            return Err(Setback::Stale(epoch));
        }
        Ok(())
    }
}

impl Member {
    pub(super) fn has_lost_its_lock(&self) -> bool {
        self.loss.as_ref().is_some_and(Loss::is_lost)
    }
}

fn still_held(members: &[Member]) -> Result<(), Setback> {
    if members.iter().any(Member::has_lost_its_lock) {
        return Err(Setback::LockLost);
    }
    Ok(())
}
