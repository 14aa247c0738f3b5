//! Every kind on a real Redis Cluster of three masters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::cluster::{Nodes, shared};
use crate::support::redisson::{channel, kept};
use crate::support::{LONG, at_once, eventually, patient};
use distlock::{
    CountdownLatch, ExpirableSemaphore, Guard, Lease, LockError, LockKind, LockName, Locks,
    ReadWrite, RedisConnection, Redlock, Release, Semaphore,
};
use redis::aio::ConnectionManagerConfig;
use tokio::task::JoinSet;

const KINDS: [LockKind; 9] = [
    LockKind::SetnxExpire,
    LockKind::SetNx,
    LockKind::OwnerCheck,
    LockKind::LuaRelease,
    LockKind::GetsetTimestamp,
    LockKind::Reentrant,
    LockKind::Redisson,
    LockKind::Fair,
    LockKind::ReadWrite,
];
/// Those whose waiters are told.
const KINDS_WITH_MESSAGES: [LockKind; 3] =
    [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite];

/// How long a waiter relies on messages: what comes sooner was told.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_keeps_other_processes_out_at_every_master() {
    let nodes = shared();
    for kind in KINDS {
        let (first, second) = (nodes.locks(kind).await, nodes.locks(kind).await);
        for name in nodes.names() {
            let held = first.lock(&name, &at_once()).await.expect("the lock");
            let busy = second.lock(&name, &at_once()).await;
            assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{kind}: {:?}", busy.err());
            assert_eq!(held.release().await.expect("a release"), Release::Released, "{kind}");
            let held = second.lock(&name, &at_once()).await.expect("the lock");
            assert_eq!(held.release().await.expect("a release"), Release::Released, "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_tasks_in_three_processes_one_is_inside() {
    let nodes = shared();
    for kind in [LockKind::LuaRelease, LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let mut tasks = JoinSet::new();
        let processes = [nodes.locks(kind).await, nodes.locks(kind).await, nodes.locks(kind).await];
        for name in nodes.names() {
            let (inside, locks) = (Arc::new(AtomicU32::new(0)), processes.iter().cycle().take(18));
            for locks in locks {
                let (inside, locks, name) = (Arc::clone(&inside), locks.clone(), name.clone());
                tasks.spawn(async move {
                    let guard = locks.lock(&name, &patient()).await.expect("the lock");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{kind}");
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.expect("a release")
                });
            }
        }
        let ends = tasks.join_all().await;
        assert!(ends.iter().all(|end| *end == Release::Released), "{kind}: {ends:?}");
    }
}

/// From the release by one process to the hold by another one that waits.
async fn hand_over(holder: &Locks, waiter: &Locks, name: &LockName) -> Duration {
    let held: Guard = holder.lock(name, &at_once()).await.expect("the lock");
    let (locks, wanted) = (waiter.clone(), name.clone());
    let waiting = tokio::spawn(async move {
        let guard = locks.lock(&wanted, &patient()).await.expect("the lock");
        let got = Instant::now();
        guard.release().await.expect("a release");
        got
    });
    // Until it is subscribed, which takes a few round trips, it is not told.
    tokio::time::sleep(Duration::from_millis(150)).await;
    let released = Instant::now();
    held.release().await.expect("a release");
    waiting.await.expect("no panic").saturating_duration_since(released)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_by_a_message_of_its_slot() {
    // No other test sends messages there.
    let nodes = Nodes::start(0);
    for kind in KINDS_WITH_MESSAGES {
        let (holder, waiter) = (nodes.locks(kind).await, nodes.locks(kind).await);
        let (sent, mut took) = (nodes.calls("spublish"), Vec::new());
        for name in nodes.names().iter().cycle().take(9) {
            took.push(hand_over(&holder, &waiter, name).await);
        }
        took.sort();
        println!("{kind}: hand-off {took:?}");
        assert!(took[4] < POLL_INTERVAL / 4, "{kind}: {took:?}");
        assert!(nodes.calls("spublish") >= sent + 9, "{kind}");
    }
    assert_eq!(nodes.calls("publish"), 0, "it would be sent to all nodes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_is_a_subscription_at_the_master_that_has_the_lock_and_nowhere_else() {
    let nodes = shared();
    let (holder, server) = (nodes.locks(LockKind::Redisson).await, nodes.process().await);
    let waiter = crate::support::locks_of(LockKind::Redisson, server.clone());
    for (home, name) in nodes.names().into_iter().enumerate() {
        let held = holder.lock(&name, &at_once()).await.expect("the lock");
        let mut waiting = JoinSet::new();
        for _ in 0..20 {
            let (locks, name) = (waiter.clone(), name.clone());
            waiting.spawn(async move { drop(locks.lock(&name, &patient()).await.expect("it")) });
        }
        let channel = channel(&name);
        eventually("it is subscribed", async || nodes.subscribers(home, &channel) == 1).await;
        for other in (0..3).filter(|other| *other != home) {
            assert_eq!(nodes.subscribers(other, &channel), 0);
        }
        held.release().await.expect("a release");
        waiting.join_all().await;
        eventually("it is not any more", async || nodes.subscribers(home, &channel) == 0).await;
    }
    eventually("nothing is left", async || server.subscribed_channels() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_holds_in_as_many_slots_are_renewed() {
    let nodes = shared();
    let lease = Duration::from_millis(4500);
    for kind in KINDS_WITH_MESSAGES {
        let locks = nodes.locks(kind).await;
        let mut holds = Vec::new();
        for _ in 0..200 {
            let name = crate::support::fresh_name();
            holds.push(locks.lock(&name, &kept(Duration::ZERO, lease)).await.expect("the lock"));
        }
        tokio::time::sleep(lease * 2).await;
        let lost = holds.iter().filter(|hold| hold.is_lost()).count();
        assert_eq!(lost, 0, "{kind}");
        for hold in holds {
            assert_eq!(hold.release().await.expect("a release"), Release::Released, "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_one_tag_are_renewed_together() {
    let nodes = Nodes::start(0);
    let locks = nodes.locks(LockKind::Redisson).await;
    let (lease, mut holds) = (Duration::from_secs(6), Vec::new());
    for number in 0..100 {
        let name = LockName::new(format!("{{one}}:{number}")).expect("a name");
        holds.push(locks.lock(&name, &kept(Duration::ZERO, lease)).await.expect("the lock"));
    }
    let before = nodes.calls("evalsha") + nodes.calls("eval");
    tokio::time::sleep(lease).await;
    let sent = nodes.calls("evalsha") + nodes.calls("eval") - before;
    assert!((1..20).contains(&sent), "{sent} scripts renewed a hundred holds");
    assert!(holds.iter().all(|hold| !hold.is_lost()));
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_loaded_into_a_node_that_does_not_know_them() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::LuaRelease, LockKind::Reentrant, LockKind::Redisson, LockKind::Fair] {
        let locks = nodes.locks(kind).await;
        for name in nodes.names() {
            for node in 0..3 {
                nodes.ask(node, &["SCRIPT", "FLUSH"]);
            }
            let held = locks.lock(&name, &at_once()).await.expect("the lock");
            assert_eq!(held.release().await.expect("a release"), Release::Released, "{kind}");
        }
    }
}

/// How long after `released` each of these came; the quickest of several was told of it, or all
/// looked by themselves.
fn assert_told(what: &str, took: &[Duration]) {
    println!("{what}: {took:?}");
    assert!(took.iter().min().is_some_and(|least| *least < POLL_INTERVAL / 4), "{what}: {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_are_woken_together() {
    let nodes = shared();
    let (first, second) = (nodes.process().await, nodes.process().await);
    let (first, second) = (ReadWrite::new(&first), ReadWrite::new(&second));
    let (writer, mut took) = (Locks::new(first.writer()), Vec::new());
    for name in nodes.names() {
        let writing = writer.lock(&name, &at_once()).await.expect("the write lock");
        let mut reading = JoinSet::new();
        for reader in [first.reader(), second.reader()] {
            let name = name.clone();
            reading.spawn(async move {
                Locks::new(reader).lock(&name, &patient()).await.expect("the read lock")
            });
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
        let released = Instant::now();
        writing.release().await.expect("a release");
        let readers = reading.join_all().await;
        took.push(released.elapsed());
        assert!(writer.lock(&name, &at_once()).await.is_err(), "two read");
        for reader in readers {
            reader.release().await.expect("a release");
        }
    }
    assert_told("readers", &took);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_and_latches_are_shared_by_processes_and_wake_their_waiters() {
    let nodes = shared();
    let (first, second) = (nodes.process().await, nodes.process().await);
    let mut took = Vec::new();
    for name in nodes.names() {
        let [permits, waiting] =
            [&first, &second].map(|server| Semaphore::new(server, name.clone()));
        assert!(permits.try_set_permits(1).await.expect("an answer"));
        let taken = permits.acquire(1, Duration::ZERO).await.expect("a permit");
        let waiter = tokio::spawn(async move { waiting.acquire(1, LONG).await });
        tokio::time::sleep(Duration::from_millis(150)).await;
        let released = Instant::now();
        assert_eq!(taken.release().await.expect("a release"), Release::Released);
        drop(waiter.await.expect("no panic").expect("a permit"));
        took.push(released.elapsed());
    }
    assert_told("permits", &took);
    for name in nodes.names() {
        let [permits, others] =
            [&first, &second].map(|server| ExpirableSemaphore::new(server, name.clone()));
        assert!(permits.try_set_permits(1).await.expect("an answer"));
        let lease = Lease::Renewed(Duration::from_millis(4500));
        let taken = permits.acquire(Duration::ZERO, lease).await.expect("a permit");
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(others.acquire(Duration::ZERO, lease).await.is_err(), "it was renewed");
        assert_eq!(taken.release().await.expect("a release"), Release::Released);
        drop(others.acquire(Duration::ZERO, lease).await.expect("a permit"));
    }
    let mut took = Vec::new();
    for name in nodes.names() {
        let [latch, waiting] =
            [&first, &second].map(|server| CountdownLatch::new(server, name.clone()));
        assert!(latch.try_set_count(2).await.expect("an answer"));
        let waiter = tokio::spawn(async move { waiting.wait(LONG).await });
        assert_eq!(latch.count_down().await.expect("an answer"), 1);
        tokio::time::sleep(Duration::from_millis(150)).await;
        let opened = Instant::now();
        assert_eq!(latch.count_down().await.expect("an answer"), 0);
        waiter.await.expect("no panic").expect("it is open");
        took.push(opened.elapsed());
    }
    assert_told("latches", &took);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_not_three_independent_servers() {
    let server = shared().process().await;
    let refused = Redlock::new(&[server.clone(), server.clone(), server]).expect_err("refused");
    assert!(refused.to_string().contains("not a Redis Cluster"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_taken_for_a_server_says_what_address_it_needs() {
    let nodes = shared();
    let url = nodes.cluster.masters()[0].url();
    let locks = crate::support::locks_of(LockKind::Redisson, crate::support::connect(url).await);
    let refused = locks.lock(&nodes.name_at(1), &at_once()).await.expect_err("it is elsewhere");
    assert!(refused.to_string().contains("redis+cluster://"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_found_by_any_of_its_nodes_and_its_absence_is_an_error() {
    let nodes = shared();
    let url = nodes.cluster.url();
    let (start, hosts) = url.rsplit_once('@').expect("a login");
    let config = || ConnectionManagerConfig::new().set_number_of_retries(1);
    for host in hosts.split(',') {
        let url = format!("{start}@127.0.0.1:1,{host}");
        RedisConnection::connect(&*url, config()).await.expect("a cluster");
    }
    let nobody = format!("{start}@127.0.0.1:1");
    assert!(RedisConnection::connect(&*nobody, config()).await.is_err());
    // A server that is no cluster says so.
    let alone = crate::support::server().url().replacen("redis://", "redis+cluster://", 1);
    let refused = RedisConnection::connect(&*alone, config()).await.expect_err("no cluster");
    assert!(refused.to_string().contains("cluster"), "{refused}");
}
