//! `reentrant` on a real Redis: what it does, and what it is known to get wrong.

use std::time::Duration;

use crate::support::proxy::{Accident, Proxy};
use crate::support::{
    LONG, Look, at_once, connect, fresh_name, granted, locks_of, options, patient, server,
};
use distlock::{Guard, LockError, LockKind, LockName, Locks, Release};
use redis::{AsyncCommands, Cmd};
use testbed::{Bed, RedisOptions};

const SCRIPTS: [&str; 2] = [
    include_str!("../../lua/reentrant_acquire.lua"),
    include_str!("../../lua/reentrant_release.lua"),
];

async fn look() -> Look {
    Look::at(server().url()).await
}

async fn locks() -> Locks {
    locks_at(server().url()).await
}

async fn locks_at(url: &str) -> Locks {
    locks_of(LockKind::Reentrant, connect(url).await)
}

async fn hold(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &at_once()).await.expect("the lock is free")
}

async fn enter_again(locks: &Locks, name: &LockName, outer: &Guard, lease: Duration) -> Guard {
    let options = options(Duration::ZERO, lease);
    locks.lock_as(outer.owner().clone(), name, &options).await.expect("it is the caller's own")
}

async fn assert_busy(locks: &Locks, name: &LockName) {
    let refused = locks.lock(name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
}

async fn release(guard: Guard) -> Release {
    guard.release().await.expect("an answer")
}

/// What the server knows: each owner and its holds.
async fn holds(look: &Look, name: &LockName) -> Vec<(String, i64)> {
    look.connection().hgetall(name.as_str()).await.expect("an answer")
}

/// About that much of the lease is left.
async fn assert_left(look: &Look, name: &LockName, lease: Duration) {
    let left = look.lease(name).await.expect("a lease");
    assert!(left <= lease && left + Duration::from_secs(5) > lease, "{left:?} of {lease:?}");
}

#[tokio::test]
async fn the_owner_enters_again_and_the_last_release_frees_the_lock() {
    let (first, second, look, name) = (locks().await, locks().await, look().await, fresh_name());
    let outer = hold(&first, &name).await;
    let owner = outer.owner().to_string();
    assert_eq!(holds(&look, &name).await, [(owner.clone(), 1)]);
    assert_left(&look, &name, LONG).await;

    let mut inner = Vec::new();
    for count in 2..=4 {
        inner.push(enter_again(&first, &name, &outer, LONG).await);
        assert_eq!(holds(&look, &name).await, [(owner.clone(), count)]);
    }
    // From another process the same owner is the same owner, and any other is not.
    inner.push(enter_again(&second, &name, &outer, LONG).await);
    assert_busy(&second, &name).await;
    assert_busy(&first, &name).await;

    // The order does not matter.
    inner.insert(0, outer);
    for (guard, left) in inner.into_iter().zip([4, 3, 2, 1, 0]) {
        assert_busy(&second, &name).await;
        assert_eq!(release(guard).await, Release::Released);
        assert_eq!(holds(&look, &name).await.first().map_or(0, |(_, count)| *count), left);
    }
    assert_eq!(release(hold(&second, &name).await).await, Release::Released);
}

#[tokio::test]
async fn each_entry_and_each_inner_release_sets_its_own_lease_and_shortens_no_other() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let (long, longer) = (LONG * 2, LONG * 3);
    let outer = hold(&locks, &name).await;
    let inner = enter_again(&locks, &name, &outer, long).await;
    assert_left(&look, &name, long).await;
    let innermost = enter_again(&locks, &name, &outer, Duration::from_secs(1)).await;
    assert_left(&look, &name, long).await;
    assert_eq!(release(innermost).await, Release::Released);
    assert_left(&look, &name, long).await;

    let _: bool = look.connection().pexpire(name.as_str(), 5_000).await.expect("an answer");
    assert_eq!(release(inner).await, Release::Released);
    assert_left(&look, &name, long).await;
    let inner = enter_again(&locks, &name, &outer, longer).await;
    assert_left(&look, &name, longer).await;
    assert_eq!(release(inner).await, Release::Released);
    assert_eq!(release(outer).await, Release::Released);
}

#[tokio::test]
async fn a_release_distinguishes_freed_held_by_another_and_not_held() {
    let (first, second, look, name) = (locks().await, locks().await, look().await, fresh_name());
    let guard = hold(&first, &name).await;
    look.delete(&name).await;
    assert_eq!(release(guard).await, Release::Gone);

    let short = options(Duration::ZERO, Duration::from_millis(200));
    let late = granted(&first, &name, &short).await;
    let successor = second.lock(&name, &patient()).await.expect("the lock after the lease");
    assert!(late.is_lost(), "work longer than the lease has two holders");
    let before = holds(&look, &name).await;
    assert_eq!(release(late).await, Release::HeldByOther);
    assert_eq!(holds(&look, &name).await, before, "it was not touched");
    assert_eq!(release(successor).await, Release::Released);
}

#[tokio::test]
async fn an_answer_that_is_lost_on_re_entry_counts_twice() {
    // No other test makes this server forget the scripts.
    let bed = Bed::start().expect("a private bed");
    let server = bed.redis(RedisOptions::default()).expect("Redis is installed");
    let (proxy, look, name) =
        (Proxy::before(&server).await, Look::at(server.url()).await, fresh_name());
    let (locks, other) = (locks_at(proxy.url()).await, locks_at(server.url()).await);
    let outer = hold(&locks, &name).await;
    proxy.plan("EVALSHA", Accident::AnswerLost);
    let lost = locks.lock_as(outer.owner().clone(), &name, &at_once()).await;
    assert!(matches!(lost, Err(LockError::Backend(_))), "{:?}", lost.err());
    proxy.happened().await;
    locks.flush().await;
    // Asked for again, it is granted again.
    let inner = enter_again(&locks, &name, &outer, LONG).await;
    for guard in [inner, outer] {
        assert_eq!(release(guard).await, Release::Released);
    }
    assert!(matches!(holds(&look, &name).await[..], [(_, 1)]), "a hold that nobody has");
    assert_left(&look, &name, LONG).await;
    assert_busy(&other, &name).await;
}

#[tokio::test]
async fn a_re_entry_that_never_reached_the_server_takes_nothing_from_the_outer_hold() {
    let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
    let (locks, other) = (locks_at(proxy.url()).await, locks().await);
    let outer = hold(&locks, &name).await;
    proxy.plan("EVALSHA", Accident::Lost);
    let lost = locks.lock_as(outer.owner().clone(), &name, &at_once()).await;
    assert!(matches!(lost, Err(LockError::Backend(_))), "{:?}", lost.err());
    proxy.happened().await;
    locks.flush().await;
    assert_eq!(holds(&look, &name).await, [(outer.owner().to_string(), 1)]);
    assert_busy(&other, &name).await;
    assert_eq!(release(outer).await, Release::Released);
}

#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_sent_again_and_count_once() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    look.flush_scripts().await;
    let outer = hold(&locks, &name).await;
    look.flush_scripts().await;
    let inner = enter_again(&locks, &name, &outer, LONG).await;
    assert_eq!(holds(&look, &name).await, [(outer.owner().to_string(), 2)]);
    for guard in [inner, outer] {
        look.flush_scripts().await;
        assert_eq!(release(guard).await, Release::Released);
    }
    assert_eq!(holds(&look, &name).await, []);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_as_it_is() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let guard = hold(&locks, &name).await;
    look.set(&name, "another").await;
    let error = guard.release().await.expect_err("it is no lock of this kind");
    assert!(matches!(error, LockError::HeldByOtherKind), "{error}");
    match locks.lock(&name, &patient()).await {
        Err(error) => assert!(matches!(error, LockError::HeldByOtherKind), "{error}"),
        Ok(_) => panic!("it was taken"),
    }
    assert_eq!(look.owner(&name).await.as_deref(), Some("another"));
}

/// The script as text: another test makes the server forget those that it knows.
fn eval(script: &str) -> Cmd {
    let mut call = redis::cmd("EVAL");
    call.arg(script);
    call
}

#[tokio::test]
async fn scripts_change_nothing_when_an_argument_is_missing_or_wrong() {
    let (look, name) = (look().await, fresh_name());
    let mut connection = look.connection();
    let calls: [&[&str]; 14] = [
        &[],
        &["owner"],
        &["", "1000"],
        &["owner", ""],
        &["owner", "soon"],
        &["owner", "0"],
        &["owner", "-1"],
        &["owner", "1.5"],
        &["owner", "1e3"],
        &["owner", "0x10"],
        &["owner", " 10"],
        &["owner", "10\n"],
        &["owner", "nan"],
        &["owner", "9223372036854775807"],
    ];
    for script in SCRIPTS {
        let mut no_key = eval(script);
        let no_key = no_key.arg(0).arg("owner").arg(1000).arg(1);
        let refused: redis::RedisResult<i64> = no_key.query_async(&mut connection).await;
        assert!(refused.is_err(), "{refused:?}");
        // A hold of the owner, so that there is something to change; and none, so that there may
        // become one.
        for before in [vec![("owner".to_owned(), 2)], vec![]] {
            look.delete(&name).await;
            for (owner, count) in &before {
                let set = connection.hset::<_, _, _, ()>(name.as_str(), owner, count);
                set.await.expect("an answer");
            }
            for args in calls {
                let mut call = eval(script);
                call.arg(1).arg(name.as_str()).arg(args);
                if args.len() == 2 {
                    // What only the first of them reads, where it does not come too early.
                    call.arg("1");
                }
                let outcome: redis::RedisResult<i64> = call.query_async(&mut connection).await;
                let error = outcome.expect_err("it must be refused");
                assert_eq!(error.code(), Some("ERR"), "{args:?}: {error}");
                assert_eq!(holds(&look, &name).await, before, "{args:?}");
                assert_eq!(look.lease(&name).await, None, "{args:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_entry_that_does_not_say_whether_it_is_a_re_entry_is_refused() {
    let (look, name) = (look().await, fresh_name());
    for again in ["", "2", "yes"] {
        let mut call = eval(SCRIPTS[0]);
        call.arg(1).arg(name.as_str()).arg("owner").arg(1000).arg(again);
        let refused: redis::RedisResult<i64> = call.query_async(&mut look.connection()).await;
        assert_eq!(refused.expect_err("it must be refused").code(), Some("ERR"), "{again:?}");
        assert_eq!(holds(&look, &name).await, []);
    }
}

#[tokio::test]
async fn a_count_that_is_no_number_is_an_error_and_stays_as_it_is() {
    let (look, name) = (look().await, fresh_name());
    let mut connection = look.connection();
    connection.hset::<_, _, _, ()>(name.as_str(), "owner", "many").await.expect("an answer");
    for script in SCRIPTS {
        let mut call = eval(script);
        call.arg(1).arg(name.as_str()).arg("owner").arg(1000).arg(1);
        let refused: redis::RedisResult<i64> = call.query_async(&mut connection).await;
        assert!(refused.is_err(), "{refused:?}");
        let count: String = connection.hget(name.as_str(), "owner").await.expect("an answer");
        assert_eq!((count.as_str(), look.lease(&name).await), ("many", None));
    }
}
