//! Every kind of lock around the same naive purchase: nobody buys twice; without a lock many do.

use std::sync::{Arc, OnceLock};

use distlock::{Backend, LockKind};
use testbed::{Redis, RedisOptions, ZooKeeper, ZooKeeperOptions};
use tokio::task::JoinSet;

use crate::support::{Place, Service, servers};

const USERS: u64 = 20;
/// Requests of each user, all at once.
const EACH: u64 = 5;
const REPLICAS: usize = 3;
/// Enough that nobody is refused for want of a unit.
const STOCK: u32 = 1000;

/// Servers that only some kinds need.
struct More {
    independent: Vec<Redis>,
    zookeeper: ZooKeeper,
}

impl More {
    fn servers() -> &'static Self {
        static MORE: OnceLock<More> = OnceLock::new();
        MORE.get_or_init(|| {
            let bed = &servers().bed;
            let independent = bed.redis_many(3, RedisOptions::default()).expect("three Redis");
            let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).expect("a ZooKeeper");
            Self { independent, zookeeper }
        })
    }
}

/// What `serve` has to be told of the kind's servers.
pub(crate) fn servers_of(kind: LockKind) -> Vec<String> {
    match kind.backend() {
        Backend::Process | Backend::Redis | Backend::MySql => Vec::new(),
        Backend::IndependentRedis => {
            let urls: Vec<_> =
                More::servers().independent.iter().map(testbed::Redis::url).collect();
            vec!["--red-urls".to_owned(), urls.join(",")]
        }
        Backend::ZooKeeper => {
            let ensemble = More::servers().zookeeper.connect_string();
            vec!["--zookeeper-url".to_owned(), ensemble.to_owned()]
        }
    }
}

/// Sells under that lock; how many orders there are, and how many users have more than one.
async fn sell(kind: LockKind) -> (u64, u64) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let more = tokio::task::spawn_blocking(move || servers_of(kind)).await.expect("servers");
    let mut flags = vec!["--lab", "--guards", "off", "--work-ms", "5", "--lock-wait-ms", "20000"];
    flags.extend(["--lock", kind.as_str()]);
    flags.extend(more.iter().map(String::as_str));
    // A lock inside a process is for one process.
    let replicas = if kind == LockKind::Local { 1 } else { REPLICAS };
    let mut services = Vec::new();
    for _ in 0..replicas {
        services.push(Arc::new(Service::start_at(place.clone(), &flags).await));
    }
    let voucher = services[0].voucher(STOCK).await;
    let mut requests = JoinSet::new();
    for user in 1..=USERS {
        for number in 0..EACH {
            let at = usize::try_from(user + number).expect("small") % services.len();
            let (service, voucher) = (Arc::clone(&services[at]), voucher.clone());
            requests.spawn(async move {
                let answer = service.buy(&voucher, user).await;
                answer.body["code"].as_str().unwrap_or("bought").to_owned()
            });
        }
    }
    let mut codes = requests.join_all().await;
    codes.sort();
    codes.dedup();
    let audit = services[0].audit(&voucher).await;
    if kind != LockKind::None {
        assert_eq!(codes, ["already_ordered", "bought"], "{kind}: {audit}");
    }
    for service in services {
        Arc::into_inner(service).expect("no request is left").stop().await;
    }
    let number = |name: &str| audit[name].as_u64().expect("a number");
    (number("orders"), number("duplicate_users"))
}

/// Sells under every one of these, one after the other.
async fn all_hold(kinds: impl IntoIterator<Item = LockKind>) {
    let mut tried = 0;
    for kind in kinds {
        assert_eq!(sell(kind).await, (USERS, 0), "{kind}");
        tried += 1;
    }
    assert!(tried > 0, "no kind has such a server");
}

fn on(backend: Backend) -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(move |kind| kind.backend() == backend)
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_lock_users_buy_twice_and_the_harness_sees_it() {
    let (orders, twice) = sell(LockKind::None).await;
    assert!(orders > USERS && twice > 0, "{orders} orders, {twice} users bought twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_inside_one_process_keeps_each_user_to_one_order_in_that_process() {
    all_hold([LockKind::Local]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lock_in_one_redis_keeps_each_user_to_one_order() {
    all_hold(on(Backend::Redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lock_on_several_redis_servers_keeps_each_user_to_one_order() {
    all_hold(on(Backend::IndependentRedis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lock_in_the_database_keeps_each_user_to_one_order() {
    all_hold(on(Backend::MySql)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_zookeeper_keeps_each_user_to_one_order() {
    all_hold(on(Backend::ZooKeeper)).await;
}
