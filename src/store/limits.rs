//! How often somebody may ask, over all replicas: counted in Redis, by its clock.
//!
//! So many at once, then one an interval; a key lives only until all of it is free again. Keys
//! stand alone, so that on a cluster each is where its slot is. Who needs two asks for both at
//! once, in one round trip.

use std::time::Duration;

use redis::Script;

use super::{RedisConnection, StoreError};

/// So many in that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many, all at once if need be; at least 1.
    pub most: u32,
    /// In how long all of them are free again.
    pub period: Duration,
}

/// The limits.
#[derive(Clone)]
pub struct Limits {
    connection: RedisConnection,
    take: Script,
}

impl Limits {
    /// Limits in that Redis.
    pub fn new(connection: RedisConnection) -> Self {
        Self { connection, take: Script::new(include_str!("../../lua/limit/take.lua")) }
    }

    /// Counts one more for that name; if it is one too many, how long until the next is let in.
    pub async fn take(&self, name: &str, rate: Rate) -> Result<Option<Duration>, StoreError> {
        let interval_us = rate.period.as_micros() / u128::from(rate.most.max(1));
        let wait_ms: u64 = self
            .take
            .key(format!("limit:{name}"))
            .arg(u64::try_from(interval_us).unwrap_or(u64::MAX))
            .arg(u64::try_from(interval_us * u128::from(rate.most.max(1))).unwrap_or(u64::MAX))
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok((wait_ms > 0).then(|| Duration::from_millis(wait_ms)))
    }
}
