//! Tokens that are refused before they end: after a logout, a deletion, a demotion, a command.

use reqwest::Method;
use seckill::domain::Role;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use testbed::{Action, Command, Proxy, Times};

use crate::support::{Answer, Place, Service, eventually, eventually_within, token};

/// A replica learns within a second, and a busy machine has two more.
const LEARNED_WITHIN_S: u64 = 3;

/// A login of that phone: the user's id and the token.
async fn log_in(service: &Service, phone: &str) -> (String, String) {
    let ask = Some(json!({"phone": phone}));
    let sent = service.call(Method::POST, "/api/login/codes", None, ask).await.expect(202);
    let login = json!({"phone": phone, "challenge": sent["challenge"], "code": sent["code"]});
    let login = service.call(Method::POST, "/api/login", None, Some(login)).await.expect(200);
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    (text(&login["user"]["id"]), text(&login["token"]))
}

async fn log_out(service: &Service, token: &str) -> Answer {
    service.call(Method::POST, "/api/logout", Some(token), None).await
}

async fn buy(service: &Service, voucher: &str, token: &str) -> Answer {
    let path = format!("/api/vouchers/{voucher}/orders");
    service.call(Method::POST, &path, Some(token), None).await
}

async fn behind_database_proxy() -> (Proxy, Service) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    (proxy, Service::start_at(through, &[]).await)
}

/// A second replica beside the first.
async fn beside(service: &Service) -> Service {
    Service::start_at(service.place.clone(), &[]).await
}

async fn run_sql(service: &Service, sql: &str) {
    let mut database = MySqlConnection::connect(&service.place.database_url).await.unwrap();
    database.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.unwrap();
}

async fn is_refused(service: &Service, token: &str) -> bool {
    service.get("/api/orders", token).await.status == 401
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_ends_the_users_tokens_on_every_replica_and_no_others() {
    let first = Service::start(&[]).await;
    let second = beside(&first).await;
    let sold_out = first.voucher(1).await;
    first.buy(&sold_out, 500).await.expect(201);
    let (_, mine) = log_in(&first, "13800000101").await;
    let (_, again) = log_in(&first, "13800000101").await;
    let (_, other) = log_in(&first, "13800000102").await;
    eventually("both answer from memory", async || {
        let answers = [buy(&first, &sold_out, &mine).await, buy(&second, &sold_out, &mine).await];
        answers.iter().all(|answer| answer.body["code"] == "sold_out")
    })
    .await;
    log_out(&first, &mine).await.expect(204);
    for token in [&mine, &again] {
        let refused = buy(&first, &sold_out, token).await;
        assert_eq!(refused.problem(401), "unauthorized", "this replica knows at once");
        assert_eq!(refused.headers["www-authenticate"], r#"Bearer error="invalid_token""#);
        assert!(refused.body["detail"].as_str().unwrap().contains("revoked"), "{}", refused.body);
        let learned = async || buy(&second, &sold_out, token).await.status == 401;
        eventually_within(LEARNED_WITHIN_S, "the other replica knows", learned).await;
    }
    log_out(&first, &mine).await.expect(204);
    assert_eq!(buy(&second, &sold_out, &other).await.problem(409), "sold_out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_that_is_made_and_cannot_be_read_at_once_is_no_failure() {
    let (proxy, service) = behind_database_proxy().await;
    let (_, token) = log_in(&service, "13800000111").await;
    let read = Command::sql("SELECT user_id, not_before, made_at FROM token_revocations");
    let unread = proxy.arm(read, Action::CutAnswer, Times::Always);
    log_out(&service, &token).await.expect(204);
    assert!(unread.fired() > 0);
    unread.disarm();
    let learned = async || is_refused(&service, &token).await;
    eventually_within(LEARNED_WITHIN_S, "the replica knows", learned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logout_whose_answer_is_lost_does_not_say_that_nothing_was_done() {
    let (proxy, service) = behind_database_proxy().await;
    let (_, token) = log_in(&service, "13800000112").await;
    let make = Command::sql("INSERT INTO token_revocations");
    let lost = proxy.arm(make, Action::CutAnswer, Times::Next(1));
    let unknown = log_out(&service, &token).await;
    assert_eq!((unknown.problem(504), lost.fired()), ("outcome_unknown", 1));
    assert!(unknown.body.get("executed").is_none(), "{}", unknown.body);
    let learned = async || is_refused(&service, &token).await;
    eventually_within(LEARNED_WITHIN_S, "the replica knows", learned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_right_after_a_logout_holds_and_an_old_token_cannot_end_it() {
    let first = Service::start(&[]).await;
    let second = beside(&first).await;
    let mut old: Option<String> = None;
    for _ in 0..4 {
        let (_, token) = log_in(&first, "13800000103").await;
        if let Some(old) = &old {
            log_out(&first, old).await.expect(204);
        }
        for replica in [&first, &second, &first, &second] {
            replica.get("/api/orders", &token).await.expect(200);
        }
        log_out(&first, &token).await.expect(204);
        assert!(is_refused(&first, &token).await);
        old = Some(token);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_deleted_by_plain_sql_cannot_buy_on_any_replica() {
    let first = Service::start(&[]).await;
    let second = beside(&first).await;
    let voucher = first.voucher(5).await;
    let (user, token) = log_in(&first, "13800000104").await;
    for replica in [&first, &second] {
        replica.get("/api/orders", &token).await.expect(200);
    }
    run_sql(&first, &format!("DELETE FROM users WHERE id = {user}")).await;
    for replica in [&first, &second] {
        let is_refused = async || is_refused(replica, &token).await;
        eventually_within(LEARNED_WITHIN_S, "it is refused", is_refused).await;
        assert_eq!(buy(replica, &voucher, &token).await.problem(401), "unauthorized");
    }
    let (next, token) = log_in(&first, "13800000104").await;
    assert_ne!(next, user);
    buy(&second, &voucher, &token).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_that_is_demoted_or_deleted_changes_nothing_from_then_on() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(5).await;
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    let admin = token(1, Role::Admin);
    let grant = async || service.post(&path, &admin, json!({"units": 1})).await;
    grant().await.expect(200);
    run_sql(&service, "UPDATE users SET role = 'buyer' WHERE id = 1").await;
    assert_eq!(grant().await.problem(403), "forbidden");
    run_sql(&service, "UPDATE users SET role = 'admin' WHERE id = 1").await;
    grant().await.expect(200);
    run_sql(&service, "DELETE FROM users WHERE id = 1").await;
    assert_eq!(grant().await.problem(401), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_unchecked_while_revocations_cannot_be_read_and_good_afterwards() {
    let service = Service::start(&["--revocation-stale-s", "1"]).await;
    let (_, token) = log_in(&service, "13800000105").await;
    let get = async || service.get("/api/orders", &token).await;
    get().await.expect(200);
    run_sql(&service, "RENAME TABLE token_revocations TO elsewhere").await;
    eventually("it is refused", async || get().await.status == 503).await;
    let refused = get().await;
    assert_eq!(refused.problem(503), "dependency_unavailable");
    assert_eq!(refused.body["executed"], false);
    assert_eq!(service.get("/api/orders", "no-token").await.status, 401);
    run_sql(&service, "RENAME TABLE elsewhere TO token_revocations").await;
    eventually("it is accepted", async || get().await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_more_revocations_than_memory_takes_all_users_log_in_again() {
    let service = Service::start(&["--max-revocations", "2"]).await;
    let (_, bystander) = log_in(&service, "13800000106").await;
    for number in 107..110 {
        assert!(!is_refused(&service, &bystander).await);
        let (_, token) = log_in(&service, &format!("13800000{number}")).await;
        log_out(&service, &token).await.expect(204);
    }
    eventually("it is refused", async || is_refused(&service, &bystander).await).await;
    eventually("a new login holds", async || {
        let (_, token) = log_in(&service, "13800000106").await;
        !is_refused(&service, &token).await
    })
    .await;
}
