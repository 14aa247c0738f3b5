//! The purchase: checks, admission, lock, writer, answer.
//!
//! Everything before the lock may be dropped at any time and leaves nothing. From the lock on the
//! work runs in a task of its own, which a client that hangs up cannot abort; it ends within its
//! own time-outs. Nothing here knows HTTP or SQL.

mod catalogue;
mod charge;
mod early;
mod grouped;
mod hold_times;
mod housekeeping;
mod late;
mod life;
mod naive;
mod outcome;
mod plant;
mod queued;
mod rules;
mod section;
mod single;
mod stepwise;
mod twins;

use std::sync::Arc;
use std::time::Instant;

use distlock::{Guard, LockKind, Locks};
use grouped::Grouped;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::domain::{RequestKey, UserId, VoucherId, Wish};
use crate::failpoint::{self, reach};
use crate::payment::Payments;
use crate::store::{Health, OrderIds, Orders, Vouchers};
use crate::telemetry::{Timed, ended, purchase_in_progress, took};
use catalogue::{Catalogue, Remembering, Terms};
pub use hold_times::{HoldReport, LockHoldTimes};
pub use housekeeping::Housekeeping;
use late::{Late, Turned};
use life::Life;
pub use outcome::{Outcome, Refusal, Settled};
pub use plant::Plant;
pub use queued::{Queue, QueueParts, Requested, Seal};
pub use rules::{GroupLimits, Guards, LockOrder, OnLost, Path, Rules, Scope, Writer};
use section::{Section, Ticket, release};
use twins::{Entered, Request, Twins};

/// What purchases need.
pub struct Parts {
    /// The database's pool.
    pub pool: sqlx::MySqlPool,
    /// The orders.
    pub orders: Orders,
    /// The vouchers.
    pub vouchers: Vouchers,
    /// Numbers for orders.
    pub ids: OrderIds,
    /// The locks.
    pub locks: Locks,
    /// Their kind, which is part of what a fence is called: tokens of different kinds are different
    /// sequences.
    pub lock_kind: LockKind,
    /// What their server is called.
    pub lock_server: &'static str,
    /// Whether the servers answer.
    pub health: Health,
    /// Who takes the money, if somebody does.
    pub payments: Option<Payments>,
    /// What the path `queued` needs; without it the path is `direct`.
    pub queue: Option<QueueParts>,
}

/// The sale. Cheap to clone.
#[derive(Clone)]
pub struct Sale {
    rules: Arc<Rules>,
    health: Health,
    catalogue: Catalogue,
    /// What those are told from memory who come too late, if anything.
    late: Option<Late>,
    /// Places for purchases until they are answered.
    admission: Arc<Semaphore>,
    /// As many for those that are answered, until their locks are given back.
    releasing: Arc<Semaphore>,
    section: Arc<Section>,
    queue: Option<Queue>,
    life: Arc<Life>,
    twins: Twins,
    tasks: TaskTracker,
}

impl Sale {
    /// A sale by those rules.
    pub fn new(rules: Rules, mut parts: Parts) -> Self {
        let rules = Arc::new(rules);
        let late = rules.remember_the_late().then(|| Late::new(parts.orders.clone()));
        let for_ever = rules.plant == Some(Plant::SoldOutForEver);
        let remembering = late.clone().map(|late| Remembering { late, for_ever });
        let path = if parts.queue.is_some() { Path::Queued } else { Path::Direct };
        let catalogue = Catalogue::new(parts.vouchers.clone(), path, remembering);
        let grouped = Grouped::new(&rules, &parts);
        let queue = parts
            .queue
            .take()
            .map(|queue| Queue::new(&rules, &parts, (catalogue.clone(), grouped.clone()), queue));
        Self {
            health: parts.health.clone(),
            catalogue,
            late,
            admission: Arc::new(Semaphore::new(rules.max_orders)),
            releasing: Arc::new(Semaphore::new(rules.max_orders)),
            life: Arc::new(Life {
                orders: parts.orders.clone(),
                pool: parts.pool.clone(),
                payments: parts.payments.clone(),
            }),
            twins: Twins::default(),
            section: Arc::new(Section::new(Arc::clone(&rules), parts, grouped)),
            queue,
            tasks: TaskTracker::new(),
            rules,
        }
    }

    /// The path `queued`, if that is the one.
    pub fn queue(&self) -> Option<&Queue> {
        self.queue.as_ref()
    }

    /// Sells one unit of the voucher to the user, or says why not. Every refusal is definite: no
    /// order was written and none will be. A request with the key of an earlier one that had an
    /// effect is told what that one was told. `hold_times` takes note of when it holds its lock.
    pub async fn purchase(
        &self,
        user: UserId,
        voucher: VoucherId,
        key: Option<RequestKey>,
        hold_times: Option<Arc<LockHoldTimes>>,
    ) -> Outcome {
        let started = Instant::now();
        let wish = Wish::Purchase(voucher);
        let request = self.kept(key).map(|key| Request { user, key, wish });
        let entered = match self.twins.enter(request) {
            Ok(entered) => entered,
            Err(refusal) => return count(Outcome::Refused(refusal), started),
        };
        match (self.admit((user, voucher), request, entered, hold_times).await, request) {
            (Ok(work), _) => work.await,
            (Err(turned), Some(request)) if turned.may_repeat() => {
                count(Box::pin(self.replay_or(turned.refusal, &request)).await, started)
            }
            (Err(turned), _) => count(Outcome::Refused(turned.refusal), started),
        }
    }

    /// What an earlier request with the same key was told, if it had an effect; else the refusal.
    async fn replay_or(&self, refusal: Refusal, request: &Request) -> Outcome {
        match request.replay(&self.life.orders).await {
            Ok(Some(order)) => Outcome::Replayed(order),
            Ok(None) => Outcome::Refused(refusal),
            Err(other) => Outcome::Refused(other),
        }
    }

    /// The unguarded sale is the textbook's, which keeps no keys.
    fn kept(&self, key: Option<RequestKey>) -> Option<RequestKey> {
        key.filter(|_| self.rules.guards == Guards::On)
    }

    /// Somebody has changed the voucher here: this replica knows at once, others within a second.
    pub fn forget(&self, voucher: VoucherId) {
        self.catalogue.forget(voucher);
    }

    /// Waits until no purchase is under way, for the end of the process.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        if let Some(queue) = &self.queue {
            queue.finish().await;
        }
        self.section.locks().flush().await;
    }

    /// The checks that need no lock; then the rest, started in a task of its own.
    async fn admit(
        &self,
        (user, voucher): (UserId, VoucherId),
        request: Option<Request>,
        entered: Option<Entered>,
        hold_times: Option<Arc<LockHoldTimes>>,
    ) -> Result<impl Future<Output = Outcome> + use<>, Turned> {
        let started = Instant::now();
        let key = request.map(|request| request.key);
        let terms = self.open_sale((user, voucher), key).await?;
        let place = Arc::clone(&self.admission).try_acquire_owned();
        let place = place.map_err(|_| Refusal::Overloaded)?;
        let ticket = Arc::new(Ticket {
            user,
            voucher,
            created_at: terms.now(),
            terms,
            key,
            pass: None,
            hold_times,
        });
        let sale = self.clone();
        let (tell, told) = oneshot::channel();
        purchase_in_progress(1);
        // A task's future is moved whole when the task is made, ends and is asked; a box is not.
        let task = self.tasks.spawn(Box::pin(async move {
            let (outcome, mut guard) = sale.section.run(&ticket).await;
            let outcome = count(outcome, started);
            sale.learn(&ticket, &outcome);
            let aside = sale.step_aside();
            if aside.is_none() {
                release(guard.take(), &ticket).await;
            }
            // Whoever hears the answer may come again at once.
            drop((place, entered));
            reach(failpoint::BEFORE_ANSWER);
            let _has_gone = tell.send(outcome);
            release(guard, &ticket).await;
            drop(aside);
            purchase_in_progress(-1);
        }));
        let aborts = self.rules.plant == Some(Plant::AbortWithClient);
        let leash = aborts.then(|| plant::Leash(Some(task.abort_handle())));
        Ok(async move {
            let outcome = told.await.unwrap_or(Outcome::Failed);
            if let Some(leash) = leash {
                leash.let_go();
            }
            outcome
        })
    }

    /// A place for a purchase that is answered and has to give back its lock; `None` if it is to do
    /// so before it is answered.
    fn step_aside(&self) -> Option<OwnedSemaphorePermit> {
        let place = || Arc::clone(&self.releasing).try_acquire_owned().ok();
        self.rules.may_answer_first().then(place).flatten()
    }

    /// The terms of a voucher that is on sale now, unless this user comes too late.
    async fn open_sale(
        &self,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
    ) -> Result<Arc<Terms>, Turned> {
        if let Some(server) = self.health.down().next() {
            return Err(Refusal::Unavailable(server).into());
        }
        let terms = tokio::select! {
            biased;
            terms = self.catalogue.terms(voucher) => terms?.ok_or(Refusal::VoucherNotFound)?,
            () = self.health.until_database_is_down() => {
                return Err(Refusal::Unavailable("database").into());
            }
        };
        if let Some(refusal) = terms.closed_at(Instant::now()) {
            return Err(Turned { refusal, has_no_order: terms.has_no_order(user) });
        }
        if let Some(late) = &self.late
            && let Some(turned) = late.turn_away((user, voucher), key, &terms).await
        {
            return Err(turned);
        }
        Ok(terms)
    }

    /// Remembers what the outcome says to those who come later.
    fn learn(&self, ticket: &Ticket, outcome: &Outcome) {
        let Some(late) = &self.late else { return };
        match outcome {
            Outcome::Bought(order) => {
                late.remember((ticket.user, ticket.voucher), order.id, ticket.key);
            }
            Outcome::Refused(Refusal::SoldOut) => self.catalogue.look_again(ticket.voucher),
            Outcome::Refused(_) | Outcome::Replayed(_) | Outcome::Unknown(_) | Outcome::Failed => {}
        }
    }
}

impl Section {
    /// Has the order written, under its lock if that is taken already.
    async fn write_order(&self, ticket: &Arc<Ticket>, guard: &mut Option<Guard>) -> Outcome {
        match self.rules.writer {
            // In a box: it is large, and part of the task of those who write in groups, too.
            Writer::Single => {
                let began = Instant::now();
                let outcome = Box::pin(self.try_until_settled(ticket, guard)).await;
                took(Timed::Transaction, began.elapsed());
                outcome
            }
            Writer::Grouped => {
                let loss = guard.as_ref().map(Guard::loss);
                self.grouped.write(ticket, loss).await
            }
        }
    }
}

/// Counts the outcome, also if its client has gone.
fn count(outcome: Outcome, started: Instant) -> Outcome {
    ended(outcome.name());
    took(Timed::Purchase, started.elapsed());
    outcome
}
