//! `redisson` whose replicas must confirm: a master with two replicas, whose ways to it can be
//! held up.

use std::time::{Duration, Instant};

use crate::support::redisson::{RawRedis, Service, kept};
use crate::support::{LONG, at_once, eventually, fresh_name, granted};
use distlock::{LockError, LockName, LossCause, Release, Replication};
use testbed::{Bed, Direction, Proxy, Redis, RedisMaster, RedisOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

const ALL: Replication = Replication::All { replicas: 2 };
const MAJORITY: Replication = Replication::Majority { replicas: 2 };
const BOTH: Replication = Replication::AtLeast(2);
/// For a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// The bed goes last.
struct ReplicatedRedis {
    master: Redis,
    replicas: Vec<Redis>,
    on_replicas: Vec<RawRedis>,
    /// From each replica to the master.
    ways: Vec<Proxy>,
    _bed: Bed,
}

impl ReplicatedRedis {
    async fn start() -> Self {
        let mut servers = tokio::task::block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            // Replicas say at once what they have, and get what comes without a delay.
            let prompt = vec!["repl-diskless-sync-delay 0".into(), "repl-timeout 60".into()];
            let options = RedisOptions { extra: prompt, ..RedisOptions::default() };
            let master = bed.redis(options.clone()).expect("Redis is installed");
            let (mut replicas, mut ways) = (Vec::new(), Vec::new());
            for _ in 0..2 {
                let way = Proxy::before(master.addr()).expect("a port");
                let of = RedisMaster { addr: way.addr(), ..master.as_master() };
                let options = RedisOptions { replica_of: Some(of), ..options.clone() };
                replicas.push(bed.redis(options).expect("a replica"));
                ways.push(way);
            }
            Self { master, replicas, on_replicas: Vec::new(), ways, _bed: bed }
        });
        for replica in &servers.replicas {
            servers.on_replicas.push(RawRedis::at(replica.url()).await);
        }
        // A replica that has just come confirms nothing for up to a second.
        let all = servers.service(ALL).await;
        eventually("all confirm", async || all.locks.lock(&fresh_name(), &at_once()).await.is_ok())
            .await;
        all.locks.flush().await;
        servers
    }

    async fn service(&self, replication: Replication) -> Service {
        Service::confirmed(self.master.url(), replication).await
    }

    async fn on_master(&self) -> RawRedis {
        RawRedis::at(self.master.url()).await
    }

    /// How many replicas have the lock.
    async fn copies(&self, name: &LockName) -> usize {
        let mut copies = 0;
        for raw in &self.on_replicas {
            copies += usize::from(raw.lease(name).await.is_some());
        }
        copies
    }
}

fn refused<T>(outcome: Result<T, LockError>) {
    let error = outcome.map(drop).expect_err("too few replicas have it");
    assert!(matches!(error, LockError::Backend(_)), "{error}");
    assert!(error.to_string().contains("replicas have confirmed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_granted_is_on_as_many_replicas_as_were_asked_for() {
    let servers = ReplicatedRedis::start().await;
    for way in &servers.ways {
        way.set_latency(Direction::ToClient, Duration::from_millis(300), Duration::ZERO);
    }
    let (none, majority) =
        (servers.service(Replication::None).await, servers.service(MAJORITY).await);
    let mut lagged = 0;
    for _ in 0..5 {
        let name = fresh_name();
        let guard = none.locks.lock(&name, &at_once()).await.expect("the lock");
        lagged += u32::from(servers.copies(&name).await == 0);
        guard.release().await.expect("a release");
    }
    assert!(lagged > 0, "there is no lag to be waited for");
    for (replication, least) in [(ALL, 2), (BOTH, 2), (MAJORITY, 1)] {
        let service = servers.service(replication).await;
        // More at a time than there are connections, so that each waits for its own write.
        let mut tasks = JoinSet::new();
        for _ in 0..12 {
            let service = service.clone();
            tasks.spawn(async move {
                let name = fresh_name();
                (granted(&service.locks, &name, &at_once()).await, name)
            });
        }
        while let Some(held) = tasks.join_next().await {
            let (guard, name) = held.expect("no panic");
            assert!(servers.copies(&name).await >= least, "{replication:?}");
            assert_eq!(guard.release().await.expect("a release"), Release::Released);
        }
    }
    drop(majority);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_too_few_replicas_the_lock_is_refused_and_nothing_is_left_of_it() {
    let servers = ReplicatedRedis::start().await;
    let (all, majority) = (servers.service(ALL).await, servers.service(MAJORITY).await);
    let (raw, name) = (servers.on_master().await, fresh_name());
    let outer = granted(&all.locks, &name, &at_once()).await;
    let owner = outer.owner().clone();
    servers.ways[0].hold(Direction::ToClient);
    refused(all.locks.lock(&fresh_name(), &at_once()).await);
    refused(all.locks.lock_as(owner.clone(), &name, &at_once()).await);
    assert_eq!(raw.holds(&name).await.get(owner.as_str()), Some(&1), "the outer hold stays");
    // One of two is enough for a majority of the three servers.
    let other = fresh_name();
    drop(granted(&majority.locks, &other, &at_once()).await);
    majority.locks.flush().await;
    tokio::task::block_in_place(|| servers.replicas[1].kill()).expect("it can be killed");
    for service in [&all, &majority] {
        let name = fresh_name();
        refused(service.locks.lock(&name, &at_once()).await);
        assert!(raw.holds(&name).await.is_empty(), "it is rolled back before the caller knows");
    }
    tokio::task::block_in_place(|| servers.replicas[1].restart()).expect("it can be started");
    servers.ways[0].release(Direction::ToClient);
    eventually("all confirm again", async || {
        all.locks.lock(&fresh_name(), &at_once()).await.is_ok()
    })
    .await;
    assert_eq!(outer.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_renewals_are_not_confirmed_is_lost() {
    let servers = ReplicatedRedis::start().await;
    let (service, name) = (servers.service(ALL).await, fresh_name());
    let lease = Duration::from_secs(5);
    let guard = granted(&service.locks, &name, &kept(DEADLINE, lease)).await;
    let until = Instant::now() + lease * 2;
    while Instant::now() < until {
        assert!(!guard.is_lost(), "{:?}", guard.lost_signal());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The master goes on renewing it, but a replica that is promoted would not know.
    servers.ways[1].hold(Direction::ToClient);
    let told = timeout(lease * 2, guard.lost()).await.expect("it is told");
    assert_eq!(told, LossCause::Expired);
}

/// Promotes a replica that has got nothing since its way was held up.
async fn fail_over(replication: Replication) -> (Option<bool>, bool) {
    let servers = ReplicatedRedis::start().await;
    let (service, name) = (servers.service(replication).await, fresh_name());
    servers.ways[0].hold(Direction::ToClient);
    let wanted = kept(Duration::ZERO, LONG);
    let first = match replication {
        // Not by the one whose way is held up.
        Replication::All { .. } => service.locks.lock(&name, &wanted).await.ok(),
        _ => Some(granted(&service.locks, &name, &wanted).await),
    };
    let promoted = &servers.replicas[0];
    tokio::task::block_in_place(|| servers.master.kill().and_then(|()| promoted.promote()))
        .expect("it can be promoted");
    let heir = Service::at(promoted.url()).await;
    let second = heir.locks.lock(&name, &at_once()).await;
    (first.map(|guard| !guard.is_lost()), second.is_ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_forgets_a_lock_that_the_replica_has_not_confirmed() {
    // The known flaw: the first hold is still valid, and a second owner has the lock.
    assert_eq!(fail_over(Replication::None).await, (Some(true), true));
    // One confirmation is not enough if another replica is promoted: narrower, and not closed.
    assert_eq!(fail_over(Replication::AtLeast(1)).await, (Some(true), true));
    // All of them: then no caller was granted the lock.
    assert_eq!(fail_over(ALL).await, (None, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_keeps_a_lock_that_all_replicas_have_confirmed_and_others_can_lock() {
    let servers = ReplicatedRedis::start().await;
    let (service, name) = (servers.service(ALL).await, fresh_name());
    let guard = granted(&service.locks, &name, &kept(Duration::ZERO, LONG)).await;
    let promoted = &servers.replicas[0];
    tokio::task::block_in_place(|| servers.master.kill().and_then(|()| promoted.promote()))
        .expect("it can be promoted");
    let heir = Service::at(promoted.url()).await;
    let busy = heir.locks.lock(&name, &at_once()).await;
    assert!(matches!(busy, Err(LockError::TimedOut { .. })), "{:?}", busy.err());
    let raw = RawRedis::at(promoted.url()).await;
    assert_eq!(raw.holds(&name).await.get(guard.owner().as_str()), Some(&1));
    for _ in 0..3 {
        let name = fresh_name();
        let guard = heir.locks.lock(&name, &at_once()).await.expect("another lock");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}
