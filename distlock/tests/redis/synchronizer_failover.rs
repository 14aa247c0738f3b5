//! The known flaw of everything that one Redis remembers: a replica that lags, and is promoted, has
//! not heard of what was done last.

use std::time::Duration;

use crate::support::synchronizers::Client;
use crate::support::{LONG, connect, eventually, fresh_name};
use distlock::{CountdownLatch, ExpirableSemaphore, Lease, Release, Semaphore};
use testbed::{Bed, Direction, Proxy, RedisMaster, RedisOptions};

const ZERO: Duration = Duration::ZERO;

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_replica_that_lags_forgets_what_was_taken_and_counted_last() {
    let (bed, master, replica, way) = tokio::task::block_in_place(|| {
        let bed = Bed::start().expect("a private bed");
        let extra = vec!["repl-diskless-sync-delay 0".into()];
        let options = RedisOptions { extra, ..RedisOptions::default() };
        let master = bed.redis(options.clone()).expect("Redis is installed");
        let way = Proxy::before(master.addr()).expect("a port");
        let of = RedisMaster { addr: way.addr(), ..master.as_master() };
        let replica = bed.redis(RedisOptions { replica_of: Some(of), ..options });
        (bed, master, replica.expect("a replica"), way)
    });
    let (before, after) = (connect(master.url()).await, connect(replica.url()).await);
    let names = [fresh_name(), fresh_name(), fresh_name()];
    let made = |server| {
        let [plain, expirable, latch] = names.clone();
        (
            Semaphore::new(server, plain),
            ExpirableSemaphore::new(server, expirable),
            CountdownLatch::new(server, latch),
        )
    };
    let (plain, expirable, latch) = made(&before);
    plain.try_set_permits(1).await.expect("an answer");
    expirable.try_set_permits(1).await.expect("an answer");
    latch.try_set_count(2).await.expect("an answer");
    let replicated = Client::at(replica.url()).await;
    eventually("the replica has them", async || {
        replicated.command::<usize>(&["DBSIZE"]).await == names.len()
    })
    .await;

    way.hold(Direction::ToClient);
    let lease = Lease::Fixed(LONG);
    let held = plain.acquire(1, ZERO).await.expect("a permit");
    let leased = expirable.acquire(ZERO, lease).await.expect("a permit");
    assert_eq!(latch.count_down().await.expect("an answer"), 1);
    tokio::task::block_in_place(|| {
        master.kill().expect("it can be killed");
        replica.command(&["REPLICAOF", "NO", "ONE"]).expect("it can be promoted");
    });

    let (plain, expirable, latch) = made(&after);
    let second = plain.acquire(1, ZERO).await.expect("it is free, as far as is known");
    let successor = expirable.acquire(ZERO, lease).await.expect("it is free, as far as is known");
    assert!(!leased.is_lost(), "two believe in one permit");
    assert_eq!(latch.count().await.expect("an answer"), 2, "a count is forgotten");
    // Only those are given back that are known.
    assert_eq!(second.release().await.expect("an answer"), Release::Released);
    assert_eq!(successor.release().await.expect("an answer"), Release::Released);
    assert_eq!(plain.available().await.expect("an answer"), 1);
    held.forget();
    leased.into_id();
    drop(bed);
}
