//! Requests that are repeated with their key.

use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::domain::Role;
use seckill::store::{self, DatabaseOptions, Orders, SaleTables};
use serde_json::json;
use sqlx::{AssertSqlSafe, MySqlPool};
use testbed::Command;

use super::{id, post};
use crate::queued::buyer::{IN_TIME, lock_stock};
use crate::redis_side::RedisSide;
use crate::support::{Place, Service, eventually, token, within};

const TRIES: u32 = 5;
/// Less than any wait of a twin. An answer that is later each time was waited for.
const PROMPT_WITHIN: Duration = Duration::from_millis(900);
const WRITERS: [&str; 2] = ["single", "grouped"];

async fn buy(service: &Service, voucher: &str, user: u64, key: &str) -> crate::support::Answer {
    post(&service.url, &format!("/api/vouchers/{voucher}/orders"), user, Some(key)).await
}

async fn add_stock(service: &Service, voucher: &str) {
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    service.post(&path, &token(1, Role::Admin), json!({"units": 1})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_with_the_same_key_gets_the_same_answer_whatever_has_happened_since() {
    for writer in WRITERS {
        let service = Service::start(&["--writer", writer]).await;
        let voucher = service.voucher(1).await;
        let first = buy(&service, &voucher, 17, "k").await;
        let location = first.headers["location"].clone();
        let first = first.expect(201);
        assert_eq!(first["order"]["status"], "unpaid");
        let assert_same = async |when: &str| {
            let again = buy(&service, &voucher, 17, "k").await;
            assert_eq!(again.headers["location"], location, "{writer}, {when}");
            assert_eq!(again.expect(201), first, "{writer}, {when}");
        };
        assert_same("at once").await;
        assert_eq!(buy(&service, &voucher, 18, "k").await.problem(409), "sold_out");
        assert_same("when it is sold out").await;
        service.cancel(id(&first), 17).await.expect(200);
        assert_same("when it is cancelled").await;
        service.order(&voucher, 18).await;
        let ended = json!({"starts_at": "2001-01-01T00:00:00Z", "ends_at": "2002-01-01T00:00:00Z"});
        let path = format!("/api/admin/vouchers/{voucher}");
        let admin = token(1, Role::Admin);
        service.call(Method::PATCH, &path, Some(&admin), Some(ended)).await.expect(200);
        let is_over = async || service.buy(&voucher, 19).await.body["code"] == "ended";
        eventually("the sale is over", is_over).await;
        assert_same("when the sale is over").await;
        assert_eq!(service.add_up(&voucher).await, (1, 1, 0), "{writer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_one_request_of_one_user() {
    for writer in WRITERS {
        let service = Service::start(&["--writer", writer]).await;
        let (one, other) = (service.voucher(9).await, service.voucher(9).await);
        let order = id(&buy(&service, &one, 17, "k").await.expect(201)).to_owned();
        let reused = buy(&service, &other, 17, "k").await;
        assert_eq!(reused.problem(422), "idempotency_key_reused", "{writer}");
        assert_eq!(buy(&service, &one, 17, "l").await.problem(409), "already_ordered");
        let theirs = buy(&service, &one, 18, "k").await.expect(201);
        assert_ne!(id(&theirs), order, "the key of another user is another key");
        for action in ["pay", "cancel"] {
            let path = format!("/api/orders/{order}/{action}");
            let reused = post(&service.url, &path, 17, Some("k")).await;
            assert_eq!(reused.problem(422), "idempotency_key_reused", "{writer} {action}");
        }
        assert_eq!(service.look(&order, 17).await["status"], "unpaid");
        assert_eq!(service.add_up(&other).await, (0, 0, 9), "{writer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paying_and_cancelling_with_the_same_key_gets_the_same_answer() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(9).await;
    let (paid, cancelled) = (service.order(&voucher, 17).await, service.order(&voucher, 18).await);
    for (order, user, action, status) in
        [(&paid, 17, "pay", "paid"), (&cancelled, 18, "cancel", "cancelled")]
    {
        let path = format!("/api/orders/{order}/{action}");
        let first = post(&service.url, &path, user, Some("k")).await.expect(200);
        assert_eq!(first["order"]["status"], status);
        for key in [Some("k"), None, Some("l")] {
            assert_eq!(post(&service.url, &path, user, key).await.expect(200), first);
        }
        let other = service.voucher(9).await;
        let order = service.order(&other, user).await;
        for action in ["pay", "cancel"] {
            let path = format!("/api/orders/{order}/{action}");
            let reused = post(&service.url, &path, user, Some("k")).await;
            assert_eq!(reused.problem(422), "idempotency_key_reused", "{action}");
        }
        assert_eq!(service.look(&order, user).await["status"], "unpaid");
    }
    assert_eq!(service.add_up(&voucher).await, (1, 1, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_of_a_request_in_flight_is_refused_with_retry_after_1() {
    for writer in WRITERS {
        let service = Service::start(&["--writer", writer]).await;
        let mut is_refused = false;
        for number in 0..TRIES {
            is_refused = is_twin_refused_in_time(&service, &format!("k{number}")).await;
            if is_refused {
                break;
            }
        }
        assert!(is_refused, "{writer}: no twin had an answer before the first, {TRIES} times");
    }
}

/// Whether the twin was answered before the first gave up waiting for its row.
async fn is_twin_refused_in_time(service: &Service, key: &str) -> bool {
    let voucher = service.voucher(9).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    redis.until_given_back(17).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let began = Instant::now();
    let meeting = async {
        let is_locked = within(IN_TIME, async || redis.has_lock(17).await).await;
        let asked = Instant::now();
        let twin = buy(service, &voucher, 17, key).await;
        let is_prompt = asked.elapsed() < PROMPT_WITHIN;
        tx.rollback().await.expect("a ROLLBACK");
        (is_locked, twin, is_prompt && began.elapsed() < IN_TIME)
    };
    let (first, (is_locked, twin, in_time)) =
        tokio::join!(buy(service, &voucher, 17, key), meeting);
    if !in_time {
        assert_eq!(service.audit(&voucher).await["consistent"], true);
        return false;
    }
    assert!(is_locked, "the first was not under way");
    assert_eq!(twin.problem(409), "request_in_progress");
    assert_eq!(twin.headers["retry-after"], "1");
    let first = first.expect(201);
    assert_eq!(buy(service, &voucher, 17, key).await.expect(201), first);
    assert_eq!(service.add_up(&voucher).await, (1, 0, 8));
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_refused_is_decided_again() {
    for writer in WRITERS {
        let service = Service::start(&["--writer", writer]).await;
        let voucher = service.voucher(1).await;
        service.order(&voucher, 17).await;
        assert_eq!(buy(&service, &voucher, 18, "k").await.problem(409), "sold_out");
        add_stock(&service, &voucher).await;
        let bought = async || buy(&service, &voucher, 18, "k").await.status == 201;
        eventually("the new unit is sold", bought).await;
        assert_eq!(service.add_up(&voucher).await, (2, 0, 0), "{writer}");
    }
}

async fn keys(pool: &MySqlPool) -> i64 {
    let count = sqlx::query_scalar("SELECT COUNT(*) FROM idempotency_keys");
    count.fetch_one(pool).await.expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_costs_no_trip_to_the_database_and_a_request_without_one_not_even_a_row() {
    for writer in ["single", "grouped"] {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let (proxy, through) = place.database_through_proxy();
        let service = Service::start_at(through, &["--writer", writer]).await;
        let voucher = service.voucher(9).await;
        let pool = MySqlPool::connect(&place.database_url).await.expect("a pool");
        // The first orders connect and prepare what is prepared.
        service.order(&voucher, 1).await;
        buy(&service, &voucher, 2, "k").await.expect(201);
        assert_eq!(keys(&pool).await, 1, "{writer}");
        // All that a purchase sends.
        let mine = [
            Command::sql("START TRANSACTION"),
            Command::sql("INSERT INTO orders"),
            Command::sql("INSERT INTO idempotency_keys"),
            Command::sql("UPDATE voucher_stock"),
            Command::sql("COMMIT"),
            Command::sql("SELECT").containing("idempotency_keys"),
            Command::sql("SELECT").containing("FROM orders"),
        ];
        let watched = mine.map(|command| proxy.watch(command));
        let orders = || watched.iter().map(testbed::Rule::matched).sum::<u64>();
        service.order(&voucher, 3).await;
        assert_eq!(orders(), 2, "{writer}, without a key");
        assert_eq!(keys(&pool).await, 1, "{writer}");
        buy(&service, &voucher, 4, "k").await.expect(201);
        assert_eq!(orders(), 4, "{writer}, with a key");
        assert_eq!(keys(&pool).await, 2, "{writer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unguarded_sale_keeps_no_keys() {
    let service = Service::start(&["--lab", "--guards", "off"]).await;
    let voucher = service.voucher(9).await;
    buy(&service, &voucher, 17, "k").await.expect(201);
    assert_eq!(buy(&service, &voucher, 17, "k").await.problem(409), "already_ordered");
    let pool = MySqlPool::connect(&service.place.database_url).await.expect("a pool");
    assert_eq!(keys(&pool).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_kept_for_a_day_and_then_forgotten() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    store::migrate(&place.database_url, false).await.expect("the schema");
    let url = place.database_url.clone();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    let pool = store::database(&options).await.expect("a pool");
    let orders = Orders::new(pool.clone(), &SaleTables::GUARDED);
    // Orders of that number of hours ago, and keys as old or younger.
    let ages = [(1, 1), (23, 23), (26, 23), (26, 26), (50, 25), (5000, 1), (5000, 5000)];
    for (number, (order, key)) in ages.into_iter().enumerate() {
        let row = format!(
            "INSERT INTO idempotency_keys VALUES ((TIMESTAMPDIFF(SECOND, '2022-01-01', \
             UTC_TIMESTAMP()) - {order} * 3600) << 32 | {number}, 'pay', 1, \
             UNHEX(LPAD('{number}', 32, '0')), UTC_TIMESTAMP() - INTERVAL {key} HOUR)"
        );
        sqlx::raw_sql(AssertSqlSafe(row)).execute(&pool).await.expect("a row");
    }
    assert_eq!(orders.delete_old_keys().await.expect("cleaned"), 3);
    assert_eq!(orders.delete_old_keys().await.expect("cleaned"), 0);
    let oldest: i64 = sqlx::query_scalar(
        "SELECT MAX(TIMESTAMPDIFF(HOUR, created_at, UTC_TIMESTAMP())) FROM idempotency_keys",
    )
    .fetch_one(&pool)
    .await
    .expect("an age");
    assert_eq!((keys(&pool).await, oldest), (4, 23));
}
