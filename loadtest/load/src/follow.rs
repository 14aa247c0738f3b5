//! Follows tickets of the queued mode to their ends.
//!
//! A 202 is not the end: the purchase is under way, and its ticket says how it ends. So the
//! connection returns to the load, and the ticket goes to one of up to 16 *followers*. Each
//! follower has its own connection and asks for its tickets in the order in which they were given.
//! Orders are written in about that order, so only the first [`MAX_POLLED`] are asked for, and the
//! others wait. The pause between two questions grows with the ticket's age ([`poll_pause`]). A
//! slow ticket ([`SLOW_AFTER`]) does not count towards [`MAX_POLLED`].
//!
//! A ticket that has not ended in time is asked for once more, and its outcome is then unknown. A
//! second request that is answered with the same ticket has admitted nothing: it counts as refused.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::client::Connection;
use crate::history::Recorder;
use crate::live::{CompletedRequest, LiveFigures};
use crate::outcome::TICKET_PENDING;
use crate::plan::Plan;
use crate::request_result::{RequestResult, TicketStatus};
use crate::{request, request_result};

/// Followers of a load, at most; no more than its connections.
const FOLLOWERS: usize = 16;
/// Tickets of a follower that are asked for in turn, apart from those that take long.
const MAX_POLLED: usize = 4;
/// A ticket that has been asked for longer than this is one of those.
const SLOW_AFTER: Duration = Duration::from_millis(250);
/// Between two questions for one ticket.
const MIN_POLL_PAUSE: Duration = Duration::from_millis(5);
const MAX_POLL_PAUSE: Duration = Duration::from_millis(100);
/// A ticket is asked for again after its age divided by this.
const POLL_PAUSE_DIVISOR: u32 = 8;
/// How long one question may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Most tickets that are followed at a time.
const MAX_FOLLOWED: usize = 1_000_000;
/// Tickets that have ended and are still known: an answer may be read after the end of the ticket
/// that it brings.
const MAX_ENDED: usize = 100_000;

/// The code of a ticket too many, or of any where none is followed.
pub(super) const NOT_FOLLOWED: &str = "ticket_not_followed";

/// A request that was answered with a ticket.
#[derive(Debug)]
pub(super) struct AdmittedRequest {
    pub(super) ticket: Uuid,
    pub(super) number: u32,
    pub(super) user: u32,
    pub(super) replica: Option<String>,
    pub(super) intended: Instant,
    pub(super) sent: Instant,
    /// When the ticket came.
    pub(super) came: Instant,
}

/// The result of a ticket that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TicketAcceptance {
    /// It is followed, and its end is told.
    Followed,
    /// It is that of another request: this one has admitted nothing.
    Duplicate,
    /// It is not followed, so this is the end of its request.
    NotFollowed,
}

/// Where tickets are handed in.
#[derive(Debug)]
pub(super) struct Tickets {
    registry: Arc<Mutex<TicketRegistry>>,
    /// None once no more will come.
    followers: Mutex<Vec<UnboundedSender<AdmittedRequest>>>,
}

/// The tasks that follow tickets; dropping them ends it.
#[derive(Debug)]
pub(super) struct Followers(Vec<AbortOnDropHandle<()>>);

/// Tickets that have come.
#[derive(Debug, Default)]
struct TicketRegistry {
    all: HashSet<Uuid>,
    /// Tickets that have ended, the latest last.
    ended: VecDeque<Uuid>,
}

impl TicketRegistry {
    fn end(&mut self, ticket: Uuid) {
        self.ended.push_back(ticket);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    fn is_full(&self) -> bool {
        self.all.len() - self.ended.len() >= MAX_FOLLOWED
    }
}

/// A ticket that is asked for.
#[derive(Debug)]
struct PolledTicket {
    admitted: AdmittedRequest,
    due: Instant,
    since: Instant,
}

/// How long a ticket is left alone that has waited for so long.
fn poll_pause(waited: Duration) -> Duration {
    (waited / POLL_PAUSE_DIVISOR).clamp(MIN_POLL_PAUSE, MAX_POLL_PAUSE)
}

/// Followers of that load.
pub(super) fn open(
    plan: &Plan,
    recorder: &Recorder,
    live: &Arc<LiveFigures>,
) -> (Tickets, Followers) {
    let registry = Arc::new(Mutex::default());
    let (mut followers, mut tasks) = (Vec::new(), Vec::new());
    let count = if plan.ticket_timeout.is_zero() { 0 } else { FOLLOWERS.min(plan.connections) };
    for _ in 0..count {
        let (sender, coming) = unbounded_channel();
        let follower = Follower {
            connection: Connection::new(plan.target.clone(), plan.timeout.min(POLL_TIMEOUT)),
            plan: plan.clone(),
            recorder: recorder.clone(),
            live: live.clone(),
            registry: Arc::clone(&registry),
            coming,
            waiting: VecDeque::new(),
            polled: Vec::new(),
        };
        followers.push(sender);
        tasks.push(AbortOnDropHandle::new(tokio::spawn(follower.follow())));
    }
    (Tickets { registry, followers: Mutex::new(followers) }, Followers(tasks))
}

impl Tickets {
    /// Has a ticket followed, unless it is or was already.
    pub(super) fn take(&self, admitted: AdmittedRequest) -> TicketAcceptance {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if registry.all.contains(&admitted.ticket) {
            return TicketAcceptance::Duplicate;
        }
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = admitted.number as usize % followers.len().max(1);
        let Some(follower) = followers.get(place).filter(|_| !registry.is_full()) else {
            return TicketAcceptance::NotFollowed;
        };
        let ticket = admitted.ticket;
        if follower.send(admitted).is_err() {
            return TicketAcceptance::NotFollowed;
        }
        registry.all.insert(ticket);
        TicketAcceptance::Followed
    }

    /// No more tickets come.
    pub(super) fn close(&self) {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Followers {
    /// Until all tickets have ended, or were given up.
    pub(super) async fn finish(self) {
        for follower in self.0 {
            // One that has panicked leaves requests without an end, which the judge sees.
            let _ = follower.await;
        }
    }
}

struct Follower {
    connection: Connection,
    plan: Plan,
    recorder: Recorder,
    live: Arc<LiveFigures>,
    registry: Arc<Mutex<TicketRegistry>>,
    coming: UnboundedReceiver<AdmittedRequest>,
    waiting: VecDeque<AdmittedRequest>,
    polled: Vec<PolledTicket>,
}

impl Follower {
    async fn follow(mut self) {
        let mut more = true;
        loop {
            while let Ok(one) = self.coming.try_recv() {
                self.waiting.push_back(one);
            }
            self.start_polling();
            let next = self.polled.iter().enumerate().min_by_key(|(_, one)| one.due);
            let Some((at, due)) = next.map(|(at, one)| (at, one.due)) else {
                let Some(one) = self.coming.recv().await else { return };
                self.waiting.push_back(one);
                continue;
            };
            if due > Instant::now() {
                tokio::select! {
                    one = self.coming.recv(), if more => match one {
                        Some(one) => self.waiting.push_back(one),
                        None => more = false,
                    },
                    () = tokio::time::sleep_until(due.into()) => {}
                }
                continue;
            }
            let mut one = self.polled.swap_remove(at);
            if let Some(reading) = self.ask(&one.admitted).await {
                self.end(one.admitted, reading).await;
            } else {
                one.due = Instant::now() + poll_pause(one.admitted.came.elapsed());
                self.polled.push(one);
            }
        }
    }

    /// Starts to ask for the next tickets, if there is room.
    fn start_polling(&mut self) {
        let now = Instant::now();
        let is_fresh = |one: &&PolledTicket| now.saturating_duration_since(one.since) < SLOW_AFTER;
        let fresh = self.polled.iter().filter(is_fresh).count();
        let room = MAX_POLLED.saturating_sub(fresh).min(self.waiting.len());
        self.polled.extend(self.waiting.drain(..room).map(|admitted| {
            let due = admitted.came + MIN_POLL_PAUSE;
            PolledTicket { admitted, due, since: now }
        }));
    }

    /// How the ticket has ended, or that it is given up; `None` if it has to be asked for again.
    async fn ask(&mut self, admitted: &AdmittedRequest) -> Option<RequestResult> {
        let is_late = admitted.came.elapsed() >= self.plan.ticket_timeout;
        let head = format!("GET /api/tickets/{} HTTP/1.1", admitted.ticket);
        let token = &self.plan.users[admitted.user as usize].authorization;
        request::write_call(&mut self.connection, &head, Some(token), None);
        match TicketStatus::of(&self.connection.call().await) {
            TicketStatus::Final(reading) => Some(reading),
            TicketStatus::NotYet if is_late => Some(RequestResult::of_ticket(TICKET_PENDING)),
            TicketStatus::NotYet => None,
        }
    }

    async fn end(&self, admitted: AdmittedRequest, reading: RequestResult) {
        let ended = Instant::now();
        let AdmittedRequest { ticket, number, user, replica, intended, sent, .. } = admitted;
        self.live.ended(&CompletedRequest {
            user,
            reading: &reading,
            replica: replica.as_deref(),
            intended,
            sent,
            ended,
        });
        let event =
            request_result::event(reading, replica, (self.recorder.since(ended), number), None);
        self.recorder.record(event).await;
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).end(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_left_alone_for_an_eighth_of_its_wait_within_bounds() {
        assert_eq!(poll_pause(Duration::ZERO), MIN_POLL_PAUSE);
        assert_eq!(poll_pause(Duration::from_millis(240)), Duration::from_millis(30));
        assert_eq!(poll_pause(Duration::from_mins(1)), MAX_POLL_PAUSE);
    }
}
