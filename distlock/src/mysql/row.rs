//! `mysql-row`: `SELECT ... FOR UPDATE` on a row of its own, in the transaction of the business
//! write.
//!
//! How it works: the hold *is* the transaction.
//! [`Guard::take_transaction`](crate::Guard::take_transaction) hands it to the writer, whose COMMIT
//! or ROLLBACK frees the lock; otherwise it is rolled back. So nothing can be written after the
//! lock was lost, and no fencing is needed. FOR UPDATE is the transaction's first read: an earlier
//! plain SELECT would fix the snapshot of REPEATABLE READ, and the section would work on old state.
//! The row is made beforehand by INSERT IGNORE in autocommit. If it is missing, the transaction is
//! rolled back first, because two that locked the same gap would deadlock at their INSERTs.
//!
//! An attempt uses NOWAIT. A waiter waits inside the server, in slices of a second, and gets the
//! lock with the answer. A waiter that is dropped has its connection closed and killed (see
//! `pinned`). Each slice begins a new transaction: one that the server rolled back (1213) would
//! lock in autocommit, which is no lock.
//!
//! Guarantees exclusion of all writes in such transactions. Flaws:
//! - under autocommit every caller enters ([`without_transaction`]);
//! - two that insert a missing row deadlock ([`inserting_inside`]);
//! - a section that has read before it locks works on old state ([`reading_first`]);
//! - each waiter holds a connection, so the pool can run dry ([`LockError::NoConnection`]);
//! - a holder that is cut off is freed after the session's `wait_timeout`, and one without a
//!   statement for that long loses its transaction;
//! - it does not protect writes on another connection;
//! - on Galera the row is locked on its own node only, so two at two nodes hold it. The holder also
//!   writes the row there, so all nodes refuse the second COMMIT (1213).
//!
//! Source: the MySQL manual, "Locking Reads". Tests: `tests/mysql_row.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::{Instant, sleep};

use crate::mysql::pinned::{ConnectionIdentity, PinnedConnection, SERVER_IDENTITY_SQL, SLICE_S};
use crate::mysql::reaper::ReapedTable;
use crate::mysql::row_inspector::RowInspector;
use crate::mysql::session::{Retries, StatementError};
use crate::mysql::{LockTransaction, MySqlServer, literal};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release, Request,
    Validity, WakeEvent, WakeStrategy, guarantees,
};

const BEGIN: &str = "START TRANSACTION; ";
/// The default isolation of both servers; a busy look has left a transaction
/// open.
const BEGIN_REPEATABLE_READ: &str =
    "ROLLBACK; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION; ";
/// Begins as [`BEGIN_REPEATABLE_READ`], with a plain read.
const BEGIN_WITH_READ: &str = "ROLLBACK; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     START TRANSACTION; SELECT COUNT(*) INTO @seen FROM lock_rows; ";
/// Reads the connection's id, and a setting that a waiter changes; the server's identity follows,
/// and [`ON_GALERA_SQL`].
const CONNECTION_ID_SQL: &str =
    "SELECT CONNECTION_ID(), CAST(@@SESSION.innodb_lock_wait_timeout AS UNSIGNED), ";
/// Whether the server is a node of Galera; a comment to `MySQL`.
const ON_GALERA_SQL: &str = " /*M!100100 , @@wsrep_on */";
/// The row is locked: `MySQL` has a number of its own for that, `MariaDB` says "lock wait".
const LOCK_WAIT_ERRORS: [u16; 2] = [3572, 1205];
/// How often an attempt makes a row that is missing again at the next read.
const MAX_INSERTS: u32 = 3;
/// The pause after a deadlock that no waiter for a single row should meet.
const DEADLOCK_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct RowLock {
    server: MySqlServer,
    variant: RowLockVariant,
}

/// How the row is locked: as it should be, or as it is often written.
#[derive(Clone, Copy)]
struct RowLockVariant {
    begin: &'static str,
    /// A missing row is inserted in the transaction that has found it missing.
    inserts_inside: bool,
}

impl RowLock {
    pub(crate) fn new(server: &MySqlServer) -> Self {
        Self {
            server: server.clone(),
            variant: RowLockVariant { begin: BEGIN, inserts_inside: false },
        }
    }
}

/// `mysql-row` as it is often written, to show its flaw: without a transaction, each lock ends with
/// the statement that took it.
#[must_use]
pub fn without_transaction(server: &MySqlServer) -> Arc<dyn Locker> {
    Arc::new(RowLock {
        server: server.clone(),
        variant: RowLockVariant { begin: "", inserts_inside: false },
    })
}

/// `mysql-row` as it is often written: at REPEATABLE READ the transaction that locked the gap of a
/// missing row inserts it. A deadlock is the caller's.
#[must_use]
pub fn inserting_inside(server: &MySqlServer) -> Arc<dyn Locker> {
    let variant = RowLockVariant { begin: BEGIN_REPEATABLE_READ, inserts_inside: true };
    Arc::new(RowLock { server: server.clone(), variant })
}

/// `mysql-row` as it is often written: at REPEATABLE READ the transaction begins with a plain read,
/// which fixes the snapshot that the section works on.
#[must_use]
pub fn reading_first(server: &MySqlServer) -> Arc<dyn Locker> {
    let variant = RowLockVariant { begin: BEGIN_WITH_READ, inserts_inside: false };
    Arc::new(RowLock { server: server.clone(), variant })
}

impl Locker for RowLock {
    fn name(&self) -> &'static str {
        LockKind::MysqlRow.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::MysqlRow)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(RowInspector { server: self.server.clone() }))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(RowAcquisition {
            server: self.server.clone(),
            variant: self.variant,
            name: literal(request.name.as_str().as_bytes()),
            pinned: None,
            patience_s: None,
            is_on_galera: false,
        })
    }
}

struct RowAcquisition {
    server: MySqlServer,
    variant: RowLockVariant,
    /// As SQL writes it.
    name: String,
    /// Kept while the lock is busy, to wait on it.
    pinned: Option<PinnedConnection>,
    /// The session's own `innodb_lock_wait_timeout`, once it was asked.
    patience_s: Option<u64>,
    /// Whether the server is a node of Galera, once it was asked.
    is_on_galera: bool,
}

enum RowState {
    Locked,
    Busy,
    Missing,
}

impl RowAcquisition {
    async fn look(&mut self) -> Result<RowState, StatementError> {
        let (begin, name) = (self.variant.begin, &self.name);
        let sql = format!(
            "{begin}{CONNECTION_ID_SQL}{SERVER_IDENTITY_SQL}{ON_GALERA_SQL}; \
             SELECT name FROM lock_rows WHERE name = {name} FOR UPDATE NOWAIT"
        );
        let pinned = match &mut self.pinned {
            Some(pinned) => pinned,
            none => none.insert(PinnedConnection::open(&self.server).await?),
        };
        match pinned.raw(&sql).await {
            Ok(rows) => {
                (self.patience_s, self.is_on_galera) = learn(pinned, &rows)?;
                if rows.len() < 2 {
                    return Ok(RowState::Missing);
                }
                self.write_on_galera().await?;
                Ok(RowState::Locked)
            }
            Err(failure) if LOCK_WAIT_ERRORS.iter().any(|busy| failure.has_number(*busy)) => {
                Ok(RowState::Busy)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Writes the locked row on a node of Galera. Of two transactions that have written it, all
    /// nodes refuse the one that commits last, or roll it back before.
    async fn write_on_galera(&mut self) -> Result<(), StatementError> {
        let Some(pinned) = self.pinned.as_mut().filter(|_| self.is_on_galera) else {
            return Ok(());
        };
        let name = &self.name;
        let sql = format!("UPDATE lock_rows SET made_at = UTC_TIMESTAMP(6) WHERE name = {name}");
        pinned.raw(&sql).await.map(drop)
    }

    /// Makes the row in the transaction that has found it missing, and so locks it.
    async fn insert(&mut self) -> Result<(), StatementError> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        let name = &self.name;
        let sql =
            format!("INSERT INTO lock_rows (name, made_at) VALUES ({name}, UTC_TIMESTAMP(6))");
        pinned.raw(&sql).await.map(drop)
    }

    /// Makes the row, outside of any transaction.
    async fn make(&mut self) -> Result<(), StatementError> {
        let Some(pinned) = &mut self.pinned else { return Ok(()) };
        let name = &self.name;
        let sql = format!(
            "ROLLBACK; INSERT IGNORE INTO lock_rows (name, made_at) \
             VALUES ({name}, UTC_TIMESTAMP(6))"
        );
        pinned.raw(&sql).await?;
        self.server.row_made(ReapedTable::Rows);
        Ok(())
    }

    fn hold(&mut self) -> Box<dyn Hold> {
        Box::new(RowHold {
            server: self.server.clone(),
            undo: self.undo(),
            pinned: self.pinned.take(),
            is_on_galera: self.is_on_galera,
            lent: false,
            closed: None,
        })
    }

    /// Ends the transaction and restores the session.
    fn undo(&self) -> String {
        match self.patience_s {
            None => "ROLLBACK".into(),
            Some(s) => format!("ROLLBACK; SET SESSION innodb_lock_wait_timeout = {s}"),
        }
    }

    async fn wait(&mut self) -> Result<WakeEvent, LockError> {
        loop {
            match self.wait_for_a_slice().await {
                Ok(true) => {
                    let since = Instant::now();
                    return Ok(WakeEvent::Acquired { hold: self.hold(), since });
                }
                Ok(false) => return Ok(WakeEvent::Retry),
                // The slice is over.
                Err(failure) if failure.has_number(1205) => {}
                Err(failure) if failure.is_conflict() => sleep(DEADLOCK_PAUSE).await,
                Err(StatementError::Broken(_)) => {
                    self.pinned = None;
                    return Ok(WakeEvent::Retry);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Whether the row is locked now; it may also be missing.
    async fn wait_for_a_slice(&mut self) -> Result<bool, StatementError> {
        let Some(pinned) = &mut self.pinned else { return Ok(false) };
        if pinned.identity().is_none() {
            let sql = format!("{CONNECTION_ID_SQL}{SERVER_IDENTITY_SQL}{ON_GALERA_SQL}");
            let rows = pinned.raw(&sql).await?;
            (self.patience_s, self.is_on_galera) = learn(pinned, &rows)?;
        }
        let patience_s = self.patience_s.unwrap_or(SLICE_S);
        let (begin, name) = (self.variant.begin, &self.name);
        let sql = format!(
            "SET SESSION innodb_lock_wait_timeout = {SLICE_S}; {begin}\
             SELECT name FROM lock_rows WHERE name = {name} FOR UPDATE"
        );
        let restore = format!("SET SESSION innodb_lock_wait_timeout = {patience_s}");
        if self.is_on_galera {
            // Behind the SELECT, it would hide that another node has aborted the transaction.
            let rows = pinned.wait(&sql).await?;
            pinned.raw(&restore).await?;
            if !rows.is_empty() {
                self.write_on_galera().await?;
            }
            return Ok(!rows.is_empty());
        }
        Ok(!pinned.wait(&format!("{sql}; {restore}")).await?.is_empty())
    }
}

/// The answer to [`CONNECTION_ID_SQL`], which comes first: the setting, and whether the server is a
/// node of Galera.
fn learn(
    pinned: &mut PinnedConnection,
    rows: &[MySqlRow],
) -> Result<(Option<u64>, bool), StatementError> {
    let Some(row) = rows.first() else { return Ok((None, false)) };
    pinned.set_identity(row.try_get(0)?, row.try_get(2)?);
    Ok((Some(row.try_get(1)?), matches!(row.try_get(3), Ok(1_i64))))
}

impl Acquisition for RowAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            let mut made = 0;
            loop {
                let outcome = match self.look().await {
                    Ok(RowState::Locked) => return Ok(Some(self.hold())),
                    Ok(RowState::Busy) => return Ok(None),
                    Ok(RowState::Missing) if self.variant.inserts_inside => {
                        self.insert().await?;
                        return Ok(Some(self.hold()));
                    }
                    Ok(RowState::Missing) if made < MAX_INSERTS => {
                        made += 1;
                        self.make().await
                    }
                    Ok(RowState::Missing) => {
                        let text = "the row of the lock does not stay".into();
                        Err(StatementError::Answer { number: 0, text })
                    }
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = outcome {
                    if matches!(failure, StatementError::Broken(_)) {
                        self.pinned = None;
                    }
                    retries.after(failure).await?;
                }
            }
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(self.wait()))
    }

    fn is_queued(&self) -> bool {
        self.pinned.is_some()
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let undo = self.undo();
            match self.pinned.take() {
                Some(pinned) => pinned.abandon(&undo).await,
                None => Ok(()),
            }
        })
    }
}

struct RowHold {
    server: MySqlServer,
    /// Dropped, it is closed, and the server rolls back.
    pinned: Option<PinnedConnection>,
    undo: String,
    is_on_galera: bool,
    lent: bool,
    /// Closed without an answer.
    closed: Option<ConnectionIdentity>,
}

impl Hold for RowHold {
    /// What is written after the transaction has ended is not written.
    fn validity(&self) -> Validity {
        Validity::UNBOUNDED
    }

    /// A lent transaction is its borrower's: there is nothing left to free.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            if self.lent {
                return Ok(Release::Released);
            }
            if let Some(pinned) = self.pinned.take() {
                self.closed = pinned.identity().cloned();
                if pinned.end(&self.undo).await.is_ok() {
                    self.closed = None;
                    return Ok(Release::Released);
                }
            }
            let Some(closed) = &self.closed else { return Ok(Release::Gone) };
            let release = self.server.kill(closed).await?;
            self.closed = None;
            Ok(release)
        })
    }

    fn take_transaction(&mut self) -> Option<LockTransaction> {
        let pinned = self.pinned.take()?;
        let ConnectionIdentity { id, server, .. } = pinned.identity()?.clone();
        let connection = pinned.into_connection()?;
        self.lent = true;
        Some(LockTransaction::new(connection, id, server, self.is_on_galera))
    }
}
