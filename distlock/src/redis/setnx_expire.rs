//! `setnx-expire`: SETNX, then EXPIRE as a second command, then a bare DEL.
//!
//! How it works: the two commands are sent one after the other. Guarantees exclusion among
//! processes while no holder dies, no connection breaks and no work is longer than its lease.
//! Flaws:
//! - a holder that dies between the two commands leaves a key without a lease, which keeps all
//!   others out for ever;
//! - without EXPIRE, each holder that dies does that;
//! - DEL removes the key of any owner;
//! - work longer than the lease has two holders.
//!
//! An attempt without an answer is left to the lease, if it got one. Source: the Redis
//! documentation of SETNX. Tests: `a_connection_lost_before_expire_leaves_the_lock_for_ever`
//! and `a_late_del_frees_the_successor_and_a_third_enters` in `tests/basic_kinds.rs`.

use std::sync::Arc;

use tokio::time::Instant;

use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey, lease_ms};
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, guarantees,
};

/// `setnx-expire`, and the rung before it, which never expires.
#[derive(Clone)]
pub struct SetnxExpire {
    connection: RedisConnection,
    expires: bool,
}

impl SetnxExpire {
    /// SETNX, then EXPIRE.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), expires: true }
    }

    /// SETNX alone, the very first rung: the key of a dead holder stays for ever. The holder's own
    /// validity ends with the lease it asked for.
    #[must_use]
    pub fn without_expire(server: &RedisServer) -> Self {
        Self { expires: false, ..Self::new(server) }
    }
}

impl Locker for SetnxExpire {
    fn name(&self) -> &'static str {
        LockKind::SetnxExpire.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::SetnxExpire)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::SetnxExpire, &self.connection, KeyForm::Owner))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for SetnxExpire {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        let sent = Instant::now();
        let mut setnx = redis::cmd("SETNX");
        setnx.arg(request.name.as_str()).arg(request.owner.as_str());
        let is_new: bool = setnx.query_async(&mut self.connection).await?;
        if !is_new {
            return Ok(None);
        }
        if self.expires {
            // The answer would show that another's late DEL had removed the key meanwhile. Code of
            // this kind does not look at it.
            let mut expire = redis::cmd("PEXPIRE");
            expire.arg(request.name.as_str()).arg(lease_ms(request));
            expire.exec_async(&mut self.connection).await?;
        }
        Ok(Some(Validity::of_lease(sent, request.lease)))
    }

    async fn has_no_expiry(&mut self, request: &Request) -> bool {
        self.expires && one_key::has_no_expiry(&mut self.connection, &request.name).await
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        one_key::delete(&mut self.connection, &request.name).await
    }
}
