//! `mysql-table` on a real database. Several servers, each with a pool of its own, are several
//! processes as far as the database can see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::mysql::{
    OwnDb, assert_clean, drop_at_any_point, locks_on, number, own, plain_pool, renewed, run,
    server, server_at, try_now, waiting,
};
use crate::support::{LONG, at_once, eventually, fresh_name, granted, options, patient};
use distlock::mysql::MySqlServerOptions;
use distlock::{
    Backends, Lease, LockError, LockKind, LockName, LockOptions, Locker, Locks, LossCause,
    MySqlServer, Owner, Release, Request, Token, locker,
};
use sqlx::Row;
use uuid::Uuid;

/// A lease whose end is waited for, with room for a busy machine.
const SHORT: Duration = Duration::from_secs(3);

async fn locks() -> Locks {
    locks_on(LockKind::MysqlTable, &server().await)
}

fn the_locker(server: &MySqlServer) -> Arc<dyn Locker> {
    let backends = Backends { mysql: Some(server.clone()), ..Backends::default() };
    locker(LockKind::MysqlTable, &backends).expect("a locker")
}

fn request(name: &LockName) -> Request {
    Request {
        name: name.clone(),
        owner: Owner::fresh(),
        may_hold: false,
        id: Uuid::new_v4(),
        lease: LONG,
    }
}

async fn hold_count(server: &MySqlServer, name: &LockName) -> Option<i64> {
    let sql = "SELECT CAST(hold_count AS SIGNED) FROM lock_holders \
               WHERE name = ? AND owner IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)";
    number(server.pool(), sql, name).await
}

#[tokio::test]
async fn a_held_lock_has_its_owner_and_its_end_in_its_row() {
    let server = server().await;
    let (locks, name) = (locks_on(LockKind::MysqlTable, &server), fresh_name());
    for lease in [5, 60] {
        let guard = locks.lock(&name, &options(Duration::ZERO, Duration::from_secs(lease))).await;
        let guard = guard.expect("the lock");
        let row = sqlx::query(
            "SELECT owner, host, pid, CAST(hold_count AS SIGNED), token, \
             TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at), \
             TIMESTAMPDIFF(MICROSECOND, acquired_at, UTC_TIMESTAMP(6)) \
             FROM lock_holders WHERE name = ?",
        );
        let row = row.bind(name.as_str().as_bytes()).fetch_one(server.pool()).await.expect("a row");
        assert_eq!(row.get::<Vec<u8>, _>(0), guard.owner().as_str().as_bytes());
        assert!(!row.get::<String, _>(1).is_empty(), "a host");
        assert_eq!((row.get::<u32, _>(2), row.get::<i64, _>(3)), (std::process::id(), 1));
        assert_eq!(Some(Token(row.get(4))), guard.token());
        let left = Duration::from_micros(row.get::<i64, _>(5).try_into().expect("not over"));
        let lease = Duration::from_secs(lease);
        assert!(left <= lease && left + Duration::from_secs(2) > lease, "{left:?} of {lease:?}");
        assert!(row.get::<i64, _>(6) < 2_000_000, "just acquired");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        assert_eq!(hold_count(&server, &name).await, None);
    }
}

#[tokio::test]
async fn the_token_rises_with_every_ownership_and_not_on_re_entry() {
    let server = server().await;
    let (locks, other, name) =
        (locks_on(LockKind::MysqlTable, &server), locks().await, fresh_name());
    let outer = locks.lock(&name, &try_now()).await.expect("the lock");
    let token = outer.token().expect("a token");
    let owner = outer.owner().clone();
    let inner = locks.lock_as(owner, &name, &options(Duration::ZERO, SHORT)).await.expect("again");
    assert_eq!(inner.token(), Some(token), "a re-entry is no new ownership");
    assert_eq!(hold_count(&server, &name).await, Some(2));
    // Another owner of the same process, on the same host, is another owner.
    let busy = locks.clone().without_local_queue().lock(&name, &at_once()).await;
    assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    assert_eq!(inner.release().await.expect("a release"), Release::Released);
    tokio::time::sleep(SHORT).await;
    assert_eq!(hold_count(&server, &name).await, Some(1), "the inner lease did not shorten it");
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
    let mut last = token;
    for locks in [&other, &locks, &other] {
        let guard = locks.lock(&name, &try_now()).await.expect("the lock");
        assert!(guard.token() > Some(last), "{:?} after {last}", guard.token());
        last = guard.token().expect("a token");
        guard.release().await.expect("a release");
    }
}

#[tokio::test]
async fn an_acquire_or_a_release_that_is_repeated_counts_once() {
    let server = server().await;
    let (locker, name) = (the_locker(&server), fresh_name());
    let request = request(&name);
    let mut acquisition = locker.begin(request.clone());
    let mut first = acquisition.attempt().await.expect("an answer").expect("the lock");
    let mut again = acquisition.attempt().await.expect("an answer").expect("it is there already");
    assert_eq!((hold_count(&server, &name).await, first.token()), (Some(1), again.token()));
    // A re-entry, and then the late repetition of the first attempt.
    let re_entry = Request { id: Uuid::new_v4(), ..request };
    let mut inner = locker.begin(re_entry).attempt().await.expect("an answer").expect("again");
    acquisition.attempt().await.expect("an answer").expect("it is there already");
    assert_eq!(hold_count(&server, &name).await, Some(2));
    for hold in [&mut inner, &mut first, &mut again] {
        assert_eq!(hold.release().await.expect("an answer"), Release::Released);
    }
    assert_eq!(hold_count(&server, &name).await, None);
}

#[tokio::test]
async fn an_abandoned_attempt_leaves_nothing_and_cannot_succeed_later() {
    let server = server().await;
    let (locker, name) = (the_locker(&server), fresh_name());
    let mut kept = locker.begin(request(&name));
    let mut hold = kept.attempt().await.expect("an answer").expect("the lock");
    // Another owner's attempt is not this hold's.
    locker.begin(request(&name)).abandon().await.expect("an answer");
    assert_eq!(hold_count(&server, &name).await, Some(1));
    kept.abandon().await.expect("an answer");
    assert_eq!(hold_count(&server, &name).await, None);
    // A server that was hung carries out the attempt after it was abandoned.
    assert!(kept.attempt().await.expect("an answer").is_none(), "it came back");
    assert_eq!(hold_count(&server, &name).await, None);
    assert_eq!(hold.release().await.expect("an answer"), Release::Released, "by abandoning");
}

#[tokio::test]
async fn a_release_distinguishes_freed_held_by_another_and_not_held() {
    let server = server().await;
    let (locks, other, name) =
        (locks_on(LockKind::MysqlTable, &server), locks().await, fresh_name());
    let short = options(Duration::ZERO, Duration::from_millis(100));
    let late = granted(&locks, &name, &short).await;
    let successor = other.lock(&name, &patient()).await.expect("the lock after the lease");
    assert!(late.is_lost() && successor.token() > late.token());
    assert_eq!(late.release().await.expect("an answer"), Release::HeldByOther);
    assert_eq!(successor.release().await.expect("an answer"), Release::Released);

    let expired = granted(&locks, &name, &short).await;
    eventually("the lease ends", async || hold_count(&server, &name).await.is_none()).await;
    // The same owner again, after its lease: a new ownership, and the old guard has no part in it.
    let anew = locks.lock_as(expired.owner().clone(), &name, &patient()).await.expect("the lock");
    assert!(anew.token() > expired.token());
    assert_eq!(expired.release().await.expect("an answer"), Release::HeldByOther);
    assert_eq!(anew.release().await.expect("an answer"), Release::Released);

    let gone = granted(&locks, &name, &short).await;
    eventually("the lease ends", async || hold_count(&server, &name).await.is_none()).await;
    assert_eq!(gone.release().await.expect("an answer"), Release::Gone);
    let removed = locks.lock(&name, &try_now()).await.expect("the lock");
    let delete = "DELETE FROM lock_holders WHERE name = ?";
    let delete = sqlx::query(delete).bind(name.as_str().as_bytes());
    delete.execute(server.pool()).await.expect("an answer");
    assert_eq!(removed.release().await.expect("an answer"), Release::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_together_holds_outlive_their_leases_and_only_the_one_that_is_taken_is_lost() {
    let server = server().await;
    let locks = locks_on(LockKind::MysqlTable, &server);
    // Two thirds of it may a renewal come late.
    let lease = Duration::from_millis(4500);
    let names: Vec<_> = std::iter::repeat_with(fresh_name).take(70).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(locks.lock(name, &renewed(Duration::ZERO, lease)).await.expect("the lock"));
    }
    let owner = guards[0].owner().clone();
    let twice = locks.lock_as(owner, &names[0], &renewed(Duration::ZERO, lease)).await;
    guards.push(twice.expect("the lock"));
    let stolen = "UPDATE lock_holders SET owner = 'thief', \
                  expires_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE name = ?";
    let stolen = sqlx::query(stolen).bind(names[7].as_str().as_bytes());
    stolen.execute(server.pool()).await.expect("an answer");
    let cause = tokio::time::timeout(LONG, guards[7].lost()).await.expect("the loss is told");
    assert_eq!(cause, LossCause::Taken);
    tokio::time::sleep(lease * 2).await;
    for (at, guard) in guards.into_iter().enumerate() {
        assert_eq!(guard.is_lost(), at == 7, "guard {at}");
        let expected = if at == 7 { Release::HeldByOther } else { Release::Released };
        assert_eq!(guard.release().await.expect("an answer"), expected, "guard {at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    drop_at_any_point(LockKind::MysqlTable, 25).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_stays_locked_is_asked_for_again() {
    let (server, pool, name) = (server().await, plain_pool(2).await, fresh_name());
    let locks = locks_on(LockKind::MysqlTable, &server);
    locks.lock(&name, &try_now()).await.expect("the lock").release().await.expect("a release");
    let impatient = server_at(&crate::support::mysql::own().url(), 1).await;
    run(impatient.pool(), "SET SESSION innodb_lock_wait_timeout = 1").await;
    let mut transaction = pool.begin().await.expect("a transaction");
    let lock = "SELECT name FROM lock_holders WHERE name = ? FOR UPDATE";
    let lock = sqlx::query(lock).bind(name.as_str().as_bytes());
    lock.fetch_one(&mut *transaction).await.expect("the row");
    let started = Instant::now();
    let (guard, ()) = tokio::join!(
        async { locks_on(LockKind::MysqlTable, &impatient).lock(&name, &at_once()).await },
        async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            transaction.rollback().await.expect("an answer");
        }
    );
    let guard = guard.expect("the lock, after its statement was refused with 1205");
    assert!(started.elapsed() > Duration::from_millis(1400), "{:?}", started.elapsed());
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test]
async fn a_dry_pool_is_an_error_of_its_own_in_bounded_time() {
    let small = server_at(&crate::support::mysql::own().url(), 1).await;
    let (locks, name) = (locks_on(LockKind::MysqlTable, &small), fresh_name());
    let borrowed = small.pool().acquire().await.expect("the only connection");
    let started = Instant::now();
    let error = locks.lock(&name, &waiting()).await.expect_err("no connection");
    assert!(matches!(error, LockError::NoConnection(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(borrowed);
    let guard = locks.lock(&name, &waiting()).await.expect("the lock");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test]
async fn a_release_that_finds_no_connection_is_tried_again() {
    let (server, other, name) =
        (server_at(&crate::support::mysql::own().url(), 1).await, locks().await, fresh_name());
    let guard = locks_on(LockKind::MysqlTable, &server).lock(&name, &try_now()).await;
    let guard = guard.expect("the lock");
    let taken = server.pool().acquire().await.expect("the only connection");
    let release = guard.release();
    // The pool itself waits for four seconds.
    let (released, ()) = tokio::join!(release, async {
        tokio::time::sleep(Duration::from_millis(4500)).await;
        drop(taken);
    });
    assert_eq!(released.expect("an answer"), Release::Released);
    other.lock(&name, &try_now()).await.expect("it is free").release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_granted_by_a_database_that_woke_up_too_late_is_given_back() {
    let own = tokio::task::block_in_place(OwnDb::start);
    let (server, name) = (server_at(&own.url(), 4).await, fresh_name());
    let locks = locks_on(LockKind::MysqlTable, &server);
    locks.lock(&name, &try_now()).await.expect("the lock").release().await.expect("a release");
    own.database.freeze().expect("a frozen server");
    let started = Instant::now();
    let error = locks.lock(&name, &try_now()).await.expect_err("no answer");
    assert!(matches!(error, LockError::Backend(_) | LockError::NoConnection(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    own.database.thaw().expect("a thawed server");
    locks.flush().await;
    eventually("the lock is free", async || {
        matches!(locks.try_lock(&name, Lease::Renewed(LONG)).await, Ok(Some(_)))
    })
    .await;
    locks.flush().await;
    assert_clean(&server).await;
    // Connections that die with their server cause no error.
    own.database.restart().expect("a server");
    let guard = locks.lock(&name, &waiting()).await.expect("the lock, on new connections");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

/// The other oddities cannot be: the columns of the owner's end and token are never empty.
#[tokio::test]
async fn tables_that_are_missing_or_of_another_shape_are_an_error_that_says_which() {
    own().database.create_database("odd_tables").expect("a database");
    let (url, acquire) = (own().database.url("odd_tables"), Duration::from_secs(4));
    let options = MySqlServerOptions { url, pool_size: 4, acquire };
    let server = MySqlServer::with_own_pool(&options).expect("an address");
    let refusal = async |kind| {
        let locks = locks_on(kind, &server);
        let options = LockOptions::new(Duration::ZERO, locks.guarantees().lease(LONG));
        match locks.lock(&fresh_name(), &options).await.expect_err("there is nothing to lock") {
            LockError::Backend(why) => why,
            other => panic!("{kind}: {other}"),
        }
    };
    for (kind, table, other_table) in [
        (LockKind::MysqlTable, "lock_holders", "CREATE TABLE lock_holders (name INT)"),
        (LockKind::MysqlRow, "lock_rows", "CREATE TABLE lock_rows (other INT)"),
    ] {
        let missing = refusal(kind).await;
        assert!(missing.contains("1146") && missing.contains(table), "{missing}");
        run(server.pool(), other_table).await;
        let of_another_shape = refusal(kind).await;
        assert!(of_another_shape.contains("1054"), "{of_another_shape}");
    }
}
