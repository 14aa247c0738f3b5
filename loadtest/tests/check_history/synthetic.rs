//! A made-up sale: what clients of a correct service would have been told, event by event.
//!
//! Requests are in flight in a number of slots; each takes its effect at its end. Some answers are
//! lost after the effect, some clients hang up before it, and some are refused at the door. A
//! request whose answer was lost is repeated with its key and gets the first answer.

use std::collections::HashMap;

use fastrand::Rng;
use loadtest_load::history::{Completion, Event, Invoke};
use uuid::Uuid;

/// Requests in flight.
const SLOTS: usize = 64;
/// Nanoseconds between two events.
const STEP_NS: u64 = 10_000;
/// The first user's id; the first order's is a million times as high.
const FIRST_USER: u64 = 1000;
const FIRST_ORDER: u64 = 1_000_000_000;

/// A sale that is made up.
pub(crate) struct Sale {
    pub(crate) voucher: u64,
    pub(crate) units: usize,
    pub(crate) requests: u32,
    /// Requests of each user, one after the other.
    pub(crate) per_user: u32,
    /// The first request's number.
    pub(crate) first: u32,
    /// Orders, as they come to be.
    pub(crate) orders: Vec<(u64, u64)>,
    /// Of each user with an order, which, and the key of its request.
    pub(crate) held: HashMap<u64, (u64, Uuid)>,
    random: Rng,
}

impl Sale {
    pub(crate) fn new(voucher: u64, units: usize, requests: u32) -> Self {
        Self {
            voucher,
            units,
            requests,
            per_user: 5,
            first: 1,
            orders: Vec::new(),
            held: HashMap::new(),
            random: Rng::with_seed(1),
        }
    }

    /// Makes it up; the same each time.
    pub(crate) fn each(&mut self, mut tell: impl FnMut(Event<'static>)) {
        let mut slots: Vec<Option<Invoke>> = vec![None; SLOTS];
        let mut repeats: Vec<Invoke> = Vec::new();
        let mut now = 0;
        let mut next = 0;
        while next < self.requests || slots.iter().any(Option::is_some) {
            now += STEP_NS;
            let slot = self.random.usize(..SLOTS);
            if let Some(invoke) = slots[slot].take() {
                let event = self.answer(invoke, now);
                if matches!(event, Event::Unknown(_)) && self.random.bool() {
                    repeats.push(invoke);
                }
                tell(event);
            }
            if next < self.requests {
                let n = self.first + next;
                let user = FIRST_USER + u64::from(next / self.per_user);
                let key = Uuid::from_u64_pair(self.random.u64(..), n.into());
                let fresh = Invoke { t: now, n, u: user, v: self.voucher, k: key };
                let again = repeats.pop().map(|lost| Invoke { t: now, n, ..lost });
                let invoke = again.unwrap_or(fresh);
                slots[slot] = Some(invoke);
                tell(Event::Invoke(invoke));
                next += 1;
            }
        }
    }

    fn answer(&mut self, invoke: Invoke, now: u64) -> Event<'static> {
        let replica = ["r1", "r2", "r3"][invoke.n as usize % 3];
        let ended =
            Completion { t: now, n: invoke.n, r: Some(replica.into()), ..Completion::default() };
        let refused = |code: &'static str, order: Option<u64>, status: u16| {
            let (c, s) = (Some(code.into()), Some(status));
            Event::Fail(Completion { c, o: order, s, ..ended.clone() })
        };
        let lost = |code: &'static str| {
            let (c, r) = (Some(code.into()), None);
            Event::Unknown(Completion { c, r, ..ended.clone() })
        };
        let luck = self.random.u32(..100);
        if luck < 2 {
            return refused("overloaded", None, 503);
        }
        if luck < 4 {
            return lost("hung_up");
        }
        if let Some((order, key)) = self.held.get(&invoke.u).copied() {
            if key != invoke.k {
                return refused("already_ordered", Some(order), 409);
            }
            return Event::Ok(Completion { o: Some(order), s: Some(201), ..ended });
        }
        if self.orders.len() >= self.units {
            return refused("sold_out", None, 409);
        }
        let order = FIRST_ORDER + self.voucher * 100_000_000 + self.orders.len() as u64;
        self.orders.push((order, invoke.u));
        self.held.insert(invoke.u, (order, invoke.k));
        if luck < 10 {
            return lost("timed_out");
        }
        Event::Ok(Completion { o: Some(order), s: Some(201), ..ended })
    }
}
