//! What admins change and what is refused leaves a trace.

use std::fs;

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use serde_json::{Value, json};

use crate::caller::{Caller, bearer};
use crate::fleet::fleet;
use crate::support::{eventually, login_body, token, voucher_body};

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_an_admin_is_one_log_line_with_actor_values_and_request_id() {
    let replica = &fleet().await.replicas[0];
    let caller = Caller::new(replica.base_url());
    let send = async |method: Method, path: &str, id: &str, body: Value| {
        let request = caller.raw((method, path), body.to_string()).header("x-request-id", id);
        caller.send(request.header(AUTHORIZATION, bearer(&token(9, Role::Admin)))).await
    };
    let created = send(Method::POST, "/api/admin/vouchers", "trail-1", voucher_body(3)).await;
    let id = created.expect(201)["voucher"]["id"].as_str().unwrap().to_owned();
    let path = |end: &str| format!("/api/admin/vouchers/{id}{end}");
    let title = json!({"title": "Supper"});
    send(Method::PATCH, &path(""), "trail-2", title).await.expect(200);
    send(Method::POST, &path("/on-sale"), "trail-3", json!({})).await.expect(200);
    send(Method::POST, &path("/stock"), "trail-4", json!({"units": 2})).await.expect(200);
    send(Method::DELETE, &path(""), "trail-5", json!({})).await.expect(204);
    assert_eq!(send(Method::DELETE, &path(""), "trail-6", json!({})).await.status, 404);

    let lines = || {
        let log = fs::read_to_string(replica.log_path()).expect("the log");
        let of_trail = |line: &&str| line.contains(" audit: ") && line.contains("trail-");
        log.lines().filter(of_trail).map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("five lines", async || lines().len() == 5).await;
    let told = [
        ("create", r#"after="{\"id\""#),
        ("change", "Supper"),
        ("put_on_sale", r#"\"status\":\"on_sale\""#),
        ("add_stock", r#"\"stock\":5"#),
        ("delete", r#"before="{\"id\""#),
    ];
    for (number, (line, (action, value))) in lines().iter().zip(told).enumerate() {
        let request = format!(r#"request_id="trail-{}""#, number + 1);
        let action = format!(r#"action="{action}""#);
        let voucher = format!("voucher={id} ");
        for part in ["INFO", "actor=9 ", &action, &voucher, &request] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(line.replace('\\', "").contains(&value.replace('\\', "")), "{value}: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_logins_and_refused_requests_are_counted_by_reason() {
    let replica = &fleet().await.replicas[0];
    let caller = Caller::new(replica.base_url());
    let wrong = login_body("000000").to_string();
    let login = caller.raw((Method::POST, "/api/login"), wrong);
    assert_eq!(caller.send(login).await.problem(401), "wrong_code");
    let me = |authorization: &str| {
        let request = caller.request(Method::GET, "/api/me");
        if authorization.is_empty() {
            request
        } else {
            request.header(AUTHORIZATION, authorization)
        }
    };
    assert_eq!(caller.send(me("")).await.status, 401);
    assert_eq!(caller.send(me("Bearer x")).await.status, 401);
    let buyer = bearer(&token(7, Role::Buyer));
    let audit = caller.request(Method::GET, "/api/admin/vouchers/1/audit");
    assert_eq!(caller.send(audit.header(AUTHORIZATION, buyer)).await.status, 403);
    let page = caller.send(caller.request(Method::GET, "/metrics")).await.body;
    let page = page.as_str().expect("text");
    for (metric, reason) in [
        ("seckill_logins_failed_total", "wrong_code"),
        ("seckill_requests_denied_total", "no_token"),
        ("seckill_requests_denied_total", "invalid"),
        ("seckill_requests_denied_total", "no_admin"),
    ] {
        let line = format!("{metric}{{reason=\"{reason}\"}} ");
        assert!(page.lines().any(|told| told.starts_with(&line)), "{line} is not in {page}");
    }
}
