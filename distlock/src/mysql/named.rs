//! `mysql-named`: `GET_LOCK` on a connection of its own.
//!
//! How it works: the lock belongs to the session and is freed when the session ends. Its name on
//! the server is a hash of the database and the lock's name: names are limited to 64 characters and
//! shared by all databases of a server. An attempt asks with a time-out of 0. A waiter waits inside
//! the server in slices of a second. It never uses a negative time-out, for which `MariaDB` returns
//! NULL at once and `MySQL` waits for ever. A waiter that is dropped has its connection closed and
//! killed (see `pinned`).
//!
//! A heartbeat on that connection, every third of the lease, asks whether the lock is still the
//! session's. The session's `wait_timeout` is the lease, rounded up to seconds, and counts from the
//! last heartbeat that reached the server. So a holder that is cut off is freed, but only after its
//! validity has ended. A heartbeat may take as long as the hold is valid, so a slow server costs
//! nothing. A broken connection is loss: the session cannot be used again.
//!
//! Guarantees exclusion on one server. Flaws:
//! - each holder and waiter has a connection of its own;
//! - when the server ends the session of a living holder (KILL, restart), the lock is free at once.
//!   The holder learns of it at its next heartbeat, so for up to a third of the lease two may hold
//!   it;
//! - on Galera each node grants the lock, so it is refused there.
//!
//! Source: the MySQL manual, "Locking Functions". Tests: `tests/mysql_named.rs`.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use sqlx::Row;
use tokio::time::{Instant, timeout};

use crate::mysql::named_inspector::NamedInspector;
use crate::mysql::named_session::{HeldSession, beat, is_still_held};
use crate::mysql::pinned::{PinnedConnection, SERVER_IDENTITY_SQL, SLICE_S};
use crate::mysql::session::{CALL_TIMEOUT, MySqlSession, Retries, StatementError};
use crate::mysql::{MySqlServer, literal};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, LockName, Locker, Release,
    RenewalTarget, Renewer, Request, Validity, WakeEvent, WakeStrategy, guarantees,
};

pub(crate) struct NamedLock {
    server: MySqlServer,
    variant: NamedLockVariant,
}

/// As it should be, or as it is often written.
#[derive(Clone, Copy)]
struct NamedLockVariant {
    /// Whether the session's `wait_timeout` is the lease.
    times_out: bool,
    /// A node of Galera is refused.
    refuses_galera: bool,
}

const DEFAULT_VARIANT: NamedLockVariant =
    NamedLockVariant { times_out: true, refuses_galera: true };

impl NamedLock {
    pub(crate) fn new(server: &MySqlServer) -> Self {
        Self { server: server.clone(), variant: DEFAULT_VARIANT }
    }
}

/// `mysql-named` as it is often written, to show its flaw: the session keeps its `wait_timeout`, so
/// a holder that is cut off keeps others out for that long.
#[must_use]
pub fn without_time_out(server: &MySqlServer) -> Arc<dyn Locker> {
    let variant = NamedLockVariant { times_out: false, ..DEFAULT_VARIANT };
    Arc::new(NamedLock { server: server.clone(), variant })
}

/// `mysql-named` as it is often written: it is taken on any server, also on a node of Galera.
#[must_use]
pub fn of_any_server(server: &MySqlServer) -> Arc<dyn Locker> {
    let variant = NamedLockVariant { refuses_galera: false, ..DEFAULT_VARIANT };
    Arc::new(NamedLock { server: server.clone(), variant })
}

impl Locker for NamedLock {
    fn name(&self) -> &'static str {
        LockKind::MysqlNamed.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::MysqlNamed)
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(NamedInspector { server: self.server.clone() }))
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let is_refused = self.variant.refuses_galera && is_on_galera(&self.server).await?;
            if is_refused { Err(REFUSED) } else { Ok(()) }
        })
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let hashed = hashed_name(&request.name);
        let (server, variant) = (self.server.clone(), self.variant);
        let (pinned, idle_s) = (None, None);
        Box::new(NamedAcquisition { server, variant, hashed, request, pinned, idle_s })
    }
}

/// The server's name of the lock, as SQL computes it: 5 + 59 characters.
pub(crate) fn hashed_name(name: &LockName) -> String {
    format!(
        "CONCAT('lock:', \
         LEFT(SHA2(CONCAT(CAST(COALESCE(DATABASE(), '') AS BINARY), '/', {}), 256), 59))",
        literal(name.as_str().as_bytes())
    )
}

struct NamedAcquisition {
    server: MySqlServer,
    variant: NamedLockVariant,
    /// The server's name of the lock, as SQL computes it.
    hashed: String,
    request: Request,
    /// Kept while the lock is busy, to wait on it.
    pinned: Option<PinnedConnection>,
    /// The session's own `wait_timeout`, once it was asked.
    idle_s: Option<u64>,
}

impl NamedAcquisition {
    async fn look(&mut self) -> Result<Option<Box<dyn Hold>>, StatementError> {
        let lease_s = self.request.lease.as_millis().div_ceil(1000).max(1);
        let limit = format!("SET SESSION wait_timeout = {lease_s}; ");
        let limit = if self.variant.times_out { &limit } else { "" };
        let sql = format!(
            "SELECT CONNECTION_ID(), CAST(@@SESSION.wait_timeout AS UNSIGNED), \
             {SERVER_IDENTITY_SQL}; \
             {limit}SELECT GET_LOCK({}, 0)",
            self.hashed
        );
        let pinned = match &mut self.pinned {
            Some(pinned) => pinned,
            none => none.insert(PinnedConnection::open(&self.server).await?),
        };
        let sent = Instant::now();
        let rows = pinned.raw(&sql).await?;
        if let [who, got] = rows.as_slice() {
            pinned.set_identity(who.try_get(0)?, who.try_get(2)?);
            let idle_s: u64 = who.try_get(1)?;
            self.idle_s.get_or_insert(idle_s);
            return Ok(is_granted(got.try_get(0)?)?.then(|| self.hold(sent)).flatten());
        }
        Err(StatementError::Answer { number: 0, text: "GET_LOCK has no answer".into() })
    }

    fn hold(&mut self, sent: Instant) -> Option<Box<dyn Hold>> {
        let undo = self.undo();
        let pinned = self.pinned.take()?;
        let session = HeldSession::new(pinned, std::mem::take(&mut self.hashed));
        Some(Box::new(NamedHold {
            server: self.server.clone(),
            session: Arc::new(session),
            undo,
            validity: Validity::of_lease(sent, self.request.lease),
            request: self.request.clone(),
            is_over: false,
        }) as Box<dyn Hold>)
    }

    /// Restores the session.
    fn undo(&self) -> String {
        self.idle_s.map(|s| format!("SET SESSION wait_timeout = {s}")).unwrap_or_default()
    }

    async fn wait(&mut self) -> Result<WakeEvent, LockError> {
        let sql = format!("SELECT GET_LOCK({}, {SLICE_S})", self.hashed);
        loop {
            match self.wait_for_a_slice(&sql).await {
                Ok(Some(since)) => {
                    if let Some(hold) = self.hold(since) {
                        return Ok(WakeEvent::Acquired { hold, since });
                    }
                    return Ok(WakeEvent::Retry);
                }
                Ok(None) => {}
                Err(StatementError::Broken(_)) => {
                    self.pinned = None;
                    return Ok(WakeEvent::Retry);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// When a lock that was granted was first known to be held. The slice was sent up to a second
    /// before that, and a lease counted from there might be over: so a heartbeat follows at once.
    async fn wait_for_a_slice(&mut self, sql: &str) -> Result<Option<Instant>, StatementError> {
        let Some(pinned) = &mut self.pinned else {
            return Err(StatementError::Broken("there is no connection to wait on".into()));
        };
        let rows = pinned.wait(sql).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if !is_granted(row.try_get(0)?)? {
            return Ok(None);
        }
        let sent = Instant::now();
        let rows = pinned.raw(&beat(&self.hashed)).await?;
        if is_still_held(&rows)? {
            Ok(Some(sent))
        } else {
            Err(StatementError::Broken("the session has lost what it was granted".into()))
        }
    }
}

/// On Galera each node grants the lock on its own.
const REFUSED: LockError =
    LockError::Unsupported("a single server: each Galera node grants the lock");

/// Asked once per server.
async fn is_on_galera(server: &MySqlServer) -> Result<bool, StatementError> {
    let answer = server.shared.is_galera.get_or_try_init(|| async {
        let mut session = MySqlSession::open(server.pool()).await?;
        let rows = session.raw("SHOW SESSION VARIABLES LIKE 'wsrep_on'").await?;
        let value = match rows.first() {
            Some(row) => Some(row.try_get::<String, _>(1)?),
            None => None,
        };
        Ok::<_, StatementError>(is_galera(value.as_deref()))
    });
    answer.await.copied()
}

/// `None` where the variable is unknown, as in `MySQL`.
fn is_galera(wsrep_on: Option<&str>) -> bool {
    wsrep_on.is_some_and(|value| !value.eq_ignore_ascii_case("OFF") && value != "0")
}

/// NULL is an error of the server: out of memory, or killed.
fn is_granted(answer: Option<i64>) -> Result<bool, StatementError> {
    match answer {
        Some(granted) => Ok(granted == 1),
        None => Err(StatementError::Answer { number: 0, text: "GET_LOCK failed".into() }),
    }
}

impl Acquisition for NamedAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let mut retries = Retries::new(self.server.pool());
            loop {
                let outcome = match is_on_galera(&self.server).await {
                    Ok(true) if self.variant.refuses_galera => return Err(REFUSED),
                    Ok(_) => self.look().await,
                    Err(failure) => Err(failure),
                };
                match outcome {
                    Ok(hold) => return Ok(hold),
                    Err(failure) => {
                        if matches!(failure, StatementError::Broken(_)) {
                            self.pinned = None;
                        }
                        retries.after(failure).await?;
                    }
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
            let undo = format!("DO RELEASE_ALL_LOCKS(); {}", self.undo());
            match self.pinned.take() {
                Some(pinned) => pinned.abandon(&undo).await,
                None => Ok(()),
            }
        })
    }
}

struct NamedHold {
    server: MySqlServer,
    session: Arc<HeldSession>,
    undo: String,
    validity: Validity,
    request: Request,
    /// The session is known to have ended or to be back in the pool.
    is_over: bool,
}

impl NamedHold {
    /// `None` if the connection gave no answer, or had none to ask.
    async fn release_on_it(&mut self) -> Option<Release> {
        // A heartbeat may be in flight; one that gets no answer must not hold up the release.
        let Ok(mut slot) = timeout(CALL_TIMEOUT, self.session.pinned.lock()).await else {
            self.session.ending.cancel();
            return None;
        };
        let pinned = slot.take()?;
        drop(slot);
        let sql = format!("SELECT RELEASE_LOCK({}); {}", self.session.hashed, self.undo);
        let rows = pinned.end(&sql).await.ok()?;
        self.is_over = true;
        Some(match rows.first()?.try_get::<Option<i64>, _>(0).ok()? {
            Some(1) => Release::Released,
            Some(_) => Release::HeldByOther,
            None => Release::Gone,
        })
    }
}

impl Hold for NamedHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.session) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    /// Without an answer the connection is closed and killed, which frees the lock as well.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            if let Some(release) = self.release_on_it().await {
                return Ok(release);
            }
            match &self.session.identity {
                Some(identity) if !self.is_over => {
                    let release = self.server.kill(identity).await?;
                    self.is_over = true;
                    Ok(release)
                }
                _ => Ok(Release::Gone),
            }
        })
    }
}

impl Drop for NamedHold {
    fn drop(&mut self) {
        self.session.ending.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mysql::MySqlServerOptions;
    use crate::{Lease, LockName, LockOptions, Locks};

    #[test]
    fn a_server_is_galera_unless_it_does_not_know_the_word_or_says_off() {
        for (wsrep_on, expected) in
            [(None, false), (Some("OFF"), false), (Some("0"), false), (Some("ON"), true)]
        {
            assert_eq!(is_galera(wsrep_on), expected, "{wsrep_on:?}");
        }
    }

    #[tokio::test]
    async fn where_each_node_grants_it_the_lock_is_refused() {
        // A server that has answered so before, and needs not be there any more.
        let url = "mysql://root@127.0.0.1:1/none".to_owned();
        let options = MySqlServerOptions { url, pool_size: 1, acquire: Duration::from_secs(1) };
        let server = MySqlServer::with_own_pool(&options).expect("an address");
        server.shared.is_galera.set(true).expect("the first answer");
        let lock = Locks::new(Arc::new(NamedLock::new(&server)));
        let name = LockName::new("lock:test").expect("a name");
        let options = LockOptions::new(Duration::ZERO, Lease::Renewed(Duration::from_secs(10)));
        let refused = lock.lock(&name, &options).await.expect_err("it is Galera");
        assert!(matches!(refused, LockError::Unsupported(need) if need.contains("Galera")));
    }
}
