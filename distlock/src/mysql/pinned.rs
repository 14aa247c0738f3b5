//! A connection that one acquisition keeps, from its attempt to the release of its hold. It has an
//! open transaction, a named lock, or a call that waits inside the server.
//!
//! It returns to the pool only after an answered call has undone its state. If it is dropped during
//! a call it is closed, and killed from another connection as well. A server that waits for a lock
//! does not notice that its client has disconnected, and would take the lock for it. A slice of
//! waiting ends after a second, which bounds that time if KILL fails.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySql, Row};
use tokio::time::{Instant, timeout};

use super::MySqlServer;
use super::session::{CALL_TIMEOUT, MySqlSession, StatementError};
use crate::{LockError, Release};

/// How long a call waits inside the server; then it is sent again.
pub(crate) const SLICE_S: u64 = 1;
/// No connection has that number any more.
const NO_SUCH_THREAD_ERROR: u16 = 1094;
/// An expression that tells one server from another, in `MySQL` and `MariaDB`. A pool that follows
/// a failover leads to another server, where numbers of connections mean other connections.
pub(crate) const SERVER_IDENTITY_SQL: &str = "CONCAT_WS('/', @@hostname, @@port, @@server_id)";

pub(crate) struct PinnedConnection {
    session: MySqlSession,
    server: MySqlServer,
    identity: Option<ConnectionIdentity>,
}

/// By what a connection is killed.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionIdentity {
    /// The server's number of it.
    pub(crate) id: u64,
    /// The server, as [`SERVER_IDENTITY_SQL`] names it.
    pub(crate) server: String,
    /// When the server gave the number. After a restart of the server, the number may belong to
    /// another connection.
    pub(crate) told: Instant,
}

impl PinnedConnection {
    /// Borrows a connection, waiting no longer than the pool's own time-out.
    pub(crate) async fn open(server: &MySqlServer) -> Result<Self, StatementError> {
        let mut session = MySqlSession::open(server.pool()).await?;
        session.pin();
        Ok(Self { session, server: server.clone(), identity: None })
    }

    /// Runs statements that do not wait.
    pub(crate) async fn raw(&mut self, sql: &str) -> Result<Vec<MySqlRow>, StatementError> {
        self.session.raw(sql).await
    }

    /// Runs statements, for at most `time`.
    pub(crate) async fn raw_within(
        &mut self,
        sql: &str,
        patience: Duration,
    ) -> Result<Vec<MySqlRow>, StatementError> {
        self.session.raw_within(sql, patience).await
    }

    /// Runs statements that wait for one slice.
    pub(crate) async fn wait(&mut self, sql: &str) -> Result<Vec<MySqlRow>, StatementError> {
        self.session.raw_within(sql, Duration::from_secs(SLICE_S) + CALL_TIMEOUT).await
    }

    /// The server has sent its number of this connection, and its own identity.
    pub(crate) fn set_identity(&mut self, id: u64, server: String) {
        self.identity = Some(ConnectionIdentity { id, server, told: Instant::now() });
    }

    pub(crate) fn identity(&self) -> Option<&ConnectionIdentity> {
        self.identity.as_ref()
    }

    /// Undoes its state and pools it; the rows are the statements'. If that fails it is closed.
    pub(crate) async fn end(mut self, sql: &str) -> Result<Vec<MySqlRow>, StatementError> {
        let rows = self.session.raw(sql).await?;
        self.session.unpin();
        Ok(rows)
    }

    /// Leaves nothing behind, whatever state it is in.
    pub(crate) async fn abandon(self, sql: &str) -> Result<(), LockError> {
        let (server, identity) = (self.server.clone(), self.identity.clone());
        if !self.session.is_in_doubt() && self.end(sql).await.is_ok() {
            return Ok(());
        }
        // It is closed by now, which has made room in the pool.
        match identity {
            Some(identity) => server.kill(&identity).await.map(|_| ()),
            // Nothing that waits was ever sent on it.
            None => Ok(()),
        }
    }

    /// Takes the connection with its state; the caller has to end it.
    pub(crate) fn into_connection(self) -> Option<PoolConnection<MySql>> {
        self.session.into_connection()
    }
}

impl MySqlServer {
    /// Ends an unused connection, and with it what it held. Returns whether that was still held;
    /// what another server than the present one held is gone. At most two at a time, on connections
    /// outside of the pool, which may be empty. Each takes at most 5 s.
    pub(crate) async fn kill(&self, victim: &ConnectionIdentity) -> Result<Release, LockError> {
        let killing = async {
            let _turn = self.shared.killers.acquire().await;
            self.kill_now(victim).await
        };
        match timeout(CALL_TIMEOUT, killing).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(StatementError::Silent.into()),
        }
    }

    async fn kill_now(&self, victim: &ConnectionIdentity) -> Result<Release, StatementError> {
        let mut connection = self.pool().connect_options().connect().await?;
        let sql = format!("SELECT {SERVER_IDENTITY_SQL}; SHOW GLOBAL STATUS LIKE 'Uptime'");
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await?;
        let [server, status] = rows.as_slice() else {
            return Err(StatementError::Answer { number: 0, text: "no identity".into() });
        };
        let uptime_s = status.try_get::<String, _>(1)?;
        let is_restarted =
            uptime_s.parse().is_ok_and(|up_s: u64| up_s < victim.told.elapsed().as_secs());
        let outcome = if is_restarted || server.try_get::<String, _>(0)? != victim.server {
            Ok(Release::Gone)
        } else {
            let kill = format!("KILL {}", victim.id);
            match sqlx::raw_sql(AssertSqlSafe(kill)).execute(&mut connection).await {
                Ok(_) => Ok(Release::Released),
                Err(error) => match StatementError::from(error) {
                    failure if failure.has_number(NO_SUCH_THREAD_ERROR) => Ok(Release::Gone),
                    failure => Err(failure),
                },
            }
        };
        // It has done its work; how its farewell ends is of no interest.
        let _ = connection.close().await;
        outcome
    }
}
