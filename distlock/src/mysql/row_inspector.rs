//! The inspector of `mysql-row`: what the server tells of row locks without a lock of one's own.
//!
//! `MariaDB` shows the transaction that holds a row only while another waits for the row. If
//! nothing waits, the lock is certainly free as long as no transaction of the server has locked a
//! row. Otherwise its state is unknown. Probing with FOR UPDATE would take the lock.
//!
//! The server makes its lists anew only if they were not read for 100 ms. So each read here comes
//! [`LIST_PAUSE`] after the one before, and more, so that two readers do not keep lists old. Lists
//! count only if they show this session in the statement that reads them: then they are new.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::inspection::{connection_holder, free_without_table, like_prefix};
use super::session::{MySqlSession, StatementError};
use super::{MySqlServer, literal};
use crate::inspector::{CursorPosition, ListCursor};
use crate::{
    LockError, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    guarantees,
};

/// A transaction makes this session a part of the lists.
const BEGIN_SQL: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// Transactions that lock a row, and whether this session is listed with this very statement.
fn locking_sql(mark: Uuid) -> String {
    format!(
        "SELECT COALESCE(SUM(trx_rows_locked > 0), 0) > 0, COALESCE(SUM(trx_mysql_thread_id = \
         CONNECTION_ID() AND trx_query LIKE '%{mark}%'), 0) > 0 \
         FROM information_schema.INNODB_TRX"
    )
}

/// Each transaction that waits for a row of the table, the row as the server writes it, and a
/// transaction in its way. One that waits itself holds nothing there.
const WAITS_SQL: &str = "SELECT locks.lock_data, waiter.trx_mysql_thread_id, \
     holder.trx_mysql_thread_id, holder.trx_state = 'LOCK WAIT' \
     FROM information_schema.INNODB_LOCK_WAITS waits \
     JOIN information_schema.INNODB_LOCKS locks ON locks.lock_id = waits.requested_lock_id \
       AND locks.lock_trx_id = waits.requesting_trx_id \
     JOIN information_schema.INNODB_TRX waiter ON waiter.trx_id = waits.requesting_trx_id \
     JOIN information_schema.INNODB_TRX holder ON holder.trx_id = waits.blocking_trx_id \
     WHERE locks.lock_table = CONCAT('`', DATABASE(), '`.`lock_rows`') LIMIT 10000";

/// Between two reads of the server's lists; up to twice as long.
const LIST_PAUSE: Duration = Duration::from_millis(120);

/// How often the lists are read until they are new: 6 s at most.
const LIST_READS: u32 = 24;

const ROWS_SQL: &str = "SELECT name FROM lock_rows WHERE name > ? AND name LIKE ? ORDER BY name";

const CONTENDED_ONLY: &str = "the server shows the holder of a row only while another waits";
const OLD_LISTS: &str = "other readers keep the server from renewing its lists of row locks";
const NOT_TOLD: &str = "the server has no list of row locks, or the right PROCESS is missing";

pub(crate) struct RowInspector {
    pub(crate) server: MySqlServer,
}

/// What the server's lists say of one row.
#[derive(Default)]
struct RowWaits {
    holder: Option<u64>,
    waiters: Vec<String>,
}

/// What the server's lists say of all rows.
struct RowLockLists {
    /// By the row's key, as the server writes it.
    waits: HashMap<String, RowWaits>,
    is_any_row_locked: bool,
}

impl RowLockLists {
    /// Fails with the reason if the server has no such lists, does not show them to this user, or
    /// shows old ones only.
    async fn read(
        server: &MySqlServer,
        session: &mut MySqlSession,
    ) -> Result<Result<Self, &'static str>, StatementError> {
        let mut last_read = server.shared.row_lists_read.lock().await;
        session.pin();
        session.execute_raw(BEGIN_SQL).await?;
        let lists = match Self::read_new(&mut last_read, session).await {
            Err(failure) if is_not_told(&failure) => Err(NOT_TOLD),
            lists => lists?,
        };
        session.execute_raw("ROLLBACK").await?;
        session.unpin();
        Ok(lists)
    }

    async fn read_new(
        last_read: &mut Option<Instant>,
        session: &mut MySqlSession,
    ) -> Result<Result<Self, &'static str>, StatementError> {
        let mark = Uuid::new_v4();
        for _ in 0..LIST_READS {
            if let Some(last_read) = *last_read {
                let random = u32::from(Uuid::new_v4().as_bytes()[0]);
                sleep_until(last_read + LIST_PAUSE + LIST_PAUSE * random / 256).await;
            }
            let locking = session.raw(&locking_sql(mark)).await;
            *last_read = Some(Instant::now());
            let locking = locking?;
            let locking = locking.first().ok_or_else(|| sqlx::Error::RowNotFound)?;
            if locking.try_get::<bool, _>(1)? {
                let waits = session.raw(WAITS_SQL).await;
                *last_read = Some(Instant::now());
                return Ok(Ok(Self::of(&waits?, locking.try_get(0)?)?));
            }
        }
        Ok(Err(OLD_LISTS))
    }

    fn of(rows: &[MySqlRow], is_any_row_locked: bool) -> Result<Self, StatementError> {
        let mut waits: HashMap<String, RowWaits> = HashMap::new();
        for row in rows {
            let waits = waits.entry(row.try_get(0)?).or_default();
            let (waiter, holder): (u64, u64) = (row.try_get(1)?, row.try_get(2)?);
            if row.try_get::<i64, _>(3)? == 0 {
                waits.holder = Some(holder);
            }
            let waiter = format!("connection {waiter}");
            if !waits.waiters.contains(&waiter) {
                waits.waiters.push(waiter);
            }
        }
        Ok(Self { waits, is_any_row_locked })
    }
}

/// No such table (`MySQL` has other ones), or no right to read it.
fn is_not_told(failure: &StatementError) -> bool {
    matches!(failure, StatementError::Answer { number: 1109 | 1142 | 1146 | 1227, .. })
}

impl RowInspector {
    /// Reads a lock whose row exists.
    async fn read(
        session: &mut MySqlSession,
        lists: &Result<RowLockLists, &'static str>,
        name: &LockName,
    ) -> Result<LockSnapshot, StatementError> {
        let nothing = RowWaits::default();
        let (state, waiters) = match lists {
            Err(reason) => (LockState::Unknown(reason), LockWaiters::Unknown),
            Ok(lists) => {
                let waits = lists.waits.get(&lock_data(name)).unwrap_or(&nothing);
                let state = match waits.holder {
                    Some(id) => LockState::Held(vec![connection_holder(session, id).await?]),
                    None if lists.is_any_row_locked => LockState::Unknown(CONTENDED_ONLY),
                    None => LockState::Free,
                };
                (state, LockWaiters::Unordered(waits.waiters.clone()))
            }
        };
        Ok(Self::snapshot(name, state, waiters))
    }

    fn snapshot(name: &LockName, state: LockState, waiters: LockWaiters) -> LockSnapshot {
        let kind = LockKind::MysqlRow;
        LockSnapshot {
            kind: kind.as_str(),
            name: name.to_string(),
            state,
            waiters,
            renewal: guarantees(kind).renewal,
        }
    }
}

/// The row's key as `MariaDB` writes it in its list of locks: `0x6C6F`.
fn lock_data(name: &LockName) -> String {
    let hex = literal(name.as_str().as_bytes());
    format!("0x{}", hex.trim_start_matches('X').trim_matches('\''))
}

#[async_trait]
impl LockInspector for RowInspector {
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let row = sqlx::query("SELECT 1 FROM lock_rows WHERE name = ?");
        let row = session.fetch_all(row.bind(name.as_str().as_bytes())).await;
        if free_without_table(row)?.is_empty() {
            // A lock without a row was never taken, or its row was reaped since.
            let no_waiters = LockWaiters::Unordered(Vec::new());
            return Ok(Self::snapshot(name, LockState::Free, no_waiters));
        }
        let lists = RowLockLists::read(&self.server, &mut session).await?;
        Ok(Self::read(&mut session, &lists, name).await?)
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
        if rows.is_empty() {
            return Ok(LockPage { locks: Vec::new(), next: None });
        }
        let lists = RowLockLists::read(&self.server, &mut session).await?;
        let mut locks = Vec::new();
        let mut last = None;
        for row in &rows {
            let name: Vec<u8> = row.try_get(0).map_err(StatementError::from)?;
            let name = String::from_utf8_lossy(&name).into_owned();
            if let Ok(name) = LockName::new(name.as_str()) {
                locks.push(Self::read(&mut session, &lists, &name).await?);
            }
            last = Some(name);
        }
        locks.retain(|lock| lock.state != LockState::Free);
        let next = last.filter(|_| rows.len() == limit);
        let next = next.map(|name| ListCursor(CursorPosition::After(name)));
        Ok(LockPage { locks, next })
    }

    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        let holds = self.inspect(name).await?.state.holders().iter().any(|holder| holder.id == id);
        match id.parse() {
            Ok(id) if holds => self.server.kill_holder(id).await,
            _ => Ok(false),
        }
    }
}
