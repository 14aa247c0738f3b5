//! The lease of a lock as its server has it: how long its key lives on in Redis, or its row in the
//! database.

use loadtest_judge::audit::DatabaseReader;
use loadtest_measure::error::Result;

use crate::deployment::Deployment;
use crate::lock::Lock;
use crate::redis_stream::{RedisStream, failed};

/// The question for the lease. MONITOR tells commands as they were written: in small letters it
/// differs from those of locks.
pub(super) const PTTL: &str = "pttl";

/// What the server says of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLease {
    /// It has no holder.
    Free,
    /// The key stays until it is removed.
    NoExpiry,
    /// The milliseconds after which the hold ends by itself.
    Left(u64),
}

/// Reads leases on a connection of its own.
pub struct LeaseReader(Source);

enum Source {
    Redis(RedisStream),
    /// Of rows of `mysql-table`.
    Database(DatabaseReader),
}

impl LeaseReader {
    /// Connects to the server that the deployment's lock lives on: the first of several.
    pub async fn connect(deployment: &Deployment, lock: Lock) -> Result<Self> {
        Ok(Self(if lock.is_in_the_database() {
            Source::Database(DatabaseReader::connect(&deployment.database_url()).await?)
        } else {
            let select = ["SELECT", &deployment.redis_database().to_string()].join(" ");
            Source::Redis(RedisStream::open(deployment, &select).await?)
        }))
    }

    /// The lease now, by [`Lock::lease_key`]. A reader whose answer was not awaited must not be
    /// used again.
    pub async fn read(&mut self, key: &str) -> Result<KeyLease> {
        let redis = match &mut self.0 {
            Source::Redis(redis) => redis,
            Source::Database(database) => {
                let left = database.lock_lease(key).await?;
                return Ok(left.map_or(KeyLease::Free, KeyLease::Left));
            }
        };
        let answer = redis.ask(&format!("{PTTL} {key}")).await?;
        let left = answer.strip_prefix(':').and_then(|left| left.parse::<i64>().ok());
        match left {
            Some(-2) => Ok(KeyLease::Free),
            Some(-1) => Ok(KeyLease::NoExpiry),
            Some(left) => Ok(KeyLease::Left(u64::try_from(left).unwrap_or(0))),
            None => Err(failed(answer)),
        }
    }
}
