//! A Redis Cluster by TLS, as a member of `multi`, and with a master that is gone for good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::cluster::{Nodes, shared};
use crate::support::redisson::channel;
use crate::support::{at_once, connect, eventually, fresh_name, locks_of, patient};
use distlock::{
    LockError, LockKind, LockName, Locker, Locks, Multi, RedisAddress, RedisConnection,
    RedisServer, Redisson, Release,
};
use redis::aio::ConnectionManagerConfig;

/// How long a waiter relies on messages: what comes sooner was told.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A wait that is over only if something is wrong.
const DEADLINE: Duration = Duration::from_secs(20);

/// Nothing is late here, and handshakes of TLS take their time on a busy machine.
fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE))
        .set_number_of_retries(1)
}

/// One takes it, another waits and is told by a message, and takes it.
async fn hands_over(one: &Locks, other: &Locks, name: &LockName, nodes: &Nodes, home: usize) {
    let held = one.lock(name, &at_once()).await.expect("the lock");
    let busy = other.lock(name, &at_once()).await;
    assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    let (locks, wanted) = (other.clone(), name.clone());
    let waiting = tokio::spawn(async move { locks.lock(&wanted, &patient()).await });
    let channel = channel(name);
    eventually("it is subscribed", async || nodes.subscribers(home, &channel) == 1).await;
    assert_eq!(held.release().await.expect("a release"), Release::Released);
    let held = waiting.await.expect("no panic").expect("the lock");
    assert_eq!(held.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_masters_of_a_cluster_are_reached_by_tls_for_commands_and_for_messages() {
    let nodes = Nodes::start_with_tls();
    let url = nodes.cluster.tls_url().expect("it speaks TLS");
    let ca = nodes.cluster.masters()[0].ca_path().expect("an authority").to_owned();
    let ca = std::fs::read(ca).expect("a file");
    let process = async || {
        let address = RedisAddress { url: &url, ca: Some(&ca) };
        RedisServer::new(RedisConnection::connect(address, config()).await.expect("a connection"))
    };
    for kind in [LockKind::LuaRelease, LockKind::Redisson, LockKind::Fair] {
        let (one, other) = (locks_of(kind, process().await), locks_of(kind, process().await));
        for (home, name) in nodes.names().iter().enumerate() {
            if kind == LockKind::Redisson {
                hands_over(&one, &other, name, &nodes, home).await;
            }
            let held = one.lock(name, &at_once()).await.expect("the lock");
            let busy = other.lock(name, &at_once()).await;
            assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{kind}");
            assert_eq!(held.release().await.expect("a release"), Release::Released, "{kind}");
        }
    }
    let unknown = RedisConnection::connect(RedisAddress { url: &url, ca: None }, config()).await;
    assert!(unknown.is_err(), "nobody vouches for it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_a_member_of_a_lock_of_several_servers() {
    let (nodes, single) = (shared(), crate::support::server());
    let multi = async || {
        let members = [nodes.process().await, connect(single.url()).await];
        let members = members.iter().map(|server| Arc::new(Redisson::on(server)) as _);
        Locks::new(Arc::new(Multi::same_name(members.collect()).expect("members")))
    };
    let (one, other) = (multi().await, multi().await);
    let alone = nodes.locks(LockKind::Redisson).await;
    for name in nodes.names() {
        let held = one.lock(&name, &at_once()).await.expect("the lock");
        for locks in [&other, &alone] {
            let busy = locks.lock(&name, &at_once()).await;
            assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
        }
        assert_eq!(held.release().await.expect("a release"), Release::Released);
        let held = other.lock(&name, &at_once()).await.expect("it is free at both");
        assert_eq!(held.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_at_several_masters_are_taken_together_or_not_at_all() {
    let nodes = shared();
    let names = nodes.names();
    let multi = async || {
        let server = nodes.process().await;
        let redisson: Arc<dyn Locker> = Arc::new(Redisson::on(&server));
        let members = names.iter().map(|name| (Arc::clone(&redisson), name.clone()));
        Locks::new(Arc::new(Multi::of(members.collect()).expect("members")))
    };
    let (one, other, all) = (multi().await, multi().await, fresh_name());
    let alone = nodes.locks(LockKind::Redisson).await;
    for name in &names {
        let held = alone.lock(name, &at_once()).await.expect("it is free");
        let busy = one.lock(&all, &at_once()).await;
        assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
        one.flush().await;
        for free in names.iter().filter(|free| *free != name) {
            let held = alone.lock(free, &at_once()).await.expect("nothing is left of it");
            held.release().await.expect("a release");
        }
        held.release().await.expect("a release");
    }
    let held = one.lock(&all, &at_once()).await.expect("all are free");
    assert!(other.lock(&all, &at_once()).await.is_err());
    assert_eq!(held.release().await.expect("a release"), Release::Released);
}

/// What one node has counted.
fn counted(nodes: &Nodes, section: &str, prefix: &str) -> u64 {
    let info = nodes.ask(1, &["INFO", section]);
    let line = info.lines().find_map(|line| line.strip_prefix(prefix));
    let count = line.and_then(|line| line.split(',').next()?.trim().parse().ok());
    count.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_stays_away_does_not_cause_a_storm_of_map_requests() {
    let nodes = Nodes::start(0);
    // By a name that the nodes do not use themselves.
    let url = nodes.cluster.url().replace("127.0.0.1", "localhost");
    let locks = locks_of(LockKind::LuaRelease, connect(&url).await);
    let gone = nodes.name_at(0);
    tokio::task::block_in_place(|| nodes.cluster.masters()[0].kill()).expect("a kill");
    let asked = || counted(&nodes, "commandstats", "cmdstat_cluster|slots:calls=");
    let connected = || counted(&nodes, "stats", "total_connections_received:");
    let (asked_before, connected_before, started) = (asked(), connected(), Instant::now());
    let mut failed = 0_u32;
    while started.elapsed() < POLL_INTERVAL * 5 || failed <= 50 {
        assert!(started.elapsed() < DEADLINE, "only {failed} attempts failed");
        failed += u32::from(locks.lock(&gone, &at_once()).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (asked, connected) = (asked() - asked_before, connected() - connected_before);
    println!("{failed} failures: asked {asked} times, {connected} connections");
    // The pauses between are 200, 400 and 800 ms, and then a second each.
    assert!(asked <= started.elapsed().as_secs() + 4, "asked {asked} times");
    // Those of this test, and none for nodes that are connected to already.
    assert!(connected <= 5, "{connected} connections");
}
