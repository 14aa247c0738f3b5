//! The path `queued`: a purchase is admitted in Redis and answered with a ticket; its order is
//! written from a stream.
//!
//! Admission is one script (`lua/sale/admit.lua`): the window, one a user, a unit, a place in the
//! stream. A replica takes entries of the stream (`pump`), has their orders written in groups by
//! the writer `grouped` (`work`), and acknowledges those whose tickets have ended. An entry whose
//! taker has died is taken over by another replica. While many ask and are admitted, each queue has
//! about an eighth of the time: who asks waits for an answer, and whoever is in the queue has one
//! (`crowd`).
//!
//! It guarantees what the path `direct` does, because the database has the last word on everything:
//!
//! - **A ticket ends once.** Its row in `tickets` is written with its order, or says that there is
//!   none; a unique key lets one of them win. An entry that is delivered again finds that row. What
//!   an end without an order leaves (the unit, the user's mark) is given back by the script that
//!   acknowledges the entry, with the first acknowledgement only.
//! - **What a Redis forgot cannot be sold any more.** Whoever opens a queue, for the first time or
//!   after Redis has lost its data, raises the sale's epoch in the database and then reads the
//!   stock; an order is written under the epoch in which it was admitted, or not at all.
//! - **No ticket is pending for ever.** One that Redis does not know has a row in `tickets`, or its
//!   next reader writes one that says `lost`.
//!
//! No lock is taken. The user's mark keeps a second purchase of the same user out from admission to
//! the end of the ticket, and the unique key does for ever.
//!
//! It does not keep the order of admission among those under way at once, and a ticket waits for
//! as long as the database or Redis is away.
//!
//! Who comes when the database has no unit left is told so from memory, as on the path `direct`
//! (`late`): that is committed, and a unit that comes back is in the database first. Before that,
//! while units are admitted and not yet written, each request asks Redis: what it answers depends
//! on who asks (one whose ticket is under way gets that ticket), and a unit may come back without
//! the database's doing. A voucher is believed for half a second here, and an empty queue is
//! compared with the database when somebody asks for the first time in 0.2 s, so what came back is
//! sold within a second here as well.
//!
//! Shown by `tests/service/queued/`.

mod crowd;
mod opening;
mod pump;
mod repeat;
mod seal;
mod unreadable;
mod work;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::catalogue::{Catalogue, Terms};
use super::grouped::Grouped;
use super::outcome::Refusal;
use super::plant::Plant;
use super::{Parts, Rules};
use crate::domain::{Order, RequestKey, TicketId, TicketState, UserId, VoucherId};
use crate::failpoint::{self, reach};
use crate::store::{Admission, Health, Orders, Request, SaleStream, StoreError, Tickets};
use crowd::Crowd;
use pump::Pump;
pub use seal::Seal;

/// How often the vouchers are listed that have a queue.
const LIST: Duration = Duration::from_secs(1);
/// A queue that was opened so lately may be missing in a list.
const NEW: Duration = Duration::from_secs(10);
/// How long the last work may take when the process ends.
const LAST_WORK: Duration = Duration::from_secs(40);
/// Entries that are written alone at a time; and of those that were held up alone before, as many
/// again.
const ALONE: usize = 4;

/// What the queued path needs besides what all purchases do.
pub struct QueueParts {
    /// The queues.
    pub stream: SaleStream,
    /// Makes tickets.
    pub seal: Seal,
    /// The name under which entries are taken; one replica has it.
    pub consumer: String,
    /// Whether a replica that is started again has the same name.
    pub consumer_is_stable: bool,
}

/// How a request to buy was answered.
#[derive(Debug)]
pub enum Requested {
    /// The purchase is under way, or was when it was asked for before.
    Ticket(TicketId),
    /// An earlier request with the same key has bought, and Redis does not know its ticket any
    /// more.
    Replayed(Order),
    /// It is not and will not be.
    Refused(Refusal),
    /// Redis did not answer, and the database could not be told: it may be under way.
    Unknown(TicketId),
}

impl Requested {
    pub(super) fn count(&self, started: Instant) {
        let outcome = match self {
            Self::Ticket(_) => "ticket",
            Self::Replayed(_) => "replayed",
            Self::Refused(refusal) => refusal.name(),
            Self::Unknown(_) => "unknown",
        };
        metrics::counter!("seckill_queue_requests_total", "outcome" => outcome).increment(1);
        metrics::histogram!("seckill_queue_request_seconds")
            .record(started.elapsed().as_secs_f64());
    }
}

/// The queued path of a replica. Cheap to clone.
#[derive(Clone)]
pub struct Queue(Arc<Desk>);

struct Desk {
    rules: Arc<Rules>,
    stream: SaleStream,
    seal: Seal,
    consumer: String,
    consumer_is_stable: bool,
    tickets: Tickets,
    orders: Orders,
    catalogue: Catalogue,
    grouped: Grouped,
    health: Health,
    crowd: Crowd,
    /// One opens at a time, and tells the others.
    opening: tokio::sync::Mutex<()>,
    opened: Notify,
    alone: Semaphore,
    held_up: Semaphore,
    lanes: Mutex<HashMap<VoucherId, Lane>>,
    tasks: TaskTracker,
    end: CancellationToken,
}

/// The work on one voucher's queue.
struct Lane {
    /// There are new entries.
    news: Arc<Notify>,
    end: CancellationToken,
    since: Instant,
    /// When its stock was last compared with the database's.
    refilled: Option<Instant>,
}

impl Queue {
    pub(super) fn new(
        rules: &Arc<Rules>,
        parts: &Parts,
        (catalogue, grouped): (Catalogue, Grouped),
        queue: QueueParts,
    ) -> Self {
        let QueueParts { stream, seal, consumer, consumer_is_stable } = queue;
        Self(Arc::new(Desk {
            rules: Arc::clone(rules),
            stream,
            seal,
            consumer,
            consumer_is_stable,
            tickets: Tickets::new(parts.pool.clone()),
            orders: parts.orders.clone(),
            catalogue,
            grouped,
            health: parts.health.clone(),
            crowd: Crowd::default(),
            opening: tokio::sync::Mutex::default(),
            opened: Notify::new(),
            alone: Semaphore::new(ALONE),
            held_up: Semaphore::new(ALONE),
            lanes: Mutex::default(),
            tasks: TaskTracker::new(),
            end: CancellationToken::new(),
        }))
    }

    /// Admits a purchase on those terms, if it may be.
    pub(super) async fn request(
        &self,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
        terms: &Terms,
    ) -> Requested {
        let desk = &self.0;
        let Some(ticket) = desk.seal.ticket(user, voucher) else {
            tracing::error!(%voucher, "its id is too great for tickets");
            return Requested::Refused(Refusal::Defect);
        };
        let (price_cents, window) = (terms.price_cents, terms.window);
        let request = Request { user, ticket, price_cents, window, key };
        let asking = desk.crowd.join();
        let admission = match desk.admit(&request).await {
            Ok(admission) => admission,
            Err(error) => {
                drop(asking);
                return desk.give_up(&request, error).await;
            }
        };
        asking.answered(matches!(admission, Admission::Admitted));
        Requested::Refused(match admission {
            Admission::Admitted => {
                reach(failpoint::QUEUE_ADMITTED);
                desk.wake(voucher);
                return desk.given(&request, ticket).await;
            }
            Admission::Ticket(earlier) => return desk.given(&request, earlier).await,
            Admission::Ended(state) => match state {
                TicketState::Bought(order) => Refusal::AlreadyOrdered(Some(order)),
                TicketState::AlreadyOrdered(order) => Refusal::AlreadyOrdered(order),
                // Ends that give the mark back are of nobody.
                state => {
                    tracing::error!(?state, "a user is marked with such a ticket");
                    Refusal::Defect
                }
            },
            Admission::SoldOut => Refusal::SoldOut,
            Admission::Full | Admission::Unopened => Refusal::Overloaded,
            Admission::NotStarted => Refusal::NotStarted(terms.window.starts_at),
            Admission::Over => Refusal::Ended(terms.window.ends_at),
        })
    }

    /// Where a ticket of that user stands; `None` if it is none of that user's.
    pub async fn state(
        &self,
        user: UserId,
        ticket: TicketId,
    ) -> Result<Option<TicketState>, StoreError> {
        let desk = &self.0;
        if !desk.seal.is_of(ticket, user) {
            return Ok(None);
        }
        if let Some(state) = desk.stream.state(ticket).await? {
            return Ok(Some(state));
        }
        // Redis has lost it, or the sale is long over. Every end has a row.
        match desk.tickets.find(ticket).await? {
            Some(state) => Ok(Some(state)),
            None => desk.tickets.end(ticket, user, TicketState::Lost).await.map(Some),
        }
    }

    /// Works on the queues of all vouchers until the end is asked for.
    pub async fn run(self) {
        let desk = &self.0;
        while !desk.end.is_cancelled() {
            match desk.tickets.queues().await {
                Ok(vouchers) => desk.work_on(&vouchers.into_iter().collect()),
                Err(error) => tracing::debug!(%error, "the queues could not be listed"),
            }
            tokio::select! {
                () = sleep(LIST) => {}
                () = desk.end.cancelled() => {}
            }
        }
    }

    /// Takes what is left in the queues for a few seconds, finishes what is under way, and leaves.
    pub(super) async fn finish(&self) {
        self.0.end.cancel();
        self.0.tasks.close();
        if timeout(LAST_WORK, self.0.tasks.wait()).await.is_err() {
            tracing::error!("tickets were still under way at the end; others go on with them");
        }
    }
}

impl Desk {
    /// The answer to an admission is lost: ends the ticket, so that the answer can be definite.
    async fn give_up(&self, request: &Request, error: StoreError) -> Requested {
        tracing::warn!(%error, "an admission was not answered");
        let Request { ticket, user, .. } = *request;
        match self.tickets.end(ticket, user, TicketState::Refused).await {
            Ok(TicketState::Refused) => Requested::Refused(error.into()),
            Ok(_) => Requested::Ticket(ticket),
            Err(_) => Requested::Unknown(ticket),
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.rules.plant == Some(plant)
    }

    /// Tells whoever works on the voucher's queue that there is something; begins to, if need be.
    fn wake(self: &Arc<Self>, voucher: VoucherId) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(voucher).or_insert_with(|| self.begin(voucher));
        lane.news.notify_one();
    }

    /// Works on these queues and no others, but for those that are too new for the list.
    fn work_on(self: &Arc<Self>, vouchers: &HashSet<VoucherId>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|voucher, lane| {
            let stays = vouchers.contains(voucher) || lane.since.elapsed() < NEW;
            if !stays {
                lane.end.cancel();
            }
            stays
        });
        for voucher in vouchers {
            lanes.entry(*voucher).or_insert_with(|| self.begin(*voucher));
        }
    }

    fn begin(self: &Arc<Self>, voucher: VoucherId) -> Lane {
        let (news, end) = (Arc::new(Notify::new()), self.end.child_token());
        let pump = Pump::new(Arc::clone(self), voucher, Arc::clone(&news));
        self.tasks.spawn(pump.run(end.clone()));
        Lane { news, end, since: Instant::now(), refilled: None }
    }
}
