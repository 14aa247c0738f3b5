//! Mechanisms that live in `MySQL` or `MariaDB`, one file each, and their fencing tokens.
//!
//! `table_lock` keeps a row per lock with a lease, in short statements of their own. `row` and
//! `named` keep a connection from the attempt to the release (`pinned`). `token` issues fencing
//! tokens, `fence` checks them at the resource, `reaper` bounds the rows that all of them leave,
//! and `schema` makes their tables. `MySQL` from 8.0 and `MariaDB` from 10.6 behave the same, at
//! the isolation levels READ COMMITTED and REPEATABLE READ.

mod data_locks;
mod fence;
mod inspection;
pub(crate) mod named_inspector;
pub(crate) mod named_session;
pub(crate) mod pinned;
pub(crate) mod reaper;
pub(crate) mod row_inspector;
mod schema;
pub(crate) mod session;
pub(crate) mod table_inspector;
pub(crate) mod table_lock_renewer;
mod token;

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, MySqlPool};
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

pub use fence::{Fence, FenceError, raise_fence};
pub use schema::{SCHEMA, ensure_schema};
pub use token::MySqlTokens;

pub use crate::kinds::mysql::{named, row};
pub use crate::lock_transaction::LockTransaction;

use crate::LockError;
use crate::owner_tag::host_name;

/// A connection of the own pool that was idle for longer is asked whether it still lives.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);
/// One that has not answered by then is dead; another one is opened.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// After that time without use the own pool closes a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sets up sessions of the own pool. READ COMMITTED locks no gaps. The server ends a session after
/// 60 s without a statement, which frees a holder that is cut off within a transaction. Idle
/// connections of the pool are closed before that.
const SESSION_SETUP_SQL: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 3; SET SESSION wait_timeout = 60";

/// A database server. Cheap to clone; clones share its pool. The tables of [`SCHEMA`] must exist.
///
/// Holders and waiters of `mysql-row` and `mysql-named` keep a connection each. Give the locks a
/// pool of their own, so that a section that needs another connection never waits for a lock. When
/// the pool is empty, an acquisition fails with [`LockError::NoConnection`] after the pool's
/// time-out.
#[derive(Clone)]
pub struct MySqlServer {
    pub(crate) shared: Arc<MySqlServerState>,
}

pub(crate) struct MySqlServerState {
    pub(crate) pool: MySqlPool,
    /// The host name of this process, for readers of the tables.
    pub(crate) host: String,
    pub(crate) reaper: reaper::Reaper,
    /// Bounds concurrent KILLs to two.
    pub(crate) killers: Semaphore,
    /// Whether the server is a Galera node, once it was asked.
    pub(crate) is_galera: OnceCell<bool>,
    /// When the inspector last read the server's lists of row locks.
    pub(crate) row_lists_read: Mutex<Option<Instant>>,
}

/// Settings of a pool for locks alone.
#[derive(Debug, Clone)]
pub struct MySqlServerOptions {
    /// `mysql://user:password@host:port/database`
    pub url: String,
    /// The most connections: one for each holder and each waiter of `mysql-row` and `mysql-named`,
    /// and two more. Per process and name only one task waits on the server.
    pub pool_size: u32,
    /// How long an acquisition may wait for a connection.
    pub acquire: Duration,
}

impl MySqlServer {
    /// The server that the pool leads to. Its sessions must have autocommit on, which is the
    /// default. If a holder of `mysql-row` is cut off, its row is freed after the `wait_timeout` of
    /// the pool's sessions.
    #[must_use]
    pub fn new(pool: MySqlPool) -> Self {
        let shared = MySqlServerState {
            pool,
            host: host_name().chars().take(255).collect(),
            reaper: reaper::Reaper::default(),
            killers: Semaphore::new(2),
            is_galera: OnceCell::new(),
            row_lists_read: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A server with a pool of its own. Nothing is connected yet. Fails with
    /// [`LockError::BadRequest`] if the address is none.
    pub fn with_own_pool(options: &MySqlServerOptions) -> Result<Self, LockError> {
        let address: MySqlConnectOptions = options.url.parse().map_err(|error: sqlx::Error| {
            LockError::BadRequest { field: "the database's address", limit: error.to_string() }
        })?;
        let pool = MySqlPoolOptions::new()
            .max_connections(options.pool_size)
            .acquire_timeout(options.acquire)
            .idle_timeout(IDLE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for <= PING_AFTER_IDLE {
                        return Ok(true);
                    }
                    // An error would be a warning in the log for each dead connection.
                    Ok(matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(()))))
                })
            })
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(sqlx::raw_sql(SESSION_SETUP_SQL)).await?;
                    Ok(())
                })
            })
            // A slow statement is not news here: it waits for a lock.
            .connect_lazy_with(address.disable_statement_logging());
        Ok(Self::new(pool))
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &MySqlPool {
        &self.shared.pool
    }
}

/// Bytes as SQL writes them, whatever is in them.
pub(crate) fn literal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(3 + 2 * bytes.len());
    text.push_str("X'");
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text.push('\'');
    text
}

/// A duration as the tables count it: microseconds, of at most a day.
pub(crate) fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_holds_any_bytes() {
        assert_eq!(literal(b"a'\\\0\xff"), "X'61275C00FF'");
        assert_eq!(literal(b""), "X''");
    }
}
