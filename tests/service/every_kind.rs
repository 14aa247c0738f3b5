//! Every kind of lock around the same naive purchase, in replicas that are processes: no user buys
//! twice; without a lock many do.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::OnceLock;

use distlock::{Backend, LockKind};
use seckill::domain::Role;
use testbed::{
    Etcd, EtcdOptions, Nats, NatsOptions, Redis, RedisOptions, Replica, ZooKeeper, ZooKeeperOptions,
};
use tokio::task::{JoinSet, spawn_blocking};

use crate::caller::Caller;
use crate::crowd::buy_until_told;
use crate::fleet::{SECKILL, start_together};
use crate::replicas::spec;
use crate::support::{Place, servers, token};

const USERS: u64 = 20;
/// Requests of each user, all at once.
const REQUESTS_PER_USER: u64 = 5;
const REPLICAS: usize = 3;
/// Enough units for every buyer.
const STOCK: u32 = 1000;

/// Servers that only some kinds need.
struct ExtraServers {
    independent: Vec<Redis>,
    zookeeper: ZooKeeper,
    etcd: Etcd,
    nats: Nats,
}

impl ExtraServers {
    fn servers() -> &'static Self {
        static MORE: OnceLock<ExtraServers> = OnceLock::new();
        MORE.get_or_init(|| {
            let bed = &servers().bed;
            let independent = bed.redis_many(3, RedisOptions::default()).expect("three Redis");
            let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).expect("a ZooKeeper");
            let etcd = bed.etcd(EtcdOptions::default()).expect("an etcd");
            let nats = bed.nats(&NatsOptions::default()).expect("a NATS server");
            Self { independent, zookeeper, etcd, nats }
        })
    }
}

/// What `serve` has to be told of the kind's servers.
pub(crate) fn servers_of(kind: LockKind) -> Vec<String> {
    match kind.backend() {
        Backend::Process | Backend::Redis | Backend::MySql => Vec::new(),
        Backend::IndependentRedis => {
            let urls: Vec<_> =
                ExtraServers::servers().independent.iter().map(testbed::Redis::url).collect();
            vec!["--redlock-urls".to_owned(), urls.join(",")]
        }
        Backend::Etcd => {
            let endpoint = ExtraServers::servers().etcd.endpoint();
            vec!["--etcd-endpoints".to_owned(), endpoint.to_owned()]
        }
        Backend::Nats => {
            vec!["--nats-url".to_owned(), ExtraServers::servers().nats.url().to_owned()]
        }
        Backend::ZooKeeper => {
            let ensemble = ExtraServers::servers().zookeeper.connect_string();
            vec!["--zookeeper-url".to_owned(), ensemble.to_owned()]
        }
    }
}

/// Processes that serve with that lock, and their place.
fn start(kind: LockKind) -> Vec<Replica> {
    let (place, more) = (Place::fresh(), servers_of(kind));
    let mut flags = vec!["--lab", "--guards", "off", "--work-ms", "5", "--lock-wait-ms", "20000"];
    flags.extend(["--lock", kind.as_str()]);
    flags.extend(more.iter().map(String::as_str));
    // A lock inside a process is for one process.
    let replicas = if kind == LockKind::Local { 1 } else { REPLICAS };
    start_together((1..=replicas).map(|number| spec(&place, &format!("{kind}-{number}"), &flags)))
}

/// Sells under that lock; how many orders there are, and how many users have more than one.
async fn sell(kind: LockKind) -> (u64, u64) {
    let replicas = spawn_blocking(move || start(kind)).await.expect("replicas");
    let caller = Caller::new(replicas[0].base_url());
    let voucher = caller.voucher(STOCK).await;
    let mut requests = JoinSet::new();
    for user in 1..=USERS {
        for number in 0..REQUESTS_PER_USER {
            let at = usize::try_from(user + number).expect("small") % replicas.len();
            let (url, voucher) = (replicas[at].base_url().to_owned(), voucher.clone());
            requests.spawn(async move {
                let tries = buy_until_told(&url, &voucher, user).await;
                tries.last().expect("one at least").words()
            });
        }
    }
    let words: BTreeSet<String> = requests.join_all().await.into_iter().collect();
    let audit = format!("/api/admin/vouchers/{voucher}/audit");
    let audit = caller.get(&audit, &token(1, Role::Admin)).await.expect(200);
    if kind != LockKind::None {
        let both = ["201 null", r#"409 "already_ordered""#];
        assert!(words.iter().eq(both), "{kind}: {words:?}, {audit}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_etcd_keeps_each_user_to_one_order() {
    all_hold(on(Backend::Etcd)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_in_nats_keeps_each_user_to_one_order() {
    all_hold(on(Backend::Nats)).await;
}

/// The bucket gives less than the lease that is asked for, so a command has less time to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_outlives_the_ttl_of_a_nats_bucket_that_is_shorter_than_its_lease() {
    let under_lock = |more: &[&str]| {
        let mut command = Command::new(SECKILL);
        command.args(["lock", "run", "--kind", "nats", "--name", "a"]).args(more).env_clear();
        let servers = servers_of(LockKind::Nats);
        command.env("NATS_URL", &servers[1]).env("NATS_BUCKET", "brief");
        command.output().expect("the program")
    };
    spawn_blocking(move || {
        let made = under_lock(&["--lease", "3s", "--", "/bin/true"]);
        assert!(made.status.success(), "{made:?}");
        let run = || under_lock(&["--", "/bin/sh", "-c", "sleep 4.5; echo done"]);
        let mut ran = run();
        // A process that stands still for the lease loses the lock, which is told.
        for _ in 0..2 {
            if ran.status.code() == Some(76) {
                ran = run();
            }
        }
        assert_eq!(ran.stdout, b"done\n", "{ran:?}");
        assert!(ran.status.success(), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("NATS bucket has another maximum age"), "{said}");
    })
    .await
    .expect("no panic");
}
