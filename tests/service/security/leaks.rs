//! When the servers behind the service are gone, its answers say so, and no more.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use serde_json::{Value, json};
use testbed::Stopwatch;

use crate::breakable::{Breakable, blocking, until_ready};
use crate::caller::{Caller, assert_problem, bearer};
use crate::support::{Service, login_body, token, voucher_body};

/// No request waits for a server that is known to be away.
const PROMPT_WITHIN: Duration = Duration::from_secs(1);

/// Every route that needs a server.
fn routes(id: &str) -> [(Method, String, Value); 16] {
    let admin = |end: &str| format!("/api/admin/vouchers/{id}{end}");
    [
        (Method::POST, "/api/login/codes".into(), json!({"phone": "13800000001"})),
        (Method::POST, "/api/login".into(), login_body("123456")),
        (Method::GET, "/api/me".into(), Value::Null),
        (Method::GET, "/api/vouchers".into(), Value::Null),
        (Method::GET, format!("/api/vouchers/{id}"), Value::Null),
        (Method::POST, format!("/api/vouchers/{id}/orders"), json!({})),
        (Method::GET, "/api/orders".into(), Value::Null),
        (Method::GET, "/api/orders/1".into(), Value::Null),
        (Method::POST, "/api/orders/1/pay".into(), json!({})),
        (Method::POST, "/api/orders/1/cancel".into(), json!({})),
        (Method::POST, "/api/admin/vouchers".into(), voucher_body(1)),
        (Method::PATCH, admin(""), json!({"title": "x"})),
        (Method::DELETE, admin(""), Value::Null),
        (Method::POST, admin("/on-sale"), json!({})),
        (Method::POST, admin("/stock"), json!({"units": 1})),
        (Method::GET, admin("/audit"), Value::Null),
    ]
}

async fn failures(service: &Service, id: &str) -> usize {
    let caller = Caller::new(&service.url);
    let mut failures = 0;
    for (method, path, body) in routes(id) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = caller.raw((method.clone(), &path), body);
        let started = Stopwatch::start();
        let answer =
            caller.send(request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)))).await;
        let took = started.elapsed();
        if answer.status.is_server_error() {
            let what = format!("{method} {path}");
            assert!(took < PROMPT_WITHIN, "{what}: {took:?}");
            assert_problem(&what, &answer);
            assert_eq!(answer.problem(503), "dependency_unavailable", "{what}");
            assert_eq!(answer.headers["retry-after"], "1", "{what}");
            failures += 1;
        }
    }
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_servers_are_reported_at_once_and_leak_nothing() {
    let servers = Breakable::start();
    let service = Service::start_at(servers.place(), &[]).await;
    let id = service.voucher(1).await;
    blocking(|| servers.redis.kill());
    until_ready(&service, Some("redis")).await;
    assert!(failures(&service, &id).await >= 3, "logins and purchases need Redis");
    blocking(|| servers.redis.restart());
    until_ready(&service, None).await;
    blocking(|| servers.database.kill());
    until_ready(&service, Some("database")).await;
    let needed = routes(&id).len() - 1;
    assert_eq!(failures(&service, &id).await, needed, "only codes are sent without the database");
    service.call(Method::GET, "/", None, None).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_schema_leaks_nothing() {
    use sqlx::Connection;
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(1).await;
    let connected = sqlx::MySqlConnection::connect(&service.place.database_url).await;
    let drop = "DROP TABLE orders, voucher_stock, stock_grants, token_subjects, users";
    sqlx::raw_sql(drop).execute(&mut connected.unwrap()).await.unwrap();
    let mut defects = 0;
    for (method, path, body) in routes(&id) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = caller.raw((method.clone(), &path), body);
        let answer =
            caller.send(request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)))).await;
        if answer.status.is_server_error() {
            let what = format!("{method} {path}");
            assert_problem(&what, &answer);
            assert_eq!(answer.problem(500), "internal", "{what}");
            defects += 1;
        }
    }
    assert!(defects >= 10, "a schema without tables is a defect: {defects}");
    caller.send(caller.request(Method::GET, "/livez")).await.expect(200);
}
