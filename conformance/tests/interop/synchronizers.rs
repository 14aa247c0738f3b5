//! Semaphores and latches of the two sides, which share no format: what becomes of those who give
//! the same name to both.

use std::time::Duration;

use conformance::{Jvm, Servers};
use distlock::{
    CountdownLatch, ExpirableSemaphore, Lease, LockError, LockKind, LockName, Owner, RedisServer,
    Semaphore,
};
use tokio::runtime::{Builder, Runtime};

use crate::Check;
use crate::scene::{RENEWED, Scene, redis, redis_says};

pub(crate) const CHECKS: &[Check] = &[
    (
        "semaphores_and_latches_of_redisson_are_refused_by_ours_and_stay_as_they_are",
        semaphores_and_latches_of_redisson_are_refused_by_ours_and_stay_as_they_are,
    ),
    (
        "semaphores_and_latches_of_ours_are_refused_by_redisson_and_stay_as_they_are",
        semaphores_and_latches_of_ours_are_refused_by_redisson_and_stay_as_they_are,
    ),
];

/// What makes each of theirs, and takes a part of it.
const MADE: [(&str, &str); 3] = [
    ("RSemaphore.trySetPermits", "RSemaphore.tryAcquire"),
    ("RPermitExpirableSemaphore.trySetPermits", "RPermitExpirableSemaphore.tryAcquire"),
    ("RCountDownLatch.trySetCount", "RCountDownLatch.countDown"),
];
/// What else they can be asked.
const CALLED: [&str; 6] = [
    "RSemaphore.release",
    "RSemaphore.drainPermits",
    "RSemaphore.availablePermits",
    "RPermitExpirableSemaphore.availablePermits",
    "RCountDownLatch.getCount",
    "RCountDownLatch.await",
];

fn semaphores_and_latches_of_redisson_are_refused_by_ours_and_stay_as_they_are(scene: &Scene) {
    let (mut theirs, ours) = (RedissonPeer::start(scene), NativePeer::connect());
    for (make, take) in MADE {
        let name = scene.fresh_name();
        assert_eq!(theirs.says(make, &name), "true");
        let taken = theirs.says(take, &name);
        assert!(!taken.starts_with("throws") && taken != "false", "{take}: {taken}");
        let before = all_of(&name);
        for (call, error) in ours.refusals(&name) {
            let is_refused = matches!(error, Some(LockError::HeldByOtherKind));
            assert!(is_refused, "{call} after {make}: {error:?}");
        }
        if take == "RPermitExpirableSemaphore.tryAcquire" {
            assert!(matches!(ours.gives_back(&name, &taken), Some(LockError::NotOwner)));
        }
        assert_eq!(all_of(&name), before, "{make}");
    }
}

/// But for `trySetCount`, which says no to whatever is there, and `delete`, which removes it.
fn semaphores_and_latches_of_ours_are_refused_by_redisson_and_stay_as_they_are(scene: &Scene) {
    let (mut theirs, ours) = (RedissonPeer::start(scene), NativePeer::connect());
    for (number, what) in ["a semaphore", "an expirable one", "a latch"].into_iter().enumerate() {
        let name = scene.fresh_name();
        ours.makes(number, &name);
        let before = all_of(&name);
        for call in MADE.iter().flat_map(|(make, take)| [*make, *take]).chain(CALLED) {
            let said = theirs.says(call, &name);
            let is_refused = if call == "RCountDownLatch.trySetCount" {
                said == "false"
            } else {
                said.starts_with("throws org.redisson.client.") && said.contains("WRONGTYPE")
            };
            assert!(is_refused, "{call} on {what}: {said}");
            assert_eq!(all_of(&name), before, "{call} on {what}");
        }
        assert_eq!(theirs.says("RSemaphore.delete", &name), "true", "{what}");
        assert_eq!(redis_says(&["EXISTS", &name]), "0", "{what}");
    }
}

/// Every key with that name in it, and what is in it; without the latches of this library's calls,
/// which are forgotten a moment after them.
fn all_of(name: &str) -> Vec<String> {
    let keys = redis_says(&["KEYS", &format!("*{name}*")]);
    let content = |key: &str| {
        let kind = redis_says(&["TYPE", key]);
        let content = match kind.trim() {
            "string" => redis_says(&["GET", key]),
            "hash" => redis_says(&["HGETALL", key]),
            "zset" => redis_says(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
            other => panic!("{key} is a {other}"),
        };
        format!("{key}, a {kind}: {content}")
    };
    let lasting = keys.lines().filter(|key| !key.contains("_latch:"));
    let mut all: Vec<String> = lasting.map(content).collect();
    all.sort();
    assert!(!all.is_empty(), "nothing is called {name}");
    all
}

/// Redisson's.
struct RedissonPeer(Jvm);

impl RedissonPeer {
    fn start(scene: &Scene) -> Self {
        let (servers, url) = (Servers::shared(), redis().url());
        Self(Jvm::start_small(servers, scene.peer, "interop.Synchronizers", &[url]))
    }

    fn says(&mut self, call: &str, name: &str) -> String {
        let answer = self.0.ask(&format!("{call} {name}"), Duration::ZERO);
        answer.unwrap_or_else(|failure| panic!("{failure}"))
    }
}

/// This library's.
struct NativePeer {
    runtime: Runtime,
    server: RedisServer,
}

impl NativePeer {
    fn connect() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let backends = runtime.block_on(Servers::shared().backends(LockKind::Redisson));
        Self { runtime, server: backends.redis.expect("its address was given") }
    }

    /// All three of that name.
    fn named(&self, name: &str) -> (Semaphore, ExpirableSemaphore, CountdownLatch) {
        let _runtime = self.runtime.enter();
        let (server, name) = (&self.server, LockName::new(name).expect("a name"));
        (
            Semaphore::new(server, name.clone()),
            ExpirableSemaphore::new(server, name.clone()),
            CountdownLatch::new(server, name),
        )
    }

    /// The one of that number.
    fn makes(&self, number: usize, name: &str) {
        let (semaphore, expirable, latch) = self.named(name);
        let made = self.runtime.block_on(async {
            match number {
                0 => semaphore.try_set_permits(3).await,
                1 => expirable.try_set_permits(3).await,
                _ => latch.try_set_count(3).await,
            }
        });
        assert!(made.expect("an answer"));
    }

    /// What is said to every call.
    fn refusals(&self, name: &str) -> Vec<(&'static str, Option<LockError>)> {
        let (semaphore, expirable, latch) = self.named(name);
        let lease = Lease::Renewed(RENEWED);
        self.runtime.block_on(async {
            let said = vec![
                ("Semaphore::try_set_permits", semaphore.try_set_permits(3).await.err()),
                ("Semaphore::try_acquire", semaphore.try_acquire(1).await.err()),
                ("Semaphore::acquire", semaphore.acquire(1, RENEWED).await.err()),
                ("Semaphore::drain", semaphore.drain().await.err()),
                ("Semaphore::release", semaphore.release(1).await.err()),
                ("Semaphore::available", semaphore.available().await.err()),
                ("Semaphore::delete", semaphore.delete().await.err()),
                ("ExpirableSemaphore::try_set_permits", expirable.try_set_permits(3).await.err()),
                ("ExpirableSemaphore::try_acquire", expirable.try_acquire(lease).await.err()),
                ("ExpirableSemaphore::available", expirable.available().await.err()),
                ("ExpirableSemaphore::delete", expirable.delete().await.err()),
                ("CountdownLatch::try_set_count", latch.try_set_count(3).await.err()),
                ("CountdownLatch::count_down", latch.count_down().await.err()),
                ("CountdownLatch::count", latch.count().await.err()),
                ("CountdownLatch::wait", latch.wait(RENEWED).await.err()),
                ("CountdownLatch::delete", latch.delete().await.err()),
            ];
            semaphore.flush().await;
            said
        })
    }

    /// What is said to the one call that goes by the id of a permit, not by the name.
    fn gives_back(&self, name: &str, permit: &str) -> Option<LockError> {
        let (_, expirable, _) = self.named(name);
        self.runtime.block_on(expirable.release(&Owner::from_text(permit))).err()
    }
}
