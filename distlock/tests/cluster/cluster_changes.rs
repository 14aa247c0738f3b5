//! A Redis Cluster that changes: slots move, masters restart, fail over or are cut off.

use std::time::{Duration, Instant};

use crate::support::cluster::Nodes;
use crate::support::redisson::{channel, kept};
use crate::support::{at_once, connect_hasty, eventually, fresh_name, granted, locks_of, patient};
use distlock::{Guard, LockKind, LockName, Locks, Release, Replication};
use testbed::{Direction, Proxy};
use tokio::task::JoinHandle;

/// How long a waiter relies on messages.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);

fn wait_for(locks: &Locks, name: &LockName) -> JoinHandle<(Guard, Instant)> {
    let (locks, name) = (locks.clone(), name.clone());
    tokio::spawn(async move {
        let guard = granted(&locks, &name, &patient()).await;
        (guard, Instant::now())
    })
}

async fn takes_and_releases(locks: &Locks, name: &LockName) -> bool {
    match locks.lock(name, &at_once()).await {
        Ok(guard) => guard.release().await.is_ok_and(|release| release == Release::Released),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_and_the_waiters_of_a_lock_whose_slot_moves_follow_it() {
    let nodes = Nodes::start(0);
    let (holder, waiter) =
        (nodes.locks(LockKind::Redisson).await, nodes.locks(LockKind::Redisson).await);
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let name = nodes.name_at(from);
        let (slot, channel) = (nodes.act(|cluster| cluster.slot(name.as_str())), channel(&name));
        let lease = Duration::from_millis(4500);
        let held = holder.lock(&name, &kept(Duration::ZERO, lease)).await.expect("the lock");
        let waiting = wait_for(&waiter, &name);
        eventually("it waits", async || nodes.subscribers(from, &channel) == 1).await;
        nodes.act(|cluster| cluster.begin_move(slot, from, to));
        // Renewals find the lock on its way, too.
        tokio::time::sleep(lease / 2).await;
        nodes.act(|cluster| cluster.finish_move(slot, from, to));
        eventually("it waits there", async || nodes.subscribers(to, &channel) == 1).await;
        // It looks once more before it relies on messages.
        tokio::time::sleep(Duration::from_millis(100)).await;
        tokio::time::sleep(lease).await;
        assert!(!held.is_lost(), "it was renewed");
        assert!(!waiting.is_finished(), "two have it");
        let sent = nodes.calls("spublish");
        assert_eq!(held.release().await.expect("a release"), Release::Released);
        let (guard, _) = waiting.await.expect("no panic");
        assert_eq!(nodes.calls("spublish"), sent + 1);
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_an_old_slot_map_is_redirected_at_once() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::GetsetTimestamp, LockKind::LuaRelease, LockKind::Redisson] {
        let (locks, name) = (nodes.locks(kind).await, nodes.name_at(0));
        assert!(takes_and_releases(&locks, &name).await, "{kind}");
        let slot = nodes.act(|cluster| cluster.slot(name.as_str()));
        nodes.act(|cluster| cluster.begin_move(slot, 0, 1));
        nodes.act(|cluster| cluster.finish_move(slot, 0, 1));
        assert!(takes_and_releases(&locks, &name).await, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_slot_that_is_moving_is_refused_and_granted_afterwards() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::LuaRelease, LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (locks, name) = (nodes.locks(kind).await, nodes.name_at(0));
        assert!(takes_and_releases(&locks, &name).await, "{kind}");
        let slot = nodes.act(|cluster| cluster.slot(name.as_str()));
        nodes.act(|cluster| cluster.begin_move(slot, 0, 1));
        // Scripts of several keys cannot run in a slot that is in two places; nothing is granted
        // twice, whatever is answered.
        let first = locks.lock(&name, &at_once()).await.ok();
        let second = nodes.locks(kind).await.lock(&name, &at_once()).await.ok();
        assert!(first.is_none() || second.is_none(), "{kind}: two have it");
        // One command of one key can.
        assert!(first.is_some() || kind != LockKind::LuaRelease);
        nodes.act(|cluster| cluster.finish_move(slot, 0, 1));
        drop((first, second));
        eventually("it is granted", async || takes_and_releases(&locks, &name).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waiters_of_a_master_that_restarts_all_get_their_locks() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (holder, server) = (nodes.locks(kind).await, nodes.process().await);
        let (waiter, names) = (locks_of(kind, server.clone()), nodes.names());
        let mut held = Vec::new();
        for name in &names {
            held.push(holder.lock(name, &at_once()).await.expect("the lock"));
        }
        let waiting = names.each_ref().map(|name| wait_for(&waiter, name));
        eventually("all wait", async || server.subscribed_channels() == 3).await;
        nodes.act(|cluster| cluster.masters()[0].restart());
        // It forgets its lock; the others do not.
        let [first, second, third] = waiting;
        let (guard, _) = first.await.expect("no panic");
        assert_eq!(guard.release().await.expect("a release"), Release::Released, "{kind}");
        assert!(!second.is_finished() && !third.is_finished(), "{kind}");
        for guard in held.drain(1..) {
            assert_eq!(guard.release().await.expect("a release"), Release::Released, "{kind}");
        }
        for waiting in [second, third] {
            waiting.await.expect("no panic").0.release().await.expect("a release");
        }
        let whole = async || nodes.act(testbed::RedisCluster::is_whole);
        eventually("the cluster is whole", whole).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_counts_when_the_replica_of_its_own_master_has_it() {
    let nodes = Nodes::start(1);
    let server = nodes.process().await.with_replication(Replication::AtLeast(1));
    let locks = locks_of(LockKind::Redisson, server);
    let names = nodes.names();
    let is_confirmed = async |name: &LockName| takes_and_releases(&locks, name).await;
    for name in &names {
        eventually("it is confirmed", async || is_confirmed(name).await).await;
    }
    nodes.act(|cluster| cluster.replicas()[0].freeze());
    for _ in 0..3 {
        let refused = locks.lock(&names[0], &at_once()).await.expect_err("nobody confirms it");
        assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
    }
    for name in &names[1..] {
        eventually("it is confirmed", async || is_confirmed(name).await).await;
    }
    nodes.act(|cluster| cluster.replicas()[0].thaw());
    eventually("it is confirmed", async || is_confirmed(&names[0]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_replica_has_confirmed_and_its_waiter_survive_the_failover() {
    let nodes = Nodes::start(1);
    let server = nodes.process().await.with_replication(Replication::AtLeast(1));
    let (holder, other) = (locks_of(LockKind::Redisson, server), nodes.process().await);
    let other = locks_of(LockKind::Redisson, other);
    let name = nodes.name_at(0);
    // A replica that has just come takes up to a second until it is sent what is written.
    eventually("it is confirmed", async || takes_and_releases(&holder, &name).await).await;
    let held = holder.lock(&name, &kept(Duration::ZERO, LEASE)).await.expect("the lock");
    let waiting = wait_for(&other, &name);
    let channel = channel(&name);
    eventually("it waits", async || nodes.subscribers(0, &channel) == 1).await;
    nodes.act(|cluster| cluster.masters()[0].kill());
    let heir = &nodes.cluster.replicas()[0];
    let count = ["PUBSUB", "SHARDNUMSUB", &channel];
    let waits = || heir.command(&count).is_ok_and(|said| said.lines().next_back() == Some("1"));
    eventually_within(Duration::from_secs(30), "it waits at the heir", || {
        tokio::task::block_in_place(waits)
    })
    .await;
    assert!(!waiting.is_finished(), "two have it");
    assert!(!held.is_lost());
    let fresh = nodes.process().await;
    let fresh = locks_of(LockKind::Redisson, fresh);
    assert!(fresh.lock(&name, &at_once()).await.is_err(), "the heir has forgotten it");
    assert_eq!(held.release().await.expect("a release"), Release::Released);
    let (guard, _) = waiting.await.expect("no panic");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

async fn eventually_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_whose_connections_are_half_open_are_reached_on_others() {
    let nodes = Nodes::start(0);
    let proxies: Vec<_> = nodes
        .cluster
        .masters()
        .iter()
        .map(|master| Proxy::before(master.addr()).expect("a port"))
        .collect();
    let mut url = nodes.cluster.url();
    for (at, (proxy, master)) in proxies.iter().zip(nodes.cluster.masters()).enumerate() {
        url = proxy.instead_of(master.addr(), &url);
        let port = proxy.addr().port().to_string();
        nodes.ask(at, &["CONFIG", "SET", "cluster-announce-port", &port]);
    }
    let knows = |at| {
        let slots = nodes.ask(at, &["CLUSTER", "SLOTS"]);
        proxies.iter().all(|proxy| slots.contains(&proxy.addr().port().to_string()))
    };
    eventually("all know the proxies", async || (0..3).all(knows)).await;
    let (holder, server) = (nodes.locks(LockKind::Redisson).await, connect_hasty(&url).await);
    let locks = locks_of(LockKind::Redisson, server);
    let names = nodes.names();
    for name in &names {
        eventually("it is there", async || takes_and_releases(&locks, name).await).await;
    }
    for proxy in &proxies {
        proxy.set_swallowing(Direction::Both, true);
    }
    for name in &names {
        assert!(!takes_and_releases(&locks, name).await, "nothing arrives");
    }
    let before: u64 = proxies.iter().map(|proxy| proxy.counts().connections).sum();
    for proxy in &proxies {
        proxy.set_swallowing(Direction::Both, false);
    }
    for name in &names {
        eventually("it is taken and released", async || takes_and_releases(&locks, name).await)
            .await;
    }
    let made = proxies.iter().map(|proxy| proxy.counts().connections).sum::<u64>() - before;
    assert!(made <= 20, "{made} connections");
    // And messages come again.
    let name = fresh_name();
    eventually("a message wakes a waiter", async || {
        let held = holder.lock(&name, &at_once()).await.expect("the lock");
        let waiting = wait_for(&locks, &name);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let released = Instant::now();
        held.release().await.expect("a release");
        let (guard, got) = waiting.await.expect("no panic");
        guard.release().await.expect("a release");
        got.saturating_duration_since(released) < POLL_INTERVAL / 4
    })
    .await;
}
