//! An order is paid or cancelled, and stays so.

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::fleet::fleet;
use crate::support::{Service, token, voucher_body};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_paid_once_and_stays_paid() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    assert_eq!(service.look(&order, 17).await["status"], "unpaid");
    let paid = service.pay(&order, 17).await.expect(200)["order"].clone();
    assert_eq!((&paid["status"], &paid["id"]), (&json!("paid"), &json!(order)));
    let moment = |name: &str| {
        let text = paid[name].as_str().expect("a time");
        OffsetDateTime::parse(text, &Rfc3339).expect("a time")
    };
    assert!(moment("settled_at") >= moment("created_at"));
    assert_eq!(service.look(&order, 17).await, paid, "the answer and the table agree");
    assert_eq!(service.pay(&order, 17).await.expect(200)["order"], paid, "again is no error");
    assert_eq!(service.cancel(&order, 17).await.problem(409), "order_paid");
    assert_eq!(service.look(&order, 17).await, paid);
    assert_eq!(service.add_up(&voucher).await, (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_order_returns_its_unit_to_the_next_buyer_and_its_user_may_not_buy_again() {
    for flags in [&["--writer", "single"][..], &["--writer", "grouped"]] {
        let service = Service::start(flags).await;
        let voucher = service.voucher(1).await;
        let order = service.order(&voucher, 17).await;
        assert_eq!(service.buy(&voucher, 18).await.problem(409), "sold_out");
        let cancelled = service.cancel(&order, 17).await.expect(200)["order"].clone();
        assert_eq!(cancelled["status"], "cancelled");
        assert_eq!(cancelled["cancelled_by"], "buyer");
        assert_eq!(service.cancel(&order, 17).await.expect(200)["order"], cancelled);
        assert_eq!(service.pay(&order, 17).await.problem(409), "order_cancelled");
        assert_eq!(service.add_up(&voucher).await, (0, 1, 1));
        let again = service.buy(&voucher, 17).await;
        assert_eq!(again.problem(409), "already_ordered");
        assert_eq!(again.body["order_id"], order);
        service.order(&voucher, 18).await;
        assert_eq!(service.add_up(&voucher).await, (1, 1, 0));
        let page = service.get("/api/orders", &token(17, Role::Buyer)).await.expect(200);
        assert_eq!(page["orders"][0]["status"], "cancelled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_another_user_can_be_neither_paid_nor_cancelled() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    for number in [order.as_str(), "1"] {
        assert_eq!(service.pay(number, 18).await.problem(404), "order_not_found");
        assert_eq!(service.cancel(number, 18).await.problem(404), "order_not_found");
    }
    for path in ["pay", "cancel"] {
        let path = format!("/api/orders/{order}/{path}");
        let nobody = service.call(Method::POST, &path, None, None).await;
        assert_eq!(nobody.problem(401), "unauthorized");
        let body = Some(json!({"amount": 1}));
        let mine = token(17, Role::Buyer);
        let refused = service.call(Method::POST, &path, Some(&mine), body).await;
        assert_eq!(refused.problem(400), "invalid_body");
    }
    assert_eq!(service.look(&order, 17).await["status"], "unpaid");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_payment_is_declined_is_unpaid_and_can_be_cancelled() {
    let service = Service::start(&[]).await;
    let admin = token(1, Role::Admin);
    let mut body = voucher_body(1);
    // What the mock declines.
    body["price_cents"] = json!(9402);
    let created = service.post("/api/admin/vouchers", &admin, body).await.expect(201);
    let voucher = created["voucher"]["id"].as_str().expect("an id").to_owned();
    let path = format!("/api/admin/vouchers/{voucher}/on-sale");
    service.post(&path, &admin, json!({})).await.expect(200);
    let order = service.order(&voucher, 17).await;
    assert_eq!(service.pay(&order, 17).await.problem(402), "payment_declined");
    assert_eq!(service.look(&order, 17).await["status"], "unpaid");
    service.cancel(&order, 17).await.expect(200);
    assert_eq!(service.add_up(&voucher).await, (0, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_for_payments_every_payment_is_refused_with_the_reason() {
    // The fleet has none.
    let fleet = fleet().await;
    let clerk = Service::start_at(fleet.place.clone(), &["--allow-mixed"]).await;
    let voucher = clerk.voucher(1).await;
    let order = clerk.order(&voucher, 17).await;
    let path = format!("/api/orders/{order}/pay");
    let refused = super::post(fleet.replicas[0].base_url(), &path, 17, None).await;
    assert_eq!(refused.problem(503), "payments_unavailable");
    assert_eq!(refused.body["executed"], false);
    clerk.pay(&order, 17).await.expect(200);
    clerk.stop().await;
}
