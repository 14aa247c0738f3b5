//! `mysql-table`: a row per lock, with a lease by the database's clock.
//!
//! How it works: each step is one statement with autocommit, so nothing is held between two steps.
//! Acquire is an UPDATE that takes the row if it is free, expired or the same owner's (re-entry).
//! If there is no row yet, an INSERT follows: one round trip, two for a new name. Every new
//! ownership raises the row's token. A re-entry does not, and it never shortens the lease. The row
//! lists the holds of its owner by their ids. So an acquire or a release that is repeated counts
//! once, and the release of the last hold frees the lock. Waiters poll: the first waiter of each
//! process sees a free lock within 16 ms and a round trip.
//!
//! Guarantees exclusion while each holder's lease lasts; the watchdog renews leases, many at a
//! time. Does not guarantee:
//! - any order among waiters;
//! - exclusion while the database's clock is set forward by more than a lease (leases then end
//!   early);
//! - exclusion after a failover to a server without the last transactions.
//!
//! Bounds: an owner can enter 64 times; further entries find the lock busy. A statement that meets
//! a deadlock is sent again at most five times. Rows are reaped (see `reaper`).
//!
//! Source: a table of locks as in `ShedLock` and Spring Integration's JDBC lock registry, with the
//! tokens of Kleppmann's "How to do distributed locking". Tests: `tests/mysql_table.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Row;
use tokio::time::Instant;

use crate::mysql::reaper::ReapedTable;
use crate::mysql::session::{MySqlSession, Retries, Statement, StatementError};
use crate::mysql::table_inspector::TableInspector;
use crate::mysql::table_lock_renewer::TableRenewer;
use crate::mysql::{MySqlServer, microseconds};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release,
    RenewalTarget, Renewer, Request, Token, Validity, guarantees,
};

/// Takes the row if it is free or the owner's own. Assignments are carried out from left to right,
/// so each reads only columns that are not assigned yet.
const TAKE_SQL: &str = "UPDATE lock_holders SET \
     token = LAST_INSERT_ID(IF(owner = ? AND expires_at > UTC_TIMESTAMP(6), token, token + 1)), \
     acquired_at = IF(owner = ? AND expires_at > UTC_TIMESTAMP(6), acquired_at, UTC_TIMESTAMP(6)), \
     holds = IF(owner = ? AND expires_at > UTC_TIMESTAMP(6), \
       IF(LOCATE(?, holds) > 0, holds, CONCAT(holds, ?)), ?), \
     expires_at = IF(owner = ? AND expires_at > UTC_TIMESTAMP(6), \
       GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), \
       UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), \
     owner = ?, host = ?, pid = ? \
     WHERE name = ? AND (released IS NULL OR released <> ?) \
     AND (owner IS NULL OR expires_at <= UTC_TIMESTAMP(6) \
       OR (owner = ? AND (LOCATE(?, holds) > 0 OR LENGTH(holds) < 2112)))";

/// Makes a row that is the owner's from the start. The floor stays locked until the row is there.
const INSERT_SQL: &str = "INSERT INTO lock_holders \
     (name, owner, host, pid, holds, token, acquired_at, expires_at) \
     SELECT ?, ?, ?, ?, ?, LAST_INSERT_ID(token + 1), UTC_TIMESTAMP(6), \
       UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND \
     FROM lock_floors WHERE source = 'holders' LOCK IN SHARE MODE";

/// Takes a hold out of the row; the last one frees it.
const RELEASE_SQL: &str = "UPDATE lock_holders SET \
     expires_at = IF(holds = ?, UTC_TIMESTAMP(6), expires_at), \
     owner = IF(holds = ?, NULL, owner), \
     holds = REPLACE(holds, ?, ''), released = ? \
     WHERE name = ? AND owner = ? AND token = ? AND expires_at > UTC_TIMESTAMP(6) \
     AND LOCATE(?, holds) > 0";

/// Why a release found nothing to free.
const RELEASE_STATE_SQL: &str = "SELECT COALESCE(released = ?, 0) AS was_released, \
     (owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)) AS is_held \
     FROM lock_holders WHERE name = ?";

/// Takes a hold out wherever it is, and bars it from coming later: a server that was hung may carry
/// out the attempt after this.
const ABANDON_SQL: &str = "UPDATE lock_holders SET \
     expires_at = IF(holds = ?, UTC_TIMESTAMP(6), expires_at), \
     owner = IF(holds = ?, NULL, owner), \
     holds = REPLACE(holds, ?, ''), released = ? \
     WHERE name = ?";

/// After a row was seen, it is assumed to exist for this time.
const SEEN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest owner, in bytes.
const MAX_OWNER_BYTES: usize = 128;
/// A row with that key exists.
const DUPLICATE_KEY_ERROR: u16 = 1062;

pub(crate) struct TableLock {
    server: MySqlServer,
    renewer: Arc<TableRenewer>,
}

impl TableLock {
    pub(crate) fn new(server: &MySqlServer) -> Self {
        let renewer = Arc::new(TableRenewer::new(server.clone()));
        Self { server: server.clone(), renewer }
    }
}

impl Locker for TableLock {
    fn name(&self) -> &'static str {
        LockKind::MysqlTable.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::MysqlTable)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(TableInspector { server: self.server.clone() }))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(TableAcquisition {
            server: self.server.clone(),
            renewer: Arc::clone(&self.renewer),
            hold: hold_id(&request),
            request,
            seen: None,
            in_doubt: false,
        })
    }
}

/// What stands in the row's list for this hold: 33 bytes.
pub(crate) fn hold_id(request: &Request) -> String {
    format!("{},", request.id.simple())
}

struct TableAcquisition {
    server: MySqlServer,
    renewer: Arc<TableRenewer>,
    request: Request,
    hold: String,
    /// When the row was last seen to be there.
    seen: Option<Instant>,
    /// Whether something was sent that was not answered.
    in_doubt: bool,
}

/// A granted lock.
struct Grant {
    sent: Instant,
    token: Token,
}

impl TableAcquisition {
    async fn once(&mut self) -> Result<Option<Grant>, StatementError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let sent = Instant::now();
        let taken = session.execute(self.take()).await?;
        if taken.rows_affected() > 0 {
            return Ok(Some(Grant { sent, token: Token(taken.last_insert_id()) }));
        }
        if self.seen.is_some_and(|seen| seen.elapsed() < SEEN_INTERVAL) {
            return Ok(None);
        }
        let sent = Instant::now();
        match session.execute(self.make()).await {
            Ok(made) if made.rows_affected() > 0 => {
                self.server.row_made(ReapedTable::Holders);
                Ok(Some(Grant { sent, token: Token(made.last_insert_id()) }))
            }
            Ok(_) => {
                Err(StatementError::Answer { number: 0, text: "lock_floors has no rows".into() })
            }
            Err(failure) if failure.has_number(DUPLICATE_KEY_ERROR) => {
                self.seen = Some(Instant::now());
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Without a connection for another try, what was sent before remains unknown.
    fn error(&self, failure: StatementError) -> LockError {
        match failure {
            StatementError::NoConnection(reason) if self.in_doubt => LockError::Backend(reason),
            failure => failure.into(),
        }
    }

    fn take(&self) -> Statement<'_> {
        let (owner, hold) = (self.request.owner.as_str().as_bytes(), self.hold.as_bytes());
        let lease = microseconds(self.request.lease);
        sqlx::query(TAKE_SQL)
            .bind(owner)
            .bind(owner)
            .bind(owner)
            .bind(hold)
            .bind(hold)
            .bind(hold)
            .bind(owner)
            .bind(lease)
            .bind(lease)
            .bind(owner)
            .bind(&self.server.shared.host)
            .bind(std::process::id())
            .bind(self.request.name.as_str().as_bytes())
            .bind(hold)
            .bind(owner)
            .bind(hold)
    }

    fn make(&self) -> Statement<'_> {
        sqlx::query(INSERT_SQL)
            .bind(self.request.name.as_str().as_bytes())
            .bind(self.request.owner.as_str().as_bytes())
            .bind(&self.server.shared.host)
            .bind(std::process::id())
            .bind(self.hold.as_bytes())
            .bind(microseconds(self.request.lease))
    }
}

impl Acquisition for TableAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            if self.request.owner.as_str().len() > MAX_OWNER_BYTES {
                let limit = format!("must have at most {MAX_OWNER_BYTES} bytes");
                return Err(LockError::BadRequest { field: "owner", limit });
            }
            let mut retries = Retries::new(self.server.pool());
            loop {
                match self.once().await {
                    Ok(Some(grant)) => {
                        let hold = TableHold {
                            server: self.server.clone(),
                            renewer: Arc::clone(&self.renewer),
                            validity: Validity::of_lease(grant.sent, self.request.lease),
                            token: grant.token,
                            request: self.request.clone(),
                            hold: self.hold.clone(),
                        };
                        return Ok(Some(Box::new(hold) as Box<dyn Hold>));
                    }
                    Ok(None) => return Ok(None),
                    // From the start again: what was sent may have been carried out.
                    Err(failure) => {
                        self.in_doubt |=
                            matches!(failure, StatementError::Broken(_) | StatementError::Silent);
                        retries.after(failure).await.map_err(|failure| self.error(failure))?;
                    }
                }
            }
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            loop {
                let hold = self.hold.as_bytes();
                let query = sqlx::query(ABANDON_SQL).bind(hold).bind(hold).bind(hold).bind(hold);
                let query = query.bind(self.request.name.as_str().as_bytes());
                let mut session = MySqlSession::open(self.server.pool()).await?;
                match session.execute(query).await {
                    Ok(_) => return Ok(()),
                    Err(failure) => retries.after(failure).await?,
                }
            }
        })
    }
}

struct TableHold {
    server: MySqlServer,
    renewer: Arc<TableRenewer>,
    request: Request,
    hold: String,
    token: Token,
    validity: Validity,
}

impl TableHold {
    async fn release_once(&self) -> Result<Release, StatementError> {
        let (name, hold) = (self.request.name.as_str().as_bytes(), self.hold.as_bytes());
        let query = sqlx::query(RELEASE_SQL).bind(hold).bind(hold).bind(hold).bind(hold).bind(name);
        let query = query.bind(self.request.owner.as_str().as_bytes()).bind(self.token.0);
        let mut session = MySqlSession::open(self.server.pool()).await?;
        if session.execute(query.bind(hold)).await?.rows_affected() > 0 {
            return Ok(Release::Released);
        }
        let rows = session.fetch_all(sqlx::query(RELEASE_STATE_SQL).bind(hold).bind(name)).await?;
        let Some(row) = rows.first() else { return Ok(Release::Gone) };
        Ok(if row.try_get::<i64, _>(0)? == 1 {
            Release::Released
        } else if row.try_get::<i64, _>(1)? == 1 {
            Release::HeldByOther
        } else {
            Release::Gone
        })
    }
}

impl Hold for TableHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn token(&self) -> Option<Token> {
        Some(self.token)
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.renewer) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            loop {
                match self.release_once().await {
                    Ok(release) => return Ok(release),
                    Err(failure) => retries.after(failure).await?,
                }
            }
        })
    }
}
