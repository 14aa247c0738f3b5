//! Access: orders of other users, admins' routes, fields that no client may set.

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::caller::{Caller, bearer, contents};
use crate::support::{Service, login_body, token, voucher_body};

/// Users, and orders of theirs: the whole cross product of both is tried.
const USERS: u64 = 34;

#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_another_user_can_be_neither_read_nor_changed() {
    let service: &Service = Box::leak(Box::new(Service::start(&[]).await));
    let caller: &Caller = Box::leak(Box::new(Caller::new(&service.url)));
    let voucher = caller.voucher(u32::try_from(USERS).unwrap()).await;
    let mut orders = Vec::new();
    for user in 1..=USERS {
        let path = format!("/api/vouchers/{voucher}/orders");
        let bought = caller.post(&path, &token(user, Role::Buyer), json!({})).await.expect(201);
        orders.push(bought["order"]["id"].as_str().unwrap().to_owned());
    }
    let before = contents(&service.place).await;
    let orders: &[String] = Vec::leak(orders);
    let mut users = JoinSet::new();
    for user in 1..=USERS {
        users.spawn(async move { walk(caller, user, orders).await });
    }
    let found: usize = users.join_all().await.into_iter().sum();
    assert_eq!(found as u64, USERS, "each user found the own order, and no other");
    assert_eq!(contents(&service.place).await, before);
}

/// One user asks for all orders; how many were found.
async fn walk(caller: &Caller, user: u64, orders: &[String]) -> usize {
    let mine = token(user, Role::Buyer);
    let list = caller.get("/api/orders?limit=100", &mine).await.expect(200);
    assert_eq!(list["orders"].as_array().unwrap().len(), 1);
    assert_eq!(list["orders"][0]["user_id"], user.to_string());
    let mut absent = caller.get("/api/orders/1", &mine).await;
    absent.body["request_id"].take();
    let mut found = 0;
    for order in orders {
        let path = format!("/api/orders/{order}");
        let mut answer = caller.get(&path, &mine).await;
        if answer.status == 200 {
            assert_eq!(answer.body["order"]["user_id"], user.to_string());
            found += 1;
            continue;
        }
        assert_eq!(answer.problem(404), "order_not_found");
        answer.body["request_id"].take();
        assert_eq!(answer.body, absent.body, "as one that does not exist");
        for method in [Method::DELETE, Method::PATCH, Method::PUT] {
            let request = caller.request(method, &path).header(AUTHORIZATION, bearer(&mine));
            assert_eq!(caller.refused(&path, request).await.problem(405), "method_not_allowed");
        }
        // A cursor is a place in one's own list.
        let page = caller.get(&format!("/api/orders?cursor={order}"), &mine).await.expect(200);
        for order in page["orders"].as_array().unwrap() {
            assert_eq!(order["user_id"], user.to_string());
        }
    }
    found
}

/// Every route of the admins with a body it takes.
fn admin_routes(id: &str) -> [(Method, String, Value); 6] {
    let path = |end: &str| format!("/api/admin/vouchers/{id}{end}");
    [
        (Method::POST, "/api/admin/vouchers".into(), voucher_body(1)),
        (Method::PATCH, path(""), json!({"title": "changed"})),
        (Method::POST, path("/on-sale"), json!({})),
        (Method::POST, path("/stock"), json!({"units": 1})),
        (Method::GET, path("/audit"), Value::Null),
        (Method::DELETE, path(""), Value::Null),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admins_reach_the_routes_of_admins() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(1).await;
    let before = contents(&service.place).await;
    // What does not exist or is badly formed must not tell itself apart either.
    for target in [id.as_str(), "999999", "x", "0"] {
        for (method, path, body) in admin_routes(target) {
            for body in [body.to_string(), "{".to_owned(), "\0".repeat(10_000)] {
                let request = || caller.raw((method.clone(), &path), body.clone());
                let what = format!("{method} {path}");
                let anonymous = caller.refused(&what, request()).await;
                assert_eq!(anonymous.problem(401), "unauthorized", "{what}");
                let buyer = bearer(&token(7, Role::Buyer));
                let request = request().header(AUTHORIZATION, buyer).header("x-role", "admin");
                let buyer = caller.refused(&what, request).await;
                assert_eq!(buyer.problem(403), "forbidden", "{what}");
            }
        }
    }
    assert_eq!(contents(&service.place).await, before);
    for (method, path, body) in admin_routes(&id) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = caller.raw((method.clone(), &path), body);
        let admin =
            caller.send(request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)))).await;
        assert!(admin.status.is_success(), "{method} {path}: {}", admin.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_login_there_is_nothing_but_vouchers() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(1).await;
    let before = contents(&service.place).await;
    for (method, path) in [
        (Method::GET, "/api/me".to_owned()),
        (Method::GET, "/api/orders".to_owned()),
        (Method::GET, "/api/orders/1".to_owned()),
        (Method::POST, format!("/api/vouchers/{id}/orders")),
        (Method::POST, "/api/orders/1/pay".to_owned()),
        (Method::POST, "/api/orders/1/cancel".to_owned()),
    ] {
        let answer = caller.refused(&path, caller.request(method, &path)).await;
        assert_eq!(answer.problem(401), "unauthorized", "{path}");
    }
    // A good token of a user who was never there gives no rights.
    assert_eq!(caller.get("/api/me", &token(999_999, Role::Buyer)).await.status, 401);
    assert_eq!(contents(&service.place).await, before);
}

/// Fields that exist somewhere inside and that no client may set.
const HIDDEN: &str = "id user_id userId order_id voucher_id role is_admin admin status phase sold \
    created_at updated_at on_sale initial_stock stock_left server_time paid limit expires_in_s \
    tries __proto__";

#[tokio::test(flavor = "multi_thread")]
async fn no_route_takes_a_field_that_is_not_its_callers_to_set() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(5).await;
    let before = contents(&service.place).await;
    let admin = token(1, Role::Admin);
    let routes = [
        (Method::POST, "/api/login/codes".to_owned(), json!({"phone": "13800000001"}), ""),
        (Method::POST, "/api/login".into(), login_body("123456"), ""),
        (Method::POST, format!("/api/vouchers/{id}/orders"), json!({}), "face_value_cents"),
        (Method::POST, "/api/admin/vouchers".into(), voucher_body(1), "stock_cents"),
        (Method::PATCH, format!("/api/admin/vouchers/{id}"), json!({"title": "x"}), "stock"),
        (Method::POST, format!("/api/admin/vouchers/{id}/on-sale"), json!({}), "stock"),
        (Method::POST, format!("/api/admin/vouchers/{id}/stock"), json!({"units": 1}), "stock"),
    ];
    for (method, path, good, own) in routes {
        for name in HIDDEN.split_whitespace().chain([own]) {
            for value in [json!(1), json!("admin"), json!(true), Value::Null] {
                let mut body = good.clone();
                body[name] = value;
                let request = caller.raw((method.clone(), &path), body.to_string());
                let request = request.header(AUTHORIZATION, bearer(&admin));
                let answer = caller.refused(&body.to_string(), request).await;
                assert_eq!(answer.problem(400), "invalid_body", "{method} {path} {body}");
            }
        }
    }
    assert_eq!(contents(&service.place).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_claim_an_identity_change_nothing() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(5).await;
    let claims = "X-User-Id X-User X-Auth-User X-Remote-User X-Forwarded-User X-Role X-Admin \
        X-Original-URL X-Rewrite-URL X-HTTP-Method-Override X-Forwarded-For X-Forwarded-Host \
        X-Forwarded-Proto Forwarded X-Real-IP True-Client-IP";
    let spoof = |mut request: reqwest::RequestBuilder| {
        for name in claims.split_whitespace() {
            for value in ["1", "admin", "127.0.0.1", "DELETE", "/api/admin/vouchers/1"] {
                request = request.header(name, value);
            }
        }
        request
    };
    let me = bearer(&token(7, Role::Buyer));
    let path = format!("/api/vouchers/{id}/orders");
    let buy = spoof(caller.request(Method::POST, &path).header(AUTHORIZATION, &me));
    assert_eq!(caller.send(buy).await.expect(201)["order"]["user_id"], "7");
    let before = contents(&service.place).await;
    for (method, path, body) in admin_routes(&id) {
        let request = spoof(caller.raw((method, &path), body.to_string()));
        assert_eq!(caller.refused(&path, request).await.problem(401), "unauthorized");
        let request = caller.raw((Method::POST, &path), body.to_string());
        let request = spoof(request.header(AUTHORIZATION, &me));
        let answer = caller.send(request).await;
        assert!(matches!(answer.status.as_u16(), 403 | 405), "{path}: {}", answer.body);
    }
    assert_eq!(contents(&service.place).await, before);
}
