//! The fence at a protected resource: it refuses a holder that does not know that it has lost its
//! lock.
//!
//! A row per resource holds the highest token that was shown. Showing a token is one statement: it
//! raises the row and returns its value; a lower token is stale. The token must be shown when the
//! resource is first read *and* in the transaction that writes it. With the check at the write
//! alone, a stale reader still does harm:
//! - A reads, and its lease ends;
//! - B reads;
//! - A writes, because no higher token was shown yet;
//! - B writes the result of its old read.
//!
//! Shown at the read, B's token bars A's write. Where reading and writing are one transaction, the
//! fence is its first statement. It keeps the row locked until the end, so it need not be shown
//! again. It is no consistent read, so the snapshot of REPEATABLE READ is taken after it.
//!
//! Bounds: one row per resource, to be deleted with it. A stale holder must ROLLBACK. Source:
//! Kleppmann, "How to do distributed locking". Test: `tests/mysql/mysql_tokens.rs`.

use sqlx::mysql::{MySqlConnection, MySqlQueryResult};

use super::session::Statement;
use crate::{Guard, LockError, LockName, Token};

const RAISE_SQL: &str = "INSERT INTO lock_fence (name, token) VALUES (?, LAST_INSERT_ID(?)) \
     ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, ?))";

/// A resource and the token that is shown to it. For a caller that runs statements itself; see also
/// [`raise_fence`].
///
/// Tokens of different issuers are different sequences, so the name should contain the kind, as in
/// `redisson:voucher:17`.
#[derive(Debug, Clone, Copy)]
pub struct Fence<'a> {
    /// The resource.
    pub resource: &'a LockName,
    /// The token of the ownership under which it is read or written.
    pub token: Token,
}

/// Why a token was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// A higher token was shown before: the lock is lost. Roll back.
    #[error("the lock was lost: token {highest} was shown before")]
    Stale {
        /// The highest token that was shown so far.
        highest: Token,
    },
    /// The guard is lost already, or has no token ([`LockOptions::fenced`](crate::LockOptions)).
    /// Roll back.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The statement failed. Roll back.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
}

impl<'a> Fence<'a> {
    /// The statement that shows the token.
    pub fn statement(&self) -> Statement<'a> {
        let Token(token) = self.token;
        sqlx::query(RAISE_SQL).bind(self.resource.as_str().as_bytes()).bind(token).bind(token)
    }

    /// What its answer means. Fails with [`FenceError::Stale`].
    pub fn check(&self, answer: &MySqlQueryResult) -> Result<(), FenceError> {
        let highest = Token(answer.last_insert_id());
        if highest > self.token { Err(FenceError::Stale { highest }) } else { Ok(()) }
    }
}

impl Guard {
    /// Fences a transaction: shows the guard's token to the resource that has the lock's name, as
    /// [`raise_fence`] does. Make it the first call in the transaction that reads and writes.
    ///
    /// Once it succeeds, the row of the fence keeps every other holder of this lock out until the
    /// end of the transaction, so a loss in between does no harm. The resource is the kind and the
    /// name, as in `redisson:voucher:17`. Fails with [`FenceError::Stale`] if a later holder was
    /// there, and with [`LockError::Lost`], [`LockError::Unsupported`] without a token, or
    /// [`LockError::BadRequest`] if kind and name are too long together.
    pub async fn transaction(&self, connection: &mut MySqlConnection) -> Result<(), FenceError> {
        if self.is_lost() {
            return Err(LockError::Lost.into());
        }
        let Some((token, (kind, name))) = self.token().zip(self.kind_and_name()) else {
            let needed = "a fencing token, which `LockOptions::fenced` asks for";
            return Err(LockError::Unsupported(needed).into());
        };
        raise_fence(connection, &LockName::new(format!("{kind}:{name}"))?, token).await
    }
}

/// Shows a token to a resource, on the connection that reads or writes it. Waits for open
/// transactions that have shown theirs, at most the session's `innodb_lock_wait_timeout`. Dropping
/// the future leaves the connection in doubt, as any statement does.
pub async fn raise_fence(
    connection: &mut MySqlConnection,
    resource: &LockName,
    token: Token,
) -> Result<(), FenceError> {
    let fence = Fence { resource, token };
    fence.check(&fence.statement().execute(connection).await?)
}
