//! One phone is one user, however it is written.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Service};

const SPELLINGS: [&str; 6] = [
    "13900000016",
    "013900000016",
    "8613900000016",
    "+8613900000016",
    "008613900000016",
    "+86013900000016",
];
/// Digits that dial the United States, where the number does not exist.
const ABROAD: [&str; 2] = ["+13900000016", "0013900000016"];

async fn ask(service: &Service, phone: &str) -> Answer {
    let body = Some(json!({"phone": phone}));
    service.call(Method::POST, "/api/login/codes", None, body).await
}

async fn log_in(service: &Service, asked: &str, told: &str) -> Value {
    let mut sent = ask(service, asked).await.expect(202);
    sent.as_object_mut().expect("an object").remove("expires_in_s");
    sent["phone"] = json!(told);
    service.call(Method::POST, "/api/login", None, Some(sent)).await.expect(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_spelling_of_a_phone_is_one_user_that_buys_once() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(10).await;
    let path = format!("/api/vouchers/{voucher}/orders");
    let mut users = Vec::new();
    let mut statuses = Vec::new();
    for (at, spelling) in SPELLINGS.iter().enumerate() {
        // The code that one spelling asked for is good for another.
        let login = log_in(&service, spelling, SPELLINGS[(at + 1) % SPELLINGS.len()]).await;
        users.push(login["user"]["id"].clone());
        let token = login["token"].as_str().expect("a token");
        statuses.push(service.post(&path, token, json!({})).await.status.as_u16());
    }
    assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409]);
    assert_eq!(service.audit(&voucher).await["orders"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_spellings_of_a_phone_share_its_limit_of_codes() {
    let service = Service::start(&[]).await;
    for spelling in SPELLINGS {
        ask(&service, spelling).await.expect(202);
    }
    for spelling in SPELLINGS {
        assert_eq!(ask(&service, spelling).await.problem(429), "too_many_codes", "{spelling}");
    }
    ask(&service, "13900000017").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_does_not_exist_is_refused_with_the_reason() {
    let service = Service::start(&[]).await;
    let detail = "phone: is not a valid phone number in CN or abroad; abroad is + and the \
                  country's code first";
    for phone in ABROAD.into_iter().chain(["12345", "1390000001", "139000000160", "+999123456789"])
    {
        let refused = ask(&service, phone).await;
        assert_eq!(refused.problem(400), "invalid_body", "{phone}");
        assert_eq!(
            (&refused.body["field"], &refused.body["detail"]),
            (&json!("phone"), &json!(detail))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_country_of_numbers_without_a_code_is_a_setting() {
    let service = Service::start(&["--phone-country", "US"]).await;
    let mut users = Vec::new();
    for phone in ["2015550123", "12015550123", "+12015550123", "01112015550123"] {
        users.push(log_in(&service, phone, "2015550123").await["user"]["id"].clone());
    }
    assert!(users.iter().all(|user| *user == users[0]), "{users:?}");
    assert_eq!(ask(&service, "13900000016").await.problem(400), "invalid_body");
    ask(&service, "+8613900000016").await.expect(202);
}
