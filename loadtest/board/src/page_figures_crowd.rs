//! A made-up crowd: users come at a steady rate, and each sends three purchases to both lanes. All
//! three succeed in the left lane, one of them in the right one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use serde_json::json;

use crate::event_log::{EventLog, Priority};
use crate::setup::REQUESTS_PER_USER;

/// Begins and ends of all requests of a user.
const EVENTS_OF_USER: u64 = 12;
/// An order id is as long as this.
const FIRST_ORDER: u64 = 1_000_000_000_000_000_000;

/// The crowd, and the log of its race.
pub(super) struct Crowd {
    log: Arc<EventLog>,
    interval_us: u64,
    next_at: u64,
    users: u64,
    requests: [u64; 2],
    ends: BinaryHeap<Reverse<RequestEnd>>,
    /// Events that the log has taken.
    pub(super) events: usize,
    /// The time of the last one.
    pub(super) last_us: u64,
}

/// When a request will end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RequestEnd {
    due: u64,
    lane: usize,
    n: u64,
    user: u64,
    /// Which of its user's requests it is.
    turn: u64,
    began: u64,
}

impl Crowd {
    pub(super) fn new(log: Arc<EventLog>, events_per_s: u64) -> Self {
        let interval_us = 1_000_000 * EVENTS_OF_USER / events_per_s;
        let (next_at, users, requests, ends) = Default::default();
        Self { log, interval_us, next_at, users, requests, ends, events: 0, last_us: 0 }
    }

    /// Writes what has happened until then, millisecond by millisecond.
    pub(super) fn advance_to(&mut self, until_us: u64) {
        for now in (self.last_us / 1000..=until_us / 1000).map(|ms| ms * 1000) {
            self.advance(now);
        }
    }

    /// Writes what is due by now, as happening now.
    pub(super) fn advance(&mut self, now: u64) {
        while self.ends.peek().is_some_and(|Reverse(end)| end.due <= now) {
            if let Some(Reverse(end)) = self.ends.pop() {
                self.push(&end_event(&end, now), Priority::End, now);
            }
        }
        while self.next_at <= now {
            self.next_at += self.interval_us;
            self.users += 1;
            for lane in 0..2 {
                self.arrive(lane, now);
            }
        }
    }

    fn push(&mut self, event: &serde_json::Value, priority: Priority, now: u64) -> bool {
        let has_room = self.log.push(event.to_string(), priority);
        if has_room {
            (self.events, self.last_us) = (self.events + 1, now);
        }
        has_room
    }

    /// A user sends all requests to a lane.
    fn arrive(&mut self, lane: usize, began: u64) {
        for turn in 0..REQUESTS_PER_USER as u64 {
            self.requests[lane] += 1;
            let (n, user) = (self.requests[lane], self.users);
            if !self.push(&json!(["i", lane, began, n, user]), Priority::Begin, began) {
                continue;
            }
            let due = began + if lane == 0 { 12_000 + turn * 1500 } else { 11_000 + turn * 8000 };
            self.ends.push(Reverse(RequestEnd { due, lane, n, user, turn, began }));
        }
    }
}

/// The end of a request: the left lane has three holders at once, the right one after the other.
fn end_event(end: &RequestEnd, now: u64) -> serde_json::Value {
    let RequestEnd { lane, n, user, turn, began, .. } = *end;
    let replica = format!("r{}", (user + turn) % 3 + 1);
    let from = began + if lane == 0 { 2000 + turn * 300 } else { 2000 + turn * 8000 };
    let until = (began + if lane == 0 { 11_000 } else { 9500 } + turn * 1500).max(from + 7000);
    let until = until.min(now);
    let is_order = lane == 0 || turn == 0;
    let text = if is_order { (FIRST_ORDER + n).to_string() } else { "already_bought".to_owned() };
    let sort = if is_order { "o" } else { "f" };
    json!([sort, lane, now, n, replica, text, from, until, 0, from - began])
}
