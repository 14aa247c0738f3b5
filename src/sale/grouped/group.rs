//! The way of a group to an outcome for each of its members.
//!
//! All are tried together. What stands in the way decides, after a rollback, how it goes on:
//!
//! - a duplicate, or too few units: one read tells whose request was made before, if they have
//!   keys, and one who has bought already and how many units are left (`Survey`); the first so many
//!   of the others are tried, in the order of arrival;
//! - a ticket that has ended (an entry of the path `queued` that was delivered before): one read
//!   tells which have, and how; they are told, and the others are tried;
//! - a ticket of another opening of its queue: it is told, and the others are tried;
//! - a deadlock (1213), an id that is taken, or an error that nobody expects: half as many, after a
//!   pause if another transaction was met. Halving isolates the order that fails by itself;
//! - a row that stays locked (1205): one by one from then on, so that it is waited for once more
//!   and not with everybody;
//! - a row that stays locked, on the path `queued`: all are told after a moment, and come again one
//!   by one (`queued::work`);
//! - anything else is an answer to all that were tried.
//!
//! What succeeds doubles the number that is tried next. Somebody who is twice in a group comes
//! second after the first is settled. All of it ends: nobody is tried who has waited for longer
//! than `PATIENCE`, and a group has at most `TRIES` tries for each member.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::batch::Setback;
use super::{Member, Press, Told};
use crate::domain::{OrderId, UserId, Wish};
use crate::sale::outcome::{Outcome, Refusal};
use crate::sale::section::{TRIES, Ticket, jitter, order_of};
use crate::store::{Duplicate, Entry, StoreError};

/// Whoever has waited for longer is refused, not tried.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Group {
    press: Arc<Press>,
    /// Without an outcome yet, in the order of arrival.
    waiting: Vec<Member>,
    /// The most that are tried together now.
    most: usize,
    /// The most that `most` grows to.
    size: usize,
    /// Units left, once it had to be asked.
    left: Option<usize>,
    /// Transactions that may still be tried.
    tries: usize,
}

impl Group {
    /// A group; one that is told that nothing is left asks before it writes. (Entries of a queue
    /// are tried in any case: they may have ended before, or be of an earlier opening.)
    pub(super) fn new(press: Arc<Press>, waiting: Vec<Member>, sold_out: bool) -> Self {
        let (size, tries) = (waiting.len(), waiting.len() * TRIES as usize);
        let is_asked = sold_out && waiting.iter().all(|member| member.ticket.pass.is_none());
        Self { press, waiting, most: size, size, left: is_asked.then_some(0), tries }
    }

    /// Runs until everybody has been told; whether nothing is left then, as far as that is known.
    pub(super) async fn write(mut self) -> bool {
        loop {
            self.dismiss();
            if self.waiting.is_empty() {
                return self.left == Some(0);
            }
            if self.left == Some(0) {
                self.survey().await;
                continue;
            }
            if self.tries == 0 {
                self.refuse_all(Refusal::Overloaded);
                continue;
            }
            self.tries -= 1;
            let batch = self.pick();
            match self.press.write(&batch).await {
                Ok(entries) => self.tell(batch, &entries),
                Err(setback) => self.go_on(batch, setback).await,
            }
        }
    }

    /// Refuses those who have lost their lock, or waited for too long.
    fn dismiss(&mut self) {
        for member in mem::take(&mut self.waiting) {
            if member.has_lost_its_lock() {
                member.settle(Outcome::Refused(Refusal::LockLost));
            } else if member.since.elapsed() > PATIENCE {
                member.settle(Outcome::Refused(Refusal::Overloaded));
            } else {
                self.waiting.push(member);
            }
        }
    }

    /// Takes out those who are tried next: the first so many, each user once.
    fn pick(&mut self) -> Vec<Member> {
        let most = self.left.map_or(self.most, |left| left.min(self.most));
        let mut users = HashSet::new();
        let (mut batch, mut others) = (Vec::new(), Vec::new());
        for member in mem::take(&mut self.waiting) {
            if batch.len() < most && users.insert(member.ticket.user) {
                batch.push(member);
            } else {
                others.push(member);
            }
        }
        self.waiting = others;
        batch
    }

    /// The batch is committed. Whoever of the others is one of its users has bought by now.
    fn tell(&mut self, batch: Vec<Member>, entries: &[Entry]) {
        self.left = self.left.map(|left| left.saturating_sub(entries.len()));
        self.most = (self.most * 2).min(self.size);
        if !self.waiting.is_empty() {
            let bought = entries.iter().map(|entry| (entry.user, entry.id)).collect();
            self.tell_of_earlier(&bought);
        }
        for (member, entry) in batch.into_iter().zip(entries) {
            let order = order_of(&member.ticket, entry);
            member.settle(Outcome::Bought(order));
        }
    }

    fn tell_of_earlier(&mut self, earlier: &HashMap<UserId, OrderId>) {
        for member in mem::take(&mut self.waiting) {
            match earlier.get(&member.ticket.user) {
                Some(order) => {
                    let refusal = Refusal::AlreadyOrdered(Some(*order));
                    member.settle(Outcome::Refused(refusal));
                }
                None => self.waiting.push(member),
            }
        }
    }

    /// The batch was not written.
    async fn go_on(&mut self, batch: Vec<Member>, setback: Setback) {
        match setback {
            Setback::Unknown(entries) => {
                for (member, entry) in batch.into_iter().zip(entries) {
                    member.settle(Outcome::Unknown(entry.id));
                }
            }
            Setback::Stale(epoch) => {
                let (fresh, stale) = batch
                    .into_iter()
                    .partition(|member| member.ticket.pass.map(|pass| pass.epoch) == epoch);
                self.put_back(fresh);
                Vec::into_iter(stale).for_each(|member| member.tell(Told::Stale));
            }
            Setback::HeldUp => Vec::into_iter(batch).for_each(|member| member.tell(Told::HeldUp)),
            Setback::Away => refuse(batch, Refusal::Unavailable("database")),
            Setback::LockLost => self.put_back(batch),
            Setback::Failed(error) => self.go_on_after(batch, error).await,
        }
    }

    async fn go_on_after(&mut self, mut batch: Vec<Member>, error: StoreError) {
        let together = batch.len();
        metrics::counter!("seckill_group_setbacks_total", "cause" => cause(&error)).increment(1);
        match error {
            StoreError::Duplicate(Duplicate::Business | Duplicate::Request)
            | StoreError::TooFew => {
                self.put_back(batch);
                self.survey().await;
            }
            StoreError::Duplicate(Duplicate::Ticket) => {
                self.put_back(batch);
                self.tell_ended().await;
            }
            StoreError::Conflict | StoreError::Duplicate(Duplicate::Primary) => {
                if let [alone] = &mut batch[..] {
                    alone.tries += 1;
                    if alone.tries >= TRIES {
                        return refuse(batch, error.into());
                    }
                }
                self.most = together.div_ceil(2);
                self.put_back(batch);
                sleep(jitter(1)).await;
            }
            StoreError::LockWait if together > 1 => {
                (self.most, self.size) = (1, 1);
                self.put_back(batch);
            }
            StoreError::Unexpected(_) if together > 1 => {
                self.most = together / 2;
                self.put_back(batch);
            }
            error => refuse(batch, error.into()),
        }
    }

    /// Learns who has bought already and how many units are left, and tells whom that concerns.
    async fn survey(&mut self) {
        let Some(voucher) = self.waiting.first().map(|member| member.ticket.voucher) else {
            return;
        };
        if let Err(error) = self.replay().await {
            return self.refuse_all(error.into());
        }
        let users = self.waiting.iter().map(|member| member.ticket.user);
        let survey = match self.press.orders.survey(voucher, users).await {
            Ok(survey) => survey,
            Err(error) => return self.refuse_all(error.into()),
        };
        self.tell_of_earlier(&survey.earlier);
        match survey.left.map(usize::try_from) {
            None => self.refuse_all(Refusal::VoucherNotFound),
            Some(Ok(0) | Err(_)) => {
                self.left = Some(0);
                self.refuse_all(Refusal::SoldOut);
            }
            Some(Ok(left)) => self.left = Some(left),
        }
    }

    /// Learns whose tickets have ended already, and tells them.
    async fn tell_ended(&mut self) {
        let tickets = self.waiting.iter().filter_map(|member| member.ticket.pass);
        let ended = match self.press.tickets.ended(tickets.map(|pass| pass.ticket)).await {
            Ok(ended) => ended,
            Err(error) => return self.refuse_all(error.into()),
        };
        for member in mem::take(&mut self.waiting) {
            match member.ticket.pass.and_then(|pass| ended.get(&pass.ticket)) {
                Some(state) => member.tell(Told::Ended(*state)),
                None => self.waiting.push(member),
            }
        }
    }

    /// Tells those whose request was made before what it was told then.
    async fn replay(&mut self) -> Result<(), StoreError> {
        let key = |ticket: &Ticket| Some((ticket.user, ticket.key?));
        let keys: Vec<_> = self.waiting.iter().filter_map(|member| key(&member.ticket)).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let kept = self.press.orders.of_keys(keys.into_iter()).await?;
        for member in mem::take(&mut self.waiting) {
            match key(&member.ticket).and_then(|key| kept.get(&key)) {
                Some(kept) if kept.wish == Wish::Purchase(member.ticket.voucher) => {
                    member.settle(Outcome::Replayed(kept.order.clone()));
                }
                Some(_) => member.settle(Outcome::Refused(Refusal::KeyReused)),
                None => self.waiting.push(member),
            }
        }
        Ok(())
    }

    fn put_back(&mut self, batch: Vec<Member>) {
        self.waiting.extend(batch);
        self.waiting.sort_unstable_by_key(|member| member.arrival);
    }

    fn refuse_all(&mut self, refusal: Refusal) {
        refuse(mem::take(&mut self.waiting), refusal);
    }
}

fn refuse(members: Vec<Member>, refusal: Refusal) {
    for member in members {
        member.settle(Outcome::Refused(refusal));
    }
}

fn cause(error: &StoreError) -> &'static str {
    match error {
        StoreError::Busy => "busy",
        StoreError::NoAnswer { .. } => "no_answer",
        StoreError::Unavailable { .. } => "unavailable",
        StoreError::AccessDenied { .. } => "access_denied",
        StoreError::Conflict => "conflict",
        StoreError::LockWait => "lock_wait",
        StoreError::Duplicate(Duplicate::Primary) => "id_taken",
        StoreError::Duplicate(Duplicate::Business) => "duplicate",
        StoreError::Duplicate(Duplicate::Ticket) => "ticket_ended",
        StoreError::Duplicate(Duplicate::Request) => "repeated",
        StoreError::TooFew => "too_few",
        StoreError::Unexpected(_) => "unexpected",
    }
}
