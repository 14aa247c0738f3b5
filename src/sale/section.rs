//! The locked section: one order, one transaction, one answer.
//!
//! Order of events: lock, BEGIN, the writer's statements, COMMIT, answer, release. The lock is
//! looked at before each trip to the database; once it is lost the transaction is rolled back. A
//! COMMIT whose answer is lost is found out before anybody is answered and before the release.
//!
//! A lock that is a database transaction lends it to the writer, so it begins and ends with each
//! try: one that was rolled back has lost the lock, and the next one takes it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Guard, HoldKind, LockKind, LockName, Locks, Loss};
use time::OffsetDateTime;
use tokio::time::sleep;
use uuid::Uuid;

use super::catalogue::Terms;
use super::grouped::Grouped;
use super::hold_times::LockHoldTimes;
use super::outcome::{Outcome, Refusal};
use super::twins::Request;
use super::{LockOrder, OnLost, Parts, Plant, Rules, Scope};
use crate::domain::{Order, OrderId, OrderStatus, RequestKey, UserId, VoucherId, Wish};
use crate::failpoint::{self, reach};
use crate::store::{
    CommitError, Duplicate, Entry, Health, OrderIds, Orders, Pass, Resolution, StoreError,
    Transaction, resolve,
};
use crate::telemetry::{Timed, took};

/// How often a transaction is tried that meets another one (1213) or an id that is taken.
pub(super) const TRIES: u32 = 5;
/// A purchase that passed the checks.
pub(super) struct Ticket {
    pub(super) user: UserId,
    pub(super) voucher: VoucherId,
    pub(super) terms: Arc<Terms>,
    pub(super) created_at: OffsetDateTime,
    /// The key of the request, if it has one.
    pub(super) key: Option<RequestKey>,
    /// The ticket that was given for it on the path `queued`.
    pub(super) pass: Option<Pass>,
    /// When it holds its lock, if the laboratory asks for it.
    pub(super) hold_times: Option<Arc<LockHoldTimes>>,
}

impl Ticket {
    /// Its order, under that id.
    pub(super) fn entry(&self, id: OrderId) -> Entry {
        Entry {
            id,
            user: self.user,
            voucher: self.voucher,
            price_cents: self.terms.price_cents,
            created_at: self.created_at,
            key: self.key,
        }
    }

    /// Notes that its lock is about to be given back.
    fn note_release(&self, guard: &Guard) {
        if let Some(times) = &self.hold_times {
            times.release(Instant::now(), || guard.loss().is_lost());
        }
    }
}

/// Why a try ended without an order.
pub(super) enum Stop {
    /// For good.
    Refused(Refusal),
    /// An earlier request with the same key was told of this order.
    Replayed(Order),
    /// Rolled back; may be tried again.
    Failed(StoreError),
    /// Nobody knows.
    Unknown(OrderId),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

pub(super) struct Section {
    pub(super) rules: Arc<Rules>,
    pub(super) orders: Orders,
    pub(super) grouped: Grouped,
    pub(super) pool: sqlx::MySqlPool,
    ids: OrderIds,
    locks: Locks,
    pub(super) lock_kind: LockKind,
    pub(super) lock_server: &'static str,
    /// Whether the lock is a transaction, in which the order is written.
    pub(super) lock_is_transaction: bool,
    pub(super) health: Health,
}

impl Section {
    pub(super) fn new(rules: Arc<Rules>, parts: Parts, grouped: Grouped) -> Self {
        let Parts { pool, orders, ids, locks, lock_kind, lock_server, health, .. } = parts;
        let lock_is_transaction = locks.guarantees().hold == HoldKind::Transaction;
        Self {
            rules,
            orders,
            grouped,
            pool,
            ids,
            locks,
            lock_kind,
            lock_server,
            lock_is_transaction,
            health,
        }
    }

    pub(super) fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Runs the section, all but the release: that of the guard which comes with the outcome is
    /// still to be done, and nobody has to wait for it.
    pub(super) async fn run(&self, ticket: &Arc<Ticket>) -> (Outcome, Option<Guard>) {
        reach(failpoint::ADMITTED);
        let mut guard = None;
        if self.rules.lock_order == LockOrder::Outside && !self.lock_is_transaction {
            guard = match self.lock(ticket).await {
                Ok(guard) => Some(guard),
                Err(refusal) => return (Outcome::Refused(refusal), None),
            };
        }
        let outcome = self.write_order(ticket, &mut guard).await;
        if let Some(guard) = &guard {
            ticket.note_release(guard);
        }
        match guard {
            // Whoever came next could not know whether this order exists.
            Some(guard) if matches!(outcome, Outcome::Unknown(_) | Outcome::Failed) => {
                guard.leave_to_lease();
                (outcome, None)
            }
            guard => (outcome, guard),
        }
    }

    /// The lock of a purchase.
    pub(super) fn lock_of(&self, ticket: &Ticket) -> LockName {
        let name = match self.rules.scope {
            Scope::User => format!("lock:order:{}", ticket.user),
            Scope::Voucher => format!("lock:voucher:{}", ticket.voucher),
        };
        LockName::new(name).expect("a prefix and a number make a valid name")
    }

    pub(super) async fn lock(&self, ticket: &Ticket) -> Result<Guard, Refusal> {
        let asked = Instant::now();
        let taken = self.locks.lock(&self.lock_of(ticket), &self.rules.lock).await;
        took(Timed::Lock, asked.elapsed());
        let guard = taken.map_err(|error| Refusal::of_lock(&error, self.lock_server))?;
        if let Some(times) = &ticket.hold_times
            && !matches!(self.locks.guarantees().hold, HoldKind::Nothing | HoldKind::Transaction)
        {
            times.grant(Instant::now());
        }
        reach(failpoint::LOCKED);
        Ok(guard)
    }

    pub(super) async fn try_until_settled(
        &self,
        ticket: &Ticket,
        guard: &mut Option<Guard>,
    ) -> Outcome {
        for attempt in 1.. {
            match self.try_once(ticket, guard).await {
                Ok(entry) => return Outcome::Bought(order_of(ticket, &entry)),
                Err(Stop::Refused(refusal)) => return Outcome::Refused(refusal),
                Err(Stop::Replayed(order)) => return Outcome::Replayed(order),
                Err(Stop::Unknown(order)) => return Outcome::Unknown(order),
                Err(Stop::Failed(error)) if attempt < TRIES && may_be_retried(&error) => {
                    sleep(jitter(attempt)).await;
                }
                Err(Stop::Failed(error)) => return Outcome::Refused(error.into()),
            }
        }
        Outcome::Failed
    }

    async fn try_once(&self, ticket: &Ticket, guard: &mut Option<Guard>) -> Result<Entry, Stop> {
        let mut entry = ticket.entry(self.ids.draw().await?);
        if self.has(Plant::RetryWithFreshId) {
            // Its row would tell the next try that this one has bought.
            entry.key = None;
        }
        let written = if self.rules.is_stepwise() {
            self.write_stepwise(ticket, &entry, guard).await
        } else {
            self.write_single(ticket, &entry, guard).await
        };
        match written {
            Ok(()) => Ok(entry),
            Err(stop) => Err(self.explain(stop, &entry).await),
        }
    }

    /// The transaction that the lock is, and the rest of the lock.
    pub(super) async fn lock_and_open(
        &self,
        ticket: &Ticket,
    ) -> Result<(Transaction, Guard), Stop> {
        let mut guard = self.lock(ticket).await?;
        let lent = guard.lend().ok_or(Refusal::Defect)?;
        let connection_id = lent.connection_id();
        Ok((Transaction::from_lent(lent.into_connection(), connection_id), guard))
    }

    /// The lock that a purchase looks at.
    pub(super) fn loss(&self, guard: Option<&Guard>) -> Option<Loss> {
        guard.map(Guard::loss).filter(|_| self.rules.on_lost == OnLost::Stop)
    }

    /// Finds out how the transaction ended whose COMMIT was not answered.
    pub(super) async fn settle(
        &self,
        committed: Result<(), CommitError>,
        entry: &Entry,
    ) -> Result<(), Stop> {
        let connection_id = match committed {
            Ok(()) => {
                reach(failpoint::COMMITTED);
                return Ok(());
            }
            Err(CommitError::Refused(error)) => return Err(error.into()),
            Err(CommitError::Unknown(connection_id)) => connection_id,
        };
        reach(failpoint::COMMIT_IN_DOUBT);
        if self.has(Plant::RetryWithFreshId) {
            return Err(StoreError::Conflict.into());
        }
        match resolve(&self.pool, self.orders.tables, connection_id, &[entry.id]).await {
            Resolution::Committed => Ok(()),
            Resolution::Absent => Err(Refusal::Unavailable("database").into()),
            Resolution::Unknown => Err(Stop::Unknown(entry.id)),
        }
    }

    /// Whether this replica has that bug.
    pub(super) fn has(&self, plant: Plant) -> bool {
        self.rules.plant == Some(plant)
    }

    /// A duplicate of the business key is the user's earlier order, one of the request's key an
    /// earlier request.
    async fn explain(&self, stop: Stop, entry: &Entry) -> Stop {
        if let (Stop::Failed(StoreError::Duplicate(Duplicate::Request)), Some(key)) =
            (&stop, entry.key)
        {
            let request = Request { user: entry.user, key, wish: Wish::Purchase(entry.voucher) };
            return match request.replay(&self.orders).await {
                Ok(Some(order)) => Stop::Replayed(order),
                // It was just cleaned away.
                Ok(None) => StoreError::Conflict.into(),
                Err(refusal) => refusal.into(),
            };
        }
        if let Stop::Failed(StoreError::TooFew) = stop {
            return self.explain_too_few(entry.voucher).await;
        }
        let Stop::Failed(StoreError::Duplicate(Duplicate::Business)) = stop else { return stop };
        // Only an extra for the answer: without it the refusal is as true.
        let earlier = self.orders.of_pair(entry.user, entry.voucher).await.ok().flatten();
        Stop::Refused(Refusal::AlreadyOrdered(earlier))
    }

    /// Nothing is left, or an admin has deleted the voucher.
    async fn explain_too_few(&self, voucher: VoucherId) -> Stop {
        match self.orders.survey(voucher, std::iter::empty()).await {
            Ok(survey) if survey.left.is_none() => Refusal::VoucherNotFound.into(),
            Ok(_) => Refusal::SoldOut.into(),
            Err(error) => error.into(),
        }
    }
}

pub(super) fn order_of(ticket: &Ticket, entry: &Entry) -> Order {
    Order {
        id: entry.id,
        user_id: entry.user,
        voucher_id: entry.voucher,
        voucher_title: ticket.terms.title.clone(),
        price_cents: entry.price_cents,
        created_at: entry.created_at,
        status: OrderStatus::Unpaid,
        settled_at: None,
    }
}

/// What the laboratory adds to the section. A sleep of no time at all takes up to a millisecond.
pub(super) async fn work(rules: &Rules) {
    if !rules.work.is_zero() {
        sleep(rules.work).await;
    }
}

/// To be called before each statement.
pub(super) fn still_held(loss: Option<&Loss>) -> Result<(), Stop> {
    match loss {
        Some(loss) if loss.is_lost() => Err(Refusal::LockLost.into()),
        _ => Ok(()),
    }
}

/// The order is settled by now: a release that fails only leaves the lock to its lease.
pub(super) async fn release(guard: Option<Guard>, ticket: &Ticket) {
    let Some(guard) = guard else { return };
    ticket.note_release(&guard);
    let asked = Instant::now();
    let released = guard.release().await;
    took(Timed::Release, asked.elapsed());
    if let Err(error) = released {
        tracing::warn!(%error, "a lock could not be released and is left to its lease");
    }
}

fn may_be_retried(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict | StoreError::Duplicate(Duplicate::Primary))
}

/// 1 to 2 ms after the first try, doubling.
pub(super) fn jitter(attempt: u32) -> Duration {
    let random = u32::from(Uuid::new_v4().as_bytes()[0]);
    Duration::from_micros(u64::from((1000 + random * 4) << (attempt - 1).min(4)))
}
