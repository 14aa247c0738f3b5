//! A replica of Redis that lags. What the master says to it is dropped on its way until it is
//! promoted; one that is merely paused would find it in its socket.

use testbed::{Direction, Proxy, Redis, RedisMaster, RedisOptions};

use crate::deadline::eventually;
use crate::servers::Servers;

/// A replica, and the way on which its master speaks to it. Everything here panics, with the
/// reason, if a server does not obey.
pub struct Replica {
    redis: Redis,
    link: Proxy,
}

impl Replica {
    /// One that has all that its master has, and is online.
    pub fn of(servers: &Servers, master: &Redis) -> Self {
        let link = Proxy::before(master.addr()).expect("a proxy");
        let addressed = RedisMaster { addr: link.addr(), ..master.as_master() };
        let options = RedisOptions { replica_of: Some(addressed), ..RedisOptions::default() };
        let redis = servers.bed().redis(options).expect("Redis is installed");
        // As long as its master does not call it online, it confirms nothing.
        let online = format!("port={},state=online", redis.addr().port());
        eventually("it is online", || {
            master.command(&["INFO", "replication"]).expect("an answer").contains(&online)
        });
        Self { redis, link }
    }

    /// The server itself.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// From now on it receives nothing.
    pub fn cut_off(&self) {
        self.link.set_swallowing(Direction::ToClient, true);
    }

    /// Whether it knows that key.
    pub fn has(&self, name: &str) -> bool {
        self.redis.command(&["EXISTS", name]).expect("an answer").trim() == "1"
    }

    /// Takes the place of its master, without that key, which it never received.
    pub fn succeed(&self, master: &Redis, forgets: &str) {
        eventually("it was told", || self.link.counts().swallowed_to_client > 0);
        master.kill().expect("it is killed");
        self.redis.promote().expect("an answer");
        let state = self.redis.command(&["INFO", "replication"]).expect("an answer");
        assert!(state.contains("role:master"), "{state}");
        assert!(!self.has(forgets), "it does not lag");
    }
}
