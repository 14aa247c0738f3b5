//! Foreign keys under a lock's name, and the answer of each kind. A key that is no such lock is an
//! error of its own, at once, and is left as it is. A key without an expiry is waited for, and
//! reported at the end of the wait. The tests of each kind cover keys of other types.

use std::sync::Arc;
use std::time::Duration;

use crate::support::scene::{self, Scene};
use crate::support::synchronizers::{Client, PATIENT};
use crate::support::{
    LONG, Look, at_once, connect, fresh_name, locks_of, options, patient, server,
};
use distlock::{
    CountdownLatch, ExpirableSemaphore, LockError, LockKind, LockName, Locks, Multi, ReadWrite,
    Redisson, Redlock, Semaphore,
};
use testbed::{Bed, RedisOptions};

/// A wait that is over soon.
const BRIEF: Duration = Duration::from_millis(200);

async fn locks(kind: LockKind) -> Locks {
    locks_of(kind, connect(server().url()).await)
}

fn of_another_kind(what: &str, outcome: &Result<(), LockError>) {
    assert!(matches!(outcome, Err(LockError::HeldByOtherKind)), "{what}: {outcome:?}");
}

/// Whether what was in the way has an end, as a waiter is told whose wait is over.
async fn has_no_expiry(locks: &Locks, name: &LockName, wait: Duration) -> bool {
    match locks.lock(name, &options(wait, LONG)).await {
        Err(LockError::TimedOut { has_no_expiry, .. }) => has_no_expiry,
        other => panic!("{:?}", other.err()),
    }
}

/// As Redisson's read-write lock leaves it, and with a count that is none, also the caller's own.
#[tokio::test]
async fn a_hash_with_fields_that_are_no_owners_is_no_lock_of_the_kind_reentrant() {
    let (locks, client) = (locks(LockKind::Reentrant).await, Client::here().await);
    for fields in [&["mode", "read", "somebody", "1"][..], &["somebody", "many"]] {
        let name = fresh_name();
        client.command::<()>([&["HSET", name.as_str()], fields].concat()).await;
        of_another_kind(fields[0], &locks.lock(&name, &patient()).await.map(drop));
        let left: usize = client.command(&["HLEN", name.as_str()]).await;
        assert_eq!(left, fields.len() / 2);
    }
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("the lock");
    let owner = guard.owner().clone();
    client.command::<()>(&["HSET", name.as_str(), owner.as_str(), "many"]).await;
    of_another_kind("entered", &locks.lock_as(owner, &name, &at_once()).await.map(drop));
    of_another_kind("left", &guard.release().await.map(drop));
}

#[tokio::test]
async fn a_wait_that_times_out_says_whether_the_lock_has_no_expiry() {
    let (client, redis) = (Client::here().await, connect(server().url()).await);
    let strings = ["set-nx", "setnx-expire", "owner-check", "lua-release"];
    for kind in ["reentrant", "redisson", "multi"].into_iter().chain(strings) {
        let name = fresh_name();
        let locks = match kind {
            "multi" => {
                let member: Arc<dyn distlock::Locker> = Arc::new(Redisson::on(&redis));
                Locks::new(Arc::new(Multi::same_name(vec![member]).expect("a member")))
            }
            kind => locks_of(kind.parse().expect("a kind"), redis.clone()),
        };
        if strings.contains(&kind) {
            client.command::<()>(&["SET", name.as_str(), "somebody"]).await;
        } else {
            client.command::<()>(&["HSET", name.as_str(), "somebody", "1"]).await;
        }
        for wait in [Duration::ZERO, BRIEF] {
            assert!(has_no_expiry(&locks, &name, wait).await, "{kind}");
        }
        client.command::<()>(&["PEXPIRE", name.as_str(), "60000"]).await;
        assert!(!has_no_expiry(&locks, &name, BRIEF).await, "{kind}: now it has an end");
        client.command::<()>(&["DEL", name.as_str()]).await;
        let guard = locks.lock(&name, &at_once()).await.expect("it is free");
        guard.release().await.expect("a release");
    }
}

#[tokio::test]
async fn a_number_that_counts_nothing_is_no_semaphore_and_no_latch() {
    let (redis, client) = (connect(server().url()).await, Client::here().await);
    for number in ["many", "", "-1", "1.5", "1e3", "inf"] {
        let name = fresh_name();
        let semaphore = Semaphore::new(&redis, name.clone());
        client.command::<()>(&["HSET", name.as_str(), "permits", number]).await;
        for (what, outcome) in [
            ("set", semaphore.try_set_permits(1).await.map(drop)),
            ("acquire", semaphore.acquire(1, PATIENT).await.map(drop)),
            ("drain", semaphore.drain().await.map(drop)),
            ("release", semaphore.release(1).await.map(drop)),
            ("available", semaphore.available().await.map(drop)),
            ("delete", semaphore.delete().await.map(drop)),
        ] {
            of_another_kind(&format!("{what} of {number:?} permits"), &outcome);
        }
        let name = fresh_name();
        let expirable = ExpirableSemaphore::new(&redis, name.clone());
        client.command::<()>(&["HSET", name.as_str(), "limit", number]).await;
        for (what, outcome) in [
            ("set", expirable.try_set_permits(1).await.map(drop)),
            ("acquire", expirable.acquire(PATIENT, distlock::Lease::Fixed(LONG)).await.map(drop)),
            ("available", expirable.available().await.map(drop)),
            ("delete", expirable.delete().await.map(drop)),
        ] {
            of_another_kind(&format!("{what} of a limit of {number:?}"), &outcome);
        }
        let name = fresh_name();
        let latch = CountdownLatch::new(&redis, name.clone());
        client.command::<()>(&["HSET", name.as_str(), "count", number]).await;
        for (what, outcome) in [
            ("set", latch.try_set_count(1).await.map(drop)),
            ("count down", latch.count_down().await.map(drop)),
            ("count", latch.count().await.map(drop)),
            ("wait", latch.wait(PATIENT).await),
            ("delete", latch.delete().await.map(drop)),
        ] {
            of_another_kind(&format!("{what} of a count of {number:?}"), &outcome);
        }
        let left: String = client.command(&["HGET", name.as_str(), "count"]).await;
        assert_eq!(left, number);
    }
}

/// Each hold of these kinds carries its own end; the key's only sweeps up.
#[tokio::test]
async fn a_hold_of_fair_or_of_read_write_ends_by_its_own_time_whatever_its_key_says() {
    let (redis, client) = (connect(server().url()).await, Client::here().await);
    for (prefix, locks) in [
        ("distlock_fair", locks_of(LockKind::Fair, redis.clone())),
        ("distlock_rw_write", locks_of(LockKind::ReadWrite, redis.clone())),
        ("distlock_rw_read", Locks::new(ReadWrite::new(&redis).writer())),
    ] {
        let scene = Scene::new().await;
        // No colon, so it names no owner, and the key has no end.
        scene.add_member(prefix, "somebody", BRIEF * 2).await;
        let left: i64 = client.command(&["PTTL", &scene.key(prefix)]).await;
        assert_eq!(left, -1, "{prefix}");
        let busy = locks.lock(&scene.name, &scene::at_once()).await;
        assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{prefix}: {:?}", busy.err());
        let guard = locks.lock(&scene.name, &scene::patient()).await.expect("it has ended");
        guard.release().await.expect("a release");
    }
}

#[tokio::test]
async fn a_majority_with_something_else_under_the_name_is_an_error_and_a_minority_is_none() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    let mut connections = Vec::new();
    for server in &servers {
        connections.push(connect(server.url()).await);
    }
    let locks = Locks::new(Arc::new(Redlock::new(&connections).expect("three servers")));
    let name = fresh_name();
    Look::at(servers[0].url()).await.make_hash(&name).await;
    let guard = locks.lock(&name, &at_once()).await.expect("two of three are a majority");
    guard.release().await.expect("a release");
    let second = Look::at(servers[1].url()).await;
    second.make_hash(&name).await;
    of_another_kind("a majority", &locks.lock(&name, &at_once()).await.map(drop));
    assert!(second.is_hash(&name).await);

    let name = fresh_name();
    for (server, expected) in servers.iter().zip([None, Some(true), Some(true)]) {
        server.command(&["SET", name.as_str(), "somebody"]).expect("an answer");
        match expected {
            None => locks.lock(&name, &at_once()).await.map(drop).expect("a majority is free"),
            Some(expected) => assert_eq!(has_no_expiry(&locks, &name, BRIEF).await, expected),
        }
    }
    servers[0].command(&["PEXPIRE", name.as_str(), "60000"]).expect("an answer");
    servers[1].command(&["PEXPIRE", name.as_str(), "60000"]).expect("an answer");
    assert!(!has_no_expiry(&locks, &name, BRIEF).await, "one that has no expiry keeps nobody out");
}
