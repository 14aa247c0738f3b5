//! Leases on the event streams of a user, over all replicas: a sorted set in Redis for each user
//! with a stream. A lease ends by itself if its replica does not prolong it.

use std::time::Duration;

use redis::Script;
use uuid::Uuid;

use super::{RedisConnection, StoreError};
use crate::domain::UserId;

/// The leases of all users. Cheap to clone.
#[derive(Clone)]
pub struct StreamLeases {
    connection: RedisConnection,
    take: Script,
    most: u32,
    length: Duration,
}

impl StreamLeases {
    /// Leases in that Redis: the most of a user, and how long each lasts.
    pub fn new(connection: RedisConnection, most: u32, length: Duration) -> Self {
        let take = Script::new(include_str!("../../lua/limit/stream.lua"));
        Self { connection, take, most, length }
    }

    /// How long a lease lasts that is not prolonged.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Takes or prolongs the lease of a stream; `false` if other streams of the user have all.
    pub async fn take(&self, user: UserId, stream: Uuid) -> Result<bool, StoreError> {
        let mut call = self.take.key(key(user));
        call.arg(stream.to_string()).arg(self.most);
        call.arg(u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX));
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    /// Gives a lease back.
    pub async fn give_back(&self, user: UserId, stream: Uuid) -> Result<(), StoreError> {
        let mut remove = redis::cmd("ZREM");
        remove.arg(key(user)).arg(stream.to_string());
        Ok(remove.exec_async(&mut self.connection.clone()).await?)
    }
}

fn key(user: UserId) -> String {
    format!("streams:{user}")
}
