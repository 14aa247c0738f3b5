//! A connection that one acquisition keeps, from its attempt to the release of its hold: with a
//! transaction open on it, a named lock, or a call that waits inside the server.
//!
//! It goes back to the pool only after its state was undone in an answered call. Dropped in the
//! middle of a call it is closed, and killed from another connection as well: a server that waits
//! for a lock does not notice that its client has gone, and would take the lock for nobody. A slice
//! of waiting ends after a second in any case, which bounds the time until then if KILL fails.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, MySql, Row};
use tokio::time::{Instant, timeout};

use super::MySqlServer;
use super::session::{CALL, Failure, Session};
use crate::{LockError, Release};

/// How long a call waits inside the server; then it is sent again.
pub(super) const SLICE_S: u64 = 1;
/// No connection has that number any more.
const NO_SUCH_THREAD: u16 = 1094;

pub(super) struct Pinned {
    session: Session,
    server: MySqlServer,
    identity: Option<Identity>,
}

/// By what a connection is killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    /// The server's number of it.
    pub(super) id: u64,
    /// When the server told. A server that was started later uses the number for somebody else.
    pub(super) told: Instant,
}

impl Pinned {
    /// Borrows a connection, waiting no longer than the pool's own time-out.
    pub(super) async fn open(server: &MySqlServer) -> Result<Self, Failure> {
        let mut session = Session::open(server.pool()).await?;
        session.pin();
        Ok(Self { session, server: server.clone(), identity: None })
    }

    /// Runs statements that do not wait.
    pub(super) async fn raw(&mut self, sql: &str) -> Result<Vec<MySqlRow>, Failure> {
        self.session.raw(sql).await
    }

    /// Runs statements that may take so long.
    pub(super) async fn raw_within(
        &mut self,
        sql: &str,
        patience: Duration,
    ) -> Result<Vec<MySqlRow>, Failure> {
        self.session.raw_within(sql, patience).await
    }

    /// Runs statements that wait for one slice.
    pub(super) async fn wait(&mut self, sql: &str) -> Result<Vec<MySqlRow>, Failure> {
        self.session.raw_within(sql, Duration::from_secs(SLICE_S) + CALL).await
    }

    /// The server told its number of this connection.
    pub(super) fn is_number(&mut self, id: u64) {
        self.identity = Some(Identity { id, told: Instant::now() });
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Undoes its state and pools it; the rows are the statements'. If that fails it is closed.
    pub(super) async fn end(mut self, sql: &str) -> Result<Vec<MySqlRow>, Failure> {
        let rows = self.session.raw(sql).await?;
        self.session.unpin();
        Ok(rows)
    }

    /// Leaves nothing behind, whatever state it is in.
    pub(super) async fn abandon(self, sql: &str) -> Result<(), LockError> {
        let (server, identity) = (self.server.clone(), self.identity);
        if !self.session.is_in_doubt() && self.end(sql).await.is_ok() {
            return Ok(());
        }
        // It is closed by now, which has made room in the pool.
        match identity {
            Some(identity) => server.kill(identity).await.map(|_| ()),
            // Nothing that waits was ever sent on it.
            None => Ok(()),
        }
    }

    /// The connection with its state, for somebody else to end.
    pub(super) fn into_connection(self) -> Option<PoolConnection<MySql>> {
        self.session.into_connection()
    }
}

impl MySqlServer {
    /// Ends a connection that nobody uses any more, and with it what it held. Says whether that
    /// was still held. At most two at a time, on connections outside of the pool, which may be dry;
    /// each for at most five seconds.
    pub(super) async fn kill(&self, victim: Identity) -> Result<Release, LockError> {
        let killing = async {
            let _turn = self.shared.killers.acquire().await;
            self.kill_now(victim).await
        };
        match timeout(CALL, killing).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Failure::Silent.into()),
        }
    }

    async fn kill_now(&self, victim: Identity) -> Result<Release, Failure> {
        let mut connection = self.pool().connect_options().connect().await?;
        let status = sqlx::raw_sql("SHOW GLOBAL STATUS LIKE 'Uptime'");
        let uptime_s = status.fetch_one(&mut connection).await?.try_get::<String, _>(1)?;
        let outlived =
            uptime_s.parse().is_ok_and(|up_s: u64| up_s < victim.told.elapsed().as_secs());
        let outcome = if outlived {
            Ok(Release::Gone)
        } else {
            let kill = format!("KILL {}", victim.id);
            match sqlx::raw_sql(AssertSqlSafe(kill)).execute(&mut connection).await {
                Ok(_) => Ok(Release::Released),
                Err(error) => match Failure::from(error) {
                    failure if failure.has_number(NO_SUCH_THREAD) => Ok(Release::Gone),
                    failure => Err(failure),
                },
            }
        };
        // It has done its work; how its farewell ends is of no interest.
        let _ = connection.close().await;
        outcome
    }
}
