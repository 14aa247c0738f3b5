//! The way of one entry to the end of its ticket.
//!
//! It is written in a group with others. One that was delivered before, or failed in a group, is
//! tried alone, so that it does not hold up others: a few at a time. What happens then:
//!
//! - the order is committed, or the ticket turns out to have ended: that is its end;
//! - the user has bought otherwise, or nothing is left: an end without an order is written;
//! - the database is away, or there is too much to do: it is tried again, for a minute, then an end
//!   without an order is written;
//! - a defect, of ours or of the entry: it is left in the stream, comes again after two seconds,
//!   and is a dead letter when it has come five times.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Desk;
use crate::domain::TicketState;
use crate::failpoint::{self, reach};
use crate::sale::grouped::Told;
use crate::sale::lock_name;
use crate::sale::outcome::{Outcome, Refusal};
use crate::sale::section::Ticket;
use crate::store::{Pass, QueuedOrder, StoreError};

/// An entry that fails and was delivered so often is a dead letter.
const MOST_DELIVERIES: u32 = 5;
/// How long an entry is tried again without being delivered again.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two tries: at first, and at most.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(1);

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
    /// It failed by itself, or with others.
    Defect,
}

impl Desk {
    /// Sees to it that the ticket ends; how it has, or `None` if the entry is to come again.
    pub(super) async fn settle(&self, order: &QueuedOrder, deliveries: u32) -> Option<TicketState> {
        let deadline = Instant::now() + PATIENCE;
        if deliveries > MOST_DELIVERIES {
            // Its tries have ended with the replicas that made them.
            return self.bury(order, "delivered too often", deadline).await;
        }
        let (mut alone, mut pause) = (deliveries > 1, SHORT);
        loop {
            match self.try_to_write(order, alone).await {
                Next::Ended(state) => return Some(state),
                Next::End(state) => return self.end(order, state, deadline).await,
                Next::Stale => {
                    metrics::counter!("seckill_queue_stale_total").increment(1);
                    if let Err(error) = self.reopen(order.ticket.voucher()).await {
                        tracing::debug!(%error, "a queue could not be opened anew");
                    }
                    return None;
                }
                Next::Defect if !alone => {}
                Next::Defect if deliveries >= MOST_DELIVERIES => {
                    return self.bury(order, "defect", deadline).await;
                }
                Next::Defect => return None,
                Next::Later if self.end.is_cancelled() => return None,
                Next::Later if Instant::now() < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONG);
                }
                Next::Later => {
                    let deadline = Instant::now() + PATIENCE;
                    return self.end(order, TicketState::Refused, deadline).await;
                }
            }
            alone = true;
        }
    }

    async fn try_to_write(&self, order: &QueuedOrder, alone: bool) -> Next {
        if self.health.down().contains(&"database") {
            return Next::Later;
        }
        let voucher = order.ticket.voucher();
        let terms = match self.catalogue.terms(voucher).await {
            Ok(Some(terms)) => terms,
            Ok(None) => return Next::End(TicketState::Refused),
            Err(_) => return Next::Later,
        };
        let ticket = Arc::new(Ticket {
            user: order.user,
            voucher,
            terms: terms.at_price(order.price_cents),
            created_at: order.at,
            lock: lock_name(self.rules.scope, order.user, voucher),
            key: None,
            pass: Some(Pass { ticket: order.ticket, epoch: order.epoch }),
        });
        let told = if alone {
            let Ok(_place) = self.alone.acquire().await else { return Next::Later };
            self.grouped.write_queued(&ticket, true).await
        } else {
            self.grouped.write_queued(&ticket, false).await
        };
        next(told)
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

fn next(told: Told) -> Next {
    let outcome = match told {
        Told::Ended(state) => return Next::Ended(state),
        Told::Stale => return Next::Stale,
        Told::Outcome(outcome) => outcome,
    };
    match outcome {
        Outcome::Bought(order) | Outcome::Replayed(order) => {
            Next::Ended(TicketState::Bought(order.id))
        }
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
            | Refusal::Ended(_) => Next::End(TicketState::Refused),
            // A defect, or what only a request with a key or about an order is told.
            _ => Next::Defect,
        },
    }
}
