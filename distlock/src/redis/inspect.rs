//! The state of a lock of Redisson's `RLock`, and its `forceUnlock`, for tools and operators. A
//! holder asks its [`Guard`](crate::Guard) instead.

use std::time::Duration;

use redis::AsyncCommands;

use super::RedisServer;
use super::script::LuaScript;
use super::signal::WAKE_ONE;
use crate::kinds::redis::redisson::channel;
use crate::{LockError, LockName, Owner};

const FORCE_UNLOCK_SCRIPT: &str = include_str!("../../lua/redisson_force_unlock.lua");

/// What the script takes for every owner.
pub(crate) const ANY_OWNER: &str = "*";

/// A lock of the kind `redisson`, looked at from outside. Every answer may be out of date when it
/// comes. Each method fails with [`LockError::Backend`] if the server does not answer, and with
/// [`LockError::HeldByOtherKind`] if the name is no such lock.
#[derive(Clone)]
pub struct RedissonLock {
    server: RedisServer,
    name: LockName,
}

impl RedissonLock {
    /// The lock of that name. Sends nothing yet.
    #[must_use]
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        Self { server: server.clone(), name }
    }

    /// Whether the lock is held.
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        let holds: Vec<String> = self.server.connection().hvals(self.name.as_str()).await?;
        match &holds[..] {
            [] => Ok(false),
            [count] if count.parse::<u64>().is_ok() => Ok(true),
            _ => Err(LockError::HeldByOtherKind),
        }
    }

    /// Whether that owner holds it.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, LockError> {
        let mut connection = self.server.connection();
        Ok(connection.hexists(self.name.as_str(), owner.as_str()).await?)
    }

    /// How often that owner holds it: once, and once more for each re-entry.
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, LockError> {
        let mut connection = self.server.connection();
        let count: Option<u64> = connection.hget(self.name.as_str(), owner.as_str()).await?;
        Ok(count.unwrap_or(0))
    }

    /// How long its lease lasts without a renewal; `None` if the lock is free. [`Duration::MAX`] if
    /// it has no end, which only other programs make.
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, LockError> {
        let left_ms: i64 = self.server.connection().pttl(self.name.as_str()).await?;
        Ok(match left_ms {
            -1 => Some(Duration::MAX),
            left_ms => u64::try_from(left_ms).ok().map(Duration::from_millis),
        })
    }

    /// Frees the lock of any owner with any hold count; its holder notices at its next renewal.
    /// Returns whether it was held.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        let channel = channel(&self.name);
        let keys = [self.name.as_str(), &channel];
        let mut connection = self.server.connection();
        let args = (WAKE_ONE, self.server.publish(), ANY_OWNER);
        Ok(LuaScript::new(FORCE_UNLOCK_SCRIPT).call(&mut connection, &keys, args).await?)
    }
}
