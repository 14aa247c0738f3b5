//! The database transaction that a lock lives in, on its way from the mechanism to the caller.

use sqlx::MySql;
use sqlx::pool::PoolConnection;

/// A transaction that holds a row lock, handed to the writer: COMMIT or ROLLBACK frees the lock.
/// Dropped, it is rolled back by closing its connection.
pub struct LockTransaction {
    connection: Option<PoolConnection<MySql>>,
    connection_id: u64,
    server_identity: String,
    is_on_galera: bool,
}

impl LockTransaction {
    pub(crate) fn new(
        connection: PoolConnection<MySql>,
        connection_id: u64,
        server_identity: String,
        is_on_galera: bool,
    ) -> Self {
        Self { connection: Some(connection), connection_id, server_identity, is_on_galera }
    }

    /// The server's number of the connection, to KILL it by.
    #[must_use]
    pub fn connection_id(&self) -> u64 {
        self.connection_id
    }

    /// The server of the connection: the value of
    /// `CONCAT_WS('/', @@hostname, @@port, @@server_id)` there. After a failover the number may
    /// belong to another connection, so compare this before a KILL.
    #[must_use]
    pub fn server_identity(&self) -> &str {
        &self.server_identity
    }

    /// Whether the server is a node of Galera. There each statement needs a packet of its own:
    /// another node may abort the transaction, and the server reports that at the end of a packet.
    #[must_use]
    pub fn is_on_galera(&self) -> bool {
        self.is_on_galera
    }

    /// The connection, with the transaction open on it. From now on the caller sees to it that the
    /// connection goes back to the pool only after an answered COMMIT or ROLLBACK.
    #[must_use]
    pub fn into_connection(mut self) -> PoolConnection<MySql> {
        self.connection.take().expect("it is there until it is taken, and that consumes this")
    }
}

impl Drop for LockTransaction {
    fn drop(&mut self) {
        drop(self.connection.take().map(PoolConnection::detach));
    }
}
