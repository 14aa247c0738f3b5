//! Shared by the tests of `etcd`: a server, locks as a service makes them, and the server's own
//! view.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use distlock::{
    Backends, EtcdServer, Guard, Lease, LockError, LockKind, LockName, LockOptions, Locks, Release,
    locker,
};
use testbed::{Bed, Etcd, EtcdOptions};
use tokio::task::{JoinHandle, block_in_place};
use uuid::Uuid;

/// A TTL that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A TTL whose end can be waited for: a lease of 5 s. A server or a process that stands still for a
/// moment does not end it.
pub(crate) const SHORT: Duration = Duration::from_millis(5500);

/// The server of this test program; the bed takes it down when the process ends.
pub(crate) fn server() -> &'static Etcd {
    static SERVER: OnceLock<(Etcd, Bed)> = OnceLock::new();
    let start = || {
        let bed = Bed::start().expect("a private bed");
        (bed.etcd(EtcdOptions::default()).expect("etcd is installed"), bed)
    };
    &block_in_place(|| SERVER.get_or_init(start)).0
}

/// The locks of what is another process as far as the server can see.
pub(crate) fn locks_at(endpoints: &str, ttl: Duration) -> Locks {
    let server = EtcdServer::connect_lazily(endpoints, ttl).expect("endpoints");
    let backends = Backends { etcd: Some(server), ..Backends::default() };
    Locks::new(locker(LockKind::Etcd, &backends).expect("a locker"))
}

pub(crate) fn locks() -> Locks {
    locks_at(server().endpoint(), LONG)
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
    locks.flush().await;
}

/// Waits in the background until it has the lock.
pub(crate) fn wait_for(locks: &Locks, name: &LockName) -> JoinHandle<Result<Guard, LockError>> {
    let (locks, name) = (locks.clone(), name.clone());
    tokio::spawn(async move { locks.lock(&name, &options(LONG)).await })
}

pub(crate) fn etcdctl(member: &Etcd, args: &[&str]) -> String {
    block_in_place(|| member.etcdctl(args)).expect("an answer")
}

/// The keys of contenders, first come first.
pub(crate) fn queue_at(member: &Etcd, name: &LockName) -> Vec<String> {
    let prefix = format!("{name}/");
    let get = ["get", "--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND", &prefix];
    let keys = etcdctl(member, &get);
    keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

pub(crate) fn queue(name: &LockName) -> Vec<String> {
    queue_at(server(), name)
}

pub(crate) async fn await_queue(member: &Etcd, name: &LockName, length: usize) {
    let what = format!("{length} in the queue");
    eventually(&what, async || queue_at(member, name).len() == length).await;
}

/// Waits until the condition holds; panics with `what` after 30 s.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
