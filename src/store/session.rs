//! The only way to the database.
//!
//! A connection goes back to the pool only if its last call was answered and no transaction is
//! open. In every other case (a future dropped half way, a time-out, a broken link, a panic) it is
//! closed, and the server rolls back what was open on it. This closes the trap of a cancelled
//! BEGIN that hands an open transaction to the next borrower.
//!
//! Statements of one transaction share a packet, except on a node of Galera. There another node may
//! abort the transaction at any statement, and the server reports that only at the end of a packet.
//! Later statements of it would run outside the transaction, and COMMIT would answer OK.

use std::pin::pin;

use futures_util::TryStreamExt;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, MySqlPool, Row, SqlSafeStr};

use super::StoreError;
use super::call_limit::{CallLimit, answer};
use super::resolve::kill;

pub(super) type Statement<'q> = Query<'q, MySql, MySqlArguments>;

/// How many stale connections `Transaction::open` passes over: more than any pool holds.
const MAX_STALE_CONNECTIONS: usize = 1024;
/// Begins a transaction, and returns the identity of its connection; on `MariaDB` also whether the
/// server is a node of Galera. To `MySQL` that is a comment.
const BEGIN: &str = "START TRANSACTION; \
     SELECT CONNECTION_ID(), CONCAT_WS('/', @@hostname, @@port, @@server_id) \
     /*M!100100 , @@wsrep_on */";
/// Ends a packet with an error on a node of Galera, before its next statement.
const STOP_ON_GALERA: &str = "SET @stop = EXP(0 /*M!100100 + 710 * @@wsrep_on */)";
/// Reads what [`BEGIN`] returns of the server.
pub(super) const SERVER_IDENTITY: &str = "SELECT CONCAT_WS('/', @@hostname, @@port, @@server_id)";

/// A borrowed connection outside a transaction.
pub struct Session {
    connection: Option<PoolConnection<MySql>>,
    /// How long a call waits; 5 s for a connection that another pool has lent.
    limit: Option<CallLimit>,
    /// Whether the connection may go back to the pool.
    clean: bool,
    /// Whether it does in any case: a bug of the laboratory.
    leaks_open_transaction: bool,
}

impl Session {
    /// Borrows a connection, waiting no longer than the pool's own time-out. It begins once more
    /// if the pool leaves its server meanwhile: a connection may be on its way there.
    pub async fn open(pool: &MySqlPool) -> Result<Self, StoreError> {
        for _ in 0..2 {
            let limit = CallLimit::of(pool);
            let Some(connection) = answer(Some(&limit), pin!(pool.acquire())).await else {
                continue;
            };
            return Ok(Self {
                connection: Some(connection?),
                limit: Some(CallLimit::of(pool)),
                clean: true,
                leaks_open_transaction: false,
            });
        }
        Err(StoreError::PoolTimedOut)
    }

    /// Runs one statement.
    pub async fn execute(&mut self, query: Statement<'_>) -> Result<MySqlQueryResult, StoreError> {
        let (connection, limit) = self.use_raw();
        let outcome = answer(limit, pin!(query.execute(connection))).await;
        self.finish_call(outcome)
    }

    /// Reads at most one row.
    pub async fn fetch_optional(
        &mut self,
        query: Statement<'_>,
    ) -> Result<Option<MySqlRow>, StoreError> {
        let (connection, limit) = self.use_raw();
        let outcome = answer(limit, pin!(query.fetch_optional(connection))).await;
        self.finish_call(outcome)
    }

    /// Reads exactly one row.
    pub async fn fetch_one(&mut self, query: Statement<'_>) -> Result<MySqlRow, StoreError> {
        let (connection, limit) = self.use_raw();
        let outcome = answer(limit, pin!(query.fetch_one(connection))).await;
        self.finish_call(outcome)
    }

    /// Reads all rows; the statement bounds how many.
    pub async fn fetch_all(&mut self, query: Statement<'_>) -> Result<Vec<MySqlRow>, StoreError> {
        let (connection, limit) = self.use_raw();
        let outcome = answer(limit, pin!(query.fetch_all(connection))).await;
        self.finish_call(outcome)
    }

    /// Reads all rows of statements that take no parameters; they bound how many.
    pub(super) async fn raw(&mut self, sql: impl SqlSafeStr) -> Result<Vec<MySqlRow>, StoreError> {
        let (rows, outcome) = self.raw_up_to_error(sql).await;
        outcome.map(|()| rows)
    }

    /// Reads all rows of statements without parameters, also those before an error.
    async fn raw_up_to_error(
        &mut self,
        sql: impl SqlSafeStr,
    ) -> (Vec<MySqlRow>, Result<(), StoreError>) {
        let mut rows = Vec::new();
        let (connection, limit) = self.use_raw();
        let outcome = answer(
            limit,
            pin!(async {
                let mut found = sqlx::raw_sql(sql).fetch(connection);
                while let Some(row) = found.try_next().await? {
                    rows.push(row);
                }
                Ok(())
            }),
        )
        .await;
        (rows, self.finish_call(outcome))
    }

    /// The connection, in doubt until [`Self::finish_call`] has seen the answer.
    fn use_raw(&mut self) -> (&mut MySqlConnection, Option<&CallLimit>) {
        self.clean = false;
        let connection = self.connection.as_mut();
        let connection = connection.expect("a session has its connection until it is dropped");
        (connection, self.limit.as_ref())
    }

    fn finish_call<T>(&mut self, outcome: Option<Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        match outcome {
            Some(Ok(answer)) => {
                self.clean = true;
                Ok(answer)
            }
            Some(Err(error)) => {
                // An error that the server sent is an answer too; its connection is intact.
                let error = StoreError::from(error);
                self.clean = !matches!(error, StoreError::Unavailable { .. });
                Err(error)
            }
            None => Err(StoreError::TimedOut { server: "database" }),
        }
    }

    /// Closes the connection instead of pooling it. Its socket is closed at once, without a
    /// farewell that a hung server might never answer.
    pub(super) fn discard(&mut self) {
        drop(self.connection.take().map(PoolConnection::detach));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.clean && !self.leaks_open_transaction {
            self.discard();
        }
    }
}

/// What a connection is killed by.
#[derive(Debug, Clone)]
pub struct ConnectionIdentity {
    /// The server's number of the connection.
    pub id: u64,
    /// Its server, as `SERVER_IDENTITY` names it: after a failover the number means another
    /// connection.
    pub server: String,
}

impl ConnectionIdentity {
    /// The answer to `BEGIN`.
    fn of(row: &MySqlRow) -> Option<Self> {
        Some(Self { id: row.try_get(0).ok()?, server: row.try_get(1).ok()? })
    }
}

/// An open transaction. Dropping it closes the connection, so the server rolls it back.
pub struct Transaction {
    session: Session,
    connection: Box<ConnectionIdentity>,
    /// Whether each statement needs a packet of its own.
    is_on_galera: bool,
}

/// An open transaction, and whether its first statements failed: then it has to be rolled back.
pub type OpenedTransaction = (Transaction, Result<(), StoreError>);

/// How COMMIT failed.
pub enum CommitError {
    /// The server said no: nothing was written.
    Refused(StoreError),
    /// The answer was lost, and the outcome is not known. The connection is closed; this was it.
    Unknown(Box<ConnectionIdentity>),
}

impl Transaction {
    /// Opens a transaction. A pooled connection that died in the meantime is passed over: nothing
    /// has been sent on it that could have had an effect.
    pub async fn open(pool: &MySqlPool) -> Result<Self, StoreError> {
        Ok(Self::open_by(pool, BEGIN.to_owned()).await?.0)
    }

    /// Opens a transaction and runs statements without parameters in it, in one round trip. Their
    /// result comes with the transaction, which is open in either case.
    pub async fn open_with(
        pool: &MySqlPool,
        first: &[String],
    ) -> Result<OpenedTransaction, StoreError> {
        let mut sql = BEGIN.to_owned();
        // A single one is the last of the packet.
        let is_split = first.len() > 1;
        let stop = is_split.then_some(STOP_ON_GALERA);
        for statement in stop.into_iter().chain(first.iter().map(String::as_str)) {
            sql.push_str("; ");
            sql.push_str(statement);
        }
        let (mut transaction, mut outcome) = Self::open_by(pool, sql).await?;
        if is_split && transaction.is_on_galera {
            outcome = transaction.run_all(first).await.map(drop);
        }
        Ok((transaction, outcome))
    }

    /// Runs a text that begins with `BEGIN`. Another connection is tried only if BEGIN itself got
    /// no answer: then nothing was committed.
    async fn open_by(pool: &MySqlPool, sql: String) -> Result<OpenedTransaction, StoreError> {
        for _ in 0..MAX_STALE_CONNECTIONS {
            let mut session = Session::open(pool).await?;
            let (rows, outcome) = session.raw_up_to_error(AssertSqlSafe(sql.clone())).await;
            session.clean = false;
            match (rows.first().and_then(ConnectionIdentity::of), outcome) {
                (Some(connection), outcome) => {
                    let connection = Box::new(connection);
                    let is_on_galera =
                        rows.first().is_some_and(|row| matches!(row.try_get(2), Ok(1_i64)));
                    return Ok((Self { session, connection, is_on_galera }, outcome));
                }
                (None, Err(StoreError::Unavailable { reason, .. })) => {
                    tracing::debug!(reason, "a stale connection");
                }
                (None, Err(error)) => return Err(error),
                (None, Ok(())) => return Err(StoreError::Unexpected("no connection id".into())),
            }
        }
        Err(StoreError::PoolTimedOut)
    }

    /// A transaction that was opened elsewhere, on a connection of another pool, which it goes back
    /// to; `is_on_galera` says whether its server is a node.
    pub fn from_lent(
        lent: PoolConnection<MySql>,
        connection: ConnectionIdentity,
        is_on_galera: bool,
    ) -> Self {
        let session = Session {
            connection: Some(lent),
            limit: None,
            clean: false,
            leaks_open_transaction: false,
        };
        Self { session, connection: Box::new(connection), is_on_galera }
    }

    /// For the laboratory: dropped half way its connection goes back to the pool as it is.
    pub fn leak_open_transaction(&mut self) {
        self.session.leaks_open_transaction = true;
    }

    /// Whether the server is a node of Galera.
    pub(super) fn is_on_galera(&self) -> bool {
        self.is_on_galera
    }

    /// Runs one statement.
    pub async fn execute(&mut self, query: Statement<'_>) -> Result<MySqlQueryResult, StoreError> {
        let outcome = self.session.execute(query).await;
        self.session.clean = false;
        outcome
    }

    /// Reads at most one row.
    pub async fn fetch_optional(
        &mut self,
        query: Statement<'_>,
    ) -> Result<Option<MySqlRow>, StoreError> {
        let outcome = self.session.fetch_optional(query).await;
        self.session.clean = false;
        outcome
    }

    /// Runs one statement that takes no parameters.
    pub(super) async fn run(&mut self, sql: impl SqlSafeStr) -> Result<(), StoreError> {
        self.rows(sql).await.map(drop)
    }

    /// Runs statements without parameters, in one packet where that is safe, and reads all rows;
    /// the statements bound how many. It ends at the first that fails.
    pub(super) async fn run_all(
        &mut self,
        statements: &[String],
    ) -> Result<Vec<MySqlRow>, StoreError> {
        if !self.is_on_galera {
            return self.rows(AssertSqlSafe(statements.join("; "))).await;
        }
        let mut rows = Vec::new();
        for statement in statements {
            rows.extend(self.rows(AssertSqlSafe(statement.clone())).await?);
        }
        Ok(rows)
    }

    async fn rows(&mut self, sql: impl SqlSafeStr) -> Result<Vec<MySqlRow>, StoreError> {
        let outcome = self.session.raw(sql).await;
        self.session.clean = false;
        outcome
    }

    /// Asks the server for a sign of life, which is one to the server as well.
    pub async fn is_alive(&mut self) -> Result<(), StoreError> {
        let outcome = self.session.raw("SELECT 1").await;
        self.session.clean = false;
        outcome.map(drop)
    }

    /// Makes the transaction durable and gives the connection back.
    pub async fn commit(self) -> Result<(), CommitError> {
        self.commit_after(Vec::new()).await
    }

    /// Runs statements and commits, as `run_all` does: in one packet no round trip is made
    /// under the locks of the statements.
    ///
    /// Errors that exclude a commit are definite; after all others the outcome is in doubt.
    pub async fn commit_after(mut self, mut statements: Vec<String>) -> Result<(), CommitError> {
        statements.push("COMMIT".to_owned());
        match self.run_all(&statements).await {
            Ok(_) => {
                self.session.clean = true;
                Ok(())
            }
            Err(
                error @ (StoreError::Conflict
                | StoreError::LockWait
                | StoreError::InsufficientStock),
            ) => {
                self.rollback().await;
                Err(CommitError::Refused(error))
            }
            Err(error) => {
                tracing::warn!(%error, "answer to COMMIT lost; outcome to be resolved");
                self.session.discard();
                Err(CommitError::Unknown(self.connection))
            }
        }
    }

    /// Abandons a statement without an answer and kills its connection on the server, which would
    /// otherwise continue to wait for the locked row.
    pub async fn kill_connection(mut self, pool: &MySqlPool) {
        self.session.discard();
        if let Err(error) = kill(pool, &self.connection).await {
            tracing::debug!(%error, "connection not killed; its transaction ends by itself");
        }
    }

    /// Undoes everything and gives the connection back; if that fails the connection is closed,
    /// which undoes everything as well.
    pub async fn rollback(mut self) {
        if let Err(error) = self.session.raw("ROLLBACK").await {
            tracing::debug!(%error, "ROLLBACK failed; the connection is closed");
            self.session.clean = false;
        }
    }
}
