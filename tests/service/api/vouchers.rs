//! What is public, and the window of a sale.

use reqwest::Method;
use seckill::domain::Role;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::caller::Caller;
use crate::support::{Service, token, voucher_body};

/// A voucher on sale from that many seconds from now to that many; its id.
async fn voucher_between(service: &Service, from_s: i64, to_s: i64) -> String {
    let moment =
        |seconds| (OffsetDateTime::now_utc() + Duration::seconds(seconds)).format(&Rfc3339);
    let window = json!({"starts_at": moment(from_s).unwrap(), "ends_at": moment(to_s).unwrap()});
    let id = service.voucher(5).await;
    let path = format!("/api/admin/vouchers/{id}");
    let admin = token(1, Role::Admin);
    service.call(Method::PATCH, &path, Some(&admin), Some(window)).await.expect(200);
    id
}

fn ids(list: &Value) -> Vec<&str> {
    let vouchers = list["vouchers"].as_array().expect("vouchers");
    vouchers.iter().map(|voucher| voucher["id"].as_str().expect("an id is a string")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_public_list_has_vouchers_on_sale_newest_window_first_and_no_drafts() {
    let service = Service::start(&[]).await;
    let list = service.call(Method::GET, "/api/vouchers", None, None).await.expect(200);
    assert_eq!(list["vouchers"], json!([]), "nothing is on sale yet");
    assert!(OffsetDateTime::parse(list["server_time"].as_str().unwrap(), &Rfc3339).is_ok());

    let old = voucher_between(&service, -200, 100).await;
    let new = voucher_between(&service, -100, 100).await;
    let admin = token(1, Role::Admin);
    let draft = service.post("/api/admin/vouchers", &admin, voucher_body(5)).await.expect(201);
    let draft = draft["voucher"]["id"].as_str().unwrap();

    let list = service.call(Method::GET, "/api/vouchers", None, None).await.expect(200);
    assert_eq!(ids(&list), [new.as_str(), old.as_str()], "newest window first: {list}");
    let one = service.call(Method::GET, &format!("/api/vouchers/{draft}"), None, None).await;
    assert_eq!(one.problem(404), "voucher_not_found", "a draft is hidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_holds_at_most_a_hundred_vouchers() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    for _ in 0..101 {
        caller.voucher(1).await;
    }
    let list = caller.send(caller.request(Method::GET, "/api/vouchers")).await.expect(200);
    assert_eq!(ids(&list).len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_has_all_values_in_strings_cents_and_utc() {
    let service = Service::start(&[]).await;
    let id = service.voucher(7).await;
    let answer = service.call(Method::GET, &format!("/api/vouchers/{id}"), None, None).await;
    let body = answer.expect(200);
    let expected = json!({
        "id": id, "title": "Dinner for two", "description": "Valid on weekdays.",
        "price_cents": 8000, "face_value_cents": 10_000, "stock": 7,
        "starts_at": "2020-01-01T00:00:00Z", "ends_at": "2120-01-01T00:00:00Z",
        "status": "on_sale", "phase": "open",
    });
    assert_eq!(body["voucher"], expected);
    let server_time = OffsetDateTime::parse(body["server_time"].as_str().unwrap(), &Rfc3339);
    let off = (server_time.expect("RFC 3339") - OffsetDateTime::now_utc()).abs();
    assert!(off < Duration::seconds(5), "the servers' clock is this machine's: {off}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_has_not_begun_or_is_over_refuses_with_its_moment() {
    let service = Service::start(&[]).await;
    for (from_s, to_s, phase, moment) in
        [(60, 120, "not_started", "starts_at"), (-120, -60, "ended", "ends_at")]
    {
        let id = voucher_between(&service, from_s, to_s).await;
        let path = format!("/api/vouchers/{id}");
        let seen = service.call(Method::GET, &path, None, None).await.expect(200);
        assert_eq!(seen["voucher"]["phase"], phase);
        let refused = service.buy(&id, 5).await;
        assert_eq!(refused.problem(409), phase);
        let told = OffsetDateTime::parse(refused.body[moment].as_str().unwrap(), &Rfc3339);
        let kept = OffsetDateTime::parse(seen["voucher"][moment].as_str().unwrap(), &Rfc3339);
        assert_eq!(told.unwrap(), kept.unwrap(), "{moment}");
        assert_eq!(service.audit(&id).await["orders"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_opens_for_the_purchase_when_the_servers_clock_reaches_it() {
    let service = Service::start(&[]).await;
    let id = voucher_between(&service, 1, 60).await;
    assert_eq!(service.buy(&id, 5).await.problem(409), "not_started");
    crate::support::eventually("the sale opens", async || service.buy(&id, 5).await.status == 201)
        .await;
    let path = format!("/api/vouchers/{id}");
    let seen = service.call(Method::GET, &path, None, None).await.expect(200);
    assert_eq!(seen["voucher"]["phase"], "open", "the sale never opens before the page says so");
}
