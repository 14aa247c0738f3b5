//! The inspector of `mysql-row`: what the server reports about row locks without taking one.
//!
//! `MariaDB` shows the transaction that holds a row only while another waits for the row. If
//! nothing waits, the lock is certainly free as long as no transaction of the server has locked a
//! row. Otherwise its state is unknown. Probing with FOR UPDATE would take the lock. `MySQL` shows
//! each row lock (see `data_locks`).
//!
//! `MariaDB` renews its lists only if they were not read for 100 ms. So each read here comes
//! [`LIST_PAUSE`] after the one before, and more, so that two readers do not keep lists old. Lists
//! count only if they show this session in the statement that reads them: then they are new.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::data_locks;
use super::inspection::{connection_holder, free_without_table, like_prefix, lock_name};
use super::session::{MySqlSession, StatementError};
use super::{MySqlServer, literal};
use crate::inspector::{CursorPosition, ListCursor, MAX_WAITERS, NO_LOCK_NAME};
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
/// transaction in its way. That one may wait for the row as well. The row is NULL if its page is
/// not in the server's memory.
const WAITS_SQL: &str = "SELECT locks.lock_data, waiter.trx_mysql_thread_id, \
     holder.trx_mysql_thread_id, \
     COALESCE(holder.trx_requested_lock_id = waits.blocking_lock_id, 0) \
     FROM information_schema.INNODB_LOCK_WAITS waits \
     JOIN information_schema.INNODB_LOCKS locks ON locks.lock_id = waits.requested_lock_id \
       AND locks.lock_trx_id = waits.requesting_trx_id \
     JOIN information_schema.INNODB_TRX waiter ON waiter.trx_id = waits.requesting_trx_id \
     JOIN information_schema.INNODB_TRX holder ON holder.trx_id = waits.blocking_trx_id \
     WHERE locks.lock_table = CONCAT('`', DATABASE(), '`.`lock_rows`') LIMIT 10000";
/// The limit there: each waiter of a row waits for its holder, and for each waiter before it.
const MAX_WAITS: usize = 10_000;

/// Between two reads of the server's lists; up to twice as long.
const LIST_PAUSE: Duration = Duration::from_millis(120);

/// How often the lists are read until they are new: 6 s at most.
const LIST_READS: u32 = 24;

/// How long the pages of a list share what was read.
const MAX_LIST_AGE: Duration = Duration::from_secs(1);

const ROWS_SQL: &str = "SELECT name FROM lock_rows WHERE name > ? AND name LIKE ? ORDER BY name";

const CONTENDED_ONLY: LockState = LockState::Unknown {
    reason: "the server shows the holder of a row only while another waits",
    is_final: false,
};
const STALE_LISTS: LockState = LockState::Unknown {
    reason: "other readers keep the server from renewing its lists of row locks",
    is_final: false,
};
const NO_RIGHT: LockState = LockState::Unknown {
    reason: "the right PROCESS is missing: the server shows no row locks",
    is_final: true,
};
const IN_HAND_OFF: LockState = LockState::Unknown {
    reason: "the server shows waiters and no holder: the lock is being handed on",
    is_final: false,
};

pub(crate) struct RowInspector {
    pub(crate) server: MySqlServer,
}

/// A row of [`WAITS_SQL`].
struct RowWait {
    row: Option<String>,
    waiter: u64,
    /// The connection in its way, if it holds the row.
    holder: Option<u64>,
}

impl RowWait {
    fn of(row: &MySqlRow) -> Result<Self, StatementError> {
        let is_waiting = row.try_get::<i64, _>(3)? != 0;
        let holder = if is_waiting { None } else { Some(row.try_get(2)?) };
        Ok(Self { row: row.try_get(0)?, waiter: row.try_get(1)?, holder })
    }
}

/// What the server's lists say of one row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RowWaits {
    pub(crate) holder: Option<u64>,
    /// Each connection after its place in the queue, which is 0 if it is not known.
    pub(crate) waiters: BTreeSet<(i64, u64)>,
}

/// By the row's key, as the server writes it, and whether waits are left out whose row the server
/// does not report.
fn by_row(waits: Vec<RowWait>) -> (HashMap<String, RowWaits>, bool) {
    let mut rows: HashMap<String, RowWaits> = HashMap::new();
    let mut is_cut = false;
    for RowWait { row, waiter, holder } in waits {
        let Some(row) = row else {
            is_cut = true;
            continue;
        };
        let known = rows.entry(row).or_default();
        known.holder = known.holder.or(holder);
        known.waiters.insert((0, waiter));
    }
    (rows, is_cut)
}

/// What the server's lists say of all rows.
pub(crate) struct RowLockLists {
    pub(crate) waits: HashMap<String, RowWaits>,
    /// Whether there are more waits than these.
    pub(crate) is_cut: bool,
    /// Whether the places of waiters are known.
    pub(crate) is_ordered: bool,
    /// The state of a row that is not in the lists.
    pub(crate) unlisted: LockState,
}

/// Lists that the pages of a list share.
struct RecentLists {
    lists: Result<RowLockLists, LockState>,
    read_at: Instant,
}

/// Where a page of rows begins.
pub(crate) struct RowPosition {
    /// The last name of the page before.
    after: Vec<u8>,
    lists: Arc<RecentLists>,
}

impl RowLockLists {
    /// Fails with what can be said of a row if the server has no such lists, does not show them to
    /// this user, or shows old ones only. The caller has no connection of the pool meanwhile: it
    /// may wait for other readers, and they for a connection.
    async fn read(server: &MySqlServer) -> Result<Result<Self, LockState>, StatementError> {
        if let Some(lists) = data_locks::read(server).await? {
            return Ok(lists);
        }
        let mut last_read = server.shared.row_lists_read.lock().await;
        let mut session = MySqlSession::open(server.pool()).await?;
        session.pin();
        session.execute_raw(BEGIN_SQL).await?;
        let lists = match Self::read_new(&mut last_read, &mut session).await {
            Err(StatementError::Answer { number: 1142 | 1227, .. }) => Err(NO_RIGHT),
            lists => lists?,
        };
        session.execute_raw("ROLLBACK").await?;
        session.unpin();
        Ok(lists)
    }

    async fn read_new(
        last_read: &mut Option<Instant>,
        session: &mut MySqlSession,
    ) -> Result<Result<Self, LockState>, StatementError> {
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
        Ok(Err(STALE_LISTS))
    }

    fn of(rows: &[MySqlRow], is_any_row_locked: bool) -> Result<Self, StatementError> {
        let waits = rows.iter().map(RowWait::of).collect::<Result<_, _>>()?;
        let (waits, is_cut) = by_row(waits);
        let is_cut = is_cut || rows.len() >= MAX_WAITS;
        let unlisted = if is_any_row_locked { CONTENDED_ONLY } else { LockState::Free };
        Ok(Self { waits, is_cut, is_ordered: false, unlisted })
    }
}

impl RowInspector {
    /// Reads a lock whose row exists.
    async fn read(
        session: &mut MySqlSession,
        lists: &Result<RowLockLists, LockState>,
        name: &LockName,
    ) -> Result<LockSnapshot, StatementError> {
        let lists = match lists {
            Ok(lists) => lists,
            Err(unknown) => return Ok(Self::snapshot(name.to_string(), unknown.clone())),
        };
        let nothing = RowWaits::default();
        let waits = lists.waits.get(&lock_data(name)).unwrap_or(&nothing);
        let state = match waits.holder {
            Some(id) => LockState::Held(vec![connection_holder(session, id).await?]),
            None if !waits.waiters.is_empty() => IN_HAND_OFF,
            None => lists.unlisted.clone(),
        };
        let waiters = waits.waiters.iter().take(MAX_WAITERS);
        let waiters = waiters.map(|(_, id)| format!("connection {id}").into()).collect();
        let waiters = if lists.is_ordered {
            LockWaiters::Ordered(waiters)
        } else {
            LockWaiters::Unordered(waiters)
        };
        Ok(LockSnapshot {
            waiters,
            has_more_waiters: lists.is_cut || waits.waiters.len() > MAX_WAITERS,
            ..Self::snapshot(name.to_string(), state)
        })
    }

    fn snapshot(name: String, state: LockState) -> LockSnapshot {
        let kind = LockKind::MysqlRow;
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

/// The row's key as the server writes it in its list of locks: `0x6C6F`.
fn lock_data(name: &LockName) -> String {
    let hex = literal(name.as_str().as_bytes());
    format!("0x{}", hex.trim_start_matches('X').trim_matches('\''))
}

impl LockInspector for RowInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move {
            let mut session = MySqlSession::open(self.server.pool()).await?;
            let row = sqlx::query("SELECT 1 FROM lock_rows WHERE name = ?");
            let row = session.fetch_all(row.bind(name.as_str().as_bytes())).await;
            if free_without_table(row)?.is_empty() {
                // A lock without a row was never taken, or its row was reaped since.
                let waiters = LockWaiters::Unordered(Vec::new());
                return Ok(LockSnapshot {
                    waiters,
                    ..Self::snapshot(name.to_string(), LockState::Free)
                });
            }
            drop(session);
            let lists = RowLockLists::read(&self.server).await?;
            let mut session = MySqlSession::open(self.server.pool()).await?;
            Ok(Self::read(&mut session, &lists, name).await?)
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let (after, lists) = match cursor {
                Some(ListCursor(CursorPosition::Row(RowPosition { after, lists }))) => {
                    (after, Some(lists))
                }
                _ => (Vec::new(), None),
            };
            let mut session = MySqlSession::open(self.server.pool()).await?;
            let query = sqlx::query(sqlx::AssertSqlSafe(format!("{ROWS_SQL} LIMIT {limit}")));
            let query = query.bind(after).bind(like_prefix(prefix));
            let rows = free_without_table(session.fetch_all(query).await)?;
            drop(session);
            if rows.is_empty() {
                return Ok(LockPage { locks: Vec::new(), next: None });
            }
            let recent = lists.filter(|lists| lists.read_at.elapsed() < MAX_LIST_AGE);
            let lists = if let Some(lists) = recent {
                lists
            } else {
                let lists = RowLockLists::read(&self.server).await?;
                Arc::new(RecentLists { lists, read_at: Instant::now() })
            };
            let mut session = MySqlSession::open(self.server.pool()).await?;
            let mut locks = Vec::new();
            let mut last = None;
            for row in &rows {
                let name: Vec<u8> = row.try_get(0).map_err(StatementError::from)?;
                locks.push(match lock_name(&name) {
                    Ok(name) => Self::read(&mut session, &lists.lists, &name).await?,
                    Err(shown) => {
                        Self::snapshot(shown, LockState::Damaged(NO_LOCK_NAME.to_owned()))
                    }
                });
                last = Some(name);
            }
            locks.retain(|lock| lock.state != LockState::Free);
            let next = last
                .filter(|_| rows.len() == limit)
                .map(|after| ListCursor(CursorPosition::Row(RowPosition { after, lists })));
            Ok(LockPage { locks, next })
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let server = self.server.read_identity().await?;
            let holds =
                self.inspect(name).await?.state.holders().iter().any(|holder| holder.id == id);
            match id.parse() {
                Ok(id) if holds => self.server.kill_holder(id, server).await,
                _ => Ok(false),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_a_row_that_the_server_does_not_report_hides_no_other_wait() {
        let wait = |row: Option<&str>, waiter, holder| RowWait {
            row: row.map(str::to_owned),
            waiter,
            holder,
        };
        let waits = vec![
            wait(Some("0x61"), 2, Some(1)),
            wait(None, 9, Some(8)),
            wait(Some("0x61"), 3, None),
            wait(Some("0x61"), 3, Some(1)),
        ];
        let wanted = RowWaits { holder: Some(1), waiters: [(0, 2), (0, 3)].into() };
        assert_eq!(by_row(waits), ([("0x61".to_owned(), wanted)].into(), true));
    }
}
