//! Purchases that are not admitted, and tickets that were never given.

use seckill::domain::Role;
use serde_json::json;

use crate::queued::buyer::{QueueState, ask, buy, end_of, left, lock_stock, service, ticket_of};
use crate::support::{Service, token, voucher_body};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_gets_the_ticket_of_the_first_while_that_is_under_way() {
    let service = service(&[]).await;
    let voucher = service.voucher(5).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let ticket = ticket_of(buy(&service.url, &voucher, 5).await);
    for _ in 0..3 {
        assert_eq!(ticket_of(buy(&service.url, &voucher, 5).await), ticket);
    }
    assert_eq!(left(&service.place, &voucher).await, QueueState { stock: 4, entries: 1, users: 1 });
    tx.rollback().await.expect("a ROLLBACK");
    assert_eq!(end_of(&service.url, &ticket, 5).await.0, "bought");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_refuses_and_drops_nothing() {
    let service = service(&["--queue-length", "2"]).await;
    let voucher = service.voucher(9).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let mut tickets = Vec::new();
    for user in [1, 2] {
        tickets.push((user, ticket_of(buy(&service.url, &voucher, user).await)));
    }
    let refused = buy(&service.url, &voucher, 3).await;
    assert_eq!(refused.problem(503), "overloaded");
    assert_eq!(refused.body["executed"], false);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(left(&service.place, &voucher).await, QueueState { stock: 7, entries: 2, users: 2 });
    tx.rollback().await.expect("a ROLLBACK");
    for (user, ticket) in tickets {
        assert_eq!(end_of(&service.url, &ticket, user).await.0, "bought");
    }
    let ticket = ticket_of(buy(&service.url, &voucher, 3).await);
    assert_eq!(end_of(&service.url, &ticket, 3).await.0, "bought");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_is_not_open_admits_no_buyer() {
    let service = service(&[]).await;
    let admin = token(1, Role::Admin);
    for (starts_at, ends_at, code) in [
        ("2110-01-01T00:00:00Z", "2120-01-01T00:00:00Z", "not_started"),
        ("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z", "ended"),
    ] {
        let mut body = voucher_body(5);
        body["starts_at"] = json!(starts_at);
        body["ends_at"] = json!(ends_at);
        let created = service.post("/api/admin/vouchers", &admin, body).await.expect(201);
        let voucher = created["voucher"]["id"].as_str().expect("an id").to_owned();
        assert_eq!(buy(&service.url, &voucher, 5).await.problem(409), "not_on_sale");
        let path = format!("/api/admin/vouchers/{voucher}/on-sale");
        service.post(&path, &admin, json!({})).await.expect(200);
        crate::support::eventually(code, async || {
            buy(&service.url, &voucher, 5).await.problem(409) == code
        })
        .await;
    }
    assert_eq!(buy(&service.url, "4000000", 5).await.problem(404), "voucher_not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_of_another_user_or_of_none_is_not_found() {
    let queued = service(&[]).await;
    let voucher = queued.voucher(5).await;
    let ticket = ticket_of(buy(&queued.url, &voucher, 5).await);
    assert_eq!(end_of(&queued.url, &ticket, 5).await.0, "bought");
    assert_eq!(ask(&queued.url, &ticket, 6).await.problem(404), "ticket_not_found");
    // A ticket that was never given: its seal is not ours.
    let made_up = "018bcfe5-687b-7fff-bfff-ffff00000001";
    assert_eq!(ask(&queued.url, made_up, 5).await.problem(404), "ticket_not_found");
    for bad in ["1", "018bcfe5-687b-4fff-bfff-ffff00000001", "tulips"] {
        assert_eq!(ask(&queued.url, bad, 5).await.problem(400), "invalid_id");
    }
    queued.stop().await;
    // The mode `direct` has no tickets.
    let direct = Service::start(&[]).await;
    assert_eq!(ask(&direct.url, &ticket, 5).await.problem(404), "ticket_not_found");
    direct.stop().await;
}
