//! What the replicas have is kept through a failover: locks of every kind, permits and counts.

use std::thread::sleep;
use std::time::{Duration, Instant};

use distlock::{
    Backend, CountdownLatch, ExpirableSemaphore, Guard, Lease, LockError, LockKind, LockName,
    LockOptions, Locks, ReadWrite, RedisServer, Release, Semaphore,
};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::group::{Group, Loss, grants};
use crate::support::redisson::{Service, kept};
use crate::support::{LONG, assert_busy, at_once, eventually, fresh_name, locks_of};

const RENEWED_KINDS: [LockKind; 3] = [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite];
/// Longer than a failover whose first election fails; renewed every 5 s.
const LEASE: Duration = Duration::from_secs(15);

/// A lock with its holder, and a waiter of another process.
struct ContendedLock {
    kind: LockKind,
    name: LockName,
    held: Guard,
    waiting: JoinHandle<Guard>,
}

impl ContendedLock {
    async fn take(kind: LockKind, holder: &Service, waiter: &Service) -> Self {
        let (name, waiter) = (fresh_name(), locks_of(kind, waiter.server.clone()));
        let options = as_holder(kind);
        let held = locks_of(kind, holder.server.clone()).lock(&name, &options).await;
        let awaited = name.clone();
        let options = LockOptions::new(LONG, Lease::Fixed(LONG));
        let waiting = insist(async move || waiter.lock(&awaited, &options).await);
        Self { kind, name, held: held.expect("the lock"), waiting }
    }

    fn has_one_holder(&self) -> bool {
        !self.held.is_lost() && !self.waiting.is_finished()
    }
}

fn as_holder(kind: LockKind) -> LockOptions {
    if RENEWED_KINDS.contains(&kind) { kept(Duration::ZERO, LEASE) } else { at_once() }
}

/// Asks, beside the test, and again while no master answers.
fn insist<T: Send + 'static>(
    mut ask: impl AsyncFnMut() -> Result<T, LockError> + Send + 'static,
) -> JoinHandle<T> {
    let runtime = Handle::current();
    spawn_blocking(move || {
        let deadline = Instant::now() + LONG;
        loop {
            match runtime.block_on(ask()) {
                Err(LockError::Backend(why)) => assert!(Instant::now() < deadline, "{why}"),
                answer => return answer.expect("an answer"),
            }
            sleep(Duration::from_millis(20));
        }
    })
}

/// Waits until the replicas have what was written before.
async fn replicate(group: &Group) {
    let marker = fresh_name();
    group.ask(0, &["SET", marker.as_str(), "written"]);
    let is_there = async || [1, 2].into_iter().all(|replica| group.has(replica, &marker));
    eventually("both replicas have it", is_there).await;
}

/// Kills the master when the replicas have what was written. The new one serves these when this
/// returns.
async fn fail_over(group: &Group, processes: &[&Service]) {
    replicate(group).await;
    let (master, _) = group.lose_master(Loss::Killed);
    for process in processes {
        eventually("commands follow", async || grants(group, process, master).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_keeps_others_out_through_a_failover_and_hands_over_after_it() {
    let group = Group::start();
    let (holder, waiter) = (group.process().await, group.process().await);
    let newcomer = group.process().await;
    let mut all = Vec::new();
    for kind in LockKind::ALL.into_iter().filter(|kind| kind.backend() == Backend::Redis) {
        all.push(ContendedLock::take(kind, &holder, &waiter).await);
    }
    fail_over(&group, &[&holder, &waiter, &newcomer]).await;
    for lock in &all {
        let others = locks_of(lock.kind, newcomer.server.clone());
        assert_busy(&others, &lock.name, &at_once(), lock.kind.as_str()).await;
        assert!(lock.has_one_holder(), "{}", lock.kind);
    }
    for lock in all.iter().filter(|lock| RENEWED_KINDS.contains(&lock.kind)) {
        let before = lock.held.validity().deadline();
        let is_renewed = async || lock.held.validity().deadline() > before;
        eventually("the new master renews it", is_renewed).await;
        assert!(lock.has_one_holder(), "{}", lock.kind);
    }
    for ContendedLock { kind, name, held, waiting } in all {
        assert_eq!(held.release().await.expect("a release"), Release::Released, "{kind}");
        let next = waiting.await.expect("no panic");
        let others = locks_of(kind, newcomer.server.clone());
        assert_busy(&others, &name, &at_once(), kind.as_str()).await;
        assert_eq!(next.release().await.expect("a release"), Release::Released, "{kind}");
        let free = others.lock(&name, &at_once()).await.expect("it is free");
        assert_eq!(free.release().await.expect("a release"), Release::Released, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_a_writer_waits_through_a_failover() {
    let group = Group::start();
    let (first, second) = (group.process().await, group.process().await);
    let name = fresh_name();
    let reader = |process: &Service| Locks::new(ReadWrite::new(&process.server).reader());
    let reading = reader(&first).lock(&name, &at_once()).await.expect("the read lock");
    let (writer, awaited) = (Locks::new(ReadWrite::new(&second.server).writer()), name.clone());
    fail_over(&group, &[&first, &second]).await;
    let also_reading = reader(&second).lock(&name, &at_once()).await.expect("readers share");
    assert_busy(&writer, &name, &at_once(), "a writer").await;
    let options = LockOptions::new(LONG, Lease::Fixed(LONG));
    let writing = tokio::spawn(async move { writer.lock(&awaited, &options).await });
    for reader in [reading, also_reading] {
        assert!(!writing.is_finished(), "one still reads");
        assert_eq!(reader.release().await.expect("a release"), Release::Released);
    }
    let written = writing.await.expect("no panic").expect("the write lock");
    assert_eq!(written.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_and_counts_are_kept_through_a_failover_and_their_waiters_are_served() {
    let group = Group::start();
    let (first, second) = (group.process().await, group.process().await);
    let names = [fresh_name(), fresh_name(), fresh_name()];
    let of = |server: &RedisServer| {
        let [plain, expirable, latch] = names.clone();
        (
            Semaphore::new(server, plain),
            ExpirableSemaphore::new(server, expirable),
            CountdownLatch::new(server, latch),
        )
    };
    let lease = Lease::Fixed(LONG);
    let (plain, expirable, latch) = of(&first.server);
    assert!(plain.try_set_permits(1).await.expect("an answer"));
    assert!(expirable.try_set_permits(1).await.expect("an answer"));
    assert!(latch.try_set_count(2).await.expect("an answer"));
    let taken = plain.acquire(1, Duration::ZERO).await.expect("a permit");
    let leased = expirable.acquire(Duration::ZERO, lease).await.expect("a permit");
    assert_eq!(latch.count_down().await.expect("an answer"), 1);
    let (plain, expirable, opened) = of(&second.server);
    let plain = insist(async move || plain.acquire(1, LONG).await);
    let expirable = insist(async move || expirable.acquire(LONG, lease).await);
    let opened = insist(async move || opened.wait(LONG).await);

    fail_over(&group, &[&first, &second]).await;
    let (other_plain, other_expirable, _) = of(&second.server);
    assert_eq!(other_plain.available().await.expect("an answer"), 0);
    assert_eq!(other_expirable.available().await.expect("an answer"), 0);
    assert_eq!(latch.count().await.expect("an answer"), 1);
    let is_served = plain.is_finished() || expirable.is_finished() || opened.is_finished();
    assert!(!is_served && !leased.is_lost(), "two have one permit, or the latch is open");
    assert_eq!(taken.release().await.expect("a release"), Release::Released);
    assert_eq!(leased.release().await.expect("a release"), Release::Released);
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    opened.await.expect("no panic");
    let (next, leased) = (plain.await.expect("no panic"), expirable.await.expect("no panic"));
    assert_eq!(next.release().await.expect("a release"), Release::Released);
    assert_eq!(leased.release().await.expect("a release"), Release::Released);
}
