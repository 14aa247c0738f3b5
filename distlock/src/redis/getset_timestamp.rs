//! `getset-timestamp`: the value is the time at which the lock ends, by its holder's clock.
//!
//! How it works: SETNX of now + lease, by the caller's clock. If the key exists and its time has
//! passed by that clock, GETSET of the same. The lock is the caller's only if GETSET returned the
//! time that it had seen. The value has no owner and the key no lease. A release is a DEL, unless
//! the holder's clock says that its time has passed. So an unused key stays for ever.
//!
//! Guarantees exclusion among processes whose clocks agree, while the work is shorter than the
//! lease. Flaws:
//! - a clock that is fast takes the lock of a living holder;
//! - a loser's GETSET overwrites the winner's time, so the winner's lock ends early or lasts too
//!   long;
//! - work longer than the lease has two holders.
//!
//! An attempt without an answer is left to its lease. Source: the Redis documentation of SETNX,
//! "Design pattern: locking with SETNX". Tests:
//! `a_clock_that_is_fast_takes_the_lock_of_a_living_holder` and
//! `a_loser_overwrites_the_deadline_of_the_winner` in `tests/getset_timestamp.rs`.

use std::sync::Arc;

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::one_key::{self, OneKey, lease_ms};
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, guarantees,
};

/// `getset-timestamp`, by this machine's wall clock or another.
#[derive(Clone)]
pub struct GetsetTimestamp {
    connection: RedisConnection,
    clock: fn() -> SystemTime,
}

impl GetsetTimestamp {
    /// By this machine's wall clock.
    pub fn new(server: &RedisServer) -> Self {
        Self::with_clock(server, SystemTime::now)
    }

    /// By that clock: a machine whose time is wrong. To show the flaw.
    pub fn with_clock(server: &RedisServer, clock: fn() -> SystemTime) -> Self {
        Self { connection: server.connection(), clock }
    }

    fn now_ms(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Locker for GetsetTimestamp {
    fn name(&self) -> &'static str {
        LockKind::GetsetTimestamp.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::GetsetTimestamp)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(LockKind::GetsetTimestamp, &self.connection, KeyForm::Deadline))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(GetsetSteps { locker: self.clone(), deadline_ms: 0 }, request)
    }
}

#[derive(Clone)]
struct GetsetSteps {
    locker: GetsetTimestamp,
    /// What the last attempt wrote, or meant to: the end of the lock by its own clock.
    deadline_ms: u64,
}

impl OneKey for GetsetSteps {
    async fn take(&mut self, request: &Request) -> Result<Option<Validity>, LockError> {
        let (sent, now_ms) = (Instant::now(), self.locker.now_ms());
        self.deadline_ms = now_ms.saturating_add(lease_ms(request));
        let (name, connection) = (request.name.as_str(), &mut self.locker.connection);
        let validity = Validity::of_lease(sent, request.lease);

        let mut setnx = redis::cmd("SETNX");
        setnx.arg(name).arg(self.deadline_ms);
        if setnx.query_async(connection).await? {
            return Ok(Some(validity));
        }
        let seen: Option<Vec<u8>> = redis::cmd("GET").arg(name).query_async(connection).await?;
        // It has just been freed: the next look may get it.
        let Some(seen) = seen else { return Ok(None) };
        if time_ms(&seen)? > now_ms {
            return Ok(None);
        }
        let mut getset = redis::cmd("GETSET");
        getset.arg(name).arg(self.deadline_ms);
        // The loser has overwritten the time all the same.
        let before: Option<Vec<u8>> = getset.query_async(connection).await?;
        Ok((before == Some(seen)).then_some(validity))
    }

    async fn free(&mut self, request: &Request) -> Result<Release, LockError> {
        if self.locker.now_ms() >= self.deadline_ms {
            return Ok(Release::Gone);
        }
        one_key::delete(&mut self.locker.connection, &request.name).await
    }
}

fn time_ms(value: &[u8]) -> Result<u64, LockError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or(LockError::HeldByOtherKind)
}
