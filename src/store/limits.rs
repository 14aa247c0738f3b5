//! Rate limits over all replicas, counted in Redis by its clock.
//!
//! A limit admits a burst, then one request an interval; a key lives until the burst is free again.
//! Keys are independent, so that a cluster may spread them. Two limits are checked in one round
//! trip.

use std::time::Duration;

use redis::Script;

use super::{RedisConnection, StoreError};

/// A rate: a number of requests in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many, all at once if need be; at least 1.
    pub most: u32,
    /// In how long all of them are free again.
    pub period: Duration,
}

/// Counts requests against rates.
#[derive(Clone)]
pub struct RateLimiter {
    connection: RedisConnection,
    take: Script,
    give_back: Script,
}

impl Rate {
    /// After how long one more is free.
    pub fn interval(&self) -> Duration {
        self.period / self.most.max(1)
    }
}

impl RateLimiter {
    /// A limiter with its counts in that Redis.
    pub fn new(connection: RedisConnection) -> Self {
        Self {
            connection,
            take: Script::new(include_str!("../../lua/limit/take.lua")),
            give_back: Script::new(include_str!("../../lua/limit/give_back.lua")),
        }
    }

    /// Counts one more for that name; if it is one too many, how long until the next is let in.
    pub async fn take(&self, name: &str, rate: Rate) -> Result<Option<Duration>, StoreError> {
        let interval_us = rate.interval().as_micros();
        let wait_ms: u64 = self
            .take
            .key(format!("limit:{name}"))
            .arg(u64::try_from(interval_us).unwrap_or(u64::MAX))
            .arg(u64::try_from(interval_us * u128::from(rate.most.max(1))).unwrap_or(u64::MAX))
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok((wait_ms > 0).then(|| Duration::from_millis(wait_ms)))
    }

    /// Takes one back that was counted for a request that came to nothing.
    pub async fn give_back(&self, name: &str, rate: Rate) -> Result<(), StoreError> {
        let interval_us = u64::try_from(rate.interval().as_micros()).unwrap_or(u64::MAX);
        self.give_back
            .key(format!("limit:{name}"))
            .arg(interval_us)
            .invoke_async::<()>(&mut self.connection.clone())
            .await?;
        Ok(())
    }
}
