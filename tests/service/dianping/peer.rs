//! A replica as hm-dianping's own is: the same tables, the same counter of ids, and Redisson's lock
//! in its own words. It serves purchases, and the page by which the proxy looks for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Script};
use serde_json::json;
use sqlx::{MySqlPool, Row};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::{ID_EPOCH, counter_of};

/// `RLock.tryLock()`, and `unlock()` below.
pub(super) const TRY_LOCK: &str = "if redis.call('exists', KEYS[1]) == 0 then \
     redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 30000) return 1 end \
     return 0";
pub(super) const UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
     redis.call('del', KEYS[1]) \
     redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', 0) end";

pub(super) async fn script<T: redis::FromRedisValue>(
    redis: &mut MultiplexedConnection,
    code: &str,
    [key, owner]: [&str; 2],
) -> T {
    Script::new(code).key(key).arg(owner).invoke_async(redis).await.expect("an answer")
}

/// A replica of hm-dianping, as far as a purchase goes.
#[derive(Clone)]
pub(super) struct PeerReplica {
    pub(super) redis: MultiplexedConnection,
    pub(super) pool: MySqlPool,
    /// How many purchases were asked for: each owns its lock by its number.
    pub(super) purchases: Arc<AtomicU64>,
    /// How often the proxy has looked.
    pub(super) checks: Arc<AtomicU64>,
}

impl PeerReplica {
    /// The address of a replica, and the task that serves it until it is aborted.
    pub(super) async fn serve(self) -> (SocketAddr, AbortHandle) {
        let check = async |State(peer): State<Self>| {
            peer.checks.fetch_add(1, Ordering::Relaxed);
            "{}"
        };
        let buy = async |State(peer): State<Self>, Path(voucher), headers: HeaderMap| {
            let token = headers["authorization"].to_str().expect("text");
            let has_bought = peer.buy(token.parse().expect("a user"), voucher).await;
            let refusal = (!has_bought).then_some("不能重复下单");
            Json(json!({"success": has_bought, "errorMsg": refusal, "from": "theirs"}))
        };
        let routes = Router::new()
            .route("/shop-type/list", get(check))
            .route("/voucher-order/seckill/{id}", post(buy))
            .with_state(self);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await });
        (address, serving.abort_handle())
    }

    /// Whether the user has bought.
    async fn buy(mut self, user: u64, voucher: u64) -> bool {
        let number = self.purchases.fetch_add(1, Ordering::Relaxed);
        let (key, owner) = (format!("lock:order:{user}"), format!("theirs:{number}"));
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
