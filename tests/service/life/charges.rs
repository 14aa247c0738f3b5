//! A payment that is cut off after the provider was asked, or before.

use sqlx::MySqlPool;
use testbed::{Action, Command, Times};

use super::lost::start;
use super::post;
use crate::contention::ForeignSession;
use crate::support::{Answer, Place, Service, client, eventually};

/// What marks an order as paid, after the provider was asked.
fn mark() -> Command {
    Command::sql("UPDATE orders SET status")
}

/// A payment of that order with the key `k`.
async fn pay(url: &str, order: &str) -> Answer {
    post(url, &format!("/api/orders/{order}/pay"), 17, Some("k")).await
}

async fn pool(service: &Service) -> MySqlPool {
    MySqlPool::connect(&service.place.database_url).await.expect("a pool")
}

async fn open_charges(pool: &MySqlPool) -> i64 {
    let count = sqlx::query_scalar("SELECT COUNT(*) FROM charges");
    count.fetch_one(pool).await.expect("a count")
}

/// Makes all charges old enough to be resumed.
async fn age(pool: &MySqlPool) {
    let age = "UPDATE charges SET asked_at = asked_at - INTERVAL 1 HOUR";
    sqlx::raw_sql(age).execute(pool).await.expect("aged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_unknown_outcome_is_not_timed_out_and_is_completed_later() {
    let (service, proxy) = start(&["--unpaid-timeout-s", "4"]).await;
    let voucher = service.voucher(9).await;
    let (order, other) = (service.order(&voucher, 17).await, service.order(&voucher, 18).await);
    let rule = proxy.arm(mark(), Action::CutRequest, Times::Next(1));
    let first = pay(&service.url, &order).await;
    assert_eq!((first.problem(504), rule.fired()), ("outcome_unknown", 1));
    assert_eq!(first.body["order_id"], order);
    // The time of both is over, and that of this one does not count.
    let is_cancelled = async || service.look(&other, 18).await["status"] == "cancelled";
    eventually("the other order is cancelled", is_cancelled).await;
    assert_eq!(service.look(&order, 17).await["status"], "unpaid");
    let pool = pool(&service).await;
    assert_eq!(open_charges(&pool).await, 1);
    age(&pool).await;
    let is_paid = async || service.look(&order, 17).await["status"] == "paid";
    eventually("the payment is resumed", is_paid).await;
    assert_eq!(open_charges(&pool).await, 0);
    let again = pay(&service.url, &order).await.expect(200);
    assert_eq!(again["order"], service.look(&order, 17).await);
    assert_eq!(service.add_up(&voucher).await, (1, 1, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_an_order_that_is_cancelled_before_it_is_marked_is_refunded() {
    let (service, proxy) = start(&[]).await;
    let voucher = service.voucher(9).await;
    let order = service.order(&voucher, 17).await;
    let rule = proxy.arm(mark(), Action::CutRequest, Times::Next(1));
    let first = pay(&service.url, &order).await;
    assert_eq!((first.problem(504), rule.fired()), ("outcome_unknown", 1));
    service.cancel(&order, 17).await.expect(200);
    let pool = pool(&service).await;
    assert_eq!(open_charges(&pool).await, 1, "the money is forgotten");
    age(&pool).await;
    let is_over = async || open_charges(&pool).await == 0;
    eventually("the money is given back", is_over).await;
    // The note goes first, and then it is counted.
    eventually("that is counted", async || {
        let metrics = client().get(format!("{}/metrics", service.url)).send().await;
        let metrics = metrics.expect("an answer").text().await.expect("text");
        metrics.contains(r#"seckill_charges_resumed_total{outcome="cancelled"} 1"#)
    })
    .await;
    assert_eq!(pay(&service.url, &order).await.problem(409), "order_cancelled");
    assert_eq!(service.add_up(&voucher).await, (0, 1, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_used_for_one_payment_at_this_moment_charges_no_other() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let slow = Service::start_at(through, &[]).await;
    let service = Service::start_at(place, &[]).await;
    let vouchers = [service.voucher(9).await, service.voucher(9).await];
    let orders = [service.order(&vouchers[0], 17).await, service.order(&vouchers[1], 17).await];
    let mut watch = ForeignSession::connect(&service.place).await;
    // Before the first is charged.
    let rule = proxy.arm(Command::sql("COMMIT"), Action::HoldRequest, Times::Next(1));
    let (url, order) = (slow.url.clone(), orders[0].clone());
    let first = tokio::spawn(async move { pay(&url, &order).await });
    eventually("the first is noted", async || rule.fired() == 1).await;
    let (url, order) = (service.url.clone(), orders[1].clone());
    let second = tokio::spawn(async move { pay(&url, &order).await });
    eventually("the second waits for the key", async || watch.waiting().await == 1).await;
    rule.release();
    assert_eq!(second.await.expect("an answer").problem(422), "idempotency_key_reused");
    assert_eq!(first.await.expect("an answer").expect(200)["order"]["status"], "paid");
    assert_eq!(service.look(&orders[1], 17).await["status"], "unpaid");
    assert_eq!(open_charges(&pool(&service).await).await, 0);
}
