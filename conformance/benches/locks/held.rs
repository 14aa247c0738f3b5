//! Many locks that are held: what a renewal costs then.
//!
//! A process of its own holds them, on a Redis of its own, so that a few and many can be measured
//! in turn. Few have a short lease, so that what is done whether or not anything is renewed is a
//! small part of what is measured.

use std::time::Duration;

use conformance::protocol::LockRequest;
use conformance::{Addresses, Contender, Servers, fresh_name, setup};
use distlock::BoxFuture;
use distlock::LockKind;
use loadtest_measure::error::{Error, Result};
use testbed::{Redis, RedisOptions};
use tokio::time::sleep;

use crate::cell::{Cell, Slice, broken};
use crate::crowd::ResourceUse;

/// How many are asked for at once.
const AT_ONCE: usize = 500;

/// A process that holds locks.
pub(crate) struct HeldLocks {
    redis: Redis,
    locks: usize,
    processes: [u32; 2],
    _contender: Contender,
}

impl HeldLocks {
    /// Takes `locks` locks that are renewed for `lease` at a time.
    pub(crate) fn take(servers: &Servers, locks: usize, lease: Duration) -> Result<Self> {
        let redis = servers.bed().redis(RedisOptions::default()).map_err(broken("a Redis"))?;
        let addresses = Addresses { redis: Some(redis.url().to_owned()), ..Addresses::default() };
        let mut setup = setup(servers, LockKind::Redisson);
        (setup.addresses, setup.token_source) = (addresses, None);
        let contender = Contender::start_as(servers, &setup);
        let mut left = locks;
        while left > 0 {
            let some = left.min(AT_ONCE);
            let take = |_| contender.lock_later(&LockRequest::new(&fresh_name(), lease));
            let pending: Vec<_> = (0..some).map(take).collect();
            for pending in pending {
                let failed = |failure| Error::Setup(format!("a lock to hold: {failure:?}"));
                pending.wait().map_err(failed)?;
            }
            left -= some;
        }
        let processes = [contender.pid(), redis.pid()];
        Ok(Self { redis, locks, processes, _contender: contender })
    }

    /// Every one sets a lease.
    fn renewals(&self) -> Result<u64> {
        let stats = self.redis.command(&["INFO", "commandstats"]).map_err(broken("INFO"))?;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_pexpire:calls="));
        let calls = calls.and_then(|calls| calls.split(',').next()?.parse().ok());
        calls.ok_or_else(|| Error::Setup(format!("INFO commandstats says {stats:?}")))
    }
}

impl Cell for HeldLocks {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let before = self.renewals()?;
            let used = ResourceUse::from_now(&self.processes);
            sleep(length).await;
            let slice = used.slice(self.renewals()? - before);
            let keys = self.redis.command(&["DBSIZE"]).map_err(broken("DBSIZE"))?;
            match keys.trim().parse::<usize>() {
                Ok(keys) if keys >= self.locks => Ok(slice),
                _ => Err(Error::Setup(format!("of {} locks {keys} are held", self.locks))),
            }
        })
    }
}
