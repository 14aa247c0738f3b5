//! `redisson` at an address that follows the master: a replica is promoted while a lock is held.
//! Witnesses: the replica knows the lock before, its role after, and the renewals that it got.

use std::time::{Duration, Instant};

use crate::support::redisson::{RawRedis, Service, kept};
use crate::support::{at_once, eventually, fresh_name};
use distlock::{LossCause, Release};
use testbed::{Bed, Proxy, Redis, RedisOptions};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

/// Longer than a promotion takes on a busy machine.
const LEASE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(20);

/// A master, its replica, and the address that leads to whichever is master. The bed goes last.
struct Pair {
    master: Redis,
    replica: Redis,
    address: Proxy,
    _bed: Bed,
}

impl Pair {
    fn start() -> Self {
        block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let master = bed.redis(RedisOptions::default()).expect("Redis is installed");
            let of = Some(master.as_master());
            let options = RedisOptions { replica_of: of, ..RedisOptions::default() };
            let replica = bed.redis(options).expect("a replica");
            for server in [&master, &replica] {
                // Clients know one password, wherever the address leads.
                let user = ["ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all"];
                server.command(&user).expect("a user");
            }
            let address = Proxy::before(master.addr()).expect("a port");
            Self { master, replica, address, _bed: bed }
        })
    }

    async fn service(&self) -> Service {
        Service::at(&format!("redis://locks:secret@{}/0", self.address.addr())).await
    }

    async fn heir(&self) -> RawRedis {
        RawRedis::at(self.replica.url()).await
    }

    /// The master dies, the replica takes its place, and the address follows.
    fn promote(&self) {
        block_in_place(|| {
            self.master.kill().expect("it is killed");
            self.replica.promote().expect("an answer");
            let state = self.replica.command(&["INFO", "replication"]).expect("an answer");
            assert!(state.contains("role:master"), "{state}");
        });
        self.address.lead_to(self.replica.addr());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_outlives_the_promotion_of_a_replica_and_is_renewed_there() {
    let pair = Pair::start();
    let (service, other, heir) = (pair.service().await, pair.service().await, pair.heir().await);
    let (name, wanted) = (fresh_name(), kept(DEADLINE, LEASE));
    let guard = service.locks.lock(&name, &wanted).await.expect("the lock");
    let waiter = tokio::spawn({
        let (locks, name) = (other.locks.clone(), name.clone());
        async move { locks.lock(&name, &wanted).await }
    });
    eventually("one waits", async || other.server.subscribed_channels() == 1).await;
    eventually("the replica knows", async || heir.lease(&name).await.is_some()).await;
    pair.promote();

    let since = Instant::now();
    let next = fresh_name();
    eventually("others can lock", async || other.locks.lock(&next, &at_once()).await.is_ok()).await;
    while since.elapsed() < LEASE * 2 {
        let left = heir.lease(&name).await;
        assert!(left.is_some() && !guard.is_lost(), "{left:?}, {guard:?}");
        assert!(!waiter.is_finished(), "two holders");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    let woken = timeout(DEADLINE, waiter).await.expect("in time").expect("no panic");
    let woken = woken.expect("the lock, by a message or a look");
    assert_eq!(woken.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_the_promoted_replica_does_not_know_is_lost_and_can_be_taken_again() {
    let pair = Pair::start();
    let (service, heir, name) = (pair.service().await, pair.heir().await, fresh_name());
    // From now on the replica hears nothing.
    block_in_place(|| pair.replica.command(&["REPLICAOF", "NO", "ONE"])).expect("an answer");
    let guard = service.locks.lock(&name, &kept(DEADLINE, LEASE)).await.expect("the lock");
    pair.promote();
    assert!(heir.lease(&name).await.is_none());
    let told = timeout(LEASE, guard.lost()).await.expect("it is told before its lease would end");
    assert_eq!(told, LossCause::Taken);
    let again = service.locks.lock(&name, &kept(DEADLINE, LEASE)).await.expect("the lock");
    let since = Instant::now();
    while since.elapsed() < LEASE * 2 {
        assert!(heir.lease(&name).await.is_some() && !again.is_lost(), "{again:?}");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(again.release().await.expect("a release"), Release::Released);
}
