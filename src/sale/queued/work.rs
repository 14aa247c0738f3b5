//! The way of one entry to the end of its ticket.
//!
//! It is written in a group with others. One that was handed out before, or failed in a group, is
//! tried alone, so that it does not hold up others: a few at a time.
//!
//! A group that meets a row which somebody else has locked is given up after 0.3 s, and all of it
//! comes alone. Whoever is held up alone as well is tried again and again apart from all others,
//! and never waits for long: who waits for a row keeps out all whose users are between it and the
//! next one. So nobody else is delayed by more than a second. (The voucher's rows in
//! `voucher_stock` and `sale_epochs` are everybody's: whoever locks those delays all its orders.)
//!
//! What happens:
//!
//! - the order is committed, or the ticket turns out to have ended: that is its end;
//! - the user has bought otherwise, or nothing is left: an end without an order is written;
//! - the database is away, or there is too much to do: it is tried again, for a minute, then an end
//!   without an order is written; meanwhile a replica whose database answers may take it over;
//! - a defect, of ours or of the entry: it is left in the stream, comes again after three seconds,
//!   and is a dead letter when five tries have ended so;
//! - the process dies of it: so does that.
//!
//! What counts are tries. How often an entry was handed out says nothing: an answer that comes too
//! late hands out, and so do a restart and a replica that takes over what another is still at work
//! on. So a try is counted when it has ended in a defect; that of an entry which was handed out
//! before, before it is made, and that is taken back if it comes back otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Desk;
use crate::domain::TicketState;
use crate::failpoint::{self, reach};
use crate::sale::grouped::Told;
use crate::sale::outcome::{Outcome, Refusal};
use crate::sale::section::{Ticket, jitter};
use crate::store::{Pass, QueuedOrder, StoreError};

/// An entry whose tries failed so often is a dead letter.
const MOST_TRIES: u32 = 5;
/// How long an entry is tried again without being handed out again.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two tries: at first, and at most.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(1);

/// How long the INSERT of a group, and at first that of an order alone, may take. What takes longer
/// waits for a row that somebody else has locked. (On a machine that is slower than this it costs
/// more transactions, and nothing else.)
const GROUP_PATIENCE: Duration = Duration::from_millis(300);
const FIRST_PATIENCE: Duration = Duration::from_millis(100);
/// The longest that an order waits alone at a time: orders that are next to it in the unique key
/// wait behind it.
const LONGEST_PATIENCE: Duration = Duration::from_millis(400);

/// How an order is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a group.
    Together,
    /// By itself; so often it was held up so far.
    Alone(u32),
}

impl Way {
    fn patience(self) -> Duration {
        match self {
            Self::Together => GROUP_PATIENCE,
            Self::Alone(held_up) => {
                (FIRST_PATIENCE * 2_u32.pow(held_up.min(8))).min(LONGEST_PATIENCE)
            }
        }
    }
}

/// How a try ended.
enum Next {
    /// The ticket has ended so.
    Ended(TicketState),
    /// It is to end so.
    End(TicketState),
    /// Its epoch does not count any more.
    Stale,
    /// It is worth another try.
    Later,
    /// Somebody else has locked a row: it is worth another try, alone.
    HeldUp,
    /// It failed by itself, or with others.
    Defect,
    /// It was not tried: more tries of it are counted than it may have.
    TooOften,
}

impl Desk {
    /// Sees to it that the ticket ends; how it has, or `None` if the entry is to come again. An
    /// entry that was handed out before may have ended the process that tried it, and is suspect
    /// until a try of it has come back.
    pub(super) async fn settle(
        &self,
        (id, order): (&str, &QueuedOrder),
        mut suspect: bool,
    ) -> Option<TicketState> {
        let deadline = Instant::now() + PATIENCE;
        let mut way = if suspect { Way::Alone(0) } else { Way::Together };
        let mut pause = SHORT;
        loop {
            let (next, counted) = self.try_to_write((id, order), way, suspect).await;
            suspect = false;
            match next {
                Next::Ended(state) => return Some(state),
                Next::End(state) => return self.end(order, state, deadline).await,
                Next::Stale => {
                    metrics::counter!("seckill_queue_stale_total").increment(1);
                    if let Err(error) = self.reopen(order.ticket.voucher()).await {
                        tracing::debug!(%error, "a queue could not be opened anew");
                    }
                    return None;
                }
                Next::Defect if way == Way::Together => {}
                Next::Defect => {
                    let tries = match counted {
                        None => self.count((id, order), 1).await,
                        counted => counted,
                    };
                    if tries.is_none_or(|tries| tries < MOST_TRIES) {
                        return None;
                    }
                    return self.bury(order, "defect", deadline).await;
                }
                Next::TooOften => return self.bury(order, "tried too often", deadline).await,
                Next::HeldUp if way == Way::Together => count_held_up("group"),
                Next::Later | Next::HeldUp if self.end.is_cancelled() => return None,
                next @ (Next::Later | Next::HeldUp) if Instant::now() < deadline => {
                    if let (Next::HeldUp, Way::Alone(held_up)) = (next, way) {
                        count_held_up("alone");
                        way = Way::Alone(held_up + 1);
                    }
                    // Not in step with others that were held up together with it.
                    sleep(pause + jitter(5)).await;
                    pause = (pause * 2).min(LONG);
                }
                Next::Later | Next::HeldUp => {
                    let deadline = Instant::now() + PATIENCE;
                    return self.end(order, TicketState::Refused, deadline).await;
                }
            }
            if way == Way::Together {
                way = Way::Alone(0);
            }
        }
    }

    /// Tries once; and how many tries are counted, if this is one of them. That of a suspect is
    /// counted just before it is made, and no more once it has come back without a defect.
    async fn try_to_write(
        &self,
        (id, order): (&str, &QueuedOrder),
        way: Way,
        suspect: bool,
    ) -> (Next, Option<u32>) {
        let ticket = match self.ticket(order, way).await {
            Ok(ticket) => ticket,
            Err(next) => return (next, None),
        };
        let places = match way {
            Way::Together => return (next(self.grouped.write_queued(&ticket, false).await), None),
            Way::Alone(0) => &self.alone,
            Way::Alone(_) => &self.held_up,
        };
        let Ok(_place) = places.acquire().await else { return (Next::Later, None) };
        if !suspect {
            return (next(self.grouped.write_queued(&ticket, true).await), None);
        }
        let counted = self.count((id, order), 1).await;
        if counted.is_some_and(|tries| tries > MOST_TRIES) {
            return (Next::TooOften, counted);
        }
        let next = next(self.grouped.write_queued(&ticket, true).await);
        if !matches!(next, Next::Ended(_) | Next::Defect) {
            self.count((id, order), -1).await;
        }
        (next, counted)
    }

    /// Counts a try, or takes one back; how many are counted, if Redis says so. If it does not,
    /// that is no reason not to try.
    async fn count(&self, (id, order): (&str, &QueuedOrder), by: i8) -> Option<u32> {
        let counted = self.stream.count_try(order.ticket.voucher(), id, by).await;
        counted.inspect_err(|error| tracing::debug!(%error, "a try could not be counted")).ok()
    }

    /// Whether the database is not known to be away.
    pub(super) fn can_write(&self) -> bool {
        self.health.down().all(|server| server != "database")
    }

    /// What is written for an entry; or why nothing is now.
    async fn ticket(&self, order: &QueuedOrder, way: Way) -> Result<Arc<Ticket>, Next> {
        if !self.can_write() {
            return Err(Next::Later);
        }
        let voucher = order.ticket.voucher();
        let terms = match self.catalogue.terms(voucher).await {
            Ok(Some(terms)) => terms,
            Ok(None) => return Err(Next::End(TicketState::Refused)),
            Err(_) => return Err(Next::Later),
        };
        Ok(Arc::new(Ticket {
            user: order.user,
            voucher,
            terms: terms.at_price(order.price_cents),
            created_at: order.at,
            key: order.key,
            pass: Some(Pass { ticket: order.ticket, epoch: order.epoch, patience: way.patience() }),
            hold_times: None,
        }))
    }

    /// Ends the ticket without an order, unless it has ended; how it has.
    async fn end(
        &self,
        order: &QueuedOrder,
        state: TicketState,
        deadline: Instant,
    ) -> Option<TicketState> {
        until(deadline, || self.tickets.end(order.ticket, order.user, state)).await
    }

    async fn bury(
        &self,
        order: &QueuedOrder,
        reason: &'static str,
        deadline: Instant,
    ) -> Option<TicketState> {
        tracing::error!(ticket = %order.ticket, reason, "a ticket is a dead letter");
        let QueuedOrder { ticket, user, price_cents, .. } = *order;
        until(deadline, || self.tickets.bury(ticket, user, (price_cents, reason))).await
    }
}

/// Asks the database until it answers or that moment has come.
async fn until<F>(deadline: Instant, ask: impl Fn() -> F) -> Option<TicketState>
where
    F: Future<Output = Result<TicketState, StoreError>>,
{
    loop {
        match ask().await {
            Ok(state) => {
                reach(failpoint::QUEUE_END_WRITTEN);
                return Some(state);
            }
            Err(error) if Instant::now() > deadline => {
                tracing::warn!(%error, "a ticket could not be ended, and comes again");
                return None;
            }
            Err(_) => sleep(LONG).await,
        }
    }
}

fn count_held_up(who: &'static str) {
    metrics::counter!("seckill_queue_held_up_total", "who" => who).increment(1);
}

fn next(told: Told) -> Next {
    let outcome = match told {
        Told::Ended(state) => return Next::Ended(state),
        Told::Stale => return Next::Stale,
        Told::HeldUp => return Next::HeldUp,
        Told::Outcome(outcome) => outcome,
    };
    match outcome {
        Outcome::Bought(order) => Next::Ended(TicketState::Bought(order.id)),
        // By an earlier request with its key, whose ticket Redis has forgotten.
        Outcome::Replayed(order) => Next::End(TicketState::AlreadyOrdered(Some(order.id))),
        Outcome::Unknown(_) => Next::Later,
        Outcome::Failed => Next::Defect,
        Outcome::Refused(refusal) => match refusal {
            Refusal::AlreadyOrdered(order) => Next::End(TicketState::AlreadyOrdered(order)),
            Refusal::SoldOut => Next::End(TicketState::SoldOut),
            Refusal::Overloaded
            | Refusal::Unavailable(_)
            | Refusal::LockLost
            | Refusal::InProgress => Next::Later,
            Refusal::VoucherNotFound
            | Refusal::NotOnSale
            | Refusal::NotStarted(_)
            | Refusal::Ended(_)
            | Refusal::KeyReused => Next::End(TicketState::Refused),
            // A defect, or what only a request about an order is told.
            _ => Next::Defect,
        },
    }
}
