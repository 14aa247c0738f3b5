//! Writes that replicas confirm.
//!
//! A failover to a replica that has confirmed a write does not forget it. `WAIT` asks for
//! confirmations, but only of the writes of *its own connection*: on another one it returns at once
//! and means nothing. It also blocks its connection. So there is a small pool of connections, each
//! for one write and its confirmation at a time. On a Redis Cluster each leads to the master that
//! has the lock.
//!
//! This narrows the window in which a failover forgets a lock; it does not close it. The promoted
//! replica may be one that did not confirm. A majority in `WAIT` is no consensus, and the promoted
//! replica may lose the write again. A resource that two holders must never write needs a fencing
//! token. Source: Redis documentation of `WAIT`; Redisson's `checkLockSyncedSlaves`. Tests:
//! `tests/redisson_replication.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind,
    ToRedisArgs,
};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::keys::ms;
use super::script::LuaScript;
use super::{RedisConnection, RedisServer};
use crate::LockError;

/// The connections for confirmed writes, per lock mechanism.
const POOL_SIZE: usize = 4;
/// How long to wait for one of them to be free.
const POOL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long replicas may take to confirm a write.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the master may take to accept a connection; and to answer, beyond the replicas' time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a write does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// It was refused, or its outcome is unknown.
    #[error(transparent)]
    Server(#[from] RedisError),
    /// It was carried out, but may be forgotten.
    #[error("only {confirmed} of {needed} replicas have confirmed it")]
    TooFew { confirmed: u32, needed: u32 },
    /// It was not sent.
    #[error("no connection for a confirmed write was free")]
    NoneFree,
}

impl From<WriteError> for LockError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Server(error) => error.into(),
            other => Self::Backend(other.to_string()),
        }
    }
}

impl WriteError {
    /// Whether the connection ended before the answer came.
    pub(crate) fn is_connection_dropped(&self) -> bool {
        matches!(self, Self::Server(error) if error.is_connection_dropped())
    }
}

/// How many replicas must confirm an acquisition or a renewal before it counts. `replicas` is the
/// number that the deployment has, not the number that is connected: with too few connected, no
/// acquisition succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replication {
    /// None: what the master says counts.
    #[default]
    None,
    /// At least this number.
    AtLeast(u32),
    /// Enough that, with the master, they are more than half of all.
    Majority {
        /// How many replicas there ought to be.
        replicas: u32,
    },
    /// All of them.
    All {
        /// How many replicas there ought to be.
        replicas: u32,
    },
}

impl Replication {
    /// How many replicas have to confirm.
    #[must_use]
    pub fn confirmations(self) -> u32 {
        match self {
            Self::None => 0,
            Self::AtLeast(replicas) | Self::All { replicas } => replicas,
            Self::Majority { replicas } => replicas.div_ceil(2),
        }
    }

    /// Checks that the master answers and that enough replicas are connected.
    pub(crate) async fn check(self, server: &RedisServer) -> Result<(), LockError> {
        let mut master = server.connection();
        let needed = self.confirmations();
        if needed == 0 {
            return Ok(master.ping().await?);
        }
        let text: String = redis::cmd("INFO").arg("replication").query_async(&mut master).await?;
        let connected = connected_replicas(&text);
        if connected < needed as usize {
            let reason = format!("only {connected} of {needed} replicas are connected");
            return Err(LockError::Backend(reason));
        }
        Ok(())
    }
}

/// From a master's `INFO replication`, with lines such as `slave0:ip=...,state=online,...`.
fn connected_replicas(info: &str) -> usize {
    let is_connected = |line: &&str| line.starts_with("slave") && line.contains("state=online");
    info.lines().filter(is_connected).count()
}

/// Where a mechanism writes.
#[derive(Clone)]
pub(crate) enum ReplicatedWriter {
    /// On the connection for everything.
    Unconfirmed(RedisConnection),
    /// On one of the pool.
    Confirmed(Arc<ConfirmationPool>),
}

impl ReplicatedWriter {
    pub(crate) fn new(server: &RedisServer, replication: Replication) -> Self {
        match replication.confirmations() {
            0 => Self::Unconfirmed(server.connection()),
            confirmations => Self::Confirmed(Arc::new(ConfirmationPool {
                server: server.connection(),
                confirmations,
                slots: Semaphore::new(POOL_SIZE),
                idle: Mutex::default(),
            })),
        }
    }

    /// Calls a script, and waits for its confirmation if `is_write` says of its answer that it has
    /// written. Fails if too few replicas confirmed it in time; the write is there all the same.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        script: &LuaScript,
        keys: &[&str],
        args: impl ToRedisArgs,
        is_write: impl FnOnce(&T) -> bool,
    ) -> Result<T, WriteError> {
        match self {
            Self::Unconfirmed(connection) => {
                Ok(script.call(&mut connection.clone(), keys, args).await?)
            }
            Self::Confirmed(pool) => {
                let _slot = pool.slot().await?;
                let (mut home, mut connection) = pool.take(keys[0]).await?;
                let mut answer = script.call(&mut connection, keys, &args).await;
                if pool.has_moved(&answer) {
                    (home, connection) = pool.take(keys[0]).await?;
                    answer = script.call(&mut connection, keys, &args).await;
                }
                let answer = pool.still_good(answer)?;
                if is_write(&answer) {
                    let confirmed = pool.wait(&mut connection).await;
                    let confirmed = pool.still_good(confirmed)?;
                    pool.server.still(&home)?;
                    pool.put_back(home, connection);
                    pool.is_enough(confirmed)?;
                } else {
                    pool.put_back(home, connection);
                }
                Ok(answer)
            }
        }
    }
}

/// Connections for one write and its confirmation at a time.
pub(crate) struct ConfirmationPool {
    server: RedisConnection,
    confirmations: u32,
    slots: Semaphore,
    /// By what their server is called, as many as there are slots at most.
    idle: Mutex<Vec<(Arc<str>, MultiplexedConnection)>>,
}

impl ConfirmationPool {
    async fn slot(&self) -> Result<SemaphorePermit<'_>, WriteError> {
        match timeout(POOL_TIMEOUT, self.slots.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(WriteError::NoneFree),
        }
    }

    /// A connection to the server that has that key, and what the server is called.
    async fn take(&self, key: &str) -> RedisResult<(Arc<str>, MultiplexedConnection)> {
        let home = self.server.name(key).await?;
        let idle = {
            let mut idle = self.idle();
            let place = idle.iter().position(|(server, _)| *server == home);
            place.map(|place| idle.swap_remove(place))
        };
        match idle {
            Some(idle) => Ok(idle),
            None => Ok((home, self.connect(key).await?)),
        }
    }

    fn put_back(&self, home: Arc<str>, connection: MultiplexedConnection) {
        let mut idle = self.idle();
        if idle.len() == POOL_SIZE {
            idle.remove(0);
        }
        idle.push((home, connection));
    }

    async fn connect(&self, key: &str) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(CONFIRMATION_TIMEOUT + RESPONSE_TIMEOUT));
        self.server.own(key, &config).await
    }

    /// Whether another server of the cluster has the key, which said so instead of acting.
    fn has_moved<T>(&self, answer: &RedisResult<T>) -> bool {
        let Err(failure) = answer else { return false };
        self.server.seen(failure);
        failure.kind() == ErrorKind::Server(ServerErrorKind::Moved)
    }

    async fn wait(&self, connection: &mut MultiplexedConnection) -> RedisResult<u32> {
        redis::cmd("WAIT")
            .arg(self.confirmations)
            .arg(ms(CONFIRMATION_TIMEOUT))
            .query_async(connection)
            .await
    }

    /// A connection without an answer is not used again, nor are the others to that server.
    fn still_good<T>(&self, outcome: RedisResult<T>) -> RedisResult<T> {
        if outcome.is_err() {
            self.idle().clear();
        }
        outcome
    }

    fn is_enough(&self, confirmed: u32) -> Result<(), WriteError> {
        let needed = self.confirmations;
        if confirmed < needed { Err(WriteError::TooFew { confirmed, needed }) } else { Ok(()) }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Arc<str>, MultiplexedConnection)>> {
        // Pushing and popping cannot be left half done by a panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Replication;

    #[test]
    fn a_majority_counts_the_master_in() {
        let needed = |replicas| Replication::Majority { replicas }.confirmations();
        assert_eq!([0, 1, 2, 3, 4, 5].map(needed), [0, 1, 1, 2, 2, 3]);
        assert_eq!(Replication::All { replicas: 3 }.confirmations(), 3);
        assert_eq!(Replication::AtLeast(2).confirmations(), 2);
        assert_eq!(Replication::None.confirmations(), 0);
    }
}
