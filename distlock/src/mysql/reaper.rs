//! Takes away rows that nobody has used for long, so that storage is bounded by the names of the
//! last hour, and keeps what their tokens said: tokens never go back.
//!
//! Before rows with tokens are deleted, the highest of their tokens is written to their table's
//! floor. Who makes a new row reads the floor under a lock that lasts until the row is there: the
//! row comes either before the floor was raised, and is then no row that was reaped, or starts
//! above everything that was.
//!
//! Called by whoever makes rows: after every 128th row that this process made in a table, one task
//! in the background looks at the next 256 rows of that table, in the order of their names, so it
//! looks at rows twice as fast as they come. Bounds: one such task per table and process; each
//! deletes at most what it looked at, and rows of `mysql-row` in batches of [`LOCKED_AT_ONCE`].
//! Test: `tests/mysql_tokens.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::session::{Failure, Session};
use super::{MySqlServer, literal, microseconds};
use crate::LockError;

/// A row that was free for so long is taken away.
const UNUSED: Duration = Duration::from_hours(1);
/// A reaper is started after every so many rows that were made.
const EVERY: u32 = 128;
/// How many rows it looks at.
const ROWS: u32 = 256;
/// How many rows of `mysql-row` are locked at a time, for two round trips, before they are deleted:
/// meanwhile an attempt without a wait finds them busy, though nobody holds them.
const LOCKED_AT_ONCE: usize = 16;

/// Which rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// Of `mysql-table`.
    Holders,
    /// Of the mint.
    Tokens,
    /// Of `mysql-row`.
    Rows,
}

impl Source {
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
pub(super) struct Reaper {
    holders: Progress,
    tokens: Progress,
    rows: Progress,
}

#[derive(Default)]
struct Progress {
    made: AtomicU32,
    running: AtomicBool,
    /// The name that was looked at last; empty at the start of the table.
    at: Mutex<Vec<u8>>,
}

impl Progress {
    fn at(&self) -> MutexGuard<'_, Vec<u8>> {
        // It is only ever replaced as a whole.
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a reaper may do.
#[derive(Clone, Copy)]
struct Limits {
    unused: Duration,
    rows: u32,
}

impl MySqlServer {
    /// Takes away rows that were free for `unused` or longer. Looks at no more than `rows` rows of
    /// each table, and goes on next time where it stopped. Returns how many it took away. Rows of
    /// `mysql-row` have no such time: they go when they were made that long ago and nobody holds
    /// them, and are made again on demand.
    pub async fn reap(&self, unused: Duration, rows: u32) -> Result<u64, LockError> {
        let mut reaped = 0;
        for source in [Source::Holders, Source::Tokens, Source::Rows] {
            reaped += self.reap_some(source, Limits { unused, rows }).await?;
        }
        Ok(reaped)
    }

    /// A row was made: now and then somebody has to look for old ones.
    pub(super) fn row_made(&self, source: Source) {
        let progress = self.progress(source);
        let is_turn = progress.made.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1;
        if !is_turn || progress.running.swap(true, Ordering::AcqRel) {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            let limits = Limits { unused: UNUSED, rows: ROWS };
            if let Err(failure) = server.reap_some(source, limits).await {
                tracing::debug!(?failure, ?source, "nothing was reaped");
            }
            server.progress(source).running.store(false, Ordering::Release);
        });
    }

    fn progress(&self, source: Source) -> &Progress {
        let reaper = &self.shared.reaper;
        match source {
            Source::Holders => &reaper.holders,
            Source::Tokens => &reaper.tokens,
            Source::Rows => &reaper.rows,
        }
    }

    async fn reap_some(&self, source: Source, limits: Limits) -> Result<u64, Failure> {
        let mut session = Session::open(self.pool()).await?;
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
    session: &mut Session,
    (source, floor): (Source, &str),
    old: &[(Vec<u8>, u64)],
    limits: Limits,
) -> Result<u64, Failure> {
    let highest = old.iter().map(|(_, token)| *token).max().unwrap_or_default();
    let raise = "UPDATE lock_floors SET token = GREATEST(token, ?) WHERE source = ?";
    let raise = sqlx::query(raise).bind(highest).bind(floor.as_bytes());
    if session.execute(raise).await?.rows_affected() == 0 {
        return Err(Failure::Answer { number: 0, text: "lock_floors has no rows".into() });
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

/// Deletes the rows that nobody holds or waits for, which only their own locks can tell.
async fn delete_unlocked(session: &mut Session, old: &[(Vec<u8>, u64)]) -> Result<u64, Failure> {
    let mut deleted = 0;
    for some in old.chunks(LOCKED_AT_ONCE) {
        deleted += delete_some_unlocked(session, some).await?;
    }
    Ok(deleted)
}

async fn delete_some_unlocked(
    session: &mut Session,
    old: &[(Vec<u8>, u64)],
) -> Result<u64, Failure> {
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

/// A statement for each name, in one text. One statement with a list of names may read the whole
/// table, if the server thinks it small, and then waits for rows that it is not to touch: a held
/// row of `mysql-row` stays locked for as long as it is held.
fn each<'a>(
    names: impl Iterator<Item = &'a Vec<u8>>,
    statement: impl Fn(String) -> String,
) -> String {
    names.map(|name| statement(literal(name))).collect::<Vec<_>>().join("; ")
}
