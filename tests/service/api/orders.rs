//! Buying, and one's own orders.

use std::collections::BTreeSet;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::caller::Caller;
use crate::support::{Service, token};

fn ids(page: &Value) -> Vec<u64> {
    let orders = page["orders"].as_array().expect("orders");
    let id = |order: &Value| order["id"].as_str().expect("a string").parse().expect("a number");
    orders.iter().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_found_at_its_location() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let bought = service.buy(&voucher, 17).await;
    let location = bought.headers["location"].to_str().unwrap().to_owned();
    let order = bought.expect(201)["order"].clone();
    assert_eq!(location, format!("/api/orders/{}", order["id"].as_str().expect("a string")));
    let created_at = order["created_at"].as_str().expect("a time");
    assert!(OffsetDateTime::parse(created_at, &Rfc3339).is_ok() && created_at.ends_with('Z'));
    let expected = json!({
        "id": order["id"], "voucher_id": voucher, "user_id": "17",
        "voucher_title": "Dinner for two", "price_cents": 8000, "created_at": created_at,
        "status": "unpaid", "pay_by": null, "settled_at": null, "cancelled_by": null,
    });
    assert_eq!(order, expected);
    let found = service.get(&location, &token(17, Role::Buyer)).await.expect(200);
    assert_eq!(found["order"], expected, "the answer and the table agree to the millisecond");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_is_bounded_and_does_not_tie_users_together() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(9).await;
    let caller = Caller::new(&service.url);
    let path = format!("/api/vouchers/{voucher}/orders");
    let buy = async |user: u64, keys: &[&str]| {
        let mut request = caller.request(Method::POST, &path).bearer_auth(token(user, Role::Buyer));
        for key in keys {
            request = request.header("idempotency-key", *key);
        }
        caller.send(request).await
    };
    for bad in [&["x".repeat(256).as_str()][..], &["a b"], &[""], &["a", "b"]] {
        let refused = buy(1, bad).await;
        assert_eq!(refused.problem(400), "invalid_header", "{bad:?}");
        assert_eq!(refused.body["field"], "Idempotency-Key");
    }
    assert_eq!(service.audit(&voucher).await["orders"], 0, "a refusal changed something");
    let longest = "x".repeat(255);
    let first = buy(1, &[&longest]).await.expect(201)["order"]["id"].clone();
    let again = buy(1, &[&longest]).await.expect(201)["order"]["id"].clone();
    assert_eq!(again, first, "a repeat is told of the first");
    buy(2, &[&longest]).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_purchase_is_refused_and_names_the_first() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let first = service.buy(&voucher, 17).await.expect(201);
    let second = service.buy(&voucher, 17).await;
    assert_eq!(second.problem(409), "already_ordered");
    assert_eq!(second.body["order_id"], first["order"]["id"]);
    let absent = service.buy("999999999", 17).await;
    assert_eq!(absent.problem(404), "voucher_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_price_of_an_order_is_that_of_its_purchase() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let order = service.buy(&voucher, 17).await.expect(201)["order"]["id"].clone();
    let dearer = Some(json!({"price_cents": 9000, "title": "Dinner for three"}));
    let path = format!("/api/admin/vouchers/{voucher}");
    service.call(Method::PATCH, &path, Some(&token(1, Role::Admin)), dearer).await.expect(200);
    let path = format!("/api/orders/{}", order.as_str().unwrap());
    let found = service.get(&path, &token(17, Role::Buyer)).await.expect(200);
    assert_eq!(found["order"]["price_cents"], 8000);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_orders_are_newest_first_without_gap_or_repetition() {
    let service = Service::start(&[]).await;
    let mut bought = Vec::new();
    for _ in 0..5 {
        let voucher = service.voucher(2).await;
        let answer = service.buy(&voucher, 17).await.expect(201);
        bought.insert(0, answer["order"]["id"].as_str().unwrap().parse::<u64>().unwrap());
        service.buy(&voucher, 18).await.expect(201);
    }
    let mine = token(17, Role::Buyer);
    let all = service.get("/api/orders", &mine).await.expect(200);
    assert_eq!((ids(&all), &all["next_cursor"]), (bought.clone(), &Value::Null));

    for limit in 1..=5 {
        let (mut seen, mut path) = (Vec::new(), format!("/api/orders?limit={limit}"));
        while seen.len() <= bought.len() {
            let page = service.get(&path, &mine).await.expect(200);
            seen.extend(ids(&page));
            assert!(ids(&page).len() <= limit);
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/api/orders?limit={limit}&cursor={cursor}");
        }
        assert_eq!(seen, bought, "in pages of {limit}");
    }
    assert_eq!(ids(&service.get("/api/orders?limit=100", &mine).await.expect(200)), bought);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_page_is_refused() {
    let service = Service::start(&[]).await;
    let queries = "limit=0 limit=101 limit=-1 limit=1.5 limit=ten limit= limit=99999999999 \
        limit=1&limit=2 limit=%00 limit=%ff cursor=0 cursor=x cursor=-1 cursor= \
        cursor=9223372036854775808 page=2 limit=1&user_id=18";
    for query in queries.split_whitespace() {
        let refused = service.get(&format!("/api/orders?{query}"), &token(17, Role::Buyer)).await;
        assert_eq!(refused.problem(400), "invalid_query", "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_users_order_is_not_found_as_one_that_does_not_exist() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let order = service.buy(&voucher, 17).await.expect(201)["order"]["id"].clone();
    let others = format!("/api/orders/{}", order.as_str().unwrap());
    let mut answers = BTreeSet::new();
    for path in [others.as_str(), "/api/orders/1"] {
        let mut refused = service.get(path, &token(18, Role::Buyer)).await;
        assert_eq!(refused.problem(404), "order_not_found");
        refused.body["request_id"].take();
        answers.insert(refused.body.to_string());
    }
    assert_eq!(answers.len(), 1, "they must not differ: {answers:?}");
    let admin = service.get(&others, &token(1, Role::Admin)).await;
    assert_eq!(admin.problem(404), "order_not_found", "admins have no window into orders either");
}
