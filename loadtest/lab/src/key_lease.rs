//! The lease of a lock as its Redis has it: how long its key lives on.

use loadtest_measure::error::Result;

use crate::deployment::Deployment;
use crate::redis_stream::{RedisStream, failed};

/// The question for the lease. MONITOR tells commands as they were written: in small letters it
/// differs from those of locks.
pub(super) const PTTL: &str = "pttl";

/// What Redis says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLease {
    /// There is no such key.
    Free,
    /// The key stays until it is removed.
    NoExpiry,
    /// The milliseconds after which the key ends by itself.
    Left(u64),
}

/// Reads leases on a connection of its own.
pub struct LeaseReader(RedisStream);

impl LeaseReader {
    /// Connects to the Redis that the lock of the deployment lives on: the first of several.
    pub async fn connect(deployment: &Deployment) -> Result<Self> {
        let select = ["SELECT", &deployment.redis_database().to_string()].join(" ");
        RedisStream::open(deployment, &select).await.map(Self)
    }

    /// The lease of that key now. A reader whose answer was not awaited must not be used again.
    pub async fn read(&mut self, key: &str) -> Result<KeyLease> {
        let answer = self.0.ask(&format!("{PTTL} {key}")).await?;
        let left = answer.strip_prefix(':').and_then(|left| left.parse::<i64>().ok());
        match left {
            Some(-2) => Ok(KeyLease::Free),
            Some(-1) => Ok(KeyLease::NoExpiry),
            Some(left) => Ok(KeyLease::Left(u64::try_from(left).unwrap_or(0))),
            None => Err(failed(answer)),
        }
    }
}
