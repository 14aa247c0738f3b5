//! Writes that replicas confirm.
//!
//! A master forgets nothing when it fails over to a replica that has confirmed the write. `WAIT`
//! asks for that, and it speaks of the writes of *its own connection* only: asked on another it
//! answers at once and means nothing. It also blocks its connection. So there is a small pool of
//! connections, each used for one write and its confirmation at a time; on a Redis Cluster each is
//! to the master that has the lock, whose replicas are asked.
//!
//! This narrows the window in which a failover forgets a lock; it does not close it. The replica
//! that is promoted need not be one that confirmed, a majority of replicas in `WAIT` is no
//! consensus, and the promoted one may have lost the write again. A resource that must never be
//! written by two holders needs a fencing token. Source: Redis documentation of `WAIT`; Redisson's
//! `checkLockSyncedSlaves`. Tests: `tests/redisson_replication.rs`.

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
const CONNECTIONS: usize = 4;
/// How long to wait for one of them to be free.
const FREE_WITHIN: Duration = Duration::from_secs(2);
/// How long replicas may take to confirm a write.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(500);
/// How long the master may take to accept a connection; and to answer, beyond the replicas' time.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a write does not count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// Nobody knows whether it was carried out, or it was refused.
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

/// How many replicas must have an acquisition or a renewal before it counts. The numbers of
/// replicas are those there ought to be, not those that happen to be connected: with too few of
/// them nobody gets the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replication {
    /// None: what the master says counts.
    #[default]
    None,
    /// So many.
    AtLeast(u32),
    /// So many that they and the master are more than half of all.
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
    pub fn confirmations(self) -> u32 {
        match self {
            Self::None => 0,
            Self::AtLeast(replicas) | Self::All { replicas } => replicas,
            Self::Majority { replicas } => replicas.div_ceil(2),
        }
    }

    /// Whether the master answers and so many replicas are connected that they could confirm.
    pub(super) async fn check(self, server: &RedisServer) -> Result<(), LockError> {
        let mut master = server.connection();
        let needed = self.confirmations();
        if needed == 0 {
            return Ok(redis::cmd("PING").query_async(&mut master).await?);
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
pub(crate) enum Writer {
    /// On the connection for everything.
    Unconfirmed(RedisConnection),
    /// On one of the pool.
    Confirmed(Arc<Pool>),
}

impl Writer {
    pub(crate) fn new(server: &RedisServer, replication: Replication) -> Self {
        match replication.confirmations() {
            0 => Self::Unconfirmed(server.connection()),
            confirmations => Self::Confirmed(Arc::new(Pool {
                server: server.connection(),
                confirmations,
                slots: Semaphore::new(CONNECTIONS),
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
pub(crate) struct Pool {
    server: RedisConnection,
    confirmations: u32,
    slots: Semaphore,
    /// By what their server is called, as many as there are slots at most.
    idle: Mutex<Vec<(Arc<str>, MultiplexedConnection)>>,
}

impl Pool {
    async fn slot(&self) -> Result<SemaphorePermit<'_>, WriteError> {
        match timeout(FREE_WITHIN, self.slots.acquire()).await {
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
        if idle.len() == CONNECTIONS {
            idle.remove(0);
        }
        idle.push((home, connection));
    }

    async fn connect(&self, key: &str) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(CONFIRMED_WITHIN + ANSWER));
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
            .arg(ms(CONFIRMED_WITHIN))
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
