//! Kinds whose holds have no names but their number: a stale hold does not free what its owner
//! takes afterwards.

use std::sync::Arc;

use crate::support::{Look, at_once, connect, fresh_name, locks_of, server};
use distlock::{
    Backends, Guard, LockError, LockKind, LockName, Locker, Locks, Multi, Release, locker,
};

const KINDS: [LockKind; 2] = [LockKind::Reentrant, LockKind::Redisson];

async fn locks(kind: LockKind) -> Locks {
    locks_of(kind, connect(server().url()).await)
}

async fn hold(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &at_once()).await.expect("it is free")
}

async fn assert_refused(locks: &Locks, name: &LockName, guard: &Guard) {
    let refused = locks.lock_as(guard.owner().clone(), name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::Lost)), "{refused:?}");
}

#[tokio::test]
async fn an_owner_whose_hold_was_removed_does_not_enter_again_and_its_release_frees_no_other() {
    for kind in KINDS {
        let (first, second, name) = (locks(kind).await, locks(kind).await, fresh_name());
        let look = Look::at(server().url()).await;
        let outer = hold(&first, &name).await;
        let inner = first.lock_as(outer.owner().clone(), &name, &at_once()).await;
        let inner = inner.expect("it is the owner's");
        look.delete(&name).await;
        assert!(!outer.is_lost(), "it does not know yet");
        assert_refused(&first, &name, &outer).await;
        // Nor where another owner has it by now: it would wait for what it must not get.
        let other = hold(&second, &name).await;
        assert_refused(&first, &name, &outer).await;
        assert_eq!(other.release().await.expect("a release"), Release::Released);
        assert_refused(&second, &name, &outer).await;

        let next = hold(&second, &name).await;
        for stale in [inner, outer] {
            assert_eq!(stale.release().await.expect("an answer"), Release::HeldByOther, "{kind}");
        }
        let busy = second.try_lock(&name, at_once().lease).await.expect("an answer");
        assert!(busy.is_none(), "{kind}: the successor's lock was freed");
        assert_eq!(next.release().await.expect("a release"), Release::Released);
    }
}

/// All of these kinds together, as another process has them.
async fn whole(names: &[LockName; 2]) -> Locks {
    let mut members: Vec<(Arc<dyn Locker>, LockName)> = Vec::new();
    for (kind, name) in KINDS.into_iter().zip(names) {
        let redis = Some(connect(server().url()).await);
        let backends = Backends { redis, ..Backends::default() };
        members.push((locker(kind, &backends).expect("a locker"), name.clone()));
    }
    Locks::new(Arc::new(Multi::of(members).expect("two members")))
}

#[tokio::test]
async fn the_whole_of_such_locks_is_not_entered_again_either() {
    let (names, name) = ([fresh_name(), fresh_name()], fresh_name());
    let (first, second) = (whole(&names).await, whole(&names).await);
    let look = Look::at(server().url()).await;
    let guard = hold(&first, &name).await;
    for name in &names {
        look.delete(name).await;
    }
    assert_refused(&first, &name, &guard).await;
    first.flush().await;
    let next = hold(&second, &name).await;
    assert_eq!(guard.release().await.expect("an answer"), Release::HeldByOther);
    assert_eq!(next.release().await.expect("a release"), Release::Released);
}
