//! Deletes rows that were unused for an hour, so the storage is bounded by the names of the last
//! hour. It keeps the highest token, so tokens never go back.
//!
//! Before rows with tokens are deleted, their highest token is written to the floor of their table.
//! The maker of a new row reads the floor under a lock that lasts until the row exists. So the row
//! was either made before the floor was raised, and was not reaped, or it starts above all reaped
//! tokens.
//!
//! It is started by the makers of rows: after every 128th row that this process made in a table.
//! One background task then looks at the next 256 rows of that table, in the order of names: twice
//! as fast as rows come. Bounds: one such task per table and process. Each deletes at most what it
//! looked at, rows of `mysql-row` in batches of [`MAX_LOCKED_ROWS`]. Test:
//! `tests/mysql/mysql_tokens.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::session::{MySqlSession, StatementError};
use super::{MySqlServer, literal, microseconds};
use crate::LockError;

/// The age from which an unused row is deleted.
const UNUSED_ROW_AGE: Duration = Duration::from_hours(1);
/// The number of new rows after which a reaper starts.
const INSERTS_PER_RUN: u32 = 128;
/// How many rows it looks at.
const ROWS_PER_RUN: u32 = 256;
/// How many rows of `mysql-row` are locked at a time before they are deleted, for two round trips.
/// An attempt without a wait finds them busy meanwhile.
const MAX_LOCKED_ROWS: usize = 16;

/// Which rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReapedTable {
    /// Of `mysql-table`.
    Holders,
    /// Of the token issuer.
    Tokens,
    /// Of `mysql-row`.
    Rows,
}

impl ReapedTable {
    /// The table, the column that says since when a row is unused, and the name of its floor.
    fn table(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Self::Holders => ("lock_holders", "expires_at", Some("holders")),
            Self::Tokens => ("lock_tokens", "used_at", Some("tokens")),
            Self::Rows => ("lock_rows", "made_at", None),
        }
    }
}

/// How far the reapers of this process are.
#[derive(Default)]
pub(crate) struct Reaper {
    holders: ReapProgress,
    tokens: ReapProgress,
    rows: ReapProgress,
}

#[derive(Default)]
struct ReapProgress {
    made: AtomicU32,
    running: AtomicBool,
    /// The name that was looked at last; empty at the start of the table.
    at: Mutex<Vec<u8>>,
}

impl ReapProgress {
    fn at(&self) -> MutexGuard<'_, Vec<u8>> {
        // It is only ever replaced as a whole.
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reaper may do.
#[derive(Clone, Copy)]
struct ReapLimits {
    unused: Duration,
    rows: u32,
}

impl MySqlServer {
    /// Deletes rows that were free for `unused` or longer. Looks at no more than `rows` rows of
    /// each table, and continues there next time. Returns how many it deleted. For rows of
    /// `mysql-row` the age counts from their creation; those that are held stay. They are made
    /// again on demand.
    pub async fn reap(&self, unused: Duration, rows: u32) -> Result<u64, LockError> {
        let mut reaped = 0;
        for source in [ReapedTable::Holders, ReapedTable::Tokens, ReapedTable::Rows] {
            reaped += self.reap_some(source, ReapLimits { unused, rows }).await?;
        }
        Ok(reaped)
    }

    /// Counts a new row, and starts a reaper after every [`INSERTS_PER_RUN`]th.
    pub(crate) fn row_made(&self, source: ReapedTable) {
        let progress = self.progress(source);
        let is_turn =
            progress.made.fetch_add(1, Ordering::Relaxed) % INSERTS_PER_RUN == INSERTS_PER_RUN - 1;
        if !is_turn || progress.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            let limits = ReapLimits { unused: UNUSED_ROW_AGE, rows: ROWS_PER_RUN };
            if let Err(failure) = server.reap_some(source, limits).await {
                tracing::debug!(?failure, ?source, "reaper failed; unused rows stay");
            }
            server.progress(source).running.store(false, Ordering::Release);
        });
    }

    fn progress(&self, source: ReapedTable) -> &ReapProgress {
        let reaper = &self.shared.reaper;
        match source {
            ReapedTable::Holders => &reaper.holders,
            ReapedTable::Tokens => &reaper.tokens,
            ReapedTable::Rows => &reaper.rows,
        }
    }

    async fn reap_some(
        &self,
        source: ReapedTable,
        limits: ReapLimits,
    ) -> Result<u64, StatementError> {
        let mut session = MySqlSession::open(self.pool()).await?;
        let progress = self.progress(source);
        let (table, since, floor) = source.table();
        let token = if floor.is_some() { "token" } else { "CAST(0 AS UNSIGNED)" };
        let sql = format!(
            "SELECT name, {token}, {since} < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND \
             FROM {table} WHERE name > ? ORDER BY name LIMIT ?"
        );
        let after = progress.at().clone();
        let query = sqlx::query(AssertSqlSafe(sql)).bind(microseconds(limits.unused));
        let rows = session.fetch_all(query.bind(after).bind(limits.rows)).await?;
        let mut old = Vec::new();
        let mut last = Vec::new();
        for row in &rows {
            last = row.try_get::<Vec<u8>, _>(0)?;
            if row.try_get::<i64, _>(2)? == 1 {
                old.push((last.clone(), row.try_get::<u64, _>(1)?));
            }
        }
        let is_end = u32::try_from(rows.len()).is_ok_and(|seen| seen < limits.rows);
        *progress.at() = if is_end { Vec::new() } else { last };
        if old.is_empty() {
            return Ok(0);
        }
        match floor {
            Some(floor) => delete_above_floor(&mut session, (source, floor), &old, limits).await,
            None => delete_unlocked(&mut session, &old).await,
        }
    }
}

/// The floor first, and the rows only if it was raised.
async fn delete_above_floor(
    session: &mut MySqlSession,
    (source, floor): (ReapedTable, &str),
    old: &[(Vec<u8>, u64)],
    limits: ReapLimits,
) -> Result<u64, StatementError> {
    let highest = old.iter().map(|(_, token)| *token).max().unwrap_or_default();
    let raise = "UPDATE lock_floors SET token = GREATEST(token, ?) WHERE source = ?";
    let raise = sqlx::query(raise).bind(highest).bind(floor.as_bytes());
    if session.execute(raise).await?.rows_affected() == 0 {
        return Err(StatementError::Answer { number: 0, text: "lock_floors has no rows".into() });
    }
    let (table, since, _) = source.table();
    // A row that was used meanwhile has another time and another token, and stays.
    let old_enough = format!(
        "token <= {highest} AND {since} < UTC_TIMESTAMP(6) - INTERVAL {} MICROSECOND",
        microseconds(limits.unused)
    );
    let delete = each(old.iter().map(|(name, _)| name), |name| {
        format!("DELETE FROM {table} WHERE name = {name} AND {old_enough}")
    });
    session.execute_raw(&delete).await
}

/// Deletes the rows without a holder or a waiter, which only their row locks show.
async fn delete_unlocked(
    session: &mut MySqlSession,
    old: &[(Vec<u8>, u64)],
) -> Result<u64, StatementError> {
    let mut deleted = 0;
    for some in old.chunks(MAX_LOCKED_ROWS) {
        deleted += delete_some_unlocked(session, some).await?;
    }
    Ok(deleted)
}

async fn delete_some_unlocked(
    session: &mut MySqlSession,
    old: &[(Vec<u8>, u64)],
) -> Result<u64, StatementError> {
    session.pin();
    let lock = each(old.iter().map(|(name, _)| name), |name| {
        format!("SELECT name FROM lock_rows WHERE name = {name} FOR UPDATE SKIP LOCKED")
    });
    let free = session.raw(&format!("START TRANSACTION; {lock}")).await?;
    let mut names = Vec::new();
    for row in &free {
        names.push(row.try_get::<Vec<u8>, _>(0)?);
    }
    let delete = each(names.iter(), |name| format!("DELETE FROM lock_rows WHERE name = {name}"));
    let end = if names.is_empty() { "ROLLBACK".into() } else { format!("{delete}; COMMIT") };
    session.raw(&end).await?;
    session.unpin();
    Ok(free.len() as u64)
}

/// Sends a statement per name, in one text. A statement with a list of names may read the whole
/// table, if the server takes it for small, and then wait for other rows. A held row of `mysql-row`
/// stays locked as long as it is held.
fn each<'a>(
    names: impl Iterator<Item = &'a Vec<u8>>,
    statement: impl Fn(String) -> String,
) -> String {
    names.map(|name| statement(literal(name))).collect::<Vec<_>>().join("; ")
}
