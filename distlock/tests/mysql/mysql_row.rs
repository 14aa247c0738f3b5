//! `mysql-row` on a real database. Several servers, each with a pool of its own, are several
//! processes as far as the database can see.

use std::time::{Duration, Instant};

use crate::support::mysql::{
    assert_clean, assert_waiters_are_killed, drop_at_any_point, locks_on, number, own, plain_pool,
    run, server, server_at, try_now, until_waiters, waiting,
};
use crate::support::ran::ran;
use crate::support::{LONG, at_once, but_for_one_standstill, eventually, fresh_name, options};
use distlock::mysql::row::without_transaction;
use distlock::{Lease, LockError, LockKind, LockName, Locks, MySqlServer, Release};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{MySqlConnection, MySqlPool, Row};
use tokio::task::JoinSet;

/// Clearly less than any wait in these tests, with room for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);

const COUNTERS: &str = "CREATE TABLE IF NOT EXISTS counters \
    (name VARBINARY(512) NOT NULL PRIMARY KEY, seen INT NOT NULL)";
const READ: &str = "SELECT seen FROM counters WHERE name = ?";
const WRITE: &str = "UPDATE counters SET seen = ? WHERE name = ?";

async fn make_counter(pool: &MySqlPool) -> LockName {
    let name = fresh_name();
    run(pool, COUNTERS).await;
    let insert = sqlx::query("INSERT INTO counters VALUES (?, 0)").bind(name.as_str().as_bytes());
    insert.execute(pool).await.expect("a counter");
    name
}

/// Reads, waits a little, and writes what it read and one more.
async fn count(connection: &mut MySqlConnection, name: &LockName) {
    let name = name.as_str().as_bytes();
    let row = sqlx::query(READ).bind(name).fetch_one(&mut *connection).await.expect("a counter");
    tokio::time::sleep(Duration::from_millis(2)).await;
    let write = sqlx::query(WRITE).bind(row.get::<i32, _>(0) + 1).bind(name);
    write.execute(connection).await.expect("an answer");
}

/// Four tasks of each process count six times each, in the transactions that hold the lock.
async fn count_all(processes: Vec<Locks>, name: &LockName) {
    let mut tasks = JoinSet::new();
    for locks in processes.iter().flat_map(|locks| std::iter::repeat_n(locks, 4)) {
        let (locks, name) = (locks.clone(), name.clone());
        tasks.spawn(async move {
            for _ in 0..6 {
                let mut guard = locks.lock(&name, &waiting()).await.expect("the lock");
                let mut connection =
                    guard.take_transaction().expect("a transaction").into_connection();
                assert!(guard.take_transaction().is_none(), "it is lent once");
                count(&mut connection, &name).await;
                sqlx::raw_sql("COMMIT").execute(&mut *connection).await.expect("an answer");
                assert_eq!(guard.release().await.expect("an answer"), Release::Released);
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_the_locks_own_transaction_is_never_lost() {
    // Both isolation levels: of the locks' own pool, and of a pool as the driver makes it.
    let (first, plain) = (server().await, MySqlServer::new(plain_pool(8).await));
    let name = make_counter(first.pool()).await;
    let row = |server| locks_on(LockKind::MysqlRow, server);
    let processes = vec![row(&first), row(&plain), row(&server().await).without_local_queue()];
    count_all(processes, &name).await;
    assert_eq!(number(first.pool(), READ, &name).await, Some(3 * 4 * 6));
    assert_clean(&first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_autocommit_all_contenders_enter() {
    // The known flaw: the lock ends with the statement that took it.
    let (first, second) = (server().await, server().await);
    let name = make_counter(first.pool()).await;
    let processes = [&first, &second].map(|server| Locks::new(without_transaction(server)));
    let inside = processes[0].lock(&name, &at_once()).await.expect("the lock");
    let company = processes[1].lock(&name, &at_once()).await.expect("the lock, too");
    drop((inside, company));
    let processes = processes.map(Locks::without_local_queue);
    count_all(processes.to_vec(), &name).await;
    let counted = number(first.pool(), READ, &name).await.expect("a counter");
    assert!(counted < 2 * 4 * 6, "{counted}: nothing was lost");
}

#[tokio::test]
async fn two_inserts_of_a_missing_row_deadlock_and_these_locks_do_not() {
    let pool = plain_pool(8).await;
    let name = fresh_name();
    let lock = "SELECT name FROM lock_rows WHERE name = ? FOR UPDATE";
    let insert = "INSERT INTO lock_rows (name, made_at) VALUES (?, UTC_TIMESTAMP(6))";
    let mut both = [pool.begin().await.expect("begin"), pool.begin().await.expect("begin")];
    for transaction in &mut both {
        let lock = sqlx::query(lock).bind(name.as_str().as_bytes());
        assert!(lock.fetch_optional(&mut **transaction).await.expect("an answer").is_none());
    }
    let inserts = both.map(async |mut transaction| {
        let insert = sqlx::query(insert).bind(name.as_str().as_bytes());
        insert.execute(&mut *transaction).await.map(|_| ())
    });
    let [one, other] = inserts;
    let (one, other) = tokio::join!(one, other);
    let error = one.and(other).expect_err("a deadlock").into_database_error().expect("an answer");
    assert_eq!(error.downcast_ref::<MySqlDatabaseError>().number(), 1213, "{error}");

    let plain = MySqlServer::new(pool);
    for _ in 0..5 {
        let (mut tasks, name) = (JoinSet::new(), fresh_name());
        for _ in 0..6 {
            let locks = locks_on(LockKind::MysqlRow, &plain).without_local_queue();
            let name = name.clone();
            tasks.spawn(async move {
                let guard = locks.lock(&name, &waiting()).await.expect("the lock");
                guard.release().await.expect("a release")
            });
        }
        assert_eq!(tasks.join_all().await, [Release::Released; 6]);
    }
}

#[tokio::test]
async fn the_lock_is_the_transactions_first_read_so_the_section_sees_the_last_write() {
    // A pool with REPEATABLE READ, where the first plain read fixes what a transaction sees.
    let pool = plain_pool(6).await;
    let (plain, name) = (MySqlServer::new(pool.clone()), make_counter(&pool).await);
    let locks = locks_on(LockKind::MysqlRow, &plain).without_local_queue();
    let mut holder = locks.lock(&name, &try_now()).await.expect("the lock");
    let mut early = pool.begin().await.expect("a transaction");
    let old = sqlx::query(READ).bind(name.as_str().as_bytes()).fetch_one(&mut *early).await;
    assert_eq!(old.expect("a counter").get::<i32, _>(0), 0);
    let patient = waiting();
    let (waited, ()) = tokio::join!(locks.lock(&name, &patient), async {
        let mut connection = holder.take_transaction().expect("a transaction").into_connection();
        until_waiters(&pool, &name, 1).await;
        count(&mut connection, &name).await;
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await.expect("an answer");
    });
    let mut connection =
        waited.expect("the lock").take_transaction().expect("it").into_connection();
    let read = async |connection: &mut MySqlConnection| {
        let read = sqlx::query(READ).bind(name.as_str().as_bytes()).fetch_one(connection).await;
        read.expect("a counter").get::<i32, _>(0)
    };
    assert_eq!(read(&mut connection).await, 1, "it began to wait before that was written");
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.expect("an answer");
    // The trap: a section that reads before it locks keeps seeing the old state.
    let lock = "SELECT name FROM lock_rows WHERE name = ? FOR UPDATE";
    let lock = sqlx::query(lock).bind(name.as_str().as_bytes());
    lock.fetch_one(&mut *early).await.expect("the lock");
    assert_eq!(read(&mut early).await, 0, "old state under the lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_ends_with_its_transaction_however_that_ends() {
    // With one connection, so that its number is known.
    let server = server_at(&own().url(), 1).await;
    let (locks, name) = (locks_on(LockKind::MysqlRow, &server), make_counter(server.pool()).await);
    let other = locks_on(LockKind::MysqlRow, &crate::support::mysql::server().await);
    for end in ["release", "drop", "lease", "lent and dropped", "ROLLBACK", "COMMIT", "KILL"] {
        let id = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)");
        let id: i64 = id.fetch_one(server.pool()).await.expect("an answer");
        let mut guard = locks.lock(&name, &try_now()).await.expect("the lock");
        let busy = other.try_lock(&name, Lease::Renewed(LONG)).await.expect("an answer");
        assert!(busy.is_none(), "{end}: it is held");
        match end {
            "release" => {
                assert_eq!(guard.release().await.expect("a release"), Release::Released);
            }
            "drop" => drop(guard),
            "lease" => guard.leave_to_lease(),
            "KILL" => {
                let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
                let killer = crate::support::mysql::server().await;
                sqlx::raw_sql(kill).execute(killer.pool()).await.expect("an answer");
                eventually("the connection is gone", async || {
                    !is_connected(killer.pool(), id).await
                })
                .await;
                assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
            }
            end => {
                let lent = guard.take_transaction().expect("a transaction");
                if end.contains("dropped") {
                    drop(lent);
                } else {
                    let mut connection = lent.into_connection();
                    let sql = sqlx::AssertSqlSafe(end);
                    sqlx::raw_sql(sql).execute(&mut *connection).await.expect("an answer");
                }
                drop(guard);
            }
        }
        let guard = other.lock(&name, &waiting()).await.expect(end);
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        locks.flush().await;
        assert_clean(&server).await;
    }
}

async fn is_connected(pool: &MySqlPool, id: i64) -> bool {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?";
    let count: i64 = sqlx::query_scalar(sql).bind(id).fetch_one(pool).await.expect("an answer");
    count > 0
}

#[tokio::test]
async fn nothing_of_a_transaction_that_was_not_committed_is_left() {
    let server = server().await;
    let (locks, name) = (locks_on(LockKind::MysqlRow, &server), make_counter(server.pool()).await);
    let mut guard = locks.lock(&name, &try_now()).await.expect("the lock");
    let mut connection = guard.take_transaction().expect("a transaction").into_connection();
    count(&mut connection, &name).await;
    drop(connection.detach());
    assert_eq!(guard.release().await.expect("an answer"), Release::Released);
    let guard = locks.lock(&name, &waiting()).await.expect("the lock");
    assert_eq!(number(server.pool(), READ, &name).await, Some(0));
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_after_many_slices_and_its_session_is_as_before() {
    let (first, second, name) = (server().await, server().await, fresh_name());
    let locks = locks_on(LockKind::MysqlRow, &second);
    let first_locks = locks_on(LockKind::MysqlRow, &first);
    let mut last = None;
    but_for_one_standstill(async || {
        last = None;
        locks.flush().await;
        let holder = first_locks.lock(&name, &waiting()).await.expect("the lock");
        let (started, patient) = (Instant::now(), waiting());
        let (waited, freed) = tokio::join!(locks.lock(&name, &patient), async {
            tokio::time::sleep(Duration::from_millis(2300)).await;
            holder.release().await.expect("a release");
            ran()
        });
        assert!(started.elapsed() > Duration::from_millis(2300));
        let late = ran().saturating_sub(freed);
        last = Some(waited.expect("the lock"));
        if late < PROMPT_WITHIN { Ok(()) } else { Err(format!("it was told {late:?} late")) }
    })
    .await;
    let mut guard = last.expect("it was measured");
    let mut connection = guard.take_transaction().expect("it").into_connection();
    let setting = sqlx::query_scalar("SELECT CAST(@@innodb_lock_wait_timeout AS SIGNED)");
    let lent_s: i64 = setting.fetch_one(&mut *connection).await.expect("an answer");
    assert_eq!(lent_s, 3, "its borrower may wait for as long as before");
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.expect("an answer");
    drop(connection);
    assert_clean(&second).await;
    let busy = locks_on(LockKind::MysqlRow, &first).lock(&name, &try_now()).await;
    let wait = Duration::from_millis(1200);
    match locks.lock(&name, &options(wait, LONG)).await {
        Err(LockError::TimedOut { waited, .. }) => assert!(waited >= wait && waited < LONG / 2),
        other => panic!("{:?}", other.err()),
    }
    busy.expect("the lock").release().await.expect("a release");
    locks.flush().await;
    assert_clean(&second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_waiter_is_killed_on_the_server() {
    assert_waiters_are_killed(LockKind::MysqlRow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    drop_at_any_point(LockKind::MysqlRow, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_run_dry_by_waiters_is_an_error_in_bounded_time_and_no_deadlock() {
    let small = server_at(&own().url(), 2).await;
    let (locks, name) = (locks_on(LockKind::MysqlRow, &small).without_local_queue(), fresh_name());
    let holder = locks.lock(&name, &try_now()).await.expect("the lock");
    let waiter = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &waiting()).await }
    });
    // It waits inside the database, on the other connection.
    until_waiters(server().await.pool(), &name, 1).await;
    let started = Instant::now();
    let error = locks.lock(&fresh_name(), &waiting()).await.expect_err("no connection");
    assert!(matches!(error, LockError::NoConnection(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_eq!(holder.release().await.expect("a release"), Release::Released);
    let guard = waiter.await.expect("no panic").expect("the lock");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    // Waiters that go away while the pool is dry make room in it.
    let busy = locks.lock(&name, &try_now()).await.expect("the lock");
    let given_up = locks.lock(&name, &options(Duration::from_millis(300), LONG)).await;
    assert!(matches!(given_up, Err(LockError::TimedOut { .. })));
    locks.flush().await;
    let other = locks.lock(&fresh_name(), &try_now()).await.expect("another lock");
    drop((busy, other));
    locks.flush().await;
    assert_clean(&small).await;
}
