//! `multi` of locks of different kinds: whatever kind a member is of, it can be given back while
//! another one is busy, and taken again.
//!
//! What the suite asks of every kind it asks of a composite of three kinds as well
//! (`tests/conformance`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use conformance::{Servers, fresh_name};
use distlock::{LockKind, LockName, LockOptions, Locker, Locks, Multi, Release, locker};
use tokio::task::block_in_place;
use tokio::time::sleep;

/// A lease that does not end in a test, and a wait that ends only if it fails.
const LONG: Duration = Duration::from_secs(20);
/// What sessions and TTLs last: far longer than a process stands still for a moment.
const TTL: Duration = Duration::from_secs(6);
/// Far less than the lease, for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_secs(8);

/// The mechanism of another process, as far as a server can see.
async fn mechanism(kind: LockKind) -> Arc<dyn Locker> {
    let servers = Servers::shared();
    let mut addresses = block_in_place(|| servers.addresses(kind));
    addresses.set_ttl(TTL);
    let backends = addresses.connect().await.expect("addresses of servers that run");
    locker(kind, &backends).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

fn options(locks: &Locks, wait: Duration) -> LockOptions {
    LockOptions::new(wait, locks.guarantees().lease(LONG))
}

/// Waits until `count` subscribers listen for the release of a lock of `redisson`.
async fn until_somebody_waits_for(name: &LockName) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let ask = || Servers::shared().redis().command(&["PUBSUB", "NUMSUB", &channel]);
    let deadline = Instant::now() + PROMPT_WITHIN;
    loop {
        let heard = block_in_place(ask).expect("Redis answers");
        if heard.lines().next_back().is_some_and(|count| count.trim().parse() == Ok(1)) {
            return;
        }
        assert!(Instant::now() < deadline, "no waiter subscribed: {heard}");
        sleep(Duration::from_millis(1)).await;
    }
}

async fn assert_free(mechanism: Arc<dyn Locker>, name: &LockName, what: &str) {
    let locks = Locks::new(mechanism);
    let guard = locks.lock(name, &options(&locks, Duration::ZERO)).await;
    let guard = guard.unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
    guard.release().await.expect("a release");
}

/// The first member is taken and given back, since the second one is held elsewhere. Then it is
/// taken again, for a section that is shorter than the life of the servers' latch keys.
async fn taken_again(kind: LockKind) {
    let (what, id) = (kind.as_str(), fresh_name());
    let [one, two] = ["1", "2"].map(|end| LockName::new(format!("{id}:{end}")).expect("a name"));
    let (first, second) = (mechanism(kind).await, mechanism(LockKind::Redisson).await);
    let members = vec![(Arc::clone(&first), one.clone()), (second, two.clone())];
    let whole = Locks::new(Arc::new(Multi::of(members).expect("two members")));
    let others = Locks::new(mechanism(LockKind::Redisson).await);
    let held = others.lock(&two, &options(&others, Duration::ZERO)).await.expect("it is free");
    let waiter = tokio::spawn({
        let (whole, name) = (whole.clone(), one.clone());
        async move { whole.lock(&name, &options(&whole, LONG)).await }
    });
    until_somebody_waits_for(&two).await;
    held.release().await.expect("a release");
    let freed = Instant::now();
    let guard = waiter.await.expect("no panic");
    let guard = guard.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(freed.elapsed() < PROMPT_WITHIN, "{what}: {:?}", freed.elapsed());
    assert!(!guard.is_lost(), "{what}");
    assert_eq!(guard.release().await.expect("a release"), Release::Released, "{what}");
    let first = if first.guarantees().is_on_a_server() { mechanism(kind).await } else { first };
    assert_free(first, &one, what).await;
    assert_free(mechanism(LockKind::Redisson).await, &two, what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_any_kind_that_was_given_back_is_taken_again() {
    for kind in LockKind::ALL {
        taken_again(kind).await;
    }
}
