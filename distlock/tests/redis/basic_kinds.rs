//! `setnx-expire`, `set-nx` and `owner-check` on a real Redis: what they do, and what they are
//! known to get wrong. Several `Locks`, each with a connection of its own, are several processes
//! as far as the server can see.

use std::time::Duration;

use crate::support::proxy::{Accident, Proxy};
use crate::support::{
    LONG, Look, at_once, connect, connect_with, fresh_name, granted, locks_by, locks_of, options,
    patient, server,
};
use distlock::{Guard, LockError, LockKind, LockName, Locks, OwnerCheckLock, Release, SetnxExpire};
use tokio::time::Instant;

const KINDS: [LockKind; 3] = [LockKind::SetnxExpire, LockKind::SetNx, LockKind::OwnerCheck];
/// A lease that is soon over.
const SHORT: Duration = Duration::from_millis(200);

async fn look() -> Look {
    Look::at(server().url()).await
}

async fn locks(kind: LockKind) -> Locks {
    locks_of(kind, connect(server().url()).await)
}

async fn hold(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &at_once()).await.expect("the lock is free")
}

async fn hold_briefly(locks: &Locks, name: &LockName) -> Guard {
    granted(locks, name, &options(Duration::ZERO, SHORT)).await
}

async fn assert_busy(locks: &Locks, name: &LockName, wait: Duration) {
    let refused = locks.lock(name, &options(wait, LONG)).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
}

async fn release(guard: Guard) -> Release {
    guard.release().await.expect("an answer")
}

#[tokio::test]
async fn a_held_lock_is_a_key_with_a_lease_that_keeps_others_out_until_it_is_released() {
    for kind in KINDS {
        let (first, second, look, name) =
            (locks(kind).await, locks(kind).await, look().await, fresh_name());
        let guard = hold(&first, &name).await;
        assert_eq!(look.owner(&name).await.as_deref(), Some(guard.owner().as_str()), "{kind}");
        let left = look.lease(&name).await.expect("a lease");
        assert!(left <= LONG && left + Duration::from_secs(5) > LONG, "{kind}: {left:?}");
        let ends = Instant::now() + left;
        assert!(guard.validity().deadline().is_some_and(|deadline| deadline < ends), "{kind}");
        assert_busy(&second, &name, Duration::ZERO).await;
        assert_eq!(release(guard).await, Release::Released, "{kind}");
        assert_eq!(look.owner(&name).await, None, "{kind}");
        assert_eq!(release(hold(&second, &name).await).await, Release::Released, "{kind}");
    }
}

#[tokio::test]
async fn a_release_reports_a_missing_or_foreign_key_as_far_as_the_kind_can() {
    for kind in KINDS {
        let (locks, look, name) = (locks(kind).await, look().await, fresh_name());
        let guard = hold(&locks, &name).await;
        look.delete(&name).await;
        assert_eq!(release(guard).await, Release::Gone, "{kind}");

        let guard = hold(&locks, &name).await;
        look.set(&name, "another").await;
        let (outcome, left) = match kind {
            LockKind::OwnerCheck => (Release::HeldByOther, Some("another")),
            // The flaw: they free it, and take it for their own.
            _ => (Release::Released, None),
        };
        assert_eq!(release(guard).await, outcome, "{kind}");
        assert_eq!(look.owner(&name).await.as_deref(), left, "{kind}");
    }
}

#[tokio::test]
async fn a_late_del_frees_the_successor_and_a_third_enters() {
    for kind in [LockKind::SetnxExpire, LockKind::SetNx] {
        let (first, second, third) = (locks(kind).await, locks(kind).await, locks(kind).await);
        let name = fresh_name();
        let late = hold_briefly(&first, &name).await;
        let successor = second.lock(&name, &patient()).await.expect("the lock after the lease");
        assert!(late.is_lost(), "{kind}");
        assert_busy(&third, &name, Duration::ZERO).await;
        assert_eq!(release(late).await, Release::Released, "{kind}: it believes so");
        let intruder = hold(&third, &name).await;
        assert!(!successor.is_lost() && !intruder.is_lost(), "{kind}: two holders, none warned");
        // And so on: each frees the next one's.
        assert_eq!(release(successor).await, Release::Released, "{kind}");
        assert_eq!(release(intruder).await, Release::Gone, "{kind}");
    }
}

#[tokio::test]
async fn a_connection_lost_before_expire_leaves_the_lock_for_ever() {
    let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
    let first = locks_of(LockKind::SetnxExpire, connect(proxy.url()).await);
    let second = locks(LockKind::SetnxExpire).await;
    proxy.plan("PEXPIRE", Accident::Lost);
    let failed = first.lock(&name, &options(Duration::ZERO, SHORT)).await;
    assert!(matches!(failed, Err(LockError::Backend(_))), "{:?}", failed.err());
    proxy.happened().await;
    first.flush().await;
    assert!(look.owner(&name).await.is_some(), "SETNX has taken the lock");
    assert_eq!(look.lease(&name).await, None, "nothing will ever end it");
    assert_busy(&second, &name, SHORT * 4).await;
}

#[tokio::test]
async fn without_expire_each_holder_that_dies_leaves_the_lock_for_ever() {
    let (look, name) = (look().await, fresh_name());
    let [first, second] = [connect(server().url()).await, connect(server().url()).await]
        .map(|server| locks_by(SetnxExpire::without_expire(&server)));
    assert_eq!(release(hold_briefly(&first, &name).await).await, Release::Released);
    let dies = hold_briefly(&first, &name).await;
    dies.lost_signal().lost().await;
    dies.leave_to_lease();
    assert!(look.owner(&name).await.is_some(), "the lease it asked for is over");
    assert_eq!(look.lease(&name).await, None, "nothing will ever end it");
    assert_busy(&second, &name, SHORT * 4).await;
}

#[tokio::test]
async fn a_caller_dropped_between_setnx_and_expire_leaves_nothing() {
    let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
    let server = connect_with(proxy.url(), LONG).await;
    let locks = locks_of(LockKind::SetnxExpire, server);
    proxy.plan("PEXPIRE", Accident::Delayed);
    {
        let (options, mut happened) = (at_once(), std::pin::pin!(proxy.happened()));
        let mut locking = std::pin::pin!(locks.lock(&name, &options));
        tokio::select! {
            () = &mut happened => {}
            _ = &mut locking => panic!("it cannot have got an answer"),
        }
    }
    assert!(look.owner(&name).await.is_some(), "SETNX has taken the lock");
    proxy.let_go();
    locks.flush().await;
    assert_eq!(look.owner(&name).await, None);
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_given_back_only_by_a_kind_that_knows_its_owner() {
    for (kind, command) in KINDS.into_iter().zip(["SETNX", "SET", "SET"]) {
        let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
        let first = locks_of(kind, connect(proxy.url()).await);
        proxy.plan(command, Accident::AnswerLost);
        let failed = first.lock(&name, &at_once()).await;
        assert!(matches!(failed, Err(LockError::Backend(_))), "{kind}: {:?}", failed.err());
        proxy.happened().await;
        first.flush().await;
        let is_left = look.owner(&name).await.is_some();
        assert_eq!(is_left, kind != LockKind::OwnerCheck, "{kind}");
        // Only a lease that came with the key ends it.
        assert_eq!(look.lease(&name).await.is_some(), kind == LockKind::SetNx, "{kind}");
    }
}

#[tokio::test]
async fn a_pause_between_get_and_del_frees_the_successor() {
    // What pauses is the way to the server, at the step that frees the lock. One command or script
    // has no such pause: it is late as a whole, and finds out.
    let kinds = [(LockKind::OwnerCheck, "DEL"), (LockKind::LuaRelease, "DELIFEQ")];
    for (kind, frees) in kinds {
        let (proxy, look, name) = (Proxy::before(server()).await, look().await, fresh_name());
        let paused = locks_of(kind, connect_with(proxy.url(), LONG).await);
        let (second, third) = (locks(kind).await, locks(kind).await);
        let lease = options(Duration::ZERO, Duration::from_secs(3));
        let guard = paused.lock(&name, &lease).await.expect("the lock");
        proxy.plan(frees, Accident::Delayed);
        let releasing = tokio::spawn(release(guard));
        proxy.happened().await;
        let successor = second.lock(&name, &patient()).await.expect("the lock after the lease");
        proxy.let_go();
        let outcome = releasing.await.expect("no panic");
        if kind == LockKind::LuaRelease {
            assert_eq!(outcome, Release::HeldByOther);
            assert_eq!(look.owner(&name).await.as_deref(), Some(successor.owner().as_str()));
            continue;
        }
        assert_eq!(outcome, Release::Released, "it believes so");
        let intruder = hold(&third, &name).await;
        assert!(!successor.is_lost() && !intruder.is_lost(), "two holders, none warned");
        assert_eq!(release(successor).await, Release::HeldByOther);
    }
}

#[tokio::test]
async fn owners_that_are_numbers_of_the_process_collide_between_replicas() {
    let replica = async |numbered: bool| {
        let server = connect(server().url()).await;
        locks_by(if numbered {
            OwnerCheckLock::with_process_numbers(&server)
        } else {
            OwnerCheckLock::new(&server)
        })
    };
    for numbered in [true, false] {
        let (first, second) = (replica(numbered).await, replica(numbered).await);
        let name = fresh_name();
        let late = hold(&first, &name).await;
        // It does not know that its lease has ended.
        look().await.delete(&name).await;
        let successor = hold(&second, &name).await;
        assert_eq!(late.owner() == successor.owner(), numbered);
        if numbered {
            assert_eq!(late.owner().as_str(), "1");
            assert_eq!(release(late).await, Release::Released, "it believes so");
            let intruder = hold(&replica(true).await, &name).await;
            assert!(!successor.is_lost() && !intruder.is_lost(), "two holders, none warned");
            let next = hold(&first, &fresh_name()).await;
            assert_eq!(next.owner().as_str(), "2", "each acquisition is counted");
        } else {
            assert_eq!(release(late).await, Release::HeldByOther);
            assert_eq!(release(successor).await, Release::Released);
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_excludes_all_contenders_but_a_bare_del_removes_it() {
    for kind in KINDS {
        let (locks, look, name) = (locks(kind).await, look().await, fresh_name());
        let guard = hold(&locks, &name).await;
        look.make_hash(&name).await;
        assert_busy(&locks, &name, Duration::ZERO).await;
        assert!(look.is_hash(&name).await, "{kind}");
        match (kind, guard.release().await) {
            (LockKind::OwnerCheck, outcome) => {
                let error = outcome.expect_err("it is no lock of this kind");
                assert!(matches!(error, LockError::HeldByOtherKind), "{error}");
                assert!(look.is_hash(&name).await);
            }
            (_, outcome) => {
                assert_eq!(outcome.expect("an answer"), Release::Released, "{kind}");
                assert!(!look.is_hash(&name).await, "{kind}: it is gone");
            }
        }
    }
}
