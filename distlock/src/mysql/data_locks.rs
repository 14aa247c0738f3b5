//! The row locks of `MySQL`, which lists them in `performance_schema`. `MariaDB` has no such list.
//!
//! The server collects the list when it is asked, and its transactions wait meanwhile. So the query
//! names the table: no lock of another one becomes a row, and no other wait is followed. The server
//! reads its transactions in groups: a row that is handed on meanwhile may be shown without a
//! holder.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::MySqlServer;
use super::row_inspector::{RowLockLists, RowWaits};
use super::session::{MySqlSession, StatementError};
use crate::LockState;

const SERVER_SQL: &str = "SELECT VERSION() LIKE '%MariaDB%', @@performance_schema";

/// The locks of rows of the table. Each has the row as the server writes it, whether it is granted,
/// its connection, and how many locks before it in the row's queue are in its way. The row is NULL
/// if its page is not in the server's memory. Connection 0 is a transaction without one, as `XA
/// PREPARE` leaves it. Locks of gaps alone are left out.
const LOCKS_SQL: &str = "SELECT locks.LOCK_DATA, locks.LOCK_STATUS = 'GRANTED', \
     CAST(COALESCE(threads.PROCESSLIST_ID, 0) AS UNSIGNED), \
     IF(locks.LOCK_STATUS = 'GRANTED', 0, \
       (SELECT COUNT(*) FROM performance_schema.data_lock_waits waits \
        WHERE waits.REQUESTING_ENGINE_LOCK_ID = locks.ENGINE_LOCK_ID \
          AND waits.ENGINE = locks.ENGINE)) \
     FROM performance_schema.data_locks locks \
     LEFT JOIN performance_schema.threads threads ON threads.THREAD_ID = locks.THREAD_ID \
     WHERE locks.OBJECT_SCHEMA = DATABASE() AND locks.OBJECT_NAME = 'lock_rows' \
       AND locks.LOCK_TYPE = 'RECORD' AND locks.INDEX_NAME = 'PRIMARY' \
       AND locks.LOCK_MODE IN ('X', 'X,REC_NOT_GAP', 'S', 'S,REC_NOT_GAP') LIMIT 10000";
/// The limit there.
const MAX_LOCKS: usize = 10_000;

/// No right to read a table.
const NO_TABLE_RIGHT_ERROR: u16 = 1142;

const NO_SCHEMA: LockState = LockState::Unknown {
    reason: "performance_schema is off: the server lists no row locks",
    is_final: true,
};
const NO_RIGHT: LockState = LockState::Unknown {
    reason: "the right SELECT is missing on data_locks, data_lock_waits or threads of \
             performance_schema",
    is_final: true,
};
const INCOMPLETE: LockState = LockState::Unknown {
    reason: "performance_schema.data_locks lists too many row locks, or some without their row",
    is_final: false,
};

/// A row of [`LOCKS_SQL`].
struct DataLock {
    row: Option<String>,
    is_granted: bool,
    connection: u64,
    place: i64,
}

impl DataLock {
    fn of(row: &MySqlRow) -> Result<Self, StatementError> {
        Ok(Self {
            row: row.try_get(0)?,
            is_granted: row.try_get(1)?,
            connection: row.try_get(2)?,
            place: row.try_get(3)?,
        })
    }
}

/// The locks of all rows, or what can be said of a row if the server does not show them to this
/// user. `None` on `MariaDB`.
pub(crate) async fn read(
    server: &MySqlServer,
) -> Result<Option<Result<RowLockLists, LockState>>, StatementError> {
    let mut session = MySqlSession::open(server.pool()).await?;
    let answer = session.raw(SERVER_SQL).await?;
    let answer = answer.first().ok_or_else(|| sqlx::Error::RowNotFound)?;
    if answer.try_get(0)? {
        return Ok(None);
    }
    if !answer.try_get::<bool, _>(1)? {
        return Ok(Some(Err(NO_SCHEMA)));
    }
    match session.raw(LOCKS_SQL).await {
        Ok(rows) => {
            let locks = rows.iter().map(DataLock::of).collect::<Result<_, _>>()?;
            Ok(Some(Ok(lists(locks))))
        }
        Err(failure) if failure.has_number(NO_TABLE_RIGHT_ERROR) => Ok(Some(Err(NO_RIGHT))),
        Err(failure) => Err(failure),
    }
}

fn lists(locks: Vec<DataLock>) -> RowLockLists {
    let mut is_cut = locks.len() >= MAX_LOCKS;
    let mut waits: HashMap<String, RowWaits> = HashMap::new();
    for DataLock { row, is_granted, connection, place } in locks {
        let Some(row) = row else {
            is_cut = true;
            continue;
        };
        let known = waits.entry(row).or_default();
        if is_granted {
            known.holder = known.holder.or(Some(connection));
        } else {
            known.waiters.insert((place, connection));
        }
    }
    let unlisted = if is_cut { INCOMPLETE } else { LockState::Free };
    RowLockLists { waits, is_cut, is_ordered: true, unlisted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(row: &str, connection: u64) -> DataLock {
        DataLock { row: Some(row.to_owned()), is_granted: true, connection, place: 0 }
    }

    fn waiting(row: &str, connection: u64, place: i64) -> DataLock {
        DataLock { is_granted: false, place, ..granted(row, connection) }
    }

    #[test]
    fn waiters_of_a_row_are_in_the_order_of_its_queue() {
        let locks = vec![
            waiting("0x61", 3, 2),
            granted("0x62", 8),
            granted("0x61", 9),
            waiting("0x61", 2, 3),
            waiting("0x61", 5, 1),
        ];
        let lists = lists(locks);
        let waiters = [(1, 5), (2, 3), (3, 2)].into();
        assert_eq!(lists.waits["0x61"], RowWaits { holder: Some(9), waiters });
        assert_eq!(lists.waits["0x62"], RowWaits { holder: Some(8), waiters: [].into() });
        assert_eq!(
            (lists.is_cut, lists.is_ordered, lists.unlisted),
            (false, true, LockState::Free)
        );
    }

    #[test]
    fn a_row_is_not_free_if_the_server_does_not_report_which_row_is_locked() {
        let unreported = DataLock { row: None, ..granted("", 8) };
        let lists = lists(vec![granted("0x61", 9), unreported]);
        assert_eq!(lists.waits["0x61"].holder, Some(9));
        assert_eq!((lists.is_cut, lists.unlisted), (true, INCOMPLETE));
    }
}
