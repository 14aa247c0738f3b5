//! A lock that its holder leaves to the server for a given time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{Backends, Lease, LockError, LockKind, LockOptions, Locks, Multi, locker};

use crate::support::{LONG, Look, at_once, connect, fresh_name, locks_of, options, server};

/// Renewed in time also by a server that stands still for a moment.
const LEASE: Duration = Duration::from_secs(3);
const REST: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_lock_that_is_left_for_a_time_keeps_other_owners_out_until_then() {
    let server = connect(server().url()).await;
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let locks = locks_of(kind, server.clone());
        let name = fresh_name();
        let renewed = LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE));
        let guard = locks.lock(&name, &renewed).await.expect("the lock");
        let left = Instant::now();
        guard.leave_for(REST).await.expect("it is held");
        let next = locks.lock(&name, &options(LONG, LONG)).await.expect("the lock, in the end");
        assert!(left.elapsed() >= REST, "{kind}: {:?}", left.elapsed());
        next.release().await.expect("a release");
    }
}

#[tokio::test]
async fn a_lock_that_cannot_be_renewed_or_is_lost_is_not_left_for_a_time() {
    let url = server().url();
    let server = connect(url).await;
    let fixed = locks_of(LockKind::LuaRelease, server.clone());
    let guard = fixed.lock(&fresh_name(), &at_once()).await.expect("the lock");
    assert!(matches!(guard.leave_for(REST).await, Err(LockError::Unsupported(_))));
    let locks = locks_of(LockKind::Redisson, server);
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    Look::at(url).await.delete(&name).await;
    assert!(matches!(guard.leave_for(REST).await, Err(LockError::Lost)));
}

#[tokio::test]
async fn a_multi_lock_is_not_left_for_a_time_if_a_member_ends_with_its_process() {
    let backends = Backends { redis: Some(connect(server().url()).await), ..Backends::default() };
    let of = |kind| locker(kind, &backends).expect("a locker");
    let (redisson, local) = (of(LockKind::Redisson), of(LockKind::Local));
    let members = Multi::of(vec![(redisson, fresh_name()), (local, fresh_name())]);
    let locks = Locks::new(Arc::new(members.expect("two members")));
    let renewed = LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE));
    let name = fresh_name();
    let guard = locks.lock(&name, &renewed).await.expect("the lock");
    assert!(matches!(guard.leave_for(REST).await, Err(LockError::Unsupported(_))));
    let next = locks.lock(&name, &options(LONG, LONG)).await.expect("it was released");
    next.release().await.expect("a release");
}
