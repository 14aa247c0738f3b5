//! What every answer has, and how every error looks.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use seckill::domain::Role;
use serde_json::json;

use crate::caller::{Caller, assert_problem, bearer};
use crate::support::{Service, token};

/// Every address, and the methods it takes.
pub(crate) const ROUTES: [(&str, &str); 25] = [
    ("/api/login/codes", "POST"),
    ("/api/login", "POST"),
    ("/api/logout", "POST"),
    ("/api/me", "GET,HEAD"),
    ("/api/vouchers", "GET,HEAD"),
    ("/api/vouchers/1", "GET,HEAD"),
    ("/api/vouchers/1/availability", "GET,HEAD"),
    ("/api/vouchers/1/orders", "POST"),
    ("/api/orders", "GET,HEAD"),
    ("/api/orders/1", "GET,HEAD"),
    ("/api/orders/1/pay", "POST"),
    ("/api/orders/1/cancel", "POST"),
    ("/api/payments/callback", "POST"),
    ("/api/tickets/1", "GET,HEAD"),
    ("/api/tickets/1/events", "GET,HEAD"),
    ("/api/admin/vouchers", "POST"),
    ("/api/admin/vouchers/1", "DELETE,PATCH"),
    ("/api/admin/vouchers/1/on-sale", "POST"),
    ("/api/admin/vouchers/1/stock", "POST"),
    ("/api/admin/vouchers/1/audit", "GET,HEAD"),
    ("/openapi.json", "GET,HEAD"),
    ("/livez", "GET,HEAD"),
    ("/readyz", "GET,HEAD"),
    ("/metrics", "GET,HEAD"),
    ("/", "GET,HEAD"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_an_address_does_not_take_is_refused_with_those_it_takes() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    for (path, allowed) in ROUTES {
        for method in "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE BREW".split(' ') {
            if allowed.split(',').any(|name| name == method) {
                continue;
            }
            let what = format!("{method} {path}");
            let method: Method = method.parse().unwrap();
            let answer = caller.send(caller.request(method.clone(), path)).await;
            if method == Method::HEAD {
                assert_eq!(answer.status, 405, "{what}");
            } else {
                assert_eq!(answer.problem(405), "method_not_allowed", "{what}");
                assert_problem(&what, &answer);
            }
            let told = answer.headers.get("allow").unwrap_or_else(|| panic!("{what}: no Allow"));
            let mut told: Vec<&str> = told.to_str().unwrap().split(',').map(str::trim).collect();
            told.sort_unstable();
            assert_eq!(told.join(","), allowed, "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_names_every_operation_and_no_other() {
    let service = Service::start(&[]).await;
    let described = service.call(Method::GET, "/openapi.json", None, None).await.expect(200);
    let mut operations = Vec::new();
    for (path, methods) in described["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods").keys();
        let path = path.replace("{id}", "1");
        operations.extend(methods.map(|method| (path.clone(), method.to_uppercase())));
    }
    let routes = ROUTES.into_iter().filter(|(path, _)| path.starts_with("/api/"));
    let mut expected: Vec<_> = routes
        .flat_map(|(path, methods)| {
            methods.split(',').map(|method| (path.to_owned(), method.to_owned()))
        })
        .filter(|(_, method)| method != "HEAD")
        .collect();
    operations.sort();
    expected.sort();
    assert_eq!(operations, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_does_not_exist_is_not_found() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let paths = "/nothing /api /api/ /api/nothing /api/orders/ /api/orders/1/2 /API/me \
        /api/vouchers/1/ /api/admin /api//orders /index.html/ /Cargo.toml /.env \
        /%2e%2e/Cargo.toml /..%2fCargo.toml /static/index.html";
    for path in paths.split(' ') {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let what = format!("{method} {path}");
            let answer = caller.refused(&what, caller.request(method, path)).await;
            assert_eq!(answer.problem(404), "not_found", "{what}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_declared_as_json_is_refused() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let body = r#"{"phone":"13800000001"}"#;
    let send = |kind: &str| {
        let request = caller.request(Method::POST, "/api/login/codes").body(body);
        if kind.is_empty() { request } else { request.header(CONTENT_TYPE, kind) }
    };
    for kind in [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/problem+json",
        "application/jsonx",
        "json",
        ";application/json",
        "text/json",
    ] {
        let answer = caller.refused(kind, send(kind)).await;
        assert_eq!(answer.problem(415), "not_json", "{kind}");
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8", "application/json;x=y"] {
        assert_eq!(caller.send(send(kind)).await.status, 202, "{kind}");
    }
    let id = service.voucher(1).await;
    let path = format!("/api/vouchers/{id}/orders");
    let buy =
        caller.request(Method::POST, &path).header(AUTHORIZATION, bearer(&token(5, Role::Buyer)));
    let answer = caller.refused("text", buy.header(CONTENT_TYPE, "text/plain").body("{}")).await;
    assert_eq!(answer.problem(415), "not_json", "where a body may be missing, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_repeated_fields_are_refused_on_every_route_with_a_body() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = service.voucher(1).await;
    let login = r#""phone":"13800000001","challenge":"00000000000000000000000000000000",
        "code":"000000""#;
    let whole = r#""title":"t","description":"","price_cents":1,"face_value_cents":1,
        "starts_at":"2020-01-01T00:00:00Z","ends_at":"2120-01-01T00:00:00Z","stock":1"#;
    for (method, path, good, repeated) in [
        (Method::POST, "/api/login/codes", r#""phone":"13800000001""#, r#""phone":"13800000002""#),
        (Method::POST, "/api/login", login, r#""code":"1""#),
        (Method::POST, "/api/admin/vouchers", whole, r#""stock":2"#),
        (Method::PATCH, "/api/admin/vouchers/ID", r#""title":"t""#, r#""title":"t""#),
        (Method::POST, "/api/admin/vouchers/ID/stock", r#""units":1"#, r#""units":1"#),
    ] {
        let path = path.replace("ID", &id);
        for more in [r#""more":1"#, r#""":null"#, repeated] {
            let what = format!("{method} {path} {{{good},{more}}}");
            let request = caller.raw((method.clone(), &path), format!("{{{good},{more}}}"));
            let request = request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)));
            let answer = caller.refused(&what, request).await;
            assert_eq!(answer.problem(400), "invalid_body", "{what}");
        }
    }
    for path in [format!("/api/vouchers/{id}/orders"), format!("/api/admin/vouchers/{id}/on-sale")]
    {
        let more = caller.post(&path, &token(1, Role::Admin), json!({"more": 1})).await;
        assert_eq!(more.problem(400), "invalid_body", "{path}");
        assert!(caller.post(&path, &token(1, Role::Admin), json!({})).await.status.is_success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_id_is_the_callers_if_it_is_fit_and_always_in_the_answer() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let longest = "x".repeat(64);
    for (path, status) in [("/api/vouchers", 200), ("/api/me", 401), ("/nothing", 404)] {
        for fit in ["a", "0af7651916cd43dd8448eb211c80319c", "{\"<>'", longest.as_str()] {
            let request = caller.request(Method::GET, path).header("x-request-id", fit);
            let answer = caller.send(request).await;
            assert_eq!(answer.status, status);
            assert_eq!(answer.headers["x-request-id"], fit);
            if status >= 400 {
                assert_eq!(answer.body["request_id"], fit);
            }
        }
        let too_long = "x".repeat(65);
        for unfit in ["", "two words", "tab\there", "\u{fc}ber", too_long.as_str()] {
            let request = caller.request(Method::GET, path).header("x-request-id", unfit);
            let made = caller.send(request).await.headers["x-request-id"].clone();
            assert_ne!(made, unfit);
            assert_eq!(made.len(), 36, "a UUID: {made:?}");
        }
    }
    let request = || caller.request(Method::GET, "/livez");
    let (one, two) = tokio::join!(caller.send(request()), caller.send(request()));
    assert_ne!(one.headers["x-request-id"], two.headers["x-request-id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_names_its_replica_and_keeps_browsers_careful() {
    let service = Service::start(&["--replica-id", "till-7"]).await;
    let caller = Caller::new(&service.url);
    for (path, _) in ROUTES.into_iter().chain([("/nothing", "")]) {
        let headers = caller.send(caller.request(Method::GET, path)).await.headers;
        assert_eq!(headers["x-replica"], "till-7", "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        if path.starts_with("/api") {
            assert_eq!(headers["cache-control"], "no-store", "{path}");
        }
        assert!(!headers.contains_key("server") && !headers.contains_key("x-powered-by"));
        // `--dev`, with which all tests run, is no answer for customers.
        assert_eq!(headers["x-lab"], "dev", "{path}");
    }
    let plain = Service::start(&[]).await;
    let answer = plain.call(Method::GET, "/livez", None, None).await;
    assert_eq!(answer.headers["x-replica"], plain.url.trim_start_matches("http://"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_login_is_answered_with_how_to_log_in() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    for value in ["", "Bearer", "Bearer ", "Basic dTpw", "bearer x", "Token x", "Bearer a b c"] {
        let request = caller.request(Method::GET, "/api/me").header(AUTHORIZATION, value);
        let answer = caller.refused(value, request).await;
        assert_eq!(answer.problem(401), "unauthorized", "{value:?}");
        let has_token = matches!(value, "bearer x" | "Bearer a b c");
        let challenge = if has_token { r#"Bearer error="invalid_token""# } else { "Bearer" };
        assert_eq!(answer.headers["www-authenticate"], challenge, "{value:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invented_methods_do_not_fill_the_metrics() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    for number in 0..20 {
        let method: Method = format!("INVENTED{number}").parse().unwrap();
        let path = format!("/nothing/{number}");
        caller.refused("an invented method", caller.request(method, &path)).await;
    }
    let metrics = caller.send(caller.request(Method::GET, "/metrics")).await.expect(200);
    let metrics = metrics.as_str().expect("text");
    assert!(metrics.contains("seckill_http_requests_total"), "{metrics}");
    assert!(!metrics.contains("INVENTED") && !metrics.contains("/nothing/"), "one label for all");
}
