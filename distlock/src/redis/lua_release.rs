//! `lua-release`: `SET name owner NX PX lease`, freed by a script that compares and deletes.
//!
//! The owner is a fresh UUID, so a late release cannot free a successor's lock. Guarantees
//! exclusion among processes while the work is shorter than the lease. Flaws: nothing renews the
//! lease, so longer work has two holders; a failover of Redis can forget the lock; the same owner
//! cannot enter twice. Source: the Redis documentation of SET, "Distributed locks with Redis".
//! Tests: `tests/lua_release.rs`, `loadtest compare`.

use std::time::Instant;

use async_trait::async_trait;
use redis::aio::ConnectionManager;
use redis::{ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::{
    Attempt, Belief, Fencing, Guarantees, Hold, HoldKind, Idempotence, LockError, Locker,
    OwnerCheck, Release, Request, Wake, WakeKind,
};

pub(crate) const GUARANTEES: Guarantees = Guarantees {
    hold: HoldKind::Lease,
    renewal: false,
    wake: WakeKind::Poll,
    owner_checked: OwnerCheck::Atomic,
    idempotent: Idempotence::Yes,
    reentrant: false,
    fair: false,
    fencing: Fencing::No,
    flaws: &["work longer than the lease has two holders"],
};

const RELEASE: &str = include_str!("../../lua/release_if_owner.lua");

pub(crate) struct LuaRelease {
    connection: ConnectionManager,
    release: Script,
}

impl LuaRelease {
    pub(crate) fn new(connection: ConnectionManager) -> Self {
        Self { connection, release: Script::new(RELEASE) }
    }

    fn hold(&self, request: &Request, belief: Belief) -> LuaHold {
        LuaHold {
            connection: self.connection.clone(),
            release: self.release.clone(),
            request: request.clone(),
            belief,
        }
    }
}

#[async_trait]
impl Locker for LuaRelease {
    fn guarantees(&self) -> Guarantees {
        GUARANTEES
    }

    async fn acquire(&self, request: &Request) -> Result<Attempt, LockError> {
        let lease_ms = u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX);
        let sent = Instant::now();
        let granted: Option<String> = redis::cmd("SET")
            .arg(request.name.as_str())
            .arg(request.owner.to_string())
            .arg(
                SetOptions::default()
                    .conditional_set(ExistenceCheck::NX)
                    .with_expiration(SetExpiry::PX(lease_ms)),
            )
            .query_async(&mut self.connection.clone())
            .await?;
        if granted.is_none() {
            return Ok(Attempt::Busy(Wake::Poll));
        }
        let belief = Belief::in_lease(sent, request.lease);
        Ok(Attempt::Held(Box::new(self.hold(request, belief))))
    }

    /// Sends the whole script: a server that is hung now, and carries out the attempt and then this
    /// when it wakes up, has no way to ask for it.
    async fn abandon(&self, request: &Request) -> Result<(), LockError> {
        redis::cmd("EVAL")
            .arg(RELEASE)
            .arg(1)
            .arg(request.name.as_str())
            .arg(request.owner.to_string())
            .exec_async(&mut self.connection.clone())
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

    async fn release(mut self: Box<Self>) -> Result<Release, LockError> {
        let freed: i64 = self
            .release
            .key(self.request.name.as_str())
            .arg(self.request.owner.to_string())
            .invoke_async(&mut self.connection)
            .await?;
        Ok(match freed {
            1 => Release::Released,
            0 => Release::HeldByOther,
            _ => Release::Gone,
        })
    }
}
