//! `mysql-row`: `SELECT ... FOR UPDATE` on a row of its own, in the transaction of the business
//! write.
//!
//! The hold *is* the transaction: [`Guard::lend`](crate::Guard::lend) hands it to the writer, whose
//! COMMIT or ROLLBACK frees the lock; what is not lent is rolled back. So nothing can be written
//! after the lock was lost, and no fencing is needed. FOR UPDATE is the transaction's first read:
//! an earlier plain SELECT would fix the snapshot of REPEATABLE READ, and the section would work
//! on old state. The row is made beforehand by INSERT IGNORE in autocommit: where it is missing,
//! the transaction is rolled back first, because two that locked the same gap would deadlock at
//! their INSERTs.
//!
//! An attempt uses NOWAIT. A waiter waits inside the server, in slices of a second, and gets the
//! lock in the very answer; a waiter that goes away has its connection closed and killed (see
//! `pinned`). Each slice begins a transaction anew: one that the server rolled back (1213) would
//! lock in autocommit, which is no lock.
//!
//! Guarantees exclusion of all writes in such transactions. Flaws: under autocommit everybody
//! enters, two who insert a missing row deadlock, a section that has read before it locks works on
//! old state ([`without_transaction`], [`inserting_inside`] and [`reading_first`] show these), each
//! waiter holds a connection, so the pool can run dry ([`LockError::NoConnection`]). A holder that
//! is cut off is freed after the session's `wait_timeout`; one that works for longer without a
//! statement loses its transaction. Not for writes on another connection than the lock's. On Galera
//! the row is locked on its own node only: two at two nodes hold it, and the second COMMIT is
//! refused (1213) only if both write a row in common. Source: the MySQL manual, "Locking Reads".
//! Tests: `tests/mysql_row.rs`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::{Instant, sleep};

use super::pinned::{Identity, Pinned, SLICE_S};
use super::reaper::Source;
use super::session::{Failure, Retries};
use super::{LentTransaction, MySqlServer, literal};
use crate::{
    Acquisition, Belief, Guarantees, Hold, LockError, LockKind, Locker, Release, Request, Wake,
    Woken, guarantees,
};

const BEGIN: &str = "START TRANSACTION; ";
/// The isolation that both servers have unless told otherwise; a busy look has left a transaction
/// open.
const REPEATABLE: &str =
    "ROLLBACK; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION; ";
/// The same, and a plain read of whatever there is.
const READ_FIRST: &str = "ROLLBACK; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     START TRANSACTION; SELECT COUNT(*) INTO @seen FROM lock_rows; ";
/// The number of the connection, and a setting that a waiter changes for a while.
const WHO: &str = "SELECT CONNECTION_ID(), CAST(@@SESSION.innodb_lock_wait_timeout AS UNSIGNED); ";
/// Somebody has the row: `MySQL` has a number of its own for that, `MariaDB` says "lock wait".
const BUSY: [u16; 2] = [3572, 1205];
/// How often an attempt makes a row that is gone again at the next look.
const MADE: u32 = 3;
/// The pause after a deadlock that no waiter for a single row should meet.
const ODD: Duration = Duration::from_millis(10);

pub(crate) struct RowLock {
    server: MySqlServer,
    way: Way,
}

/// How the row is locked: as it should be, or as it is often written.
#[derive(Clone, Copy)]
struct Way {
    begin: &'static str,
    /// A missing row is inserted in the transaction that has found it missing.
    inserts_inside: bool,
}

impl RowLock {
    pub(crate) fn new(server: &MySqlServer) -> Self {
        Self { server: server.clone(), way: Way { begin: BEGIN, inserts_inside: false } }
    }
}

/// `mysql-row` as it is often written, to show what is wrong with that: the same statements, but
/// without a transaction, so each lock ends with the statement that took it.
pub fn without_transaction(server: &MySqlServer) -> Arc<dyn Locker> {
    Arc::new(RowLock { server: server.clone(), way: Way { begin: "", inserts_inside: false } })
}

/// The same: at REPEATABLE READ a missing row is inserted by the transaction that has locked the
/// gap in which it is missing, and a deadlock is the caller's.
pub fn inserting_inside(server: &MySqlServer) -> Arc<dyn Locker> {
    let way = Way { begin: REPEATABLE, inserts_inside: true };
    Arc::new(RowLock { server: server.clone(), way })
}

/// The same: at REPEATABLE READ the transaction begins with a plain read, which fixes the snapshot
/// that the section works on.
pub fn reading_first(server: &MySqlServer) -> Arc<dyn Locker> {
    let way = Way { begin: READ_FIRST, inserts_inside: false };
    Arc::new(RowLock { server: server.clone(), way })
}

impl Locker for RowLock {
    fn name(&self) -> &'static str {
        LockKind::MysqlRow.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::MysqlRow)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(RowAcquisition {
            server: self.server.clone(),
            way: self.way,
            name: literal(request.name.as_str().as_bytes()),
            pinned: None,
            patience_s: None,
        })
    }
}

struct RowAcquisition {
    server: MySqlServer,
    way: Way,
    /// As SQL writes it.
    name: String,
    /// Kept while the lock is busy, to wait on it.
    pinned: Option<Pinned>,
    /// The session's own `innodb_lock_wait_timeout`, once it was asked.
    patience_s: Option<u64>,
}

enum Sight {
    Held,
    Busy,
    Missing,
}

impl RowAcquisition {
    async fn look(&mut self) -> Result<Sight, Failure> {
        let (begin, name) = (self.way.begin, &self.name);
        let sql =
            format!("{begin}{WHO}SELECT name FROM lock_rows WHERE name = {name} FOR UPDATE NOWAIT");
        let pinned = match &mut self.pinned {
            Some(pinned) => pinned,
            none => none.insert(Pinned::open(&self.server).await?),
        };
        match pinned.raw(&sql).await {
            Ok(rows) => {
                self.patience_s = learn(pinned, &rows)?;
                Ok(if rows.len() > 1 { Sight::Held } else { Sight::Missing })
            }
            Err(failure) if BUSY.iter().any(|busy| failure.has_number(*busy)) => Ok(Sight::Busy),
            Err(failure) => Err(failure),
        }
    }

    /// Makes the row in the transaction that has found it missing, and so locks it.
    async fn insert(&mut self) -> Result<(), Failure> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        let name = &self.name;
        let sql =
            format!("INSERT INTO lock_rows (name, made_at) VALUES ({name}, UTC_TIMESTAMP(6))");
        pinned.raw(&sql).await.map(drop)
    }

    /// Makes the row, outside of any transaction.
    async fn make(&mut self) -> Result<(), Failure> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        let name = &self.name;
        let sql = format!(
            "ROLLBACK; INSERT IGNORE INTO lock_rows (name, made_at) \
             VALUES ({name}, UTC_TIMESTAMP(6))"
        );
        pinned.raw(&sql).await?;
        self.server.row_made(Source::Rows);
        Ok(())
    }

    fn hold(&mut self) -> Box<dyn Hold> {
        let (pinned, undo) = (self.pinned.take(), self.undo());
        Box::new(RowHold { server: self.server.clone(), pinned, undo, lent: false, closed: None })
    }

    /// Ends the transaction and restores the session.
    fn undo(&self) -> String {
        match self.patience_s {
            None => "ROLLBACK".into(),
            Some(s) => format!("ROLLBACK; SET SESSION innodb_lock_wait_timeout = {s}"),
        }
    }

    async fn wait(&mut self) -> Result<Woken, LockError> {
        loop {
            match self.wait_for_a_slice().await {
                Ok(true) => {
                    let since = Instant::now();
                    return Ok(Woken::Held { hold: self.hold(), since });
                }
                Ok(false) => return Ok(Woken::LookAgain),
                // The slice is over.
                Err(failure) if failure.has_number(1205) => {}
                Err(failure) if failure.is_conflict() => sleep(ODD).await,
                Err(Failure::Broken(_)) => {
                    self.pinned = None;
                    return Ok(Woken::LookAgain);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Whether the row is locked now; it may also be gone.
    async fn wait_for_a_slice(&mut self) -> Result<bool, Failure> {
        let Some(pinned) = &mut self.pinned else { return Ok(false) };
        if pinned.identity().is_none() {
            let rows = pinned.raw(WHO).await?;
            self.patience_s = learn(pinned, &rows)?;
        }
        let patience_s = self.patience_s.unwrap_or(SLICE_S);
        let (begin, name) = (self.way.begin, &self.name);
        let sql = format!(
            "SET SESSION innodb_lock_wait_timeout = {SLICE_S}; {begin}\
             SELECT name FROM lock_rows WHERE name = {name} FOR UPDATE; \
             SET SESSION innodb_lock_wait_timeout = {patience_s}"
        );
        Ok(!pinned.wait(&sql).await?.is_empty())
    }
}

/// The answer to [`WHO`], which comes first.
fn learn(pinned: &mut Pinned, rows: &[MySqlRow]) -> Result<Option<u64>, Failure> {
    let Some(row) = rows.first() else { return Ok(None) };
    pinned.is_number(row.try_get(0)?);
    Ok(Some(row.try_get(1)?))
}

#[async_trait]
impl Acquisition for RowAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let mut retries = Retries::new(self.server.pool());
        let mut made = 0;
        loop {
            let outcome = match self.look().await {
                Ok(Sight::Held) => return Ok(Some(self.hold())),
                Ok(Sight::Busy) => return Ok(None),
                Ok(Sight::Missing) if self.way.inserts_inside => {
                    self.insert().await?;
                    return Ok(Some(self.hold()));
                }
                Ok(Sight::Missing) if made < MADE => {
                    made += 1;
                    self.make().await
                }
                Ok(Sight::Missing) => {
                    let text = "the row of the lock does not stay".into();
                    Err(Failure::Answer { number: 0, text })
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = outcome {
                if matches!(failure, Failure::Broken(_)) {
                    self.pinned = None;
                }
                retries.after(failure).await?;
            }
        }
    }

    fn wake(&mut self) -> Wake<'_> {
        Wake::Signal(Box::pin(self.wait()))
    }

    fn is_queued(&self) -> bool {
        self.pinned.is_some()
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        let undo = self.undo();
        match self.pinned.take() {
            Some(pinned) => pinned.abandon(&undo).await,
            None => Ok(()),
        }
    }
}

struct RowHold {
    server: MySqlServer,
    /// Dropped, it is closed, and the server rolls back.
    pinned: Option<Pinned>,
    undo: String,
    lent: bool,
    /// Closed without an answer.
    closed: Option<Identity>,
}

#[async_trait]
impl Hold for RowHold {
    /// What is written after the transaction has ended is not written.
    fn belief(&self) -> Belief {
        Belief::FOREVER
    }

    /// A lent transaction is its borrower's: there is nothing left to free.
    async fn release(&mut self) -> Result<Release, LockError> {
        if self.lent {
            return Ok(Release::Released);
        }
        if let Some(pinned) = self.pinned.take() {
            self.closed = pinned.identity();
            if pinned.end(&self.undo).await.is_ok() {
                self.closed = None;
                return Ok(Release::Released);
            }
        }
        let Some(closed) = self.closed else { return Ok(Release::Gone) };
        let release = self.server.kill(closed).await?;
        self.closed = None;
        Ok(release)
    }

    fn lend(&mut self) -> Option<LentTransaction> {
        let pinned = self.pinned.take()?;
        let id = pinned.identity()?.id;
        let connection = pinned.into_connection()?;
        self.lent = true;
        Some(LentTransaction::new(connection, id))
    }
}
