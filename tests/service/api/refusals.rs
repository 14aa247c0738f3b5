//! What a refusal tells: the field and what it must be, in words of this API and not of a parser.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING};
use seckill::domain::Role;
use seckill::token::{Identity, Tokens};
use serde_json::{Value, json};

use crate::caller::{Caller, bearer};
use crate::fleet::fleet;
use crate::support::{Answer, SECRET, Service, token, voucher_body};

fn told(answer: &Answer) -> (String, String) {
    let text = |name: &str| answer.body[name].as_str().expect("text").to_owned();
    (text("field"), text("detail"))
}

/// Asserts that the refusal is about that field and says that.
fn says(what: &str, answer: &Answer, field: &str, limit: &str) {
    assert_eq!(answer.status, 400, "{what}: {}", answer.body);
    assert_eq!(told(answer), (field.to_owned(), format!("{field}: {limit}")), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_parameter_is_named_with_what_it_must_be() {
    let service = Service::start(&[]).await;
    let number = "must be a whole number from 1 to 100";
    for (query, field, limit) in [
        ("limit=abc", "limit", number),
        ("limit=-1", "limit", number),
        ("limit=0", "limit", number),
        ("limit=101", "limit", number),
        ("limit=", "limit", number),
        ("limit=%2B5", "limit", number),
        ("foo=1", "foo", "unknown field; allowed: limit, cursor"),
        ("limit=1&limit=2", "limit", "must be given once"),
        ("cursor=x", "cursor", "must be the `next_cursor` of an answer"),
    ] {
        let path = format!("/api/orders?{query}");
        let answer = service.get(&path, &token(17, Role::Buyer)).await;
        assert_eq!(answer.problem(400), "invalid_query", "{query}");
        says(query, &answer, field, limit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_field_is_named_with_what_it_must_be() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let admin = token(1, Role::Admin);
    let money = "must be a whole number from 0 to 10000000000";
    let units = "must be a whole number from 1 to 1000000";
    let moment = "must be a moment as in RFC 3339, such as 2026-11-11T20:00:00+08:00";
    for (field, value, limit) in [
        ("stock", "99999999999999", units),
        ("stock", "0", units),
        ("stock", "1000001", units),
        ("stock", "\"5\"", units),
        ("price_cents", "-1", money),
        ("price_cents", "1.5", money),
        ("price_cents", "10000000001", money),
        ("price_cents", "1e999", money),
        ("face_value_cents", "99999999999999999999", money),
        ("face_value_cents", "null", money),
        ("starts_at", "\"yesterday\"", moment),
        ("ends_at", "7", moment),
        ("ends_at", "\"9999-01-01T00:00:00Z\"", "must be of the years 2000 to 8999"),
        ("title", "\"\"", "must be text of 1 to 100 characters"),
        ("title", "7", "must be text of 1 to 100 characters"),
        ("title", "\"a\\u0000\"", "must not contain control characters"),
        ("description", "[]", "must be text of at most 1000 characters"),
    ] {
        let what = format!("{field}: {value}");
        let mut body = voucher_body(1);
        body[field] = json!("VALUE");
        let body = body.to_string().replace("\"VALUE\"", value);
        let request = caller.raw((Method::POST, "/api/admin/vouchers"), body);
        let request = request.header(AUTHORIZATION, bearer(&admin));
        says(&what, &caller.refused(&what, request).await, field, limit);
    }
    let stock = caller.post("/api/admin/vouchers/1/stock", &admin, json!({"units": -5})).await;
    says("units", &stock, "units", units);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_unknown_or_repeated_field_and_a_body_that_is_no_json_are_distinguished() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let phone = r#""phone":"13800000001""#;
    let challenge = r#""challenge":"00000000000000000000000000000000""#;
    for (path, body, field, limit) in [
        ("/api/login", "{}".to_owned(), "phone", "is missing"),
        ("/api/login", format!("{{{phone}}}"), "challenge", "is missing"),
        ("/api/login", format!("{{{phone},{challenge}}}"), "code", "is missing"),
        (
            "/api/login",
            format!(r#"{{{phone},"challenge":"1","code":"123456"}}"#),
            "challenge",
            "must be text of 32 characters, as in the answer",
        ),
        (
            "/api/login",
            r#"{"phone":7}"#.into(),
            "phone",
            "must be 5 to 20 digits, with a leading + at most",
        ),
        (
            "/api/login",
            format!(r#"{{{phone},{challenge},"code":"1"}}"#),
            "code",
            "must be text of 6 characters",
        ),
        ("/api/login/codes", format!(r#"{{{phone},"x":1}}"#), "x", "unknown field; allowed: phone"),
        (
            "/api/login",
            format!(r#"{{{phone},"x":1}}"#),
            "x",
            "unknown field; allowed: phone, challenge, code",
        ),
        ("/api/login", format!("{{{phone},{phone}}}"), "phone", "must be given once"),
        ("/api/vouchers/1/orders", r#"{"x":1}"#.into(), "x", "unknown field; allowed: price_cents"),
        ("/api/orders/1/pay", r#"{"x":1}"#.into(), "x", "unknown field; no fields are allowed"),
        ("/api/login", "{".into(), "body", "is not valid JSON (line 1, column 1)"),
        ("/api/login", format!("{{{phone}"), "body", "is not valid JSON (line 1, column 22)"),
        ("/api/login", "{} {}".into(), "phone", "is missing"),
        (
            "/api/login/codes",
            format!("{{{phone}}} x"),
            "body",
            "is not valid JSON (line 1, column 25)",
        ),
        ("/api/login/codes", "[]".into(), "body", "must be a JSON object"),
    ] {
        let request = caller.raw((Method::POST, path), body.clone());
        let request = request.header(AUTHORIZATION, bearer(&token(5, Role::Buyer)));
        says(&body, &caller.refused(&body, request).await, field, limit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_distinguished_from_a_wrong_one_and_from_none() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let ended = |secret: &str| {
        let tokens = Tokens::new(&secret.to_owned().into()).expect("a good secret");
        let identity = Identity { user: seckill::domain::UserId(7), role: Role::Buyer };
        tokens.issue(identity, std::time::Duration::ZERO).expect("a token").0
    };
    let good = token(7, Role::Buyer);
    let bad = r#"Bearer error="invalid_token""#;
    let (none, wrong) = ("A token is needed", "The token is not valid");
    for (given, challenge, detail) in [
        (None, "Bearer", none),
        (Some("Basic dTpw".to_owned()), "Bearer", none),
        (Some("Bearer".into()), "Bearer", none),
        (Some(bearer(&ended(SECRET))), bad, "The token has expired"),
        (Some(bearer(&ended(&SECRET.replace(SECRET.chars().next().unwrap(), "~")))), bad, wrong),
        (Some(bearer(&good[..good.len() - 1])), bad, wrong),
        (Some("Bearer x".into()), bad, wrong),
        // A user whom the service does not know.
        (Some(bearer(&token(999_999, Role::Buyer))), bad, wrong),
    ] {
        let what = format!("{given:?}");
        // Twice: what was verified before is remembered.
        for _ in 0..2 {
            let mut request = caller.request(Method::GET, "/api/me");
            if let Some(given) = &given {
                request = request.header(AUTHORIZATION, given);
            }
            let answer = caller.refused(&what, request).await;
            assert_eq!(answer.problem(401), "unauthorized", "{what}");
            assert_eq!(answer.headers["www-authenticate"], challenge, "{what}");
            let told = answer.body["detail"].as_str().expect("text");
            assert!(told.starts_with(detail), "{what}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_ticket_is_not_reported_as_another_users() {
    let service = Service::start(&[]).await;
    let path = "/api/tickets/018bcfe5-687b-7fff-bfff-ffff0000004d";
    let answer = service.get(path, &token(5, Role::Buyer)).await;
    assert_eq!(answer.problem(404), "ticket_not_found");
    assert_eq!(answer.body["detail"], "You have no such ticket.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_has_used_all_its_codes_is_refused_with_the_limit() {
    let flags = ["--login-codes-at-once", "2", "--login-codes-a-day", "12"];
    let service = Service::start(&flags).await;
    let caller = Caller::new(&service.url);
    let ask = async || {
        let request = caller.raw((Method::POST, "/api/login/codes"), r#"{"phone":"13800000001"}"#);
        caller.send(request).await
    };
    for _ in 0..2 {
        ask().await.expect(202);
    }
    let answer = ask().await;
    assert_eq!(answer.problem(429), "too_many_codes");
    let detail = "2 login codes at once for this phone, then one every 2h; none was sent.";
    assert_eq!(answer.body["detail"], detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_in_no_phase_of_a_sale() {
    let service = Service::start(&[]).await;
    let admin = token(1, Role::Admin);
    let phase = |answer: &Value| answer["voucher"]["phase"].clone();
    let draft = service.post("/api/admin/vouchers", &admin, voucher_body(1)).await.expect(201);
    assert_eq!(phase(&draft), "not_on_sale");
    let id = draft["voucher"]["id"].as_str().expect("an id");
    let path = format!("/api/admin/vouchers/{id}/on-sale");
    assert_eq!(phase(&service.post(&path, &admin, json!({})).await.expect(200)), "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_body_is_refused_by_every_route_and_the_header_is_named() {
    let fleet = fleet().await;
    let id = Caller::new(fleet.replicas[0].base_url()).voucher(5).await;
    let admin = bearer(&token(1, Role::Admin));
    let routes = [
        (Method::POST, "/api/login/codes".to_owned()),
        (Method::POST, "/api/login".to_owned()),
        (Method::POST, "/api/admin/vouchers".to_owned()),
        (Method::PATCH, format!("/api/admin/vouchers/{id}")),
        (Method::POST, format!("/api/admin/vouchers/{id}/stock")),
        (Method::POST, format!("/api/admin/vouchers/{id}/on-sale")),
        (Method::POST, format!("/api/vouchers/{id}/orders")),
        (Method::POST, "/api/payments/callback".to_owned()),
    ];
    for url in [fleet.proxy.url(), fleet.replicas[0].base_url()] {
        let caller = Caller::new(url);
        for (method, path) in &routes {
            let request = |coding: &str| {
                let request = caller.raw((method.clone(), path), r#"{"more":1}"#);
                request.header(AUTHORIZATION, &admin).header(CONTENT_ENCODING, coding)
            };
            for coding in ["gzip", "br", "deflate", "zstd", "identity, gzip", "x", ""] {
                let what = format!("{method} {path} {coding:?}");
                let answer = caller.refused(&what, request(coding)).await;
                assert_eq!(answer.problem(415), "body_encoded", "{what}");
                assert_eq!(answer.body["field"], "Content-Encoding", "{what}");
                assert_eq!(answer.headers["accept-encoding"], "identity", "{what}");
            }
            // Twice: the second one counts as well.
            let answer = caller.send(request("identity").header(CONTENT_ENCODING, "gzip")).await;
            assert_eq!(answer.problem(415), "body_encoded", "{method} {path}");
            for coding in ["identity", "Identity"] {
                let answer = caller.send(request(coding)).await;
                assert_ne!(answer.status, 415, "{method} {path} {coding}: {}", answer.body);
            }
        }
    }
}
