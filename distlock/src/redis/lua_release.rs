//! `lua-release`: `SET name owner NX PX lease`, freed by a script that compares and deletes.
//!
//! The owner is a fresh UUID, so a late release cannot free a successor's lock. Guarantees
//! exclusion among processes while the work is shorter than the lease. Flaws: nothing renews the
//! lease, so longer work has two holders; a failover of Redis can forget the lock; the same owner
//! cannot enter twice. Source: the Redis documentation of SET, "Distributed locks with Redis".
//! Tests: `tests/lua_release.rs`, `loadtest compare`.

use async_trait::async_trait;
use redis::aio::ConnectionManager;
use redis::{ExistenceCheck, Script, SetExpiry, SetOptions};
use tokio::time::Instant;

use super::RedisServer;
use crate::{
    Acquisition, Belief, Guarantees, Hold, LockError, LockKind, Locker, Release, Request,
    guarantees,
};

const RELEASE: &str = include_str!("../../lua/release_if_owner.lua");

pub(crate) struct LuaRelease {
    connection: ConnectionManager,
    release: Script,
}

impl LuaRelease {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), release: Script::new(RELEASE) }
    }
}

impl Locker for LuaRelease {
    fn name(&self) -> &'static str {
        LockKind::LuaRelease.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::LuaRelease)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let (connection, release) = (self.connection.clone(), self.release.clone());
        Box::new(LuaAcquisition { connection, release, request })
    }
}

struct LuaAcquisition {
    connection: ConnectionManager,
    release: Script,
    request: Request,
}

#[async_trait]
impl Acquisition for LuaAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let request = &self.request;
        let lease_ms = u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX);
        let sent = Instant::now();
        let granted: Option<String> = redis::cmd("SET")
            .arg(request.name.as_str())
            .arg(request.owner.as_str())
            .arg(
                SetOptions::default()
                    .conditional_set(ExistenceCheck::NX)
                    .with_expiration(SetExpiry::PX(lease_ms)),
            )
            .query_async(&mut self.connection)
            .await?;
        Ok(granted.map(|_| {
            let belief = Belief::in_lease(sent, request.lease);
            let (connection, release) = (self.connection.clone(), self.release.clone());
            Box::new(LuaHold { connection, release, request: request.clone(), belief })
                as Box<dyn Hold>
        }))
    }

    /// Sends the whole script: a server that is hung now, and carries out the attempt and then this
    /// when it wakes up, has no way to ask for it.
    async fn abandon(&mut self) -> Result<(), LockError> {
        redis::cmd("EVAL")
            .arg(RELEASE)
            .arg(1)
            .arg(self.request.name.as_str())
            .arg(self.request.owner.as_str())
            .exec_async(&mut self.connection)
            .await?;
        Ok(())
    }
}

struct LuaHold {
    connection: ConnectionManager,
    release: Script,
    request: Request,
    belief: Belief,
}

#[async_trait]
impl Hold for LuaHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let freed: i64 = self
            .release
            .key(self.request.name.as_str())
            .arg(self.request.owner.as_str())
            .invoke_async(&mut self.connection)
            .await?;
        Ok(match freed {
            1 => Release::Released,
            0 => Release::HeldByOther,
            _ => Release::Gone,
        })
    }
}
