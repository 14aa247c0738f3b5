//! Mechanisms that live in `MySQL` or `MariaDB`, one file each.

use sqlx::MySql;
use sqlx::MySqlPool;
use sqlx::pool::PoolConnection;

/// A database server. Cheap to clone.
///
/// Holders and waiters of `mysql-row` and `mysql-named` keep a connection each: give the locks a
/// pool of their own, so that a section that needs another connection never waits for a lock.
#[derive(Clone)]
pub struct MySqlServer {
    pool: MySqlPool,
}

impl MySqlServer {
    /// The server that the pool leads to.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }
}

/// A transaction that holds a row lock, handed to the writer: COMMIT or ROLLBACK frees the lock.
pub struct LentTransaction {
    /// The connection, with the transaction open on it.
    pub connection: PoolConnection<MySql>,
    /// The server's number of the connection, to KILL it by.
    pub connection_id: u64,
}
