//! `getset-timestamp` on a real Redis: what it does, and what it is known to get wrong. A client
//! whose clock is wrong is one that was given another clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::proxy::{Accident, Proxy};
use crate::support::{
    LONG, Look, at_once, connect, connect_with, eventually, fresh_name, granted, locks_by,
    locks_of, options, patient, server,
};
use distlock::{GetsetTimestamp, Guard, LockError, LockKind, LockName, Locks, Release};

/// A lease that is soon over.
const SHORT: Duration = Duration::from_millis(200);

async fn look() -> Look {
    Look::at(server().url()).await
}

async fn locks() -> Locks {
    locks_of(LockKind::GetsetTimestamp, connect(server().url()).await)
}

async fn locks_with(clock: fn() -> SystemTime) -> Locks {
    locks_by(GetsetTimestamp::with_clock(&connect(server().url()).await, clock))
}

async fn hold(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &at_once()).await.expect("the lock is free")
}

async fn hold_briefly(locks: &Locks, name: &LockName) -> Guard {
    granted(locks, name, &options(Duration::ZERO, SHORT)).await
}

async fn assert_busy(locks: &Locks, name: &LockName) {
    let refused = locks.lock(name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
}

async fn release(guard: Guard) -> Release {
    guard.release().await.expect("an answer")
}

/// When the lock ends, by the clock of its writer.
async fn deadline(look: &Look, name: &LockName) -> SystemTime {
    let value = look.owner(name).await.expect("a value");
    UNIX_EPOCH + Duration::from_millis(value.parse().expect("a time in ms"))
}

#[tokio::test]
async fn the_value_is_the_end_of_the_lock_and_the_key_has_no_lease() {
    let (first, second, look, name) = (locks().await, locks().await, look().await, fresh_name());
    let asked = SystemTime::now();
    let guard = hold(&first, &name).await;
    let deadline = deadline(&look, &name).await;
    let ms = Duration::from_millis(1);
    assert!(deadline + ms > asked + LONG && deadline <= SystemTime::now() + LONG, "{deadline:?}");
    assert_eq!(look.lease(&name).await, None);
    assert_busy(&second, &name).await;
    assert_eq!(release(guard).await, Release::Released);
    assert_eq!(look.owner(&name).await, None);

    let guard = hold(&second, &name).await;
    look.delete(&name).await;
    assert_eq!(release(guard).await, Release::Gone);
}

#[tokio::test]
async fn a_lock_that_has_ended_is_taken_over_and_its_late_release_does_nothing() {
    let (first, second, look, name) = (locks().await, locks().await, look().await, fresh_name());
    let late = hold_briefly(&first, &name).await;
    let ends = deadline(&look, &name).await;
    let successor = second.lock(&name, &patient()).await.expect("the lock after its time");
    assert!(SystemTime::now() >= ends && late.is_lost(), "it was let in early");
    let successors = look.owner(&name).await;
    assert_eq!(release(late).await, Release::Gone);
    assert_eq!(look.owner(&name).await, successors);
    assert_eq!(release(successor).await, Release::Released);

    // The key of a holder that died is taken over as well.
    hold_briefly(&first, &name).await.leave_to_lease();
    let heir = second.lock(&name, &patient()).await.expect("the lock after its time");
    assert_eq!(release(heir).await, Release::Released);
}

#[tokio::test]
async fn a_clock_that_is_fast_takes_the_lock_of_a_living_holder() {
    let fast = locks_with(|| SystemTime::now() + LONG * 2).await;
    let (first, name) = (locks().await, fresh_name());
    let holder = hold(&first, &name).await;
    let thief = hold(&fast, &name).await;
    assert!(!holder.is_lost() && !thief.is_lost(), "two holders, none warned");
    // The holder's own clock says that it may free what is there: it is the thief's.
    assert_eq!(release(holder).await, Release::Released);
    assert_eq!(release(thief).await, Release::Gone);
}

#[tokio::test]
async fn a_clock_that_is_slow_keeps_no_holder_out_and_waits_for_too_long() {
    let slow = locks_with(|| SystemTime::now() - LONG * 2).await;
    let (first, name) = (locks().await, fresh_name());
    let holder = hold(&slow, &name).await;
    let intruder = hold(&first, &name).await;
    assert!(!holder.is_lost() && !intruder.is_lost(), "two holders, none warned");

    let name = fresh_name();
    let dead = hold_briefly(&first, &name).await;
    dead.lost_signal().lost().await;
    dead.leave_to_lease();
    let waits = slow.lock(&name, &options(SHORT * 2, LONG)).await;
    assert!(matches!(waits, Err(LockError::TimedOut { .. })), "{:?}", waits.err());
}

#[tokio::test]
async fn a_loser_overwrites_the_deadline_of_the_winner() {
    let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
    let (first, third) = (locks().await, locks().await);
    let loser = locks_of(LockKind::GetsetTimestamp, connect_with(proxy.url(), LONG).await);
    hold_briefly(&first, &name).await.leave_to_lease();
    let ended = deadline(&look, &name).await;
    eventually("the lock has ended", async || SystemTime::now() > ended).await;

    // Both have seen that the lock has ended; the winner's GETSET comes first.
    proxy.plan("GETSET", Accident::Delayed);
    let losing = tokio::spawn({
        let (loser, name) = (loser.clone(), name.clone());
        async move { loser.lock(&name, &options(Duration::ZERO, SHORT)).await.map(drop) }
    });
    proxy.happened().await;
    let winner = first.lock(&name, &patient()).await.expect("the lock");
    let believed = deadline(&look, &name).await;
    proxy.let_go();
    let lost = losing.await.expect("no panic");
    assert!(matches!(lost, Err(LockError::TimedOut { .. })), "{lost:?}");
    assert!(deadline(&look, &name).await < believed, "the winner's time is what it was");

    // The winner's validity lasts, but the key now has the loser's time.
    let intruder = third.lock(&name, &patient()).await.expect("the lock after the loser's time");
    assert!(!winner.is_lost() && !intruder.is_lost(), "two holders, none warned");
}

#[tokio::test]
async fn whatever_is_under_the_key_is_deleted_before_the_lease_has_ended() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let guard = hold(&locks, &name).await;
    look.set(&name, "another").await;
    assert_eq!(release(guard).await, Release::Released, "it believes so");
    assert_eq!(look.owner(&name).await, None);
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_left_to_its_time() {
    let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
    let first = locks_of(LockKind::GetsetTimestamp, connect(proxy.url()).await);
    proxy.plan("SETNX", Accident::AnswerLost);
    let failed = first.lock(&name, &at_once()).await;
    assert!(matches!(failed, Err(LockError::Backend(_))), "{:?}", failed.err());
    proxy.happened().await;
    first.flush().await;
    assert!(deadline(&look, &name).await > SystemTime::now());
}

#[tokio::test]
async fn a_key_that_is_no_time_is_an_error_and_stays_as_it_is() {
    let (locks, look, name) = (locks().await, look().await, fresh_name());
    let refused = async || match locks.lock(&name, &patient()).await {
        Err(error) => assert!(matches!(error, LockError::HeldByOtherKind), "{error}"),
        Ok(_) => panic!("it was taken"),
    };
    for value in ["an owner", "", "-1", "1e3", "99999999999999999999", "1 "] {
        look.set(&name, value).await;
        refused().await;
        assert_eq!(look.owner(&name).await.as_deref(), Some(value));
    }
    look.make_hash(&name).await;
    refused().await;
    assert!(look.is_hash(&name).await);
}
