//! Many buyers at a proxy in front of two replicas and one as hm-dianping's own is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Executor, MySqlPool, Row};
use testbed::Program;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::peer::{PeerReplica, TRY_LOCK, UNLOCK, script};
use super::{DianpingService, call, data, message, serve};
use crate::support::{Service, client, eventually, servers};

/// The configuration that ships for replicas of both, and its servers.
const PROXY: &str = include_str!("../../../deploy/haproxy-hm-dianping.cfg");
const SERVERS: [&str; 2] = ["127.0.0.1:8082", "127.0.0.1:8081"];

const USERS: u64 = 100;
const STOCK: u32 = 50;
/// Requests at a time: those of ten users, and few enough for a busy machine.
const AT_ONCE: usize = 60;

/// The proxy that ships for both kinds, in front of these replicas, and its address.
fn proxy(ours: [SocketAddr; 2], theirs: SocketAddr) -> (Program, String) {
    let folder = tempfile::tempdir_in(servers().bed.dir()).expect("a folder").keep();
    let file = folder.join("haproxy.cfg");
    // Of the kernel's ports, from which no server of the tests gets one.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let address = port.expect("it is bound").to_string();
    let [first, second] = ours;
    let ours = format!("{first}\n    server second {second}");
    let config = PROXY.replace("${DIANPING_BIND-:8080}", &address);
    let config = config.replace(SERVERS[0], &ours).replace(SERVERS[1], &theirs.to_string());
    std::fs::write(&file, config).expect("it is written");
    let args = ["-db", "-f", file.to_str().expect("text")];
    let program = servers().bed.program("haproxy", Path::new("/usr/sbin/haproxy"), &args);
    (program.expect("HAProxy is installed"), format!("http://{address}"))
}

fn address(service: &Service) -> SocketAddr {
    service.url["http://".len()..].parse().expect("an address")
}

/// What the user knows at the end.
struct BuyerOutcome {
    has_bought: bool,
    is_from_theirs: bool,
    /// Whether an earlier purchase of the user's had no answer: it may have made the order.
    is_doubtful: bool,
}

/// Asks until the answer is definite. A server that stood still has refused nothing.
async fn buy(url: &str, user: u64, voucher: u64) -> BuyerOutcome {
    let purchase = || {
        let request = client().post(format!("{url}/voucher-order/seckill/{voucher}"));
        request.header("authorization", user.to_string()).send()
    };
    let (deadline, mut is_doubtful) = (Instant::now() + Duration::from_mins(1), false);
    loop {
        let mut answer = Value::Null;
        if let Ok(response) = purchase().await {
            answer = response.json().await.unwrap_or_default();
        }
        let has_bought = answer["success"] == true;
        let is_from_theirs = answer["from"] == "theirs";
        match answer["errorMsg"].as_str() {
            None if has_bought => return BuyerOutcome { has_bought, is_from_theirs, is_doubtful },
            Some("库存不足" | "不能重复下单") => {
                return BuyerOutcome { has_bought, is_from_theirs, is_doubtful };
            }
            Some("系统繁忙，请稍后再试") => {}
            _ => is_doubtful = true,
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_and_one_of_hm_dianping_sell_the_stock_once_and_no_user_twice() {
    let first = DianpingService::start().await;
    let second = serve(first.service.place.clone()).await;
    let voucher = first.voucher(STOCK.into()).await;
    let mut database = first.database().await;
    // As hm-dianping ships it: only the lock is left against second orders.
    let drop_key = "ALTER TABLE tb_voucher_order DROP INDEX uq_seckill_user_voucher";
    database.execute(drop_key).await.expect("the key was there");
    let mut redis = first.redis().await;
    for user in 1..=USERS {
        let key = format!("login:token:{user}");
        redis.hset::<_, _, _, ()>(key, "id", user).await.expect("a token");
    }
    let pool = MySqlPool::connect(&first.service.place.database_url).await.expect("a pool");
    let theirs = PeerReplica { redis, pool, purchases: Arc::default(), checks: Arc::default() };
    let checks = theirs.checks.clone();
    let ours = [address(&first.service), address(&second)];
    let (theirs, _) = theirs.serve().await;
    let (_proxy, url) = proxy(ours, theirs);
    // Two failed ones would take it out.
    eventually("the proxy has looked at it three times", async || {
        checks.load(Ordering::Relaxed) >= 3
    })
    .await;
    let (slots, mut requests) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for request in 0..USERS * 6 {
        let user = request / 6 + 1;
        let (slots, url) = (slots.clone(), url.clone());
        requests.spawn(async move {
            let _slot = slots.acquire().await.expect("a slot");
            buy(&url, user, voucher).await
        });
    }
    let (mut bought, mut doubtful) = (BTreeMap::<&str, u32>::new(), 0);
    for told in requests.join_all().await {
        let replica = if told.is_from_theirs { "theirs" } else { "ours" };
        *bought.entry(replica).or_default() += u32::from(told.has_bought);
        doubtful += u32::from(!told.has_bought && told.is_doubtful);
    }
    let sums = "SELECT COUNT(*), COUNT(DISTINCT user_id), \
         (SELECT CAST(stock AS SIGNED) FROM tb_seckill_voucher) FROM tb_voucher_order";
    let row = database.fetch_one(sums).await.expect("the sums");
    let [orders, users, left]: [i64; 3] = [0, 1, 2].map(|at| row.get(at));
    let stock = i64::from(STOCK);
    assert_eq!((orders, users, left), (stock, stock, 0), "{bought:?}");
    let told = bought.values().sum::<u32>();
    assert!((told..=told + doubtful).contains(&STOCK), "{bought:?}, in doubt {doubtful}");
    assert!(bought["ours"] > 0 && bought["theirs"] > 0, "{bought:?}");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_those_of_hm_dianping_and_ours_only_without_a_replica_of_its_own() {
    let ours = [DianpingService::start().await, DianpingService::start().await];
    let first = &ours[0].service;
    let redis = ours[0].redis().await;
    let pool = MySqlPool::connect(&first.place.database_url).await.expect("a pool");
    let theirs = PeerReplica { redis, pool, purchases: Arc::default(), checks: Arc::default() };
    let (theirs, serving) = theirs.serve().await;
    let addresses = [0, 1].map(|at| address(&ours[at].service));
    let (_proxy, url) = proxy(addresses, theirs);
    let page = async || -> Value {
        let answer = client().get(format!("{url}/shop-type/list")).send().await;
        let Ok(answer) = answer else { return Value::Null };
        answer.json().await.unwrap_or_default()
    };
    eventually("pages are theirs", async || page().await == json!({})).await;
    for _ in 0..20 {
        assert_eq!(page().await, json!({}), "a page of another replica");
    }
    let shared = async || call(&url, (Method::GET, "/voucher/list/1"), "", Value::Null).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(shared().await.status.as_u16());
    }
    assert!(statuses.contains(&200) && statuses.contains(&404), "both are asked: {statuses:?}");
    serving.abort();
    eventually("pages are ours", async || page().await["success"] == true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_redisson_holds_keeps_the_user_out_until_its_message() {
    let api = DianpingService::start().await;
    let voucher = api.voucher(2).await;
    let token = api.login("13800000002").await;
    let route = format!("/voucher-order/seckill/{voucher}");
    let buy = async |url: &str| call(url, (Method::POST, &route), &token, Value::Null).await;
    let mut redis = api.redis().await;
    let locked: i64 = script(&mut redis, TRY_LOCK, ["lock:order:2", "theirs:1"]).await;
    assert_eq!(locked, 1);
    assert_eq!(message(buy(&api.service.url).await), "不能重复下单");
    let flags = ["--api", "hm-dianping", "--dianping-admins", "1", "--lock-wait-ms", "15000"];
    let patient = Service::start_at(api.service.place.clone(), &flags).await;
    let began = Instant::now();
    let free = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let () = script(&mut redis, UNLOCK, ["lock:order:2", "theirs:1"]).await;
    };
    let (answer, ()) = tokio::join!(buy(&patient.url), free);
    assert!(data(answer).is_number() && began.elapsed() > Duration::from_millis(300));
    patient.stop().await;
}
