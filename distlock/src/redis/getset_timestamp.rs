//! `getset-timestamp`: the value is the time at which the lock ends, by its holder's clock.
//!
//! SETNX of now + lease; where the key is there and its time has passed by the caller's own clock,
//! GETSET of the same, and the lock is the caller's only if that returned the time it had seen.
//! There is no owner in the value and no lease on the key: a release is a DEL, unless one's own
//! clock says that one's time has passed, and a key that nobody wants any more stays for ever.
//! Guarantees exclusion among processes whose clocks agree, while the work is shorter than the
//! lease. Flaws: a clock that is fast takes the lock of a living holder; a loser's GETSET has
//! overwritten the winner's time, so the winner is let down early or keeps others out for longer;
//! work longer than the lease has two holders. An attempt without an answer is left to its lease.
//! Source: the Redis documentation of SETNX, "Design pattern: locking with SETNX". Tests:
//! `a_clock_that_is_fast_takes_the_lock_of_a_living_holder` and
//! `a_loser_overwrites_the_deadline_of_the_winner` in `tests/getset_timestamp.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::one_key::{self, OneKey, lease_ms};
use super::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Belief, Guarantees, LockError, LockKind, Locker, Release, Request, guarantees,
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

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        one_key::begin(Steps { locker: self.clone(), deadline_ms: 0 }, request)
    }
}

#[derive(Clone)]
struct Steps {
    locker: GetsetTimestamp,
    /// What the last attempt wrote, or meant to: the end of the lock by its own clock.
    deadline_ms: u64,
}

impl OneKey for Steps {
    async fn take(&mut self, request: &Request) -> Result<Option<Belief>, LockError> {
        let (sent, now_ms) = (Instant::now(), self.locker.now_ms());
        self.deadline_ms = now_ms.saturating_add(lease_ms(request));
        let (name, connection) = (request.name.as_str(), &mut self.locker.connection);
        let belief = Belief::in_lease(sent, request.lease);

        let mut setnx = redis::cmd("SETNX");
        setnx.arg(name).arg(self.deadline_ms);
        if setnx.query_async(connection).await? {
            return Ok(Some(belief));
        }
        let seen: Option<Vec<u8>> = redis::cmd("GET").arg(name).query_async(connection).await?;
        // It has just been freed: the next look may get it.
        let Some(seen) = seen else { return Ok(None) };
        if time_ms(&seen)? > now_ms {
            return Ok(None);
        }
        let mut getset = redis::cmd("GETSET");
        getset.arg(name).arg(self.deadline_ms);
        // Whoever loses here has written all the same.
        let before: Option<Vec<u8>> = getset.query_async(connection).await?;
        Ok((before == Some(seen)).then_some(belief))
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
