//! `owner-check`: as `set-nx`, freed by GET, a comparison in the client, DEL.
//!
//! How it works: the value is the owner, which a release compares first. Guarantees exclusion among
//! processes while the work is shorter than the lease. A late holder frees no other owner's lock,
//! unless it pauses between GET and DEL. Flaws:
//! - that pause;
//! - an owner that is a number of the process is equal in two replicas, so the comparison proves
//!   nothing;
//! - work longer than the lease has two holders.
//!
//! An attempt without an answer is given back in the same two steps. Source: what most tutorials
//! say after `set-nx`. Tests: `a_pause_between_get_and_del_frees_the_successor` and
//! `owners_that_are_numbers_of_the_process_collide_between_replicas` in `tests/basic_kinds.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::set_nx;
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey};
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Owner, Release, Request,
    Validity, guarantees,
};

/// `owner-check`, with owners that are unique, or that only seem to be.
#[derive(Clone)]
pub struct OwnerCheckLock {
    connection: RedisConnection,
    /// The last owner, where owners are numbers.
    last_number: Option<Arc<AtomicU64>>,
}

impl OwnerCheckLock {
    /// Each acquisition has a unique owner.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), last_number: None }
    }

    /// Owners are 1, 2, 3 and so on, as the thread ids of a process are. Each replica counts from
    /// 1, so two of them have the same owner. It shows that flaw.
    #[must_use]
    pub fn with_process_numbers(server: &RedisServer) -> Self {
        Self { last_number: Some(Arc::default()), ..Self::new(server) }
    }
}

impl Locker for OwnerCheckLock {
    fn name(&self) -> &'static str {
        LockKind::OwnerCheck.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::OwnerCheck)
    }

    fn fresh_owner(&self) -> Owner {
        let Some(last) = &self.last_number else { return Owner::fresh() };
        let number = last.fetch_add(1, Ordering::Relaxed) + 1;
        Owner::from_text(number.to_string())
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::OwnerCheck, &self.connection, KeyForm::Owner))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(self.clone(), request)
    }
}

impl OneKey for OwnerCheckLock {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        set_nx::take(&mut self.connection, request).await
    }

    async fn has_no_expiry(&mut self, request: &Request) -> bool {
        one_key::has_no_expiry(&mut self.connection, &request.name).await
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        let mut get = redis::cmd("GET");
        get.arg(request.name.as_str());
        let owner: Option<Vec<u8>> = get.query_async(&mut self.connection).await?;
        match owner {
            None => Ok(Release::Gone),
            Some(owner) if owner != request.owner.as_str().as_bytes() => Ok(Release::HeldByOther),
            // From here on the key may become another's before it is deleted.
            Some(_) => one_key::delete(&mut self.connection, &request.name).await,
        }
    }

    async fn give_back(&mut self, request: &Request) -> Result<(), LockError> {
        self.free(request).await.map(|_| ())
    }
}
