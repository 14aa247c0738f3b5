//! What the inspectors of the `mysql` kinds share: the connections that hold and wait.

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::Instant;

use super::MySqlServer;
use super::pinned::{ConnectionIdentity, SERVER_IDENTITY_SQL};
use super::session::{MySqlSession, StatementError};
use crate::inspector::{CursorPosition, ListCursor};
use crate::{LockError, LockHolder, LockName, Release, RemainingLease};

/// The table does not exist: no lock was ever taken here.
const NO_SUCH_TABLE_ERROR: u16 = 1146;
/// `MySQL` shows no connection while a statement of any of them is not UTF-8.
const NOT_UTF8_ERROR: u16 = 3854;

const PLACE_SQL: &str = "SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = ?";

/// Reads a missing table as an empty one: inspectors make none.
pub(crate) fn free_without_table(
    rows: Result<Vec<MySqlRow>, StatementError>,
) -> Result<Vec<MySqlRow>, StatementError> {
    match rows {
        Err(failure) if failure.has_number(NO_SUCH_TABLE_ERROR) => Ok(Vec::new()),
        rows => rows,
    }
}

/// A pattern of LIKE for names that begin so.
pub(crate) fn like_prefix(prefix: &str) -> Vec<u8> {
    let escaped = prefix.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("{escaped}%").into_bytes()
}

/// The name of a row, or what is shown in its place if no lock can have it.
pub(crate) fn lock_name(stored: &[u8]) -> Result<LockName, String> {
    let text = std::str::from_utf8(stored).ok().map(LockName::new);
    text.and_then(Result::ok).ok_or_else(|| stored.escape_ascii().to_string())
}

/// A page after that name.
pub(crate) fn next_page(last: Option<Vec<u8>>) -> Option<ListCursor> {
    last.map(|name| ListCursor(CursorPosition::After(name)))
}

/// The holder that is this connection. Its address is there if the server shows it to
/// this user.
pub(crate) async fn connection_holder(
    session: &mut MySqlSession,
    id: u64,
) -> Result<LockHolder, StatementError> {
    let rows = match session.fetch_all(sqlx::query(PLACE_SQL).bind(id)).await {
        Err(failure) if failure.has_number(NOT_UTF8_ERROR) => Vec::new(),
        rows => rows?,
    };
    let place: Option<String> = rows.first().map(|row| row.try_get(0)).transpose()?;
    let holder = LockHolder::of_owner(id.to_string(), RemainingLease::Session);
    Ok(LockHolder { owner: None, place, ..holder })
}

impl MySqlServer {
    /// The identity of the server that the pool leads to now.
    pub(crate) async fn read_identity(&self) -> Result<String, LockError> {
        let mut session = MySqlSession::open(self.pool()).await?;
        let rows = session.raw(&format!("SELECT {SERVER_IDENTITY_SQL}")).await?;
        let row = rows.first().ok_or(StatementError::from(sqlx::Error::RowNotFound))?;
        Ok(row.try_get(0).map_err(StatementError::from)?)
    }

    /// Ends the connection with that number, which was seen to hold a lock after that server's
    /// identity was read.
    pub(crate) async fn kill_holder(&self, id: u64, server: String) -> Result<bool, LockError> {
        let victim = ConnectionIdentity { id, server, told: Instant::now() };
        Ok(self.kill(&victim).await? == Release::Released)
    }
}
