//! The only way to the database.
//!
//! A connection is in doubt during a call, and stays so until the call is answered. A dropped
//! future, a time-out or a broken link leaves it in doubt. Such a connection is closed, never
//! pooled, and the server ends what was open on it. Without this, a cancelled BEGIN would hand an
//! open transaction to the next borrower (transact-rs/sqlx#4385). A pinned connection has a state
//! of its own (a transaction, a named lock, a setting). It is closed too, unless that was undone.

use std::time::Duration;

use sqlx::mysql::{
    MySqlArguments, MySqlConnection, MySqlDatabaseError, MySqlQueryResult, MySqlRow,
};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, SqlSafeStr};
use tokio::time::{error::Elapsed, sleep, timeout};
use uuid::Uuid;

use crate::LockError;

pub(crate) type Statement<'q> = Query<'q, MySql, MySqlArguments>;

/// The longest time for one call that does not wait in the server.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

const NO_SUCH_DATABASE_RIGHT: u16 = 1044;
const LOGIN_REFUSED: u16 = 1045;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum StatementError {
    /// There was no connection in time; nothing was sent.
    NoConnection(String),
    /// The server's answer is an error; the connection is intact.
    Answer {
        /// Its number, the same on all servers unless said otherwise.
        number: u16,
        /// What it says.
        text: String,
    },
    /// The connection has ended; the call may have been carried out.
    Broken(String),
    /// There was no answer in time; the call may still be carried out.
    Silent,
}

impl StatementError {
    /// Whether it is a deadlock (1213), a row that stayed locked (1205) or a changed snapshot
    /// (1020). With autocommit nothing of the statement is left, so it may be sent again.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Answer { number: 1213 | 1205 | 1020, .. })
    }

    pub(crate) fn has_number(&self, wanted: u16) -> bool {
        matches!(self, Self::Answer { number, .. } if *number == wanted)
    }
}

impl From<StatementError> for LockError {
    fn from(failure: StatementError) -> Self {
        match failure {
            StatementError::NoConnection(reason) => Self::NoConnection(reason),
            // The login, the database, another user's connection, a table, a column, a right.
            StatementError::Answer {
                number: LOGIN_REFUSED | NO_SUCH_DATABASE_RIGHT | 1095 | 1142 | 1143 | 1227,
                text,
            } => Self::AccessDenied(text),
            StatementError::Answer { number, text } => Self::Backend(format!("{number}: {text}")),
            StatementError::Broken(reason) => Self::Backend(reason),
            StatementError::Silent => Self::Backend("the database did not answer in time".into()),
        }
    }
}

impl From<sqlx::Error> for StatementError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(answer) => match answer.try_downcast_ref() {
                Some(answer) => from_answer(answer),
                None => Self::Broken(error.to_string()),
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Self::Broken(error.to_string()),
            // An answer that is not what was asked for, such as a column of another type.
            _ => Self::Answer { number: 0, text: error.to_string() },
        }
    }
}

fn from_answer(answer: &MySqlDatabaseError) -> StatementError {
    let text = answer.message().to_owned();
    match answer.number() {
        // The server says goodbye: shutting down, aborted, network trouble, killed, idle for too
        // long. (4031 and 1927 may also be the answer to a call that came later.)
        1053 | 1152 | 1158..=1161 | 1184 | 1927 | 4031 => StatementError::Broken(text),
        number => StatementError::Answer { number, text },
    }
}

/// A borrowed connection.
pub(crate) struct MySqlSession {
    connection: Option<PoolConnection<MySql>>,
    in_doubt: bool,
    pinned: bool,
}

impl MySqlSession {
    /// Borrows a connection, waiting no longer than the pool's own time-out.
    pub(crate) async fn open(pool: &MySqlPool) -> Result<Self, StatementError> {
        let connection = pool.acquire().await.map_err(|error| match error {
            sqlx::Error::PoolTimedOut => StatementError::NoConnection(
                "all of the pool are in use, or the database cannot be reached".into(),
            ),
            error => match StatementError::from(error) {
                refused if refused.has_number(LOGIN_REFUSED) => refused,
                refused if refused.has_number(NO_SUCH_DATABASE_RIGHT) => refused,
                StatementError::Answer { text, .. } => StatementError::NoConnection(text),
                StatementError::Broken(reason) => StatementError::NoConnection(reason),
                failure => failure,
            },
        })?;
        Ok(Self { connection: Some(connection), in_doubt: false, pinned: false })
    }

    /// Runs one statement.
    pub(crate) async fn execute(
        &mut self,
        query: Statement<'_>,
    ) -> Result<MySqlQueryResult, StatementError> {
        let outcome = timeout(CALL_TIMEOUT, query.execute(self.use_connection())).await;
        self.check_outcome(outcome)
    }

    /// Reads all rows; the statement bounds how many.
    pub(crate) async fn fetch_all(
        &mut self,
        query: Statement<'_>,
    ) -> Result<Vec<MySqlRow>, StatementError> {
        let outcome = timeout(CALL_TIMEOUT, query.fetch_all(self.use_connection())).await;
        self.check_outcome(outcome)
    }

    /// Runs statements without parameters, and reads the rows of all of them.
    pub(crate) async fn raw(&mut self, sql: &str) -> Result<Vec<MySqlRow>, StatementError> {
        self.raw_within(sql, CALL_TIMEOUT).await
    }

    /// Runs statements that answer with no rows; says how many rows they changed in all.
    pub(crate) async fn execute_raw(&mut self, sql: &str) -> Result<u64, StatementError> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql).into_sql_str());
        let outcome = timeout(CALL_TIMEOUT, query.execute(self.use_connection())).await;
        self.check_outcome(outcome).map(|answer| answer.rows_affected())
    }

    /// Runs statements within another time-out. Everything that is written into `sql` is a number
    /// or a hexadecimal literal.
    pub(crate) async fn raw_within(
        &mut self,
        sql: &str,
        patience: Duration,
    ) -> Result<Vec<MySqlRow>, StatementError> {
        let query = sqlx::raw_sql(AssertSqlSafe(sql).into_sql_str());
        let outcome = timeout(patience, query.fetch_all(self.use_connection())).await;
        self.check_outcome(outcome)
    }

    /// From now on the connection is closed unless [`MySqlSession::unpin`] is called.
    pub(crate) fn pin(&mut self) {
        self.pinned = true;
    }

    /// The state of its own has been undone.
    pub(crate) fn unpin(&mut self) {
        self.pinned = false;
    }

    /// Whether a call is under way or was not answered.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// The connection itself, whatever its state, unless it is in doubt.
    pub(crate) fn into_connection(mut self) -> Option<PoolConnection<MySql>> {
        if self.in_doubt { None } else { self.connection.take() }
    }

    /// The connection, in doubt until [`MySqlSession::settle`] has seen the answer.
    fn use_connection(&mut self) -> &mut MySqlConnection {
        self.in_doubt = true;
        self.connection.as_mut().expect("a session has its connection until it is dropped")
    }

    fn check_outcome<T>(
        &mut self,
        outcome: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, StatementError> {
        let outcome = match outcome {
            Ok(answer) => answer.map_err(StatementError::from),
            Err(_) => Err(StatementError::Silent),
        };
        self.in_doubt = matches!(outcome, Err(StatementError::Broken(_) | StatementError::Silent));
        outcome
    }
}

impl Drop for MySqlSession {
    fn drop(&mut self) {
        if self.in_doubt || self.pinned {
            // The socket is closed at once, without a farewell that a hung server might not answer.
            drop(self.connection.take().map(PoolConnection::detach));
        }
    }
}

/// How often a call is sent again that may be sent again.
///
/// Bounds: five conflicts, with growing pauses of at most 80 ms. One broken connection more than
/// the pool can hold, since all of them may have outlived the server.
pub(crate) struct Retries {
    conflicts: u32,
    broken: u32,
}

impl Retries {
    const CONFLICTS: u32 = 5;

    pub(crate) fn new(pool: &MySqlPool) -> Self {
        Self { conflicts: Self::CONFLICTS, broken: pool.options().get_max_connections() + 1 }
    }

    /// Returns after a pause if the call may be sent again, else with what is wrong.
    pub(crate) async fn after(&mut self, failure: StatementError) -> Result<(), StatementError> {
        if failure.is_conflict() && self.conflicts > 0 {
            // Eight random bits keep conflicting callers from meeting again.
            let random = u32::from(Uuid::new_v4().as_bytes()[0]);
            let longest = Duration::from_millis(5) * 2_u32.pow(Self::CONFLICTS - self.conflicts);
            self.conflicts -= 1;
            sleep(longest / 2 + longest * random / 512).await;
            return Ok(());
        }
        if matches!(failure, StatementError::Broken(_)) && self.broken > 0 {
            self.broken -= 1;
            return Ok(());
        }
        Err(failure)
    }
}
