//! Requests with an `Idempotency-Key`.

use reqwest::Method;
use seckill::domain::Role;
use sqlx::{Connection, MySqlConnection};
use testbed::{Action, Command, Times};

use crate::queued::buyer::{
    QUEUED, assert_settled, buy, end_of, lock_stock, redis, service, ticket_of,
};
use crate::support::{Answer, Place, Service, client, eventually, token};

/// The purchase of that user with that key.
async fn buy_with(url: &str, voucher: &str, user: u64, key: &str) -> Answer {
    let request = client().post(format!("{url}/api/vouchers/{voucher}/orders"));
    let request = request.bearer_auth(token(user, Role::Buyer)).header("idempotency-key", key);
    Answer::of(request.send().await.expect("an answer")).await
}

/// Pays the order with that key.
async fn pay_with(service: &Service, order: u64, user: u64, key: &str) -> Answer {
    let url = format!("{}/api/orders/{order}/pay", service.url);
    let request = client().request(Method::POST, url).header("idempotency-key", key);
    let request = request.bearer_auth(token(user, Role::Buyer));
    Answer::of(request.send().await.expect("an answer")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_its_ticket_while_that_is_pending_and_when_it_has_bought() {
    let first = service(&["--replica-id", "a"]).await;
    let flags = [&QUEUED[..], &["--replica-id", "b"]].concat();
    let second = Service::start_at(first.place.clone(), &flags).await;
    let voucher = first.voucher(1).await;
    let tx = lock_stock(&first.place.database_url, &voucher).await;
    let ticket = ticket_of(buy_with(&first.url, &voucher, 5, "a-key").await);
    for url in [&first.url, &second.url] {
        assert_eq!(ticket_of(buy_with(url, &voucher, 5, "a-key").await), ticket);
    }
    tx.rollback().await.expect("a ROLLBACK");
    assert_eq!(end_of(&first.url, &ticket, 5).await.0, "bought");
    // By now it is sold out, and known to be.
    for url in [&first.url, &second.url] {
        eventually("it is sold out", async || {
            buy_with(url, &voucher, 6, "a-key").await.problem(409) == "sold_out"
        })
        .await;
        for _ in 0..3 {
            assert_eq!(ticket_of(buy_with(url, &voucher, 5, "a-key").await), ticket);
            assert_eq!(buy(url, &voucher, 5).await.problem(409), "already_ordered");
            let another = buy_with(url, &voucher, 5, "another-key").await;
            assert_eq!(another.problem(409), "already_ordered");
        }
    }
    let books = assert_settled(&first.place, &voucher, &[], 1).await;
    assert_eq!(books.orders.len(), 1);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_its_pending_ticket_long_after_the_end_of_the_sale() {
    let service = service(&[]).await;
    let (url, voucher) = (service.url.clone(), service.voucher(5000).await);
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let ticket = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
    let mut database = MySqlConnection::connect(&service.place.database_url).await.expect("it");
    let end = "UPDATE vouchers SET ends_at = UTC_TIMESTAMP(3) - INTERVAL 2 MINUTE WHERE id = ?";
    sqlx::query(end).bind(&voucher).execute(&mut database).await.expect("an update");
    let mut user = 5;
    eventually("the end is known", async || {
        user += 1;
        let other = buy(&url, &voucher, user).await;
        other.status == 409 && other.problem(409) == "ended"
    })
    .await;
    assert_eq!(ticket_of(buy_with(&url, &voucher, 5, "a-key").await), ticket);
    tx.rollback().await.expect("a ROLLBACK");
    assert_eq!(end_of(&url, &ticket, 5).await.0, "bought");
    service.stop().await;
}

/// A replica that is killed after the admission leaves a key without its ticket.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_a_kept_ticket_gets_the_order_that_is_written_during_the_lookup() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let service = Service::start_at(through, &QUEUED).await;
    let voucher = service.voucher(3).await;
    let trying = proxy.watch(Command::sql("UPDATE voucher_stock"));
    let tx = lock_stock(&place.database_url, &voucher).await;
    let ticket = ticket_of(buy_with(&service.url, &voucher, 5, "a-key").await);
    eventually("its order waits for the stock", async || trying.matched() > 0).await;
    let mut keys = redis(&place).await;
    let kept: Vec<String> =
        redis::cmd("KEYS").arg("request:5:*").query_async(&mut keys).await.expect("the keys");
    assert_eq!(kept.len(), 1, "{kept:?}");
    redis::cmd("DEL").arg(kept).exec_async(&mut keys).await.expect("an answer");
    // The repeat learns that the key has no order yet, but not before it has one.
    let asked = Command::sql("SELECT").containing("idempotency_keys");
    let held = proxy.arm(asked, Action::HoldAnswer, Times::Next(1));
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let repeat = tokio::spawn(async move { buy_with(&url, &wanted, 5, "a-key").await });
    eventually("the key is looked for", async || held.fired() > 0).await;
    tx.rollback().await.expect("a ROLLBACK");
    let (status, order) = end_of(&service.url, &ticket, 5).await;
    assert_eq!(status, "bought");
    assert!(!repeat.is_finished(), "another request looked");
    held.release();
    let told = repeat.await.expect("no panic").expect(201);
    assert_eq!(told["order"]["id"], order.expect("an order").to_string());
    let another = buy_with(&service.url, &voucher, 5, "another-key").await;
    assert_eq!(another.problem(409), "already_ordered");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_stands_for_something_else_is_refused() {
    let service = service(&[]).await;
    let (url, place) = (service.url.clone(), service.place.clone());
    let (voucher, other) = (service.voucher(5).await, service.voucher(5).await);
    let tx = lock_stock(&place.database_url, &voucher).await;
    let ticket = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
    // Before its order is written, and after.
    let reused = buy_with(&url, &other, 5, "a-key").await;
    assert_eq!(reused.problem(422), "idempotency_key_reused");
    tx.rollback().await.expect("a ROLLBACK");
    let (_, order) = end_of(&url, &ticket, 5).await;
    let order = order.expect("an order");
    let reused = buy_with(&url, &other, 5, "a-key").await;
    assert_eq!(reused.problem(422), "idempotency_key_reused");
    // A payment with it, and a purchase with that of a payment.
    let reused = pay_with(&service, order, 5, "a-key").await;
    assert_eq!(reused.problem(422), "idempotency_key_reused");
    pay_with(&service, order, 5, "pay").await.expect(200);
    let reused = buy_with(&url, &other, 5, "pay").await;
    assert_eq!(reused.problem(422), "idempotency_key_reused");
    // The key belongs to this user alone.
    let ticket = ticket_of(buy_with(&url, &other, 6, "a-key").await);
    assert_eq!(end_of(&url, &ticket, 6).await.0, "bought");
    assert_settled(&place, &other, &[], 5).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_request_had_no_effect_is_decided_again() {
    let service = service(&[]).await;
    let (url, place) = (service.url.clone(), service.place.clone());
    let voucher = service.voucher(5).await;
    let refused = buy_with(&url, "4000000", 5, "a-key").await;
    assert_eq!(refused.problem(404), "voucher_not_found");
    let tx = lock_stock(&place.database_url, &voucher).await;
    let first = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
    // Redis forgets the ticket: it ends as lost, without an order.
    let mut forget = redis::cmd("HDEL");
    forget.arg(format!("{{v:{voucher}}}:tickets")).arg(&first);
    forget.exec_async(&mut redis(&place).await).await.expect("an answer");
    assert_eq!(end_of(&url, &first, 5).await.0, "lost");
    tx.rollback().await.expect("a ROLLBACK");
    let mut ticket = first.clone();
    eventually("the key is good for another ticket", async || {
        ticket = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
        ticket != first
    })
    .await;
    assert_eq!(end_of(&url, &ticket, 5).await.0, "bought");
    assert_eq!(ticket_of(buy_with(&url, &voucher, 5, "a-key").await), ticket);
    assert_settled(&place, &voucher, &[], 5).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_redis_has_forgotten_is_known_from_its_order() {
    let service = service(&[]).await;
    let (url, place) = (service.url.clone(), service.place.clone());
    let voucher = service.voucher(5).await;
    let ticket = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
    let (_, order) = end_of(&url, &ticket, 5).await;
    redis::cmd("FLUSHDB").exec_async(&mut redis(&place).await).await.expect("an answer");
    let again = buy_with(&url, &voucher, 5, "a-key").await.expect(201);
    assert_eq!(again["order"]["id"], order.expect("an order").to_string());
    let other = service.voucher(5).await;
    let reused = buy_with(&url, &other, 5, "a-key").await;
    assert_eq!(reused.problem(422), "idempotency_key_reused");
    assert_settled(&place, &voucher, &[], 5).await;
    service.stop().await;
}

/// Both may be admitted, by replicas that know nothing of each other yet.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_vouchers_requested_with_one_key_at_once_is_bought() {
    let service = service(&[]).await;
    let (url, place) = (service.url.clone(), service.place.clone());
    let (voucher, other) = (service.voucher(5).await, service.voucher(5).await);
    let tx = lock_stock(&place.database_url, &voucher).await;
    let first = ticket_of(buy_with(&url, &voucher, 5, "a-key").await);
    // As if the second had looked before the first was given its ticket.
    redis::cmd("EVAL")
        .arg("for _, key in ipairs(redis.call('KEYS', 'request:*')) do redis.call('DEL', key) end")
        .arg(0)
        .exec_async(&mut redis(&place).await)
        .await
        .expect("an answer");
    let second = ticket_of(buy_with(&url, &other, 5, "a-key").await);
    tx.rollback().await.expect("a ROLLBACK");
    let mut ends = [end_of(&url, &first, 5).await.0, end_of(&url, &second, 5).await.0];
    ends.sort();
    assert_eq!(ends, ["bought", "refused"]);
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let orders: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE user_id = 5")
        .fetch_one(&mut database)
        .await
        .expect("a number");
    assert_eq!(orders, 1);
    service.stop().await;
}
