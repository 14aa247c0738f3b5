//! What an acquisition may leave behind besides the lock: subscriptions, on either side, and
//! connections that are not given back to their pool.

use distlock::{Backends, LockName, Locks, RedisServer};
use std::time::Duration;
use testbed::Redis;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use conformance::warm_up;

use crate::arena::{Arena, LONG};

/// What is a process of its own, as far as a server can see, with its ways to the servers.
pub(crate) struct Process<'a> {
    pub(crate) locks: Locks,
    backends: Backends,
    arena: &'a Arena,
}

impl<'a> Process<'a> {
    pub(crate) async fn of(arena: &'a Arena) -> Self {
        let backends = arena.backends().await;
        let locks = Locks::new(arena.locker(&backends).expect("its servers are there"));
        warm_up(&locks).await.expect("its servers answer");
        Self { locks, backends, arena }
    }

    /// Two of them; both have the same locks where processes do not meet.
    pub(crate) async fn two(arena: &'a Arena) -> (Self, Self) {
        let (one, mut other) = (Self::of(arena).await, Self::of(arena).await);
        if !arena.promise.is_on_a_server() {
            other.locks = one.locks.clone();
        }
        (one, other)
    }

    /// Waits until nothing is left of what this process did with that name; it does nothing else.
    pub(crate) async fn assert_idle(&self, name: &LockName, what: &str) {
        let deadline = Instant::now() + LONG;
        while let Some(residue) = self.residue(name) {
            assert!(Instant::now() < deadline, "{residue} of {what}");
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn residue(&self, name: &LockName) -> Option<String> {
        let ways = self.backends.redis.iter().chain(&self.backends.independent_redis);
        let channels: usize = ways.map(RedisServer::subscribed_channels).sum();
        if channels > 0 {
            return Some(format!("{channels} subscriptions are left"));
        }
        if let Some(server) = &self.backends.mysql {
            let pool = server.pool();
            let out = usize::try_from(pool.size()).unwrap_or(0).saturating_sub(pool.num_idle());
            if out > 0 {
                return Some(format!("{out} connections are left"));
            }
        }
        let heard = |server: &Redis| {
            let pattern = format!("*{name}*");
            let channels = block_in_place(|| server.command(&["PUBSUB", "CHANNELS", &pattern]));
            let channels = channels.expect("Redis answers");
            (!channels.is_empty()).then(|| format!("{channels} has listeners"))
        };
        let one = self.backends.redis.iter().map(|_| self.arena.servers.redis());
        let many = match self.backends.independent_redis[..] {
            [] => &[][..],
            _ => self.arena.servers.independent_redis(),
        };
        one.chain(many).find_map(heard)
    }
}
