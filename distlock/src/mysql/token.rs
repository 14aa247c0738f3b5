//! Fencing tokens from the database: one durable increment per ownership.
//!
//! One statement with autocommit raises the name's counter. A new counter starts above the floor of
//! all reaped counters (see `reaper`). Tokens rise strictly per name, through a flushed cache, a
//! failover of Redis, restarts, and reaping. A call that is repeated after a lost answer leaves a
//! gap, which does no harm. Tokens are never drawn in blocks per process: such tokens do not rise
//! with the order of ownerships.
//!
//! Guarantees this as far as the database keeps what it acknowledged
//! (`innodb_flush_log_at_trx_commit = 1`, and a failover only to a server that has everything).
//! Source: Kleppmann, "How to do distributed locking"; the counter is the MySQL manual's for
//! `LAST_INSERT_ID(expr)`. Test: `tests/mysql/mysql_tokens.rs`.

use futures_util::future::BoxFuture;

use super::MySqlServer;
use super::reaper::ReapedTable;
use super::session::{MySqlSession, Retries, StatementError};
use crate::{LockError, LockName, Token, TokenIssuer};

const NEXT_TOKEN_SQL: &str = "INSERT INTO lock_tokens (name, token, used_at) \
     SELECT ?, LAST_INSERT_ID(floor.token + 1), UTC_TIMESTAMP(6) \
     FROM lock_floors AS floor WHERE floor.source = 'tokens' LOCK IN SHARE MODE \
     ON DUPLICATE KEY UPDATE \
     token = LAST_INSERT_ID(lock_tokens.token + 1), used_at = UTC_TIMESTAMP(6)";

/// A token issuer in the database. Cheap to clone.
///
/// The tokens of a name rise among themselves only. Those of another issuer (`mysql-table`'s own,
/// `ZooKeeper`'s) are another sequence, and a fence must not be shown both.
#[derive(Clone)]
pub struct MySqlTokens {
    server: MySqlServer,
}

impl MySqlTokens {
    /// Makes an issuer in that database. The tables of [`SCHEMA`](super::SCHEMA) must exist.
    #[must_use]
    pub fn new(server: &MySqlServer) -> Self {
        Self { server: server.clone() }
    }

    async fn next_once(&self, name: &LockName) -> Result<Token, StatementError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let query = sqlx::query(NEXT_TOKEN_SQL).bind(name.as_str().as_bytes());
        let raised = session.execute(query).await?;
        // One row made, or one changed, which counts twice.
        match raised.rows_affected() {
            0 => {
                let text = "lock_floors has no rows".into();
                return Err(StatementError::Answer { number: 0, text });
            }
            1 => self.server.row_made(ReapedTable::Tokens),
            _ => {}
        }
        Ok(Token(raised.last_insert_id()))
    }
}

impl TokenIssuer for MySqlTokens {
    fn next<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            loop {
                match self.next_once(name).await {
                    Ok(token) => return Ok(token),
                    Err(failure) => retries.after(failure).await?,
                }
            }
        })
    }
}
