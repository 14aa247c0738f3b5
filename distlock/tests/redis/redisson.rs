//! `redisson` on a real Redis: what it writes there, re-entry, release, and odd states. What the
//! server shows is what Redisson would write, and what the tests write is what Redisson would.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::redisson::{OwnServer, RawRedis, Service, channel, kept};
use crate::support::{LONG, answered, at_once, eventually, fresh_name, options, patient, server};
use distlock::{LockError, LockName, Owner, RedissonLock, Release};
use uuid::Uuid;

/// Clearly less than any wait in these tests, with room for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_secs(5);

async fn service() -> Service {
    Service::at(server().url()).await
}

async fn raw() -> RawRedis {
    RawRedis::at(server().url()).await
}

/// A hold of that owner with this hold count.
fn held(owner: &Owner, times: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(owner.to_string(), times)])
}

/// Nothing is left of a lock, sooner than by the end of what a latch is kept for.
async fn is_forgotten(raw: &RawRedis, name: &LockName) {
    let forgotten = async {
        while !raw.keys(name).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PROMPT_WITHIN, forgotten).await.expect("nothing is left");
}

#[tokio::test]
async fn while_it_is_held_the_server_shows_what_redisson_would_write() {
    let (service, raw, name) = (service().await, raw().await, fresh_name());
    let mut processes = Vec::new();
    let mut numbers = Vec::new();
    for seconds in [5, 20, 60] {
        let lease = Duration::from_secs(seconds);
        let asked = options(Duration::ZERO, lease);
        let guard = service.locks.lock(&name, &asked).await.expect("the lock");
        assert_eq!(raw.holds(&name).await, held(guard.owner(), 1));
        let left = raw.lease(&name).await.expect("a lease");
        assert!(left <= lease && left + Duration::from_secs(2) > lease, "{left:?} of {lease:?}");
        assert_eq!(raw.keys(&name).await, [name.as_str()], "no other key");
        let (process, number) = guard.owner().as_str().split_once(':').expect("two parts");
        processes.push(process.parse::<Uuid>().expect("a UUID"));
        numbers.push(number.parse::<u64>().expect("a number"));
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        is_forgotten(&raw, &name).await;
    }
    processes.dedup();
    assert_eq!(processes.len(), 1, "the process has one id");
    assert!(numbers.is_sorted_by(|one, next| one < next), "no number twice: {numbers:?}");
}

#[tokio::test]
async fn redisson_and_this_kind_exclude_and_wake_each_other() {
    let (service, raw, name) = (service().await, raw().await, fresh_name());
    raw.hold_as_redisson(&name, LONG).await;
    let busy = service.locks.lock(&name, &at_once()).await;
    assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    let waiter = tokio::spawn({
        let (service, name) = (service.clone(), name.clone());
        async move { service.locks.lock(&name, &patient()).await }
    });
    eventually("it has subscribed", async || {
        let counts: (String, usize) = raw.command(&["PUBSUB", "NUMSUB", &channel(&name)]).await;
        counts.1 == 1
    })
    .await;
    assert_eq!(raw.release_as_redisson(&name).await, 1, "it listens on Redisson's channel");
    waiter.await.expect("no panic").expect("the lock").release().await.expect("a release");
}

/// What the next message on that channel says.
async fn listen(channel: String) -> tokio::task::JoinHandle<String> {
    let client = redis::Client::open(server().url()).expect("a URL");
    let (subscribed, listens) = tokio::sync::oneshot::channel();
    let message = tokio::task::spawn_blocking(move || {
        let mut connection = client.get_connection().expect("a connection");
        connection.set_read_timeout(Some(PROMPT_WITHIN)).expect("a socket");
        let mut listener = connection.as_pubsub();
        listener.subscribe(channel).expect("a subscription");
        subscribed.send(()).expect("somebody waits");
        listener.get_message().expect("a message").get_payload().expect("text")
    });
    listens.await.expect("a subscription");
    message
}

#[tokio::test]
async fn a_release_is_published_on_the_channel_of_redisson() {
    let (service, fresh) = (service().await, fresh_name());
    let tagged = LockName::new(format!("{{{fresh}}}:tagged")).expect("a name");
    for (name, channel) in [
        (&fresh, format!("redisson_lock__channel:{{{fresh}}}")),
        (&tagged, format!("redisson_lock__channel:{tagged}")),
    ] {
        let outer = service.locks.lock(name, &at_once()).await.expect("the lock");
        let owner = outer.owner().clone();
        let inner = service.locks.lock_as(owner, name, &at_once()).await.expect("it again");
        let message = listen(channel.clone()).await;
        inner.release().await.expect("a release");
        assert!(!message.is_finished(), "it is still held");
        outer.release().await.expect("a release");
        assert_eq!(message.await.expect("a message"), "0");

        drop(service.locks.lock(name, &at_once()).await.expect("the lock"));
        service.locks.flush().await;
        let _hold = service.locks.lock(name, &at_once()).await.expect("the lock");
        let message = listen(channel).await;
        let lock = RedissonLock::new(&service.server, name.clone());
        assert!(lock.force_unlock().await.expect("an answer"));
        assert_eq!(message.await.expect("a message"), "0");
    }
}

#[tokio::test]
async fn re_entry_counts_and_each_guard_leaves_once() {
    let (service, other, raw) = (service().await, service().await, raw().await);
    let name = fresh_name();
    let outer = service.locks.lock(&name, &at_once()).await.expect("the lock");
    let owner = outer.owner().clone();
    let lock_again = async || {
        let guard = service.locks.lock_as(owner.clone(), &name, &at_once()).await;
        guard.expect("the same owner again")
    };
    let (second, third) = (lock_again().await, lock_again().await);
    assert_eq!(raw.holds(&name).await, held(&owner, 3));
    // In any order, and the lock is free after the last only.
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
    assert_eq!(third.release().await.expect("a release"), Release::Released);
    assert_eq!(raw.holds(&name).await, held(&owner, 1));
    for locks in [&service.locks, &other.locks] {
        let busy = locks.lock(&name, &at_once()).await;
        assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    }
    assert_eq!(second.release().await.expect("a release"), Release::Released);
    is_forgotten(&raw, &name).await;
    other.locks.lock(&name, &at_once()).await.expect("the lock").release().await.expect("it");
}

#[tokio::test]
async fn a_re_entry_with_a_shorter_lease_takes_nothing_from_the_outer_hold() {
    let (service, raw, name) = (service().await, raw().await, fresh_name());
    let outer = service.locks.lock(&name, &at_once()).await.expect("the lock");
    let owner = outer.owner().clone();
    let short = options(Duration::ZERO, Duration::from_millis(300));
    let inner = answered(async || service.locks.lock_as(owner.clone(), &name, &short).await).await;
    assert!(raw.lease(&name).await.expect("a lease") > LONG / 2, "a re-entry");
    inner.release().await.expect("a release");
    assert!(raw.lease(&name).await.expect("a lease") > LONG / 2, "an inner release");
    let kept = kept(Duration::ZERO, Duration::from_secs(3));
    let inner = service.locks.lock_as(owner, &name, &kept).await.expect("it again");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(raw.lease(&name).await.expect("a lease") > LONG / 2, "a renewal");
    assert!(!inner.is_lost() && !outer.is_lost());
    inner.release().await.expect("a release");
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
}

#[tokio::test]
async fn a_release_distinguishes_freed_held_by_another_and_not_held() {
    let (service, raw, name) = (service().await, raw().await, fresh_name());
    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    raw.command::<()>(&["DEL", name.as_str()]).await;
    assert_eq!(guard.release().await.expect("a release"), Release::Gone);

    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    raw.command::<()>(&["DEL", name.as_str()]).await;
    raw.hold_as_redisson(&name, LONG).await;
    let others = raw.holds(&name).await;
    assert_eq!(guard.release().await.expect("a release"), Release::HeldByOther);
    assert_eq!(raw.holds(&name).await, others, "it was not touched");
}

#[tokio::test]
async fn a_lock_can_be_looked_at_from_outside_and_freed_by_force() {
    let (service, other, name) = (service().await, service().await, fresh_name());
    let lock = RedissonLock::new(&other.server, name.clone());
    assert!(!lock.is_locked().await.expect("an answer"));
    assert_eq!(lock.remaining_lease().await.expect("an answer"), None);
    assert!(!lock.force_unlock().await.expect("an answer"));

    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    let owner = guard.owner().clone();
    let again = service.locks.lock_as(owner.clone(), &name, &at_once()).await.expect("again");
    let stranger = Owner::fresh();
    assert!(lock.is_locked().await.expect("an answer"));
    assert!(lock.is_held_by(&owner).await.expect("an answer"));
    assert!(!lock.is_held_by(&stranger).await.expect("an answer"));
    assert_eq!(lock.hold_count(&owner).await.expect("an answer"), 2);
    assert_eq!(lock.hold_count(&stranger).await.expect("an answer"), 0);
    let left = lock.remaining_lease().await.expect("an answer").expect("a lease");
    assert!(left <= LONG && left > LONG / 2, "{left:?}");

    assert!(lock.force_unlock().await.expect("an answer"));
    assert!(!lock.is_locked().await.expect("an answer"));
    assert_eq!(again.release().await.expect("a release"), Release::Gone);
    assert_eq!(guard.release().await.expect("a release"), Release::Gone);
}

#[tokio::test]
async fn a_key_that_is_no_such_lock_is_an_error_and_stays_as_it_is() {
    let (service, other, raw) = (service().await, service().await, raw().await);
    let name = fresh_name();
    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    raw.command::<()>(&["SET", name.as_str(), "another kind"]).await;
    let lock = RedissonLock::new(&service.server, name.clone());
    of_another_kind(&other.locks.lock(&name, &at_once()).await.map(drop));
    of_another_kind(&lock.is_locked().await.map(drop));
    of_another_kind(&lock.hold_count(guard.owner()).await.map(drop));
    of_another_kind(&lock.force_unlock().await.map(drop));
    of_another_kind(&guard.release().await.map(drop));
    assert_eq!(raw.command::<String>(&["GET", name.as_str()]).await, "another kind");
    raw.command::<()>(&["DEL", name.as_str()]).await;

    let guard = service.locks.lock(&name, &at_once()).await.expect("the lock");
    let owner = guard.owner().clone();
    raw.command::<()>(&["HSET", name.as_str(), owner.as_str(), "no number"]).await;
    of_another_kind(&service.locks.lock_as(owner, &name, &at_once()).await.map(drop));
    of_another_kind(&guard.release().await.map(drop));
}

fn of_another_kind(outcome: &Result<(), LockError>) {
    assert!(matches!(outcome, Err(LockError::HeldByOtherKind)), "{outcome:?}");
}

/// As a peer leaves it: Redisson's read-write lock has a field `mode` beside its owners.
#[tokio::test]
async fn a_hash_with_fields_that_are_no_owners_is_of_another_kind_and_stays_as_it_is() {
    let (service, raw) = (service().await, raw().await);
    for fields in [&["mode", "read", "somebody:1", "1"][..], &["somebody:1", "no number"]] {
        let name = fresh_name();
        raw.command::<()>(&[&["HSET", name.as_str()], fields].concat()).await;
        let lock = RedissonLock::new(&service.server, name.clone());
        of_another_kind(&service.locks.lock(&name, &options(LONG, LONG)).await.map(drop));
        of_another_kind(&lock.is_locked().await.map(drop));
        of_another_kind(&lock.force_unlock().await.map(drop));
        let left: Vec<String> = raw.command(&["HGETALL", name.as_str()]).await;
        assert_eq!(left.len(), fields.len());
        raw.command::<()>(&["DEL", name.as_str()]).await;
    }
}

#[tokio::test]
async fn a_lock_without_an_expiry_is_waited_for_until_it_is_freed() {
    let (service, raw, name) = (service().await, raw().await, fresh_name());
    raw.command::<()>(&["HSET", name.as_str(), "somebody", "1"]).await;
    let lock = RedissonLock::new(&service.server, name.clone());
    assert_eq!(lock.remaining_lease().await.expect("an answer"), Some(Duration::MAX));
    let started = Instant::now();
    let busy = service.locks.lock(&name, &options(Duration::from_millis(300), LONG)).await;
    assert!(
        matches!(busy, Err(LockError::TimedOut { has_no_expiry: true, .. })),
        "{:?}",
        busy.err()
    );
    assert!(started.elapsed() < PROMPT_WITHIN);
    let patient = patient();
    let (got, freed) = tokio::join!(service.locks.lock(&name, &patient), lock.force_unlock());
    assert!(freed.expect("an answer"));
    let guard = got.expect("the lock");
    assert!(raw.lease(&name).await.is_some(), "now it has an end");
    guard.release().await.expect("a release");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_memory_is_full_renews_and_releases_holds() {
    let own = OwnServer::start();
    let (service, raw, name) = (own.service().await, own.raw().await, fresh_name());
    // Renewed in time also by a server that stands still for a moment.
    let lease = Duration::from_millis(4500);
    let guard = service.locks.lock(&name, &kept(Duration::ZERO, lease)).await.expect("the lock");
    raw.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = service.locks.lock(&fresh_name(), &at_once()).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "{:?}", refused.err());
    tokio::time::sleep(lease * 2).await;
    assert!(!guard.is_lost(), "it is renewed");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    assert!(raw.holds(&name).await.is_empty());
}
