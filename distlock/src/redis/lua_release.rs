//! `lua-release`: `SET name owner NX PX lease`, freed by a script that compares and deletes, or by
//! the server's command for that.
//!
//! How it works: the owner is a fresh UUID, so a late release frees no successor's lock. Guarantees
//! exclusion among processes while the work is shorter than the lease. Flaws: nothing renews the
//! lease, so longer work has two holders; a failover of Redis can forget the lock; the same owner
//! cannot enter twice. Source: the Redis documentation of SET, "Distributed locks with Redis".
//! Tests: `tests/lua_release.rs`, `loadtest compare`.

use std::sync::Arc;

use super::set_nx;
use crate::redis::compare_and_delete::CompareAndDelete;
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey};
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, guarantees,
};

#[derive(Clone)]
pub(crate) struct LuaRelease {
    connection: RedisConnection,
    release: Arc<CompareAndDelete>,
}

impl LuaRelease {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), release: Arc::new(CompareAndDelete::new()) }
    }
}

impl Locker for LuaRelease {
    fn name(&self) -> &'static str {
        LockKind::LuaRelease.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::LuaRelease)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::LuaRelease, &self.connection, KeyForm::Owner))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for LuaRelease {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        set_nx::take(&mut self.connection, request).await
    }

    async fn has_no_expiry(&mut self, request: &Request) -> bool {
        one_key::has_no_expiry(&mut self.connection, &request.name).await
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        let (name, owner) = (request.name.as_str(), request.owner.as_str());
        Ok(match self.release.call(&mut self.connection, name, owner).await? {
            1 => Release::Released,
            0 => Release::HeldByOther,
            _ => Release::Gone,
        })
    }

    /// Sends the script's text: a server that is hung now may run both the attempt and this later.
    async fn give_back(&mut self, request: &Request) -> Result<(), LockError> {
        let (name, owner) = (request.name.as_str(), request.owner.as_str());
        self.release.call_whole(&mut self.connection, name, owner).await?;
        Ok(())
    }
}
