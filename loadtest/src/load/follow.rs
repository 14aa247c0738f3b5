//! Tickets of the path `queued`, followed to their ends.
//!
//! A 202 is no end: the purchase is under way, and its ticket says how it ends. So the connection
//! goes back to the load, which admits as fast as it may, and the ticket goes to one of a few
//! *followers*. Each has a connection of its own and asks for its tickets in the order in which
//! they were given. Orders are written in about that order, so only the first [`WATCHED`] are asked
//! for, at a distance that grows with the time that they have waited ([`pause`]); those behind them
//! wait. One that takes longer than the others ([`FRESH`]) keeps nobody from being asked for.
//!
//! A ticket that has not ended in time is asked for once more, and its outcome is unknown then. The
//! same ticket for a second request of its user has admitted nothing: that request is refused.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::history::Recorder;
use crate::load::client::Connection;
use crate::load::live::{Live, Seen};
use crate::load::outcome::TICKET_PENDING;
use crate::load::plan::Plan;
use crate::load::reading::{self, Reading, TicketSays};
use crate::load::request;

/// Followers of a load, at most; no more than its connections.
const FOLLOWERS: usize = 16;
/// Tickets of a follower that are asked for in turn, apart from those that take long.
const WATCHED: usize = 4;
/// A ticket that has been asked for longer than this is one of those.
const FRESH: Duration = Duration::from_millis(250);
/// Between two questions for one ticket.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(100);
/// Of the time that a ticket has waited, so much passes until it is asked for again.
const PART: u32 = 8;
/// How long one question may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Most tickets that are followed at a time.
const MAX_FOLLOWED: usize = 1_000_000;
/// Tickets that have ended and are still known: an answer may be read after the end of the ticket
/// that it brings.
const MAX_ENDED: usize = 100_000;

/// The code of a ticket too many, or of any where none is followed.
pub(super) const NOT_FOLLOWED: &str = "ticket_not_followed";

/// A request that was answered with a ticket.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) ticket: Uuid,
    pub(super) number: u32,
    pub(super) user: u32,
    pub(super) replica: Option<String>,
    pub(super) intended: Instant,
    pub(super) sent: Instant,
    /// When the ticket came.
    pub(super) came: Instant,
}

/// What becomes of a ticket that has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is followed, and its end is told.
    Followed,
    /// It is that of another request: this one has admitted nothing.
    Twin,
    /// It is not followed, so this is the end of its request.
    NotFollowed,
}

/// Where tickets are handed in.
#[derive(Debug)]
pub(super) struct Tickets {
    known: Arc<Mutex<Known>>,
    /// None once no more will come.
    followers: Mutex<Vec<UnboundedSender<Admitted>>>,
}

/// Those who follow them. Dropping them ends that.
#[derive(Debug)]
pub(super) struct Followers(Vec<AbortOnDropHandle<()>>);

/// Tickets that have come.
#[derive(Debug, Default)]
struct Known {
    all: HashSet<Uuid>,
    /// Those that have ended, the latest last.
    ended: VecDeque<Uuid>,
}

impl Known {
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
struct Watched {
    admitted: Admitted,
    due: Instant,
    since: Instant,
}

/// How long a ticket is left alone that has waited for so long.
fn pause(waited: Duration) -> Duration {
    (waited / PART).clamp(SHORTEST, LONGEST)
}

/// Followers of that load.
pub(super) fn open(plan: &Plan, recorder: &Recorder, live: &Arc<Live>) -> (Tickets, Followers) {
    let known = Arc::new(Mutex::default());
    let (mut followers, mut tasks) = (Vec::new(), Vec::new());
    let count = if plan.ticket_timeout.is_zero() { 0 } else { FOLLOWERS.min(plan.connections) };
    for _ in 0..count {
        let (sender, coming) = unbounded_channel();
        let follower = Follower {
            connection: Connection::new(plan.target.clone(), plan.timeout.min(ANSWERED_WITHIN)),
            plan: plan.clone(),
            recorder: recorder.clone(),
            live: live.clone(),
            known: Arc::clone(&known),
            coming,
            waiting: VecDeque::new(),
            watched: Vec::new(),
        };
        followers.push(sender);
        tasks.push(AbortOnDropHandle::new(tokio::spawn(follower.follow())));
    }
    (Tickets { known, followers: Mutex::new(followers) }, Followers(tasks))
}

impl Tickets {
    /// Has a ticket followed, unless it is or was already.
    pub(super) fn take(&self, admitted: Admitted) -> Taken {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.all.contains(&admitted.ticket) {
            return Taken::Twin;
        }
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let place = admitted.number as usize % followers.len().max(1);
        let Some(follower) = followers.get(place).filter(|_| !known.is_full()) else {
            return Taken::NotFollowed;
        };
        let ticket = admitted.ticket;
        if follower.send(admitted).is_err() {
            return Taken::NotFollowed;
        }
        known.all.insert(ticket);
        Taken::Followed
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
    live: Arc<Live>,
    known: Arc<Mutex<Known>>,
    coming: UnboundedReceiver<Admitted>,
    waiting: VecDeque<Admitted>,
    watched: Vec<Watched>,
}

impl Follower {
    async fn follow(mut self) {
        let mut more = true;
        loop {
            while let Ok(one) = self.coming.try_recv() {
                self.waiting.push_back(one);
            }
            self.watch();
            let next = self.watched.iter().enumerate().min_by_key(|(_, one)| one.due);
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
            let mut one = self.watched.swap_remove(at);
            if let Some(reading) = self.ask(&one.admitted).await {
                self.end(one.admitted, reading).await;
            } else {
                one.due = Instant::now() + pause(one.admitted.came.elapsed());
                self.watched.push(one);
            }
        }
    }

    /// Those who come next are asked for as well, if there is room.
    fn watch(&mut self) {
        let now = Instant::now();
        let is_fresh = |one: &&Watched| now.saturating_duration_since(one.since) < FRESH;
        let fresh = self.watched.iter().filter(is_fresh).count();
        let room = WATCHED.saturating_sub(fresh).min(self.waiting.len());
        self.watched.extend(self.waiting.drain(..room).map(|admitted| {
            let due = admitted.came + SHORTEST;
            Watched { admitted, due, since: now }
        }));
    }

    /// How the ticket has ended, or that it is given up; `None` if it is to be asked for again.
    async fn ask(&mut self, admitted: &Admitted) -> Option<Reading> {
        let is_late = admitted.came.elapsed() >= self.plan.ticket_timeout;
        let head = format!("GET /api/tickets/{} HTTP/1.1", admitted.ticket);
        let token = &self.plan.users[admitted.user as usize].authorization;
        request::write_call(&mut self.connection, &head, Some(token), None);
        match TicketSays::of(&self.connection.call().await) {
            TicketSays::Ended(reading) => Some(reading),
            TicketSays::NotYet if is_late => Some(Reading::of_ticket(TICKET_PENDING)),
            TicketSays::NotYet => None,
        }
    }

    async fn end(&self, admitted: Admitted, reading: Reading) {
        let ended = Instant::now();
        let Admitted { ticket, number, user, replica, intended, sent, .. } = admitted;
        self.live.ended(&Seen {
            user,
            reading: &reading,
            replica: replica.as_deref(),
            intended,
            sent,
            ended,
        });
        let event = reading::event(reading, replica, (self.recorder.since(ended), number), None);
        self.recorder.record(event).await;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).end(ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_left_alone_for_an_eighth_of_its_wait_within_bounds() {
        assert_eq!(pause(Duration::ZERO), SHORTEST);
        assert_eq!(pause(Duration::from_millis(240)), Duration::from_millis(30));
        assert_eq!(pause(Duration::from_mins(1)), LONGEST);
    }
}
