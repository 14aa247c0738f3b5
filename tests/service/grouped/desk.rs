//! A sale without HTTP, in the test's own thread: purchases that are begun together arrive in that
//! order, before anything is written, and so make one group.

use std::collections::HashMap;
use std::time::Duration;

use distlock::{Lease, LockKind, LockOptions, Replication};
use seckill::config::{LockServers, RedisArgs};
use seckill::domain::{OrderId, UserId, VoucherId, Window};
use seckill::lock::{self, LockEndpoints, LockSpec};
use seckill::sale::{
    BatchLimits, Guards, LockOrder, OnLost, Outcome, Parts, PurchaseRequest, Refusal, Sale,
    SaleConfig, Scope, Writer,
};
use seckill::store::{
    self, Audit, DatabaseOptions, Draft, Health, OrderIds, Orders, RedisAddress, SaleTables,
    Vouchers,
};
use sqlx::MySqlPool;
use time::macros::datetime;

use crate::support::Place;

const LEASE: Duration = Duration::from_secs(10);
/// Buys one unit of each voucher first, so that the replica knows it.
const FIRST: u64 = 1_000_000;

/// A place with the schema.
pub(crate) async fn place() -> Place {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    store::migrate(&place.database_url, false).await.expect("the schema");
    place
}

/// Sells without locks, so that one user can be twice in a group.
pub(crate) struct Desk {
    sale: Sale,
    vouchers: Vouchers,
    pub(crate) pool: MySqlPool,
}

impl Desk {
    pub(crate) async fn open(place: &Place, writer: Writer) -> Self {
        Self::open_with(place, writer, BatchLimits::SLOW).await
    }

    /// A desk whose batches count as slow after that time.
    pub(crate) async fn open_with(place: &Place, writer: Writer, slow: Duration) -> Self {
        let url = place.database_url.clone();
        let options = DatabaseOptions { url, pool_size: 6, naive: false, silence: None };
        let pool = store::database(&options).await.expect("a pool");
        let address = RedisAddress { url: &place.redis_url, ca: None };
        let redis = store::redis(address, Duration::from_secs(10)).await.expect("Redis");
        let kind = LockKind::None;
        let wanted = LockSpec { kind, lease: LEASE, fenced: false, injected_bug: None };
        let places = LockEndpoints {
            redis: None,
            database_url: None,
            naive: false,
            silence: LEASE,
            make_tables: false,
            more: &no_servers(),
        };
        let orders = Orders::new(pool.clone(), &SaleTables::GUARDED);
        let vouchers = Vouchers::new(pool.clone(), &SaleTables::GUARDED);
        let parts = Parts {
            pool: pool.clone(),
            orders,
            vouchers: vouchers.clone(),
            ids: OrderIds::new(redis),
            locks: lock::open(wanted, places).await.expect("a lock"),
            lock_kind: kind,
            lock_server: "process",
            health: Health::default(),
            payments: None,
            queue: None,
        };
        Self { sale: Sale::new(sale_config(writer, slow), parts), vouchers, pool }
    }

    /// A voucher on sale with that number of units for others than the first.
    pub(crate) async fn voucher(&self, stock: u32) -> VoucherId {
        let draft = Draft {
            title: "Dinner for two".into(),
            description: String::new(),
            price_cents: 8000,
            face_value_cents: 10_000,
            window: Window {
                starts_at: datetime!(2020-01-01 0:00 UTC),
                ends_at: datetime!(2120-01-01 0:00 UTC),
            },
            stock: stock + 1,
            stock_buckets: 1,
        };
        let voucher = self.vouchers.create(&draft).await.expect("a voucher").id;
        self.vouchers.put_on_sale(voucher).await.expect("a voucher on sale");
        assert!(matches!(self.buy(voucher, FIRST).await, Outcome::Bought(_)));
        voucher
    }

    pub(crate) async fn buy(&self, voucher: VoucherId, user: u64) -> Outcome {
        self.sale.purchase(request(voucher, user), None).await
    }

    /// One after the other.
    pub(crate) async fn buy_in_turn(&self, voucher: VoucherId, users: &[u64]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for user in users {
            outcomes.push(self.buy(voucher, *user).await);
        }
        outcomes
    }

    /// All of them before the first is written; in the order in which they arrived.
    pub(crate) async fn buy_together(&self, voucher: VoucherId, users: &[u64]) -> Vec<Outcome> {
        let start = |user: &u64| {
            let (sale, request) = (self.sale.clone(), request(voucher, *user));
            tokio::spawn(async move { sale.purchase(request, None).await })
        };
        let purchases: Vec<_> = users.iter().map(start).collect();
        let mut outcomes = Vec::new();
        for purchase in purchases {
            outcomes.push(purchase.await.expect("a purchase"));
        }
        outcomes
    }

    /// Stock and orders add up; units left and orders, without the first one's.
    pub(crate) async fn audit(&self, voucher: VoucherId) -> (i64, i64) {
        let audit = Audit::read(&self.pool, &SaleTables::GUARDED, voucher).await;
        let audit = audit.expect("an audit").expect("a voucher");
        assert!(audit.is_consistent(), "{audit:?}");
        (audit.stock_left, audit.orders - 1)
    }

    /// Each user's order.
    pub(crate) async fn orders(&self, voucher: VoucherId) -> HashMap<u64, OrderId> {
        let rows = sqlx::query_as::<_, (u64, u64)>(
            "SELECT user_id, id FROM orders WHERE voucher_id = ? AND user_id <> ?",
        );
        let rows = rows.bind(voucher.0).bind(FIRST).fetch_all(&self.pool).await.expect("orders");
        rows.into_iter().map(|(user, id)| (user, OrderId(id))).collect()
    }

    /// Makes the insert of that user's orders fail with that error of the server.
    pub(crate) async fn poison(&self, user: u64, number: u32) {
        let trigger = format!(
            "CREATE TRIGGER poison_{user} BEFORE INSERT ON orders FOR EACH ROW \
             BEGIN IF NEW.user_id = {user} THEN \
             SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'poison'; \
             END IF; END"
        );
        let trigger = sqlx::raw_sql(sqlx::AssertSqlSafe(trigger));
        trigger.execute(&self.pool).await.expect("a trigger");
    }
}

/// What a caller is told, and of which order.
pub(crate) fn told(outcome: &Outcome) -> (&'static str, Option<OrderId>) {
    let order = match outcome {
        Outcome::Bought(order) | Outcome::Replayed(order) => Some(order.id),
        Outcome::Refused(Refusal::AlreadyOrdered(order)) => *order,
        Outcome::Unknown(order) => Some(*order),
        Outcome::Refused(_) | Outcome::Failed => None,
    };
    (outcome.name(), order)
}

pub(crate) fn names(outcomes: &[Outcome]) -> Vec<&'static str> {
    outcomes.iter().map(Outcome::name).collect()
}

pub(crate) fn no_servers() -> LockServers {
    LockServers {
        redlock_urls: Vec::new(),
        red_urls: Vec::new(),
        zookeeper_url: None,
        etcd_endpoints: None,
        nats_url: None,
        nats_bucket: "locks".to_owned(),
        redis: RedisArgs { redis_ca_file: None, allow_eviction: false, redis_timeout_ms: 10_000 },
        lock_pool: 2,
        lock_replication: Replication::None,
        redlock_restart_delay_ms: 0,
        red_restart_delay_ms: 0,
    }
}

fn request(voucher: VoucherId, user: u64) -> PurchaseRequest {
    PurchaseRequest { user: UserId(user), voucher, key: None, price_cents: None }
}

fn sale_config(writer: Writer, slow: Duration) -> SaleConfig {
    SaleConfig {
        scope: Scope::User,
        guards: Guards::On,
        writer,
        batches: BatchLimits { size: 256, queue: 256, slow },
        lock_order: LockOrder::Outside,
        on_lost: OnLost::Stop,
        lock: LockOptions::new(Duration::from_secs(1), Lease::Fixed(LEASE)),
        work: Duration::ZERO,
        injected_bug: None,
        control_bug: None,
        max_orders: 512,
    }
}
