//! `fair`: a queue in Redis; first come, first served, among all processes.
//!
//! The holds of the present owner are a sorted set (see `holds`); who waits stands in a list, and
//! a second sorted set says until when each waiter counts as alive, all by the server's clock.
//! Only the head of the queue may take a free lock; a newcomer may if nobody waits. Release tells
//! the head, and nobody else, on a channel of its own. A waiter gives a sign of life every half
//! second and counts as dead 1.5 s after the last one: the next to look, or to release, passes
//! over the dead at the head. A waiter that gives up leaves the queue at once. One that was frozen
//! keeps its place until the queue has passed it over; then it stands at the end again, as does
//! one that got no answer from the server. When a holder dies nobody sends a message: the head
//! looks again when the lease ends.
//!
//! Guarantees exclusion while belief lasts, service in the order in which waiters came to stand in
//! the queue (after a first attempt and the subscription to their channel), re-entry by the same
//! owner at any time, and that an acquire or a release that is sent again counts once. Does not
//! guarantee that a dead or frozen head is passed over at once: up to 1.5 s and a look (0.5 s) of
//! a free lock are lost to it. Flaw: a failover to a replica that lags forgets lock and queue.
//!
//! The keys are this library's own. Redisson's `RFairLock` keeps deadlines of the clients' clocks
//! in slots of five minutes for each place in the queue, so a dead waiter cannot be passed over
//! early. Sources: its `RedissonFairLock` for the parts (list, sorted set, own channels); known
//! bugs of it that this avoids: redisson#3004, #1104, #3730, #4323, #5503. Tests: `tests/fair.rs`,
//! `tests/hold_scripts.rs`, `tests/hold_faults.rs`.

use std::sync::Arc;

use super::RedisServer;
use super::holds::{Form, Scripts, Terms};
use super::keys::own_key;
use crate::{Acquisition, Guarantees, LockKind, Locker, Owner, Request, guarantees};

const HOLDS: &str = "distlock_fair";

const FORM: Form = Form {
    acquire: include_str!("../../lua/fair_acquire.lua"),
    release: include_str!("../../lua/fair_release.lua"),
    holds: HOLDS,
    terms,
};

fn terms(Request { name, id, .. }: &Request, publish: &str) -> Terms {
    let own = |prefix| format!("{}:{id}", own_key(prefix, name));
    let keys = [HOLDS, "distlock_fair_queue", "distlock_fair_waiters"];
    let mut keys: Vec<_> = keys.map(|prefix| own_key(prefix, name)).into();
    keys.push(own("distlock_fair_latch"));
    let channel = own("distlock_fair_channel");
    // What all waiters' channels begin with.
    let channels = vec![own_key("distlock_fair_channel", name) + ":", publish.to_owned()];
    Terms { keys, channel, is_shared: false, acquire: channels.clone(), release: channels }
}

pub(crate) struct Fair {
    server: RedisServer,
    scripts: Arc<Scripts>,
}

impl Fair {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { server: server.clone(), scripts: Scripts::new(server, &FORM) }
    }
}

impl Locker for Fair {
    fn name(&self) -> &'static str {
        LockKind::Fair.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Fair)
    }

    fn fresh_owner(&self) -> Owner {
        self.server.fresh_owner()
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}
