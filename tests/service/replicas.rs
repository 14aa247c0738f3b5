//! Several replicas of one deployment: they must lock alike, and one that dies must not stop the
//! others from selling.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testbed::ReplicaSpec;

use crate::breakable::{blocking, readiness, until_ready};
use crate::caller::Caller;
use crate::crowd::{Books, Fate, buy_at};
use crate::fleet::SECKILL;
use crate::redis_side::RedisSide;
use crate::support::{Place, SECRET, Service, client, eventually, servers};

/// How often a replica looks at the others.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// A replica of the deployment at that place, as a process.
pub(crate) fn spec(place: &Place, name: &str, flags: &[&str]) -> ReplicaSpec {
    ReplicaSpec::new(name, SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--replica-id", name])
        .args(flags.iter().copied())
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", place.service_redis_url())
        .env("REDIS_TIMEOUT_MS", place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_locks_differently_is_not_ready_while_an_older_one_lives() {
    let older = Service::start(&["--replica-id", "older"]).await;
    let differing = ["--replica-id", "younger", "--lock", "local"];
    let younger = Service::start_at(older.place.clone(), &differing).await;
    let allowed = ["--replica-id", "allowed", "--lock-scope", "voucher", "--allow-mixed"];
    let allowed = Service::start_at(older.place.clone(), &allowed).await;
    // From the first moment and after they have looked at each other again.
    let started = Instant::now();
    while started.elapsed() < HEARTBEAT + Duration::from_secs(1) {
        let (ready, reasons) = readiness(&younger.url).await;
        assert!(!ready);
        assert!(reasons.contains("older") && reasons.contains("lock=redisson"), "{reasons}");
        assert!(readiness(&older.url).await.0, "who was first goes on");
        assert!(readiness(&allowed.url).await.0, "mixed on purpose");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    older.stop().await;
    let ready = until_ready(&younger, None).await;
    println!("ready {ready:?} after the older one had left");
    assert!(ready < HEARTBEAT * 2, "{ready:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_locks_are_on_other_servers_is_not_ready() {
    let ready = async |servers: &str, place: &Place| {
        let flags = ["--lock", "multi", "--redlock-urls", servers];
        let service = Service::start_at(place.clone(), &flags).await;
        let ready = readiness(&service.url).await;
        (service, ready)
    };
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    // There is no other replica, which is no reason to differ.
    let one = "redis://:one@127.0.0.1:1/0, redis://:one@127.0.0.1:2/0";
    let (_first, (_, reasons)) = ready(one, &place).await;
    assert!(!reasons.contains("locks differently"), "{reasons}");
    let same = "redis://127.0.0.1:2,redis://user:two@127.0.0.1:1/0";
    let (_second, (_, reasons)) = ready(same, &place).await;
    assert!(
        !reasons.contains("locks differently"),
        "the same servers, with other logins and in another order: {reasons}"
    );
    for other in ["redis://127.0.0.1:1", "redis://127.0.0.1:1,redis://127.0.0.1:2/1"] {
        let (_other, (is_ready, reasons)) = ready(other, &place).await;
        assert!(!is_ready && reasons.contains("locks differently"), "{other}: {reasons}");
    }
}

/// Has a replica sell that waits for the lock of a killed one; how long after the lease's end.
async fn sell_after_a_killed_one() -> Duration {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let bed = &servers().bed;
    let slow = ["--lab", "--work-ms", "60000", "--lease-ms", "3000"];
    let doomed = blocking(|| bed.replica(spec(&place, "doomed", &slow)));
    let patient = ["--lock-wait-ms", "20000", "--lease-ms", "60000"];
    let heir = blocking(|| bed.replica(spec(&place, "heir", &patient)));
    let voucher = Caller::new(heir.base_url()).voucher(10).await;
    let redis = RedisSide::connect(&place.redis_url).await;

    let (url, wanted) = (doomed.base_url().to_owned(), voucher.clone());
    let lost = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("the doomed replica holds the lock", async || redis.has_lock(1).await).await;
    blocking(|| doomed.kill());
    let looked = Instant::now();
    let left = redis.lease(1).await.expect("the lock outlives its holder");
    let one = buy_at(heir.base_url(), &voucher, 1).await;
    let sold = looked.elapsed();
    let Fate::Bought(order) = one.fate() else { panic!("{}", one.words()) };
    println!("the lease had {left:?} left, the heir sold after {sold:?}");
    assert!(sold + Duration::from_millis(50) > left, "the lock was still the dead one's");

    assert_eq!(lost.await.expect("a purchase").fate(), Fate::Unknown, "no answer");
    let books = Books::read(&place.database_url, &voucher).await;
    books.add_up_to(10);
    assert_eq!(books.of(1), [order], "what the dead one had begun was rolled back");
    // Long before its lease of a minute ends.
    redis.until_given_back(1).await;
    sold.saturating_sub(left)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_a_killed_replica_ends_with_its_lease_and_another_one_sells() {
    let mut all = Vec::new();
    // A machine that stands still delays the heir once.
    for _ in 0..3 {
        all.push(sell_after_a_killed_one().await);
        if all.last().is_some_and(|late| *late < Duration::from_secs(1)) {
            return;
        }
    }
    panic!("the heir waited beyond the lease each time: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_at_sigterm_is_not_ready_accepts_nothing_new_and_finishes_its_requests() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let flags = ["--lab", "--work-ms", "10000", "--drain-delay-ms", "5000"];
    let ending = Arc::new(blocking(|| servers().bed.replica(spec(&place, "ending", &flags))));
    let url = ending.base_url().to_owned();
    let voucher = Caller::new(&url).voucher(10).await;
    let redis = RedisSide::connect(&place.redis_url).await;
    let wanted = (url.clone(), voucher.clone());
    let purchase = tokio::spawn(async move { buy_at(&wanted.0, &wanted.1, 1).await });
    eventually("the purchase is under way", async || redis.has_lock(1).await).await;

    let process = Arc::clone(&ending);
    let stopping = tokio::task::spawn_blocking(move || process.stop(Duration::from_secs(20)));
    let readyz = async || client().get(format!("{url}/readyz")).send().await;
    eventually("it says that it will end", async || {
        let answer = readyz().await.expect("for a while it still answers");
        let closes = answer.headers().get("connection").is_some_and(|value| value == "close");
        let refuses = answer.status() == 503;
        closes && refuses && answer.text().await.expect("a body").contains("shutting down")
    })
    .await;
    eventually("it takes nothing new", async || readyz().await.is_err()).await;
    assert!(!purchase.is_finished(), "nothing was under way any more");
    let one = purchase.await.expect("the purchase");
    let Fate::Bought(order) = one.fate() else { panic!("{}", one.words()) };
    let status = stopping.await.expect("no panic").expect("it ends in time");
    assert!(status.success(), "{status}");
    let books = Books::read(&place.database_url, &voucher).await;
    books.add_up_to(10);
    assert_eq!(books.of(1), [order]);
    assert_eq!(redis.locks().await, [""; 0], "the lock was released before the end");
}
