//! The writer `grouped`: orders of a voucher that arrive while a transaction is on its way are
//! committed together, and each caller is told its own outcome afterwards.
//!
//! A voucher has a lane while it has orders: a bounded queue, and at most two tasks that each take
//! what is queued, write it as one group (`group`) and look again. Who comes to an empty lane is
//! written at once; beside a group that is under way another one begins when it has as many orders,
//! or when the first is slow: smaller ones cost each order more, and are soon joined anyway. A task
//! ends when it may not begin a group, so there are never more lanes than there are purchases under
//! way (`--max-orders`).
//!
//! It guarantees what the writer `single` does, order by order, and within a group the outcomes
//! that `single` would give in the order of arrival. It does not keep the order of arrival between
//! two groups that are under way at once, as `single` does not between two transactions. Callers
//! keep their locks until they are answered; one that hangs up leaves its order in the group.
//! Shown by `tests/service/grouped/`.

mod batch;
mod group;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock::Loss;
use tokio::sync::oneshot;
use tokio::task::{JoinError, yield_now};
use tokio::time::{Instant, timeout};

use super::outcome::{Outcome, Refusal};
use super::section::Ticket;
use super::{GroupLimits, OnLost, Parts, Rules};
use crate::domain::{TicketState, VoucherId};
use crate::store::{Health, OrderIds, Orders, Tickets};
use crate::telemetry::{Timed, took};
use group::Group;

/// The most transactions of a voucher under way in a replica: while one waits for the disk, the
/// next one is with the server.
const AT_A_TIME: usize = 2;
/// A group that takes longer, for a row that is locked or a disk that is slow, keeps nobody waiting
/// for others to join him.
const SLOW: Duration = Duration::from_millis(20);

/// How often a group lets others in before it goes, at most.
const LETS_IN: usize = 3;

/// An order on its way into the database.
struct Member {
    ticket: Arc<Ticket>,
    /// The lock of its caller, if that is looked at.
    loss: Option<Loss>,
    since: Instant,
    /// For how long it was in the queue.
    queued: Duration,
    /// Its place in the order of arrival within its group.
    arrival: usize,
    /// How often it alone met another transaction.
    tries: u32,
    answer: oneshot::Sender<Told>,
}

/// What a caller is told.
pub(super) enum Told {
    /// How its order ended.
    Outcome(Outcome),
    /// Its ticket had ended so before; nothing was written.
    Ended(TicketState),
    /// Its ticket is of another opening than the one that counts; nothing was written.
    Stale,
    /// Somebody has locked a row that it needs, or one of those does that it was tried with;
    /// nothing was written.
    HeldUp,
}

impl Member {
    fn settle(self, outcome: Outcome) {
        self.tell(Told::Outcome(outcome));
    }

    fn tell(self, told: Told) {
        took(Timed::Transaction, self.since.elapsed().saturating_sub(self.queued));
        // A caller that is gone has lost its lock with its task; its order is as good as any.
        let _nobody_listens = self.answer.send(told);
    }
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Member>,
    tasks: usize,
    /// Orders in the groups under way, without those that are slow.
    carried: usize,
    /// Whether the group that ended last left no unit.
    sold_out: bool,
}

impl Lane {
    /// Whether what is queued should go now.
    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.waiting.len() >= self.carried
    }

    /// Whether another task should begin, which is counted then.
    fn wants_another(&mut self) -> bool {
        let wanted = self.tasks < AT_A_TIME && self.is_ready();
        self.tasks += usize::from(wanted);
        wanted
    }
}

/// What writing a group needs.
struct Press {
    rules: Arc<Rules>,
    pool: sqlx::MySqlPool,
    orders: Orders,
    tickets: Tickets,
    ids: OrderIds,
    health: Health,
}

/// The lanes of all vouchers. Cheap to clone.
#[derive(Clone)]
pub(super) struct Grouped {
    limits: GroupLimits,
    lanes: Arc<Mutex<HashMap<VoucherId, Lane>>>,
    press: Arc<Press>,
}

impl Grouped {
    pub(super) fn new(rules: &Arc<Rules>, parts: &Parts) -> Self {
        let press = Press {
            rules: Arc::clone(rules),
            pool: parts.pool.clone(),
            orders: parts.orders.clone(),
            tickets: Tickets::new(parts.pool.clone()),
            ids: parts.ids.clone(),
            health: parts.health.clone(),
        };
        Self { limits: rules.groups, lanes: Arc::default(), press: Arc::new(press) }
    }

    /// Writes the order together with others, and tells how that ended. The caller holds its lock
    /// until then; `loss` is that lock's.
    pub(super) async fn write(&self, ticket: &Arc<Ticket>, loss: Option<Loss>) -> Outcome {
        let loss = loss.filter(|_| self.press.rules.on_lost == OnLost::Stop);
        let (member, told) = member(ticket, loss);
        if !self.queue(member) {
            return Outcome::Refused(Refusal::Overloaded);
        }
        match told.await {
            Ok(Told::Outcome(outcome)) => outcome,
            // Without an answer the group ended in a defect; the rest is told to tickets only.
            Err(_) | Ok(Told::Ended(_) | Told::Stale | Told::HeldUp) => Outcome::Failed,
        }
    }

    /// Writes the order of a queued ticket, together with others or alone.
    pub(super) async fn write_queued(&self, ticket: &Arc<Ticket>, alone: bool) -> Told {
        let (member, told) = member(ticket, None);
        if alone {
            let group = Group::new(Arc::clone(&self.press), vec![member], false);
            tokio::spawn(group.write());
        } else if !self.queue(member) {
            return Told::Outcome(Outcome::Refused(Refusal::Overloaded));
        }
        told.await.unwrap_or(Told::Outcome(Outcome::Failed))
    }

    /// Whether there was a place in the lane.
    fn queue(&self, member: Member) -> bool {
        let voucher = member.ticket.voucher;
        let mut lanes = self.lanes();
        let lane = lanes.entry(voucher).or_default();
        // A full lane is not empty, so it was there before.
        if lane.waiting.len() >= self.limits.queue {
            return false;
        }
        lane.waiting.push_back(member);
        let another = lane.wants_another();
        drop(lanes);
        if another {
            self.begin_to_work(voucher);
        }
        true
    }

    fn begin_to_work(&self, voucher: VoucherId) {
        tokio::spawn(self.clone().work(voucher));
    }

    /// Writes groups until none may begin.
    async fn work(self, voucher: VoucherId) {
        loop {
            self.let_in(voucher).await;
            let Some((group, count)) = self.next_group(voucher) else { return };
            metrics::counter!("seckill_groups_total").increment(1);
            if let Ok(sold_out) = self.write_group(voucher, group, count).await {
                self.of_lane(voucher, |lane| lane.sold_out = sold_out);
            } else {
                tracing::error!(%voucher, "a group of orders ended in a defect");
            }
        }
    }

    /// Lets those come first who are ready. Redis grants many locks with one packet, and a task
    /// that is begun runs before the others: the first of them would be a group by himself. The
    /// runtime may come back amid them, so as long as some have come they are let in again.
    async fn let_in(&self, voucher: VoucherId) {
        let waiting = || self.of_lane(voucher, |lane| lane.waiting.len());
        let mut before = waiting();
        for _ in 0..LETS_IN {
            yield_now().await;
            let now = waiting();
            if now <= before || now >= self.limits.size {
                return;
            }
            before = now;
        }
    }

    /// Writes a group of so many; whether it left no unit. In a task of its own: a defect in one
    /// group must not end the lane.
    async fn write_group(
        &self,
        voucher: VoucherId,
        group: Group,
        count: usize,
    ) -> Result<bool, JoinError> {
        let mut writing = tokio::spawn(group.write());
        let written = timeout(SLOW, &mut writing).await;
        self.of_lane(voucher, |lane| lane.carried -= count);
        if let Ok(written) = written {
            return written;
        }
        if self.of_lane(voucher, Lane::wants_another) {
            self.begin_to_work(voucher);
        }
        writing.await
    }

    /// What a task of the lane does to it; it is there as long as it has tasks.
    fn of_lane<T: Default>(&self, voucher: VoucherId, what: impl FnOnce(&mut Lane) -> T) -> T {
        self.lanes().get_mut(&voucher).map(what).unwrap_or_default()
    }

    /// What is queued, at most one group of it, and how many orders that are; `None` ends the task
    /// that asks.
    fn next_group(&self, voucher: VoucherId) -> Option<(Group, usize)> {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(&voucher)?;
        if !lane.is_ready() {
            lane.tasks -= 1;
            if lane.tasks == 0 {
                lanes.remove(&voucher);
            }
            return None;
        }
        let count = lane.waiting.len().min(self.limits.size);
        let mut members: Vec<_> = lane.waiting.drain(..count).collect();
        for (arrival, member) in members.iter_mut().enumerate() {
            member.arrival = arrival;
            member.queued = member.since.elapsed();
            took(Timed::Queue, member.queued);
        }
        lane.carried += count;
        Some((Group::new(Arc::clone(&self.press), members, lane.sold_out), count))
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<VoucherId, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn member(ticket: &Arc<Ticket>, loss: Option<Loss>) -> (Member, oneshot::Receiver<Told>) {
    let (answer, told) = oneshot::channel();
    let since = Instant::now();
    let ticket = Arc::clone(ticket);
    let queued = Duration::ZERO;
    (Member { ticket, loss, since, queued, arrival: 0, tries: 0, answer }, told)
}
