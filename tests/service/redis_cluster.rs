//! A service whose Redis is a cluster, one master of which is lost.

use std::time::{Duration, Instant};

use testbed::{RedisCluster, Replica, Stopwatch};

use crate::breakable::{blocking, readiness};
use crate::caller::Caller;
use crate::crowd::{Books, Crowd};
use crate::fleet::start_together;
use crate::replicas::spec;
use crate::support::{Place, servers};

const STOCK: u32 = 5000;
/// How long an election may take on a busy machine.
const ELECTED_WITHIN: Duration = Duration::from_secs(30);
/// How soon after the promotion a replica gets requests: the map of slots is asked for every second
/// and the servers three times a second.
const READY_WITHIN: Duration = Duration::from_secs(4);

async fn cluster() -> RedisCluster {
    let starting = tokio::task::spawn_blocking(|| servers().bed.redis_cluster(3, 1));
    starting.await.expect("no panic").expect("Redis is installed")
}

/// Waits until the replica of that master is a master; a watch that began when it was seen.
fn await_promotion(cluster: &RedisCluster, master: usize) -> Stopwatch {
    let is_promoted =
        tokio::task::block_in_place(|| cluster.replicas()[master].takes_role("master"));
    assert!(is_promoted, "no replica was promoted");
    Stopwatch::start()
}

async fn until_ready(replica: &Replica) {
    let began = Instant::now();
    loop {
        let (ready, reasons) = readiness(replica.base_url()).await;
        if ready {
            return;
        }
        let name = replica.name();
        assert!(began.elapsed() < ELECTED_WITHIN, "{name} is not ready: {reasons}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_ready_after_a_failover_of_the_cluster_also_without_a_purchase() {
    let cluster = cluster().await;
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let place = Place { redis_url: cluster.url(), ..place };
    let named = |name| spec(&place, name, &["--lock", "redisson", "--drain-delay-ms", "0"]);
    let replicas = blocking(|| Ok(start_together(["cluster-1", "cluster-2"].map(named))));
    let voucher = Caller::new(replicas[0].base_url()).voucher(STOCK).await;
    // Nothing but its own checks shows the second replica the new master.
    let crowd = Crowd::start(replicas[0].base_url(), &voucher, 4);
    crowd.until_bought(10).await;
    blocking(|| cluster.masters()[0].kill());
    let promoted = await_promotion(&cluster, 0);
    for replica in &replicas {
        until_ready(replica).await;
        let after = promoted.elapsed();
        assert!(after < READY_WITHIN, "{} took {after:?}", replica.name());
    }
    crowd.until_bought(10).await;
    blocking(|| cluster.masters()[0].restart());
    crowd.until_bought(10).await;
    let tries = crowd.end().await;
    let books = Books::read(&place.database_url, &voucher).await;
    books.bear_out(&tries);
    books.add_up_to(STOCK.into());
}
