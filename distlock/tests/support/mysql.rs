//! What the tests of the `mysql` kinds share: a database, and pools as processes have them.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::mysql::{MySqlServerOptions, ensure_schema};
use distlock::{
    Backends, Lease, LockKind, LockName, LockOptions, Locks, MySqlServer, Release, locker,
};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{MySqlPool, Row};
use testbed::{Bed, Database, Flavor};
use tokio::time::timeout;

use super::LONG;

/// A database of one's own. The bed goes last.
pub(crate) struct OwnDb {
    pub(crate) database: Database,
    _bed: Bed,
}

impl OwnDb {
    /// The server that is installed, or the one in the folder that `TEST_DATABASE_FOLDER` names.
    pub(crate) fn start() -> Self {
        let bed = match std::env::var_os("TEST_DATABASE_FOLDER") {
            Some(folder) => Bed::builder().search_path([PathBuf::from(folder)]).start(),
            None => Bed::start(),
        };
        let bed = bed.expect("a private bed");
        let database = bed.database(Flavor::Any).expect("a database is installed");
        database.create_database("locks").expect("a database");
        println!("{}", database.version());
        Self { database, _bed: bed }
    }

    pub(crate) fn url(&self) -> String {
        self.database.url("locks")
    }
}

/// The database of this test program; the bed takes it down when the process ends.
pub(crate) fn own() -> &'static OwnDb {
    static OWN: OnceLock<OwnDb> = OnceLock::new();
    OWN.get_or_init(OwnDb::start)
}

/// What is another process as far as the database can see.
pub(crate) async fn server() -> MySqlServer {
    server_at(&own().url(), 16).await
}

pub(crate) async fn server_at(url: &str, pool_size: u32) -> MySqlServer {
    let acquire = Duration::from_secs(4);
    let options = MySqlServerOptions { url: url.to_owned(), pool_size, acquire };
    let server = MySqlServer::with_own_pool(&options).expect("an address");
    ensure_schema(server.pool()).await.expect("the tables");
    server
}

/// A pool as the driver makes it by itself: REPEATABLE READ, no settings of ours.
pub(crate) async fn plain_pool(pool_size: u32) -> MySqlPool {
    let options = MySqlPoolOptions::new().max_connections(pool_size);
    let pool = options.acquire_timeout(Duration::from_secs(4)).connect(&own().url()).await;
    let pool = pool.expect("a connection");
    ensure_schema(&pool).await.expect("the tables");
    pool
}

pub(crate) fn locks_on(kind: LockKind, server: &MySqlServer) -> Locks {
    let backends = Backends { mysql: Some(server.clone()), ..Backends::default() };
    Locks::new(locker(kind, &backends).expect("a locker"))
}

pub(crate) fn renewed(wait: Duration, lease: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Renewed(lease))
}

/// Fails at once if the lock is held.
pub(crate) fn try_now() -> LockOptions {
    renewed(Duration::ZERO, LONG)
}

/// Waits for long.
pub(crate) fn waiting() -> LockOptions {
    renewed(Duration::from_secs(30), LONG)
}

pub(crate) async fn run(pool: &MySqlPool, sql: &'static str) {
    sqlx::raw_sql(sql).execute(pool).await.expect(sql);
}

/// The number in the first column of the first row, if there is one.
pub(crate) async fn number(pool: &MySqlPool, sql: &'static str, name: &LockName) -> Option<i64> {
    let row = sqlx::query(sql).bind(name.as_str().as_bytes()).fetch_optional(pool).await;
    row.expect(sql).map(|row| row.get(0))
}

/// Waits until this number of waiters waits for the lock inside the server.
pub(crate) async fn until_waiters(pool: &MySqlPool, name: &LockName, wanted: i64) {
    let hex = name.as_str().bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"));
    super::eventually(&format!("{wanted} wait"), async || {
        let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                   WHERE COMMAND = 'Query' AND ID <> CONNECTION_ID() AND INFO LIKE ?";
        let count = sqlx::query_scalar(sql).bind(format!("%{hex}%")).fetch_one(pool).await;
        count.is_ok_and(|count: i64| count == wanted)
    })
    .await;
}

/// Begins to wait for a held lock and is dropped at once. Checks that the server notices before the
/// end of a slice of a second, when it would notice by itself.
pub(crate) async fn assert_waiters_are_killed(kind: LockKind) {
    let (first, second, name) = (server().await, server().await, super::fresh_name());
    let locks = locks_on(kind, &second);
    let mut soonest = LONG;
    for _ in 0..3 {
        let holder = locks_on(kind, &first).lock(&name, &try_now()).await.expect("the lock");
        let waits = tokio::spawn({
            let (locks, name) = (locks.clone(), name.clone());
            async move { locks.lock(&name, &waiting()).await.map(|_| ()) }
        });
        until_waiters(first.pool(), &name, 1).await;
        let gone = Instant::now();
        waits.abort();
        assert!(waits.await.expect_err("it was aborted").is_cancelled());
        locks.flush().await;
        until_waiters(first.pool(), &name, 0).await;
        soonest = soonest.min(gone.elapsed());
        holder.release().await.expect("a release");
        // Were the waiter still there, it would have the lock now.
        let guard = locks.lock(&name, &try_now()).await.expect("the lock");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        assert_clean(&second).await;
    }
    assert!(soonest < Duration::from_millis(600), "{soonest:?}: it was not killed");
}

/// No borrower of a connection finds another's transaction, lock or settings.
pub(crate) async fn assert_clean(server: &MySqlServer) {
    let mut borrowed = Vec::new();
    for _ in 0..server.pool().size().max(1) {
        borrowed.push(server.pool().acquire().await.expect("a connection"));
    }
    for connection in &mut borrowed {
        // In the middle of a transaction this is an error (1568).
        let set = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
        sqlx::raw_sql(set).execute(&mut **connection).await.expect("no open transaction");
        let row = sqlx::query(
            "SELECT CAST(@@SESSION.innodb_lock_wait_timeout AS SIGNED), \
             CAST(@@SESSION.wait_timeout AS SIGNED), CAST(RELEASE_ALL_LOCKS() AS SIGNED)",
        );
        let row = row.fetch_one(&mut **connection).await.expect("an answer");
        let seen: [i64; 3] = std::array::from_fn(|column| row.get(column));
        assert_eq!(seen, [3, 60, 0], "lock wait, idle time, named locks");
    }
}

/// A section that notices company.
#[derive(Default)]
pub(crate) struct Section {
    inside: AtomicU32,
    visits: AtomicU64,
    crowded: AtomicU32,
}

impl Section {
    pub(crate) async fn visit(&self) {
        let company = self.inside.fetch_add(1, Ordering::SeqCst);
        self.crowded.fetch_add(u32::from(company > 0), Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// How many there were, and how many met others.
    pub(crate) fn visits(&self) -> (u64, u32) {
        (self.visits.load(Ordering::SeqCst), self.crowded.load(Ordering::SeqCst))
    }
}

/// Drops acquisitions of a free and of a busy lock at each of their first awaits, and checks each
/// time that nothing is left of them.
pub(crate) async fn drop_at_any_point(kind: LockKind, polls: usize) {
    let (first, second) = (server_at(&own().url(), 3).await, server().await);
    let (locks, others, name) =
        (locks_on(kind, &first), locks_on(kind, &second), super::fresh_name());
    let renewing = Lease::Renewed(LONG);
    let mut dropped = 0;
    // One that waits inside the server is pending for long: then there is nothing new to see.
    let mut is_waiting = false;
    for polls in 1..polls {
        for busy in [false, true] {
            if busy && is_waiting {
                continue;
            }
            let holder = if busy {
                others.try_lock(&name, renewing).await.expect("an answer")
            } else {
                None
            };
            assert_eq!(holder.is_some(), busy, "it was free");
            let patient = waiting();
            let attempt = super::dropped::up_to(polls, locks.lock(&name, &patient));
            let done = timeout(Duration::from_millis(1500), attempt).await;
            is_waiting |= done.is_err();
            let done = done.ok().flatten();
            assert!(done.is_none() || !busy, "two have it");
            dropped += u32::from(done.is_none());
            drop(done);
            if let Some(holder) = holder {
                assert_eq!(holder.release().await.expect("a release"), Release::Released);
            }
            locks.flush().await;
            let what = format!("busy: {busy}, {polls} polls");
            super::eventually(&what, async || {
                match others.try_lock(&name, renewing).await.expect("an answer") {
                    Some(guard) => guard.release().await.is_ok(),
                    None => false,
                }
            })
            .await;
            assert_clean(&first).await;
        }
    }
    assert!(dropped >= 5, "only {dropped} were dropped half way");
    assert!(is_waiting || kind == LockKind::MysqlTable, "none was dropped while it waited");
}
