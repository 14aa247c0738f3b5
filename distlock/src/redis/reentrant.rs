//! `reentrant`: a hash with one field, the owner, whose value counts its holds.
//!
//! How it works: scripts count up and down, so comparing and changing are one step. Each re-entry
//! and each inner release sets the lease again, to its own hold's lease. It never shortens the
//! validity of the owner's other holds. Guarantees exclusion among processes while the work is
//! shorter than the lease, and re-entry by the same owner. Flaws:
//! - the lease is not renewed, so longer work has two holders;
//! - a re-entry whose answer was lost counts twice if it is repeated; the lock then stays until its
//!   lease ends.
//!
//! An attempt without an answer is left to its lease: to count it down might free an outer hold.
//! The holds of an owner have no names. So an owner whose hold has ended cannot enter again
//! ([`LockError::Lost`]): a stale guard would free the new hold. A release of another owner's hold
//! returns [`Release::HeldByOther`]. Source: Redisson's `RLock` without its messages and its
//! watchdog. Tests: `tests/reentrant.rs`.

use std::future::{Future, ready};
use std::sync::Arc;

use tokio::time::Instant;

use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey, lease_ms};
use crate::redis::script::LuaScript;
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, guarantees,
};

const ACQUIRE_SCRIPT: &str = include_str!("../../lua/reentrant_acquire.lua");
const RELEASE_SCRIPT: &str = include_str!("../../lua/reentrant_release.lua");

#[derive(Clone)]
pub(crate) struct Reentrant {
    connection: RedisConnection,
    acquire: Arc<LuaScript>,
    release: Arc<LuaScript>,
    /// Whether the holder's key has no lease.
    has_no_expiry: bool,
}

impl Reentrant {
    pub(crate) fn new(server: &RedisServer) -> Self {
        let (acquire, release) = (LuaScript::new(ACQUIRE_SCRIPT), LuaScript::new(RELEASE_SCRIPT));
        let (acquire, release) = (Arc::new(acquire), Arc::new(release));
        Self { connection: server.connection(), acquire, release, has_no_expiry: false }
    }
}

impl Locker for Reentrant {
    fn name(&self) -> &'static str {
        LockKind::Reentrant.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Reentrant)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::Reentrant, &self.connection, KeyForm::Hash))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for Reentrant {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        let sent = Instant::now();
        let keys = [request.name.as_str()];
        let again = u8::from(request.may_hold);
        let args = (request.owner.as_str(), lease_ms(request), again);
        let holds: i64 = self.acquire.call(&mut self.connection, &keys, args).await?;
        self.has_no_expiry = holds < 0;
        Ok((holds > 0).then(|| Validity::of_lease(sent, request.lease)))
    }

    fn has_no_expiry(&mut self, _request: &Request) -> impl Future<Output = bool> + Send {
        ready(self.has_no_expiry)
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
