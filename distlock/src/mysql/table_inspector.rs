//! The inspector of `mysql-table`: reads rows of `lock_holders`, which no lock of the server slows.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::MySqlServer;
use super::inspection::{free_without_table, like_prefix, lock_name, next_page};
use super::session::{MySqlSession, Retries, StatementError};
use crate::inspector::{CursorPosition, ListCursor, NO_LOCK_NAME};
use crate::{
    LockError, LockHolder, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState,
    LockWaiters, RemainingLease, Token, guarantees,
};

const COLUMNS: &str = "name, owner, hold_count, token, host, pid, \
     TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) AS left_us, \
     TIMESTAMPDIFF(MICROSECOND, acquired_at, UTC_TIMESTAMP(6)) AS held_us";

/// Frees the row of that owner, as its last release does. The token stays.
const FORCE_RELEASE_SQL: &str = "UPDATE lock_holders SET \
     owner = NULL, holds = '', expires_at = UTC_TIMESTAMP(6) \
     WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)";

pub(crate) struct TableInspector {
    pub(crate) server: MySqlServer,
}

impl TableInspector {
    fn snapshot(name: String, state: LockState) -> LockSnapshot {
        let kind = LockKind::MysqlTable;
        LockSnapshot {
            kind: kind.as_str(),
            name,
            state,
            waiters: LockWaiters::Unknown,
            has_more_waiters: false,
            renewal: guarantees(kind).renewal,
        }
    }
}

/// The state of a row with an owner. No program that takes these locks writes an owner that is not
/// text.
fn state(row: &MySqlRow) -> Result<LockState, StatementError> {
    let owner = String::from_utf8(row.try_get("owner")?);
    Ok(match owner {
        Ok(owner) => LockState::Held(vec![holder(row, owner)?]),
        Err(_) => LockState::Damaged("its owner is not UTF-8".to_owned()),
    })
}

fn holder(row: &MySqlRow, owner: String) -> Result<LockHolder, StatementError> {
    // Negative once the lease has ended, or the server's clock was set back.
    let time = |column| -> Result<_, StatementError> {
        Ok(Duration::from_micros(row.try_get::<i64, _>(column)?.try_into().unwrap_or_default()))
    };
    let (host, pid): (String, u32) = (row.try_get("host")?, row.try_get("pid")?);
    Ok(LockHolder {
        holds: Some(u64::from(row.try_get::<u32, _>("hold_count")?)),
        token: Some(Token(row.try_get("token")?)),
        place: Some(format!("{host}, process {pid}")),
        held_for: Some(time("held_us")?),
        ..LockHolder::of_owner(owner, RemainingLease::Ends(time("left_us")?))
    })
}

impl LockInspector for TableInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT {COLUMNS} FROM lock_holders \
             WHERE name = ? AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)"
            );
            let mut session = MySqlSession::open(self.server.pool()).await?;
            let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(name.as_str().as_bytes());
            let rows = free_without_table(session.fetch_all(query).await)?;
            let state = rows.first().map_or(Ok(LockState::Free), state)?;
            Ok(Self::snapshot(name.to_string(), state))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let after = match cursor {
                Some(ListCursor(CursorPosition::After(name))) => name,
                _ => Vec::new(),
            };
            let sql = format!(
                "SELECT {COLUMNS} FROM lock_holders WHERE name > ? AND name LIKE ? \
             AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6) ORDER BY name LIMIT {limit}"
            );
            let mut session = MySqlSession::open(self.server.pool()).await?;
            let query = sqlx::query(sqlx::AssertSqlSafe(sql));
            let query = query.bind(after).bind(like_prefix(prefix));
            let rows = free_without_table(session.fetch_all(query).await)?;
            let mut locks = Vec::with_capacity(rows.len());
            let mut last = None;
            for row in &rows {
                let name: Vec<u8> = row.try_get("name").map_err(StatementError::from)?;
                locks.push(match lock_name(&name) {
                    Ok(known) => Self::snapshot(known.to_string(), state(row)?),
                    Err(shown) => {
                        Self::snapshot(shown, LockState::Damaged(NO_LOCK_NAME.to_owned()))
                    }
                });
                last = Some(name);
            }
            let next = next_page(last.filter(|_| rows.len() == limit));
            Ok(LockPage { locks, next })
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            loop {
                let query = sqlx::query(FORCE_RELEASE_SQL);
                let query = query.bind(name.as_str().as_bytes()).bind(id.as_bytes());
                let mut session = MySqlSession::open(self.server.pool()).await?;
                match session.execute(query).await {
                    Ok(freed) => return Ok(freed.rows_affected() > 0),
                    Err(failure) => retries.after(failure).await?,
                }
            }
        })
    }
}
