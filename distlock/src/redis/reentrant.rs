//! `reentrant`: a hash with one field, the owner, whose value counts its holds.
//!
//! Scripts count up and down, so comparing and changing are one step. Each re-entry and each inner
//! release sets the lease again, with its own hold's lease, but never shortens what the owner's
//! other holds believe in. Guarantees exclusion among processes while the work is shorter than the
//! lease, and lets the same owner enter again. Flaws: nothing renews the lease, so longer work has
//! two holders; an answer that is lost on re-entry counts twice, if it is asked for again, and the
//! lock then stays until its lease ends. An attempt without an answer is left to its lease as well:
//! to count it down might free an outer hold. Holds of one owner are not told apart, so an owner
//! whose hold is gone cannot enter again ([`LockError::Lost`]): a stale guard would free the new
//! hold. A hold that is somebody else's answers [`Release::HeldByOther`]. Source: what Redisson's
//! `RLock` is made of, without its messages and its watchdog. Tests: `tests/reentrant.rs`.

use std::sync::Arc;

use tokio::time::Instant;

use super::one_key::{self, OneKey, lease_ms};
use super::script::LuaScript;
use super::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Belief, Guarantees, LockError, LockKind, Locker, Release, Request, guarantees,
};

const ACQUIRE: &str = include_str!("../../lua/reentrant_acquire.lua");
const RELEASE: &str = include_str!("../../lua/reentrant_release.lua");

#[derive(Clone)]
pub(crate) struct Reentrant {
    connection: RedisConnection,
    acquire: Arc<LuaScript>,
    release: Arc<LuaScript>,
    /// Whether the holder's key has no lease.
    is_endless: bool,
}

impl Reentrant {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let (acquire, release) = (LuaScript::new(ACQUIRE), LuaScript::new(RELEASE));
        let (acquire, release) = (Arc::new(acquire), Arc::new(release));
        Self { connection: server.connection(), acquire, release, is_endless: false }
    }
}

impl Locker for Reentrant {
    fn name(&self) -> &'static str {
        LockKind::Reentrant.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Reentrant)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for Reentrant {
    async fn take(&mut self, request: &Request) -> Result<Option<Belief>, LockError> {
        let sent = Instant::now();
        let keys = [request.name.as_str()];
        let again = u8::from(request.may_hold);
        let args = (request.owner.as_str(), lease_ms(request), again);
        let holds: i64 = self.acquire.call(&mut self.connection, &keys, args).await?;
        self.is_endless = holds < 0;
        Ok((holds > 0).then(|| Belief::in_lease(sent, request.lease)))
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        let (keys, args) = ([request.name.as_str()], (request.owner.as_str(), lease_ms(request)));
        Ok(match self.release.call::<i64>(&mut self.connection, &keys, args).await? {
            0.. => Release::Released,
            -1 => Release::HeldByOther,
            _ => Release::Gone,
        })
    }
}
