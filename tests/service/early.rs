//! What is answered before the router is what the router would have answered.

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use serde_json::{Value, json};

use crate::caller::{Caller, bearer};
use crate::support::{Answer, Service, eventually, token};

/// An answer without what differs from one to the next.
fn comparable(answer: Answer) -> (u16, Vec<(String, String)>, Value) {
    let Answer { status, headers, mut body } = answer;
    body.as_object_mut().expect("an object").remove("request_id");
    let own = headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str()));
    let text = |value: &reqwest::header::HeaderValue| value.to_str().expect("text").to_owned();
    (status.as_u16(), own.map(|(name, value)| (name.to_string(), text(value))).collect(), body)
}

/// Asks for the same purchase as it is answered early, and with a body, which is never answered
/// early.
async fn both_ways(caller: &Caller, voucher: &str, user: u64, key: Option<&str>) -> Value {
    let path = format!("/api/vouchers/{voucher}/orders");
    let bearer = bearer(&token(user, Role::Buyer));
    let send = async |with_body: bool| {
        let route = (Method::POST, path.as_str());
        let request =
            if with_body { caller.raw(route, "{}") } else { caller.request(route.0, route.1) };
        let request =
            key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
        caller.send(request.header(AUTHORIZATION, &bearer)).await
    };
    // The first one has the token verified, and perhaps the voucher read.
    send(false).await;
    let early = comparable(send(false).await);
    assert_eq!(early, comparable(send(true).await), "{voucher}, user {user}, key {key:?}");
    early.2
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_rejection_is_the_answer_of_the_long_way() {
    for flags in [&[][..], &["--mode", "queued", "--writer", "grouped"]] {
        let service = Service::start(flags).await;
        let caller = Caller::new(&service.url);
        let voucher = service.voucher(1).await;
        let bought = service.buy(&voucher, 1).await;
        assert!(bought.status.is_success(), "{}", bought.body);
        eventually("it is sold out", async || {
            service.buy(&voucher, 2).await.body["code"] == "sold_out"
        })
        .await;
        let mut codes = Vec::new();
        for (user, key) in [(2, None), (2, Some("a-key")), (1, None), (1, Some("another"))] {
            codes.push(both_ways(&caller, &voucher, user, key).await["code"].clone());
        }
        assert_eq!(codes, ["sold_out", "sold_out", "already_ordered", "already_ordered"]);
        let admin = token(9, Role::Admin);
        let windows = [
            ("not_started", json!({"starts_at": "2119-01-01T00:00:00Z"})),
            (
                "ended",
                json!({"starts_at": "2019-01-01T00:00:00Z", "ends_at": "2019-01-02T00:00:00Z"}),
            ),
        ];
        for (code, window) in windows {
            let voucher = service.voucher(1).await;
            let path = format!("/api/admin/vouchers/{voucher}");
            service.call(Method::PATCH, &path, Some(&admin), Some(window)).await.expect(200);
            for key in [None, Some("a-key")] {
                assert_eq!(both_ways(&caller, &voucher, 3, key).await["code"], code);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_purchase_gets_the_same_refusals_as_any_other() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let voucher = service.voucher(1).await;
    service.buy(&voucher, 1).await.expect(201);
    let path = format!("/api/vouchers/{voucher}/orders");
    let good = bearer(&token(2, Role::Buyer));
    let ask = || caller.request(Method::POST, &path);
    eventually("it is sold out", async || {
        caller.send(ask().header(AUTHORIZATION, &good)).await.body["code"] == "sold_out"
    })
    .await;
    let cases = [
        (ask(), 401, "unauthorized"),
        (ask().header(AUTHORIZATION, "Bearer no.token.atall"), 401, "unauthorized"),
        (ask().header(AUTHORIZATION, &good).header(AUTHORIZATION, &good), 401, "unauthorized"),
        (ask().header(AUTHORIZATION, &good).header("idempotency-key", ""), 400, "invalid_header"),
        (ask().header(AUTHORIZATION, &good).body("{"), 415, "not_json"),
    ];
    for (request, status, code) in cases {
        assert_eq!(caller.send(request).await.problem(status), code);
    }
    let mine = "an-\"id\"\\";
    let answer = caller.send(ask().header(AUTHORIZATION, &good).header("x-request-id", mine)).await;
    assert_eq!(
        (&answer.body["request_id"], &answer.body["code"]),
        (&json!(mine), &json!("sold_out"))
    );
    assert_eq!(answer.headers["x-request-id"], mine);
}
