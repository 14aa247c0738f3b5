//! The inspector of `mysql-row`: what the server tells of row locks without a lock of one's own.
//!
//! `MariaDB` shows the transaction that holds a row only while another waits for the row. If
//! nothing waits, the lock is certainly free as long as no transaction of the server has locked a
//! row. Otherwise its state is unknown. Probing with FOR UPDATE would take the lock.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::MySqlServer;
use super::inspection::{connection_holder, free_without_table, like_prefix};
use super::session::{MySqlSession, StatementError};
use crate::inspector::{CursorPosition, ListCursor};
use crate::{
    LockError, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    guarantees,
};

/// Transactions that lock a row, other than this session's.
const LOCKING_SQL: &str = "SELECT COUNT(*) FROM information_schema.INNODB_TRX \
     WHERE trx_rows_locked > 0 AND trx_mysql_thread_id <> CONNECTION_ID()";

/// Each transaction that waits for a row of the table, the row as the server writes it, and a
/// transaction in its way. One that waits itself holds nothing there.
const WAITS_SQL: &str = "SELECT waiter.trx_mysql_thread_id, holder.trx_mysql_thread_id, \
     holder.trx_state = 'LOCK WAIT' \
     FROM information_schema.INNODB_LOCK_WAITS waits \
     JOIN information_schema.INNODB_LOCKS locks ON locks.lock_id = waits.requested_lock_id \
     JOIN information_schema.INNODB_TRX waiter ON waiter.trx_id = waits.requesting_trx_id \
     JOIN information_schema.INNODB_TRX holder ON holder.trx_id = waits.blocking_trx_id \
     WHERE locks.lock_table = CONCAT('`', DATABASE(), '`.`lock_rows`') AND locks.lock_data = ? \
     ORDER BY waiter.trx_wait_started LIMIT 1000";

const ROWS_SQL: &str = "SELECT name FROM lock_rows WHERE name > ? AND name LIKE ? ORDER BY name";

const CONTENDED_ONLY: &str = "the server shows the holder of a row only while another waits";
const NOT_TOLD: &str = "the server has no list of row locks, or the right PROCESS is missing";

pub(crate) struct RowInspector {
    pub(crate) server: MySqlServer,
}

/// What the server's list of waits says of one row.
#[derive(Default)]
struct RowWaits {
    holder: Option<u64>,
    waiters: Vec<String>,
}

impl RowWaits {
    fn of(rows: &[MySqlRow]) -> Result<Self, StatementError> {
        let mut waits = Self::default();
        for row in rows {
            let (waiter, holder): (u64, u64) = (row.try_get(0)?, row.try_get(1)?);
            if row.try_get::<i64, _>(2)? == 0 {
                waits.holder = Some(holder);
            }
            let waiter = format!("connection {waiter}");
            if !waits.waiters.contains(&waiter) {
                waits.waiters.push(waiter);
            }
        }
        Ok(waits)
    }
}

impl RowInspector {
    async fn read(
        session: &mut MySqlSession,
        name: &LockName,
    ) -> Result<LockSnapshot, StatementError> {
        let (state, waiters) = match Self::state(session, name).await {
            Ok(known) => known,
            // No such table (MySQL has other ones), or no right to read it.
            Err(StatementError::Answer { number: 1109 | 1142 | 1146 | 1227, .. }) => {
                (LockState::Unknown(NOT_TOLD), LockWaiters::Unknown)
            }
            Err(failure) => return Err(failure),
        };
        let kind = LockKind::MysqlRow;
        Ok(LockSnapshot {
            kind: kind.as_str(),
            name: name.to_string(),
            state,
            waiters,
            renewal: guarantees(kind).renewal,
        })
    }

    async fn state(
        session: &mut MySqlSession,
        name: &LockName,
    ) -> Result<(LockState, LockWaiters), StatementError> {
        let query = sqlx::query("SELECT 1 FROM lock_rows WHERE name = ?");
        let rows = session.fetch_all(query.bind(name.as_str().as_bytes())).await;
        if free_without_table(rows)?.is_empty() {
            return Ok((LockState::Free, LockWaiters::Unordered(Vec::new())));
        }
        let query = sqlx::query(WAITS_SQL).bind(lock_data(name));
        let waits = RowWaits::of(&session.fetch_all(query).await?)?;
        let waiters = LockWaiters::Unordered(waits.waiters);
        if let Some(id) = waits.holder {
            let holder = connection_holder(session, id).await?;
            return Ok((LockState::Held(vec![holder]), waiters));
        }
        let rows = session.raw(LOCKING_SQL).await?;
        let locking: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        let state = if locking == 0 { LockState::Free } else { LockState::Unknown(CONTENDED_ONLY) };
        Ok((state, waiters))
    }
}

/// The row's key as `MariaDB` writes it in its list of locks.
fn lock_data(name: &LockName) -> String {
    format!("'{}'", name.as_str().replace('\\', "\\\\").replace('\'', "\\'"))
}

#[async_trait]
impl LockInspector for RowInspector {
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        Ok(Self::read(&mut session, name).await?)
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> Result<LockPage, LockError> {
        let after = match cursor {
            Some(ListCursor(CursorPosition::After(name))) => name,
            _ => String::new(),
        };
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let query = sqlx::query(sqlx::AssertSqlSafe(format!("{ROWS_SQL} LIMIT {limit}")));
        let query = query.bind(after.as_bytes()).bind(like_prefix(prefix));
        let rows = free_without_table(session.fetch_all(query).await)?;
        let mut locks = Vec::new();
        let mut last = None;
        for row in &rows {
            let name: Vec<u8> = row.try_get(0).map_err(StatementError::from)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            if let Ok(name) = LockName::new(name.as_str()) {
                locks.push(Self::read(&mut session, &name).await?);
            }
            last = Some(name);
        }
        locks.retain(|lock| lock.state != LockState::Free);
        let next = last.filter(|_| rows.len() == limit);
        let next = next.map(|name| ListCursor(CursorPosition::After(name)));
        Ok(LockPage { locks, next })
    }

    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let now = Self::read(&mut session, name).await?;
        let holds = now.state.holders().iter().any(|holder| holder.id == id);
        match id.parse() {
            Ok(id) if holds => self.server.kill_holder(id).await,
            _ => Ok(false),
        }
    }
}
