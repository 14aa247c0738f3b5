//! The writer `single`: one order, one transaction, two trips.
//!
//! BEGIN and INSERT are one packet: the unique key says no to a second order of a user. UPDATE and
//! COMMIT are the other: the condition of the UPDATE says no when nothing is left, and the server
//! stops there ([`Orders::take_and_commit`]). So the hot row is locked for no round trip at all, as
//! with groups. The lock is looked at before each of the two, and not while the second waits for
//! that row: what holds then are the unique key and the condition.
//!
//! What has something to do between the statements goes another way: [`super::stepwise`].
//!
//! [`Orders::take_and_commit`]: crate::store::Orders::take_and_commit

use distlock::{Guard, Loss};

use super::outcome::Refusal;
use super::section::{Section, Stop, Ticket, release, still_held, work};
use crate::failpoint::{self, reach};
use crate::store::{Entry, StoreError, Transaction};

/// An open transaction, and whether its order is inserted.
type Inserted = (Transaction, Result<(), StoreError>);

impl Section {
    /// Writes the order. A lock that is its transaction is taken here, and free again unless the
    /// order is written or may be.
    pub(super) async fn write_single(
        &self,
        ticket: &Ticket,
        entry: &Entry,
        guard: &mut Option<Guard>,
    ) -> Result<(), Stop> {
        let written = self.write_in_two_trips(ticket, entry, guard).await;
        let is_over = matches!(written, Err(Stop::Refused(_) | Stop::Failed(_)));
        if is_over && self.lock_is_transaction {
            release(guard.take(), ticket).await;
        }
        written
    }

    async fn write_in_two_trips(
        &self,
        ticket: &Ticket,
        entry: &Entry,
        guard: &mut Option<Guard>,
    ) -> Result<(), Stop> {
        let (tx, inserted) = if self.lock_is_transaction {
            let (mut tx, lock) = self.lock_and_open(ticket).await?;
            *guard = Some(lock);
            let inserted = self.orders.insert(&mut tx, entry).await;
            (tx, inserted)
        } else {
            still_held(self.loss(guard.as_ref()).as_ref())?;
            self.insert(entry).await?
        };
        reach(failpoint::BEGUN);
        let ready = match inserted {
            Ok(()) => self.prepare(self.loss(guard.as_ref()).as_ref()).await,
            Err(error) => Err(error.into()),
        };
        if let Err(stop) = ready {
            reach(failpoint::BEFORE_ROLLBACK);
            tx.rollback().await;
            reach(failpoint::ROLLED_BACK);
            return Err(stop);
        }
        reach(failpoint::BEFORE_COMMIT);
        let committed = self.orders.take_and_commit(tx, entry.voucher, 1).await;
        self.settle(committed, entry).await
    }

    /// BEGIN and INSERT; waiting for it ends as soon as the database is known to be away.
    async fn insert(&self, entry: &Entry) -> Result<Inserted, Stop> {
        tokio::select! {
            biased;
            inserted = self.orders.open_with_all(std::slice::from_ref(entry)) => Ok(inserted?),
            () = self.health.until_database_is_down() => {
                Err(Refusal::Unavailable("database").into())
            }
        }
    }

    /// What stands between the two trips.
    async fn prepare(&self, loss: Option<&Loss>) -> Result<(), Stop> {
        reach(failpoint::ORDER_INSERTED);
        work(&self.rules).await;
        still_held(loss)
    }
}
