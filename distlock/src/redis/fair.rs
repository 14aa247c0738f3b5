//! `fair`: a queue in Redis; first come, first served, among all processes.
//!
//! How it works: the holds of the present owner are a sorted set (see `holds`). Waiters stand in a
//! list, and a second sorted set says until when each counts as alive, all by the server's clock.
//! Only the head of the queue may take a free lock; a newcomer may if the queue is empty. A release
//! wakes the head alone, on a channel of its own. A waiter reports every half second and counts as
//! dead 1.5 s after its last report. The next poll or release removes dead waiters from the head. A
//! waiter that gives up leaves the queue at once. A frozen waiter keeps its place until it is
//! removed; then it queues again at the end. So does a waiter that got no answer from the server.
//! When a holder dies, the head asks again at the end of the lease.
//!
//! Guarantees:
//! - exclusion within the validity time;
//! - service in the order in which waiters joined the queue, after a first attempt and the
//!   subscription to their channel;
//! - re-entry by the same owner at any time;
//! - an acquire or a release that is sent again counts once.
//!
//! Flaws:
//! - a dead or frozen head is not removed at once: it costs up to 1.5 s and a poll (0.5 s) of a
//!   free lock;
//! - a failover to a replica that lags forgets lock and queue.
//!
//! The keys are this library's own. Redisson's `RFairLock` keeps deadlines of the clients' clocks,
//! five minutes per place in the queue, so a dead waiter cannot be removed early. Source:
//! Redisson's `RedissonFairLock` for list, sorted set and channels. Its known bugs that this
//! avoids: redisson#3004, #1104, #3730, #4323, #5503. Tests: `tests/fair.rs`,
//! `tests/hold_scripts.rs`, `tests/hold_faults.rs`.

use std::sync::Arc;

use crate::redis::RedisServer;
use crate::redis::holds::{HoldScripts, ScriptArgs, ScriptSet};
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::keys::own_key;
use crate::{
    Acquisition, Guarantees, LockInspector, LockKind, LockName, Locker, Owner, Request, guarantees,
};

const HOLDS_PREFIX: &str = "distlock_fair";

const SCRIPTS: ScriptSet = ScriptSet {
    acquire: include_str!("../../lua/fair_acquire.lua"),
    release: include_str!("../../lua/fair_release.lua"),
    holds: HOLDS_PREFIX,
    args_of_request: script_args,
};

fn script_args(name: &LockName, id: &str, publish: &str) -> ScriptArgs {
    let own = |prefix| format!("{}:{id}", own_key(prefix, name));
    let keys = [HOLDS_PREFIX, "distlock_fair_queue", "distlock_fair_waiters"];
    let mut keys: Vec<_> = keys.map(|prefix| own_key(prefix, name)).into();
    keys.push(own("distlock_fair_latch"));
    let channel = own("distlock_fair_channel");
    // What all waiters' channels begin with.
    let channels = vec![own_key("distlock_fair_channel", name) + ":", publish.to_owned()];
    ScriptArgs { keys, channel, is_shared: false, acquire: channels.clone(), release: channels }
}

pub(crate) struct Fair {
    server: RedisServer,
    scripts: Arc<HoldScripts>,
}

impl Fair {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { server: server.clone(), scripts: HoldScripts::new(server, &SCRIPTS) }
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

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_holds(
            LockKind::Fair,
            &self.server.connection(),
            KeyForm::Fair,
            &self.scripts,
        ))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.scripts.begin(request)
    }
}
