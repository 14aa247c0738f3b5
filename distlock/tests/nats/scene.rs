//! A server, locks as a service makes them, and the bucket as another program sees it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::kv::{Entry, Operation, Store};
use distlock::{
    Backends, Guard, Lease, LockError, LockKind, LockName, LockOptions, Locks, NatsServer, Release,
    locker,
};
use testbed::{Bed, Nats, NatsOptions};
use tokio::task::{JoinHandle, block_in_place};
use uuid::Uuid;

/// A TTL that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// The bucket of that TTL.
pub(crate) const BUCKET: &str = "long";

/// The server of this test program; the bed takes it down when the process ends.
pub(crate) fn server() -> &'static Nats {
    static SERVER: OnceLock<(Nats, Bed)> = OnceLock::new();
    let start = || {
        let bed = Bed::start().expect("a private bed");
        (bed.nats(&NatsOptions::default()).expect("NATS is installed"), bed)
    };
    &block_in_place(|| SERVER.get_or_init(start)).0
}

/// The locks of what is another process as far as the server can see.
pub(crate) fn locks_at(url: &str, bucket: &str, ttl: Duration) -> Locks {
    let server = NatsServer::connect_lazily(url, bucket, ttl).expect("an address");
    let backends = Backends { nats: Some(server), ..Backends::default() };
    Locks::new(locker(LockKind::Nats, &backends).expect("a locker"))
}

pub(crate) fn locks() -> Locks {
    locks_at(server().url(), BUCKET, LONG)
}

/// Another program, with NATS' own client.
pub(crate) async fn jetstream() -> jetstream::Context {
    jetstream::new(async_nats::connect(server().url()).await.expect("a connection"))
}

pub(crate) async fn bucket(name: &str) -> Store {
    jetstream().await.get_key_value(name).await.expect("the bucket is there")
}

/// Names of tests have no sign that is written in another way but the colons.
pub(crate) fn key(name: &LockName) -> String {
    name.as_str().replace(':', "=3A")
}

/// The entry of that lock, if it has one that is not deleted.
pub(crate) async fn entry(bucket: &Store, name: &LockName) -> Option<Entry> {
    let entry = bucket.entry(key(name)).await.expect("an answer");
    entry.filter(|entry| entry.operation == Operation::Put)
}

pub(crate) fn fresh_name() -> LockName {
    LockName::new(format!("lock:test:{}", Uuid::new_v4())).expect("a name")
}

pub(crate) fn options(wait: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Renewed(LONG))
}

/// Fails at once if the lock is held.
pub(crate) fn at_once() -> LockOptions {
    options(Duration::ZERO)
}

/// Takes a lock that is free.
pub(crate) async fn lock(locks: &Locks, name: &LockName) -> Guard {
    locks.lock(name, &at_once()).await.expect("the lock")
}

pub(crate) async fn release(guard: Guard) {
    assert_eq!(guard.release().await.expect("an answer"), Release::Released);
}

pub(crate) async fn assert_busy(locks: &Locks, name: &LockName) {
    let refused = locks.lock(name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
}

/// Waits in the background until it has the lock.
pub(crate) fn wait_for(locks: &Locks, name: &LockName) -> JoinHandle<Result<Guard, LockError>> {
    let (locks, name) = (locks.clone(), name.clone());
    tokio::spawn(async move { locks.lock(&name, &options(LONG)).await })
}

/// Waits until the condition holds; panics with `what` after 20 s, before a [`LONG`] TTL ends.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
