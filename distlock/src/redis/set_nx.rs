//! `set-nx`: `SET name owner NX PX lease`, freed by a bare DEL.
//!
//! How it works: the lease comes with the key, in one command. Guarantees exclusion among
//! processes while the work is shorter than the lease. Flaws:
//! - longer work has two holders, and its late DEL frees the successor's lock, so that a third
//!   enters beside the second;
//! - a key of any other kind is freed as well.
//!
//! An attempt without an answer is left to its lease: a DEL might free another's lock. Source: the
//! Redis documentation of SET. Test: `a_late_del_frees_the_successor_and_a_third_enters` in
//! `tests/basic_kinds.rs`.

use std::sync::Arc;

use redis::{ExistenceCheck, SetExpiry, SetOptions};
use tokio::time::Instant;

use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey, lease_ms};
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, guarantees,
};

#[derive(Clone)]
pub(crate) struct SetNx {
    connection: RedisConnection,
}

impl SetNx {
    pub(crate) fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection() }
    }
}

impl Locker for SetNx {
    fn name(&self) -> &'static str {
        LockKind::SetNx.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::SetNx)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::SetNx, &self.connection, KeyForm::Owner))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for SetNx {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        take(&mut self.connection, request).await
    }

    async fn has_no_expiry(&mut self, request: &Request) -> bool {
        one_key::has_no_expiry(&mut self.connection, &request.name).await
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        one_key::delete(&mut self.connection, &request.name).await
    }
}

/// `SET name owner NX PX lease`: how `owner-check` and `lua-release` take their keys, too.
pub(crate) async fn take(
    connection: &mut RedisConnection,
    request: &Request,
) -> Result<Option<Validity>, LockError> {
    let if_free = SetOptions::default()
        .conditional_set(ExistenceCheck::NX)
        .with_expiration(SetExpiry::PX(lease_ms(request)));
    let sent = Instant::now();
    let granted: Option<String> = redis::cmd("SET")
        .arg(request.name.as_str())
        .arg(request.owner.as_str())
        .arg(if_free)
        .query_async(connection)
        .await?;
    Ok(granted.map(|_| Validity::of_lease(sent, request.lease)))
}
