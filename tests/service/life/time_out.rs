//! Orders that are not paid in time are cancelled, by one replica at a time.

use std::time::Duration;

use distlock::{LockKind, LockName, LockOptions};
use seckill::lock::{self, LockEndpoints, LockSpec};
use seckill::store::{self, RedisAddress};
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::crowd::{Fate, buy_together};
use crate::grouped::desk::no_servers;
use crate::queued::buyer::{QUEUED, buy, end_of, lock_stock, ticket_of};
use crate::support::{Place, Service, eventually};

const TIMEOUT: [&str; 2] = ["--unpaid-timeout-s", "2"];
/// No order is late by itself, however slow the machine is.
const PATIENT: [&str; 2] = ["--unpaid-timeout-s", "3600"];

/// Makes all orders so old that they are late in a second.
async fn age_orders(service: &Service) {
    let pool = sqlx::MySqlPool::connect(&service.place.database_url).await.expect("a pool");
    let age = "UPDATE orders SET created_at = created_at - INTERVAL 3599 SECOND";
    sqlx::raw_sql(age).execute(&pool).await.expect("aged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_not_paid_in_time_is_cancelled_and_its_unit_sold_to_the_next() {
    let service = Service::start(&PATIENT).await;
    let voucher = service.voucher(2).await;
    let (unpaid, paid) = (service.order(&voucher, 17).await, service.order(&voucher, 18).await);
    let order = service.look(&unpaid, 17).await;
    let moment = |value: &serde_json::Value| {
        OffsetDateTime::parse(value.as_str().expect("a time"), &Rfc3339).expect("a time")
    };
    let patience = moment(&order["pay_by"]) - moment(&order["created_at"]);
    assert_eq!(patience, Duration::from_hours(1));
    assert_eq!(service.pay(&paid, 18).await.expect(200)["order"]["pay_by"], json!(null));
    assert_eq!(service.buy(&voucher, 19).await.problem(409), "sold_out");
    age_orders(&service).await;
    let is_cancelled = async || service.look(&unpaid, 17).await["status"] == "cancelled";
    eventually("the order is cancelled", is_cancelled).await;
    let order = service.look(&unpaid, 17).await;
    assert_eq!(order["cancelled_by"], "time_out");
    assert!(moment(&order["settled_at"]) >= moment(&order["created_at"]) + patience, "{order}");
    assert_eq!(service.pay(&unpaid, 17).await.problem(409), "order_cancelled");
    let again = service.buy(&voucher, 17).await;
    assert_eq!(again.problem(409), "already_ordered", "who let it lapse may not buy again");
    service.order(&voucher, 19).await;
    assert_eq!(service.look(&paid, 18).await["status"], "paid");
    service.add_up(&voucher).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_orders_than_one_transaction_takes_are_cancelled_once_by_several_replicas() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let mut replicas = Vec::new();
    for _ in 0..3 {
        let flags = [&TIMEOUT[..], &["--writer", "grouped"]].concat();
        replicas.push(Service::start_at(place.clone(), &flags).await);
    }
    let service = &replicas[0];
    let vouchers = [service.voucher(400).await, service.voucher(5).await];
    for (voucher, stock) in vouchers.iter().zip([400, 5]) {
        let mut bought = 0;
        for replica in replicas.iter().chain([service]) {
            // The last time more of them at once than one transaction cancels.
            let users = if std::ptr::eq(replica, service) { 1..400 } else { 1..140 };
            let tries = buy_together(&replica.url, voucher, users).await;
            bought += tries.iter().filter(|one| matches!(one.fate(), Fate::Bought(_))).count();
        }
        let all_are_cancelled = async || service.add_up(voucher).await.0 == 0;
        eventually("all orders are cancelled", all_are_cancelled).await;
        let cancelled = i64::try_from(bought).expect("few");
        assert_eq!(service.add_up(voucher).await, (0, cancelled, stock));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_whose_stock_is_locked_keeps_no_other_voucher_from_its_time_outs() {
    let service = Service::start(&PATIENT).await;
    let (stuck, other) = (service.voucher(2).await, service.voucher(2).await);
    let orders = [service.order(&stuck, 17).await, service.order(&other, 18).await];
    let tx = lock_stock(&service.place.database_url, &stuck).await;
    age_orders(&service).await;
    let is_cancelled =
        async |at: usize, user| service.look(&orders[at], user).await["status"] == "cancelled";
    eventually("the order of the other is cancelled", async || is_cancelled(1, 18).await).await;
    assert!(!is_cancelled(0, 17).await);
    tx.rollback().await.expect("a ROLLBACK");
    eventually("then its own is", async || is_cancelled(0, 17).await).await;
    service.add_up(&stuck).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_replica_holds_the_lock_no_order_is_cancelled() {
    let service = Service::start(&TIMEOUT).await;
    let voucher = service.voucher(2).await;
    let wanted = LockSpec {
        kind: LockKind::Redisson,
        lease: LockOptions::WATCHDOG_LEASE,
        fenced: false,
        injected_bug: None,
    };
    let address = RedisAddress { url: &service.place.redis_url, ca: None };
    let more = no_servers();
    let places = LockEndpoints {
        redis: Some(store::redis(address, Duration::from_secs(10)).await.expect("Redis")),
        database_url: None,
        naive: false,
        silence: Duration::from_secs(30),
        make_tables: false,
        more: &more,
    };
    let locks = lock::open(wanted, places).await.expect("locks");
    let name = LockName::new("lock:unpaid-orders").expect("a name");
    let lease = locks.guarantees().lease(Duration::from_secs(30));
    let guard = locks.try_lock(&name, lease).await.expect("Redis").expect("it is free");
    let order = service.order(&voucher, 17).await;
    let pool = sqlx::MySqlPool::connect(&service.place.database_url).await.expect("a pool");
    // Two seconds are two looks.
    let late =
        "SELECT COUNT(*) FROM orders WHERE created_at < UTC_TIMESTAMP(3) - INTERVAL 4 SECOND";
    let is_late = async || {
        let late: i64 = sqlx::query_scalar(late).fetch_one(&pool).await.expect("a count");
        late == 1
    };
    eventually("the order is late", is_late).await;
    assert_eq!(service.look(&order, 17).await["status"], "unpaid", "cancelled without the lock");
    guard.release().await.expect("released");
    let is_cancelled = async || service.look(&order, 17).await["status"] == "cancelled";
    eventually("the order is cancelled", is_cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_time_out_an_order_stays_unpaid() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    let pool = sqlx::MySqlPool::connect(&service.place.database_url).await.expect("a pool");
    let age = "UPDATE orders SET created_at = created_at - INTERVAL 9 YEAR";
    sqlx::raw_sql(age).execute(&pool).await.expect("aged");
    // Three looks.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let order = service.look(&order, 17).await;
    assert_eq!((&order["status"], &order["pay_by"]), (&json!("unpaid"), &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_pay_begins_when_an_order_is_written_and_not_when_it_is_admitted() {
    let service = Service::start(&QUEUED).await;
    let voucher = service.voucher(9).await;
    end_of(&service.url, &ticket_of(buy(&service.url, &voucher, 16).await), 16).await;
    let pool = sqlx::MySqlPool::connect(&service.place.database_url).await.expect("a pool");
    // No order is written while its epoch may change.
    let mut tx = pool.begin().await.expect("a transaction");
    let epoch = "SELECT epoch FROM sale_epochs WHERE voucher_id = ? FOR UPDATE";
    sqlx::query(epoch).bind(&voucher).fetch_one(&mut *tx).await.expect("its epoch");
    let ticket = ticket_of(buy(&service.url, &voucher, 17).await);
    let now = sqlx::query_scalar("SELECT UTC_TIMESTAMP(3)");
    let before: PrimitiveDateTime = now.fetch_one(&mut *tx).await.expect("the time");
    tx.rollback().await.expect("a ROLLBACK");
    let (status, order) = end_of(&service.url, &ticket, 17).await;
    assert_eq!(status, "bought");
    let order = service.look(&order.expect("an order").to_string(), 17).await;
    let created_at = order["created_at"].as_str().expect("a time");
    let created_at = OffsetDateTime::parse(created_at, &Rfc3339).expect("a time");
    assert!(created_at >= before.assume_utc(), "{created_at}, admitted before {before}");
    service.stop().await;
}
