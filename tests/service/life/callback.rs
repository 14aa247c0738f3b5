//! What the payment provider says by itself, and who else may not say it.

use std::fmt::Write as _;

use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::support::{Answer, Service, client};

const SECRET: &str = "callbacks-only-0123456789-abcdef";
const FLAGS: [&str; 2] = ["--payment-secret", SECRET];

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

fn sign(secret: &str, body: &str, at: i64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{at}.{body}").as_bytes());
    let mut signature = format!("t={at},v1=");
    for byte in tag.as_ref() {
        write!(signature, "{byte:02x}").expect("memory");
    }
    signature
}

fn notice(order: &str) -> Value {
    json!({"payment_id": "p-1", "order_id": order, "amount_cents": 8000, "status": "succeeded"})
}

async fn send(service: &Service, body: &str, signatures: &[String]) -> Answer {
    let url = format!("{}/api/payments/callback", service.url);
    let mut request = client().request(Method::POST, url).body(body.to_owned());
    request = request.header("content-type", "application/json");
    for signature in signatures {
        request = request.header("payment-signature", signature);
    }
    Answer::of(request.send().await.expect("an answer")).await
}

/// What the provider says now.
async fn say(service: &Service, notice: &Value) -> Answer {
    let body = notice.to_string();
    send(service, &body, &[sign(SECRET, &body, now())]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_of_the_provider_pays_an_order_once_however_often_it_is_sent() {
    let service = Service::start(&FLAGS).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    let mut declined = notice(&order);
    declined["status"] = json!("declined");
    assert_eq!(say(&service, &declined).await.expect(200)["order_status"], "unpaid");
    for _ in 0..3 {
        let heard = say(&service, &notice(&order)).await.expect(200);
        assert_eq!(heard, json!({"order_status": "paid"}));
    }
    let paid = service.look(&order, 17).await;
    assert_eq!(paid["status"], "paid");
    assert_eq!(service.pay(&order, 17).await.expect(200)["order"], paid);
    assert_eq!(service.add_up(&voucher).await, (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_without_a_valid_signature_changes_nothing() {
    let service = Service::start(&FLAGS).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    let body = notice(&order).to_string();
    let good = sign(SECRET, &body, now());
    let spaced = body.replace(':', ": ");
    let cases: [(&str, &str, Vec<String>); 8] = [
        ("no signature", &body, vec![]),
        ("two of them", &body, vec![good.clone(), good.clone()]),
        ("another secret", &body, vec![sign("callbacks-only-0123456789-abcdeF", &body, now())]),
        ("another body", &spaced, vec![good.clone()]),
        ("an old one", &body, vec![sign(SECRET, &body, now() - 310)]),
        ("one of tomorrow", &body, vec![sign(SECRET, &body, now() + 86_400)]),
        ("half of it", &body, vec![good[..good.len() - 2].to_owned()]),
        ("no JSON", "paid", vec![sign(SECRET, "paid", now())]),
    ];
    for (what, body, signatures) in cases {
        let refused = send(&service, body, &signatures).await;
        assert_eq!(refused.problem(403), "bad_signature", "{what}");
        assert!(!refused.body.to_string().contains(SECRET), "{what}");
        assert_eq!(service.look(&order, 17).await["status"], "unpaid", "{what}");
    }
    assert_eq!(send(&service, &body, &[good]).await.expect(200)["order_status"], "paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_of_a_cancelled_order_does_not_restore_it() {
    let service = Service::start(&FLAGS).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    service.cancel(&order, 17).await.expect(200);
    assert_eq!(say(&service, &notice(&order)).await.expect(200)["order_status"], "cancelled");
    assert_eq!(service.look(&order, 17).await["status"], "cancelled");
    assert_eq!(service.add_up(&voucher).await, (0, 1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_amount_or_an_unknown_order_is_not_paid() {
    let service = Service::start(&FLAGS).await;
    let voucher = service.voucher(2).await;
    let order = service.order(&voucher, 17).await;
    let mut cheap = notice(&order);
    cheap["amount_cents"] = json!(1);
    assert_eq!(say(&service, &cheap).await.problem(422), "wrong_amount");
    for unknown in ["1", "", "one"] {
        assert_eq!(say(&service, &notice(unknown)).await.problem(404), "order_not_found");
    }
    assert_eq!(service.look(&order, 17).await["status"], "unpaid");
}
