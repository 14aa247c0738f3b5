//! Servers that only the locks need: without enough of them a replica is not ready and refuses
//! definitely, and it heals without a restart. And the settings that are about them.

use std::thread;

use testbed::{Bed, Redis, RedisMaster, RedisOptions, ZooKeeper, ZooKeeperOptions};

use crate::breakable::{blocking, readiness, until_ready};
use crate::crowd::Books;
use crate::redis_side::RedisSide;
use crate::support::{Answer, Place, Service, eventually};

/// Three independent servers, and the place of a sale whose locks are on them.
struct Three {
    redis: Vec<Redis>,
    urls: String,
    place: Place,
    _bed: Bed,
}

impl Three {
    fn start() -> Self {
        let place = tokio::task::block_in_place(Place::fresh);
        blocking(|| {
            let bed = Bed::start()?;
            let redis = bed.redis_many(3, RedisOptions::default())?;
            let urls = redis.iter().map(Redis::url).collect::<Vec<_>>().join(",");
            Ok(Self { redis, urls, place, _bed: bed })
        })
    }

    async fn serve(&self, flags: &[&str]) -> Service {
        let flags = [&["--redlock-urls", &self.urls], flags].concat();
        Service::start_at(self.place.clone(), &flags).await
    }
}

fn assert_refused(answer: &Answer) {
    assert_eq!(answer.problem(503), "dependency_unavailable", "{}", answer.body);
    assert_eq!(answer.body["executed"], false, "{}", answer.body);
    assert!(answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
}

/// Sells; not ready for that reason after the strike, and a definite no; sells again once healed.
async fn story(service: &Service, reason: &str, strike: impl FnOnce(), heal: impl FnOnce()) {
    let voucher = service.voucher(10).await;
    // The fault may hit the release of the first one's lock: no user comes twice.
    let mut user = voucher.parse::<u64>().expect("a number") * 1000;
    // A session with a short lease may have ended with a machine that stood still.
    eventually("it sells", async || {
        user += 1;
        service.buy(&voucher, user).await.status == 201
    })
    .await;
    strike();
    until_ready(service, Some(reason)).await;
    assert_refused(&service.buy(&voucher, user + 1).await);
    heal();
    until_ready(service, None).await;
    // The locks' own connections may be a moment behind those that have just answered.
    eventually("it sells again", async || service.buy(&voucher, user + 2).await.status == 201)
        .await;
    assert_eq!(service.audit(&voucher).await["orders"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_locks_need_a_majority_is_ready_with_one_and_not_without() {
    let servers = Three::start();
    let [one, two, three] = &servers.redis[..] else { unreachable!("three") };
    let service = servers.serve(&["--lock", "redlock"]).await;
    blocking(|| three.kill());
    let (strike, heal) = (|| blocking(|| one.freeze()), || blocking(|| one.thaw()));
    story(&service, "1 of 3 servers count", strike, heal).await;
    let (strike, heal) = (|| blocking(|| two.kill()), || blocking(|| two.restart()));
    story(&service, "1 of 3 servers count", strike, heal).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_locks_need_all_of_several_servers_is_not_ready_without_one() {
    let servers = Three::start();
    let service = servers.serve(&["--lock", "multi"]).await;
    let last = &servers.redis[2];
    let (strike, heal) = (|| blocking(|| last.kill()), || blocking(|| last.restart()));
    story(&service, "1 of 3 members fail", strike, heal).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_locks_are_in_zookeeper_is_not_ready_without_it() {
    let place = tokio::task::block_in_place(Place::fresh);
    let (zookeeper, _bed): (ZooKeeper, Bed) = blocking(|| {
        let bed = Bed::start()?;
        Ok((bed.zookeeper(ZooKeeperOptions::default())?, bed))
    });
    let flags = ["--lock", "zookeeper", "--zookeeper-url", zookeeper.connect_string()];
    // Its session outlives the stroke, that of the other one does not: a look opens the next one.
    for lease in ["60000", "2000"] {
        let flags = [&flags[..], &["--lease-ms", lease]].concat();
        let service = Service::start_at(place.clone(), &flags).await;
        let strike = || blocking(|| zookeeper.kill());
        story(&service, "locks: ", strike, || blocking(|| zookeeper.restart())).await;
        let strike = || blocking(|| zookeeper.freeze());
        story(&service, "locks: ", strike, || blocking(|| zookeeper.thaw())).await;
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_without_enough_servers_is_not_ready_from_the_first_moment() {
    let servers = Three::start();
    blocking(|| servers.redis[0].kill());
    blocking(|| servers.redis[1].kill());
    let service = servers.serve(&["--lock", "redlock"]).await;
    let (ready, reasons) = readiness(&service.url).await;
    assert!(!ready && reasons.contains("1 of 3 servers count"), "{reasons}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_restarted_empty_stay_out_for_the_delay_and_are_then_counted() {
    let servers = Three::start();
    let delay = ["--redlock-restart-delay-ms", "7000", "--lease-ms", "7000"];
    let service = servers.serve(&[&["--lock", "redlock"][..], &delay].concat()).await;
    let (ready, reasons) = readiness(&service.url).await;
    assert!(!ready && reasons.contains("3 stay out"), "from the first moment: {reasons}");
    let voucher = service.voucher(10).await;
    assert_refused(&service.buy(&voucher, 1).await);
    let waited = until_ready(&service, None).await;
    service.buy(&voucher, 1).await.expect(201);

    // At once: both have to be out when the replica is asked.
    let (one, two) = (&servers.redis[0], &servers.redis[1]);
    blocking(|| {
        thread::scope(|scope| {
            let other = scope.spawn(|| two.restart());
            one.restart()?;
            other.join().expect("no panic")
        })
    });
    until_ready(&service, Some("1 of 3 servers count")).await;
    assert_refused(&service.buy(&voucher, 2).await);
    let again = until_ready(&service, None).await;
    service.buy(&voucher, 2).await.expect(201);
    println!("ready after {waited:?}, and after {again:?}");

    // A replica that would count them at once is not ready.
    let hasty = servers.serve(&["--lock", "redlock", "--lease-ms", "7000"]).await;
    let (ready, reasons) = readiness(&hasty.url).await;
    assert!(!ready && reasons.contains("restart-delay-ms=7000"), "{reasons}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_replicas_that_must_confirm_nothing_is_sold_and_no_lock_is_left() {
    let place = tokio::task::block_in_place(Place::fresh);
    let (master, bed) = blocking(|| {
        let bed = Bed::start()?;
        Ok((bed.redis(RedisOptions::default())?, bed))
    });
    let place = Place { redis_url: master.url().to_owned(), ..place };
    let service = Service::start_at(place.clone(), &["--lock-replication", "1"]).await;
    let (ready, reasons) = readiness(&service.url).await;
    assert!(!ready && reasons.contains("0 of 1 replicas are connected"), "{reasons}");
    let voucher = service.voucher(10).await;
    assert_refused(&service.buy(&voucher, 1).await);

    let of: RedisMaster = master.as_master();
    let options = RedisOptions { replica_of: Some(of), ..RedisOptions::default() };
    let replica = blocking(|| bed.redis(options));
    until_ready(&service, None).await;
    // A replica that has just come confirms nothing for up to a second.
    eventually("it sells", async || service.buy(&voucher, 1).await.status == 201).await;

    // Connected as far as the master knows, but it confirms nothing.
    blocking(|| replica.freeze());
    assert_refused(&service.buy(&voucher, 2).await);
    let redis = RedisSide::connect(master.url()).await;
    redis.until_given_back(2).await;
    let books = Books::read(&place.database_url, &voucher).await;
    books.add_up_to(10);
    assert_eq!((books.of(1).len(), books.of(2)), (1, vec![]));
    blocking(|| replica.thaw());
    eventually("it sells again", async || service.buy(&voucher, 2).await.status == 201).await;
    service.stop().await;
}
