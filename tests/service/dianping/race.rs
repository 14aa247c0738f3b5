//! Many buyers at two replicas, beside a replica as hm-dianping's own is: the same tables, the same
//! counter of ids, and Redisson's lock in its own words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use reqwest::Method;
use serde_json::Value;
use sqlx::{Executor, MySqlPool, Row};
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{DianpingService, ID_EPOCH, counter_of, data, message, serve};
use crate::support::client;

const USERS: u64 = 100;
const STOCK: u32 = 50;
/// Requests at a time: those of ten users, and few enough for a busy machine.
const AT_ONCE: usize = 60;

/// `RLock.tryLock()`, and `unlock()` below.
const TRY_LOCK: &str = "if redis.call('exists', KEYS[1]) == 0 then \
     redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 30000) return 1 end \
     return 0";
const UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
     redis.call('del', KEYS[1]) \
     redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', 0) end";

async fn script<T: redis::FromRedisValue>(
    redis: &mut MultiplexedConnection,
    code: &str,
    [key, owner]: [&str; 2],
) -> T {
    Script::new(code).key(key).arg(owner).invoke_async(redis).await.expect("an answer")
}

/// A replica of hm-dianping, as far as a purchase goes.
#[derive(Clone)]
struct PeerReplica {
    redis: MultiplexedConnection,
    pool: MySqlPool,
}

impl PeerReplica {
    /// Whether the user has bought.
    async fn buy(mut self, user: u64, voucher: u64, request: u64) -> bool {
        let (key, owner) = (format!("lock:order:{user}"), format!("theirs:{request}"));
        let locked: i64 = script(&mut self.redis, TRY_LOCK, [&key, &owner]).await;
        if locked == 0 {
            return false;
        }
        let bought = self.write(user, voucher).await;
        let () = script(&mut self.redis, UNLOCK, [&key, &owner]).await;
        bought
    }

    /// `RedisIdWorker.nextId("order")`, in the zone of the database.
    async fn order_id(&mut self) -> i64 {
        let now = OffsetDateTime::now_utc();
        let count: i64 = self.redis.incr(counter_of(now), 1).await.expect("a number");
        (now - ID_EPOCH).whole_seconds() << 32 | count
    }

    async fn write(&mut self, user: u64, voucher: u64) -> bool {
        let number = self.order_id().await;
        let mut tx = self.pool.begin().await.expect("a transaction");
        let count = "SELECT COUNT(*) FROM tb_voucher_order WHERE user_id = ? AND voucher_id = ?";
        let count = sqlx::query(count).bind(user).bind(voucher).fetch_one(&mut *tx).await;
        let take = "UPDATE tb_seckill_voucher SET stock = stock - 1 \
             WHERE voucher_id = ? AND stock > 0";
        if count.expect("a count").get::<i64, _>(0) > 0
            || sqlx::query(take)
                .bind(voucher)
                .execute(&mut *tx)
                .await
                .expect("an update")
                .rows_affected()
                == 0
        {
            return false;
        }
        let insert = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (?, ?, ?)";
        let insert = sqlx::query(insert).bind(number).bind(user).bind(voucher);
        insert.execute(&mut *tx).await.expect("an order");
        tx.commit().await.expect("it is committed");
        true
    }
}

/// What the user knows at the end.
struct BuyerOutcome {
    has_bought: bool,
    /// Whether an earlier purchase of the user's had no answer: it may have made the order.
    is_doubtful: bool,
}

/// Asks until the answer is definite. A server that stood still has refused nothing.
async fn buy_from_ours(url: &str, user: u64, voucher: u64) -> BuyerOutcome {
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
        match answer["errorMsg"].as_str() {
            None if has_bought => return BuyerOutcome { has_bought, is_doubtful },
            Some("库存不足" | "不能重复下单") => {
                return BuyerOutcome { has_bought, is_doubtful };
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
    let theirs = PeerReplica { redis, pool };
    let (slots, mut requests) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    for request in 0..USERS * 6 {
        let user = request / 6 + 1;
        let urls = [&first.service.url, &second.url];
        let url = urls[usize::try_from(request % 2).expect("0 or 1")].clone();
        let (slots, theirs) = (slots.clone(), theirs.clone());
        requests.spawn(async move {
            let _slot = slots.acquire().await.expect("a slot");
            if user <= 25 && request % 3 == 2 {
                let has_bought = theirs.buy(user, voucher, request).await;
                return ("theirs", BuyerOutcome { has_bought, is_doubtful: false });
            }
            ("ours", buy_from_ours(&url, user, voucher).await)
        });
    }
    let (mut bought, mut doubtful) = (BTreeMap::<&str, u32>::new(), 0);
    for (replica, told) in requests.join_all().await {
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
async fn a_lock_that_redisson_holds_keeps_the_user_out_until_its_message() {
    let api = DianpingService::start().await;
    let voucher = api.voucher(2).await;
    let token = api.login("13800000002").await;
    let route = format!("/voucher-order/seckill/{voucher}");
    let buy = async || api.call((Method::POST, &route), &token, Value::Null).await;
    let mut redis = api.redis().await;
    let locked: i64 = script(&mut redis, TRY_LOCK, ["lock:order:2", "theirs:1"]).await;
    assert_eq!(locked, 1);
    assert_eq!(message(buy().await), "不能重复下单");
    let began = Instant::now();
    let free = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let () = script(&mut redis, UNLOCK, ["lock:order:2", "theirs:1"]).await;
    };
    let (answer, ()) = tokio::join!(buy(), free);
    assert!(data(answer).is_number() && began.elapsed() > Duration::from_millis(300));
}
