//! Asking a service a lot, and watching that a refusal says little and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Body, Client, Method, RequestBuilder};
use serde_json::{Value, json};
use sqlx::{Connection, MySqlConnection, Row};

use crate::redis_side;
use crate::support::{Answer, Place, SECRET, token, voucher_body};
use seckill::domain::Role;

/// What no answer may contain, whatever went wrong: SQL, names of libraries and servers, paths,
/// addresses, the text of a panic. In lower case.
const SECRETS: &str = "sqlx|redis|mysql|mariadb|innodb|hyper::|tokio|axum|select |insert into|\
    update |delete from|sql syntax|duplicate entry|deadlock|panicked|backtrace|thread '|.rs:|src/|\
    /usr/|/tmp/|home/|os error|127.0.0.1";

/// A client that keeps its connections, unlike the one of `support`: it lives as long as its test.
pub(crate) struct Caller {
    client: Client,
    url: String,
}

impl Caller {
    pub(crate) fn new(url: &str) -> Self {
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(20));
        Self { client: client.build().expect("a client"), url: url.to_owned() }
    }

    /// A request with nothing but its line.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// A request with these bytes as JSON.
    pub(crate) fn raw(&self, route: (Method, &str), body: impl Into<Body>) -> RequestBuilder {
        let json = HeaderValue::from_static("application/json");
        self.request(route.0, route.1).header(CONTENT_TYPE, json).body(body)
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::of(request.send().await.expect("an answer")).await
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(self.request(Method::GET, path).header(AUTHORIZATION, bearer(token))).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        let request = self.raw((Method::POST, path), body.to_string());
        self.send(request.header(AUTHORIZATION, bearer(token))).await
    }

    /// Sends what must be refused: a problem of status 4xx that leaks nothing.
    pub(crate) async fn refused(&self, what: &str, request: RequestBuilder) -> Answer {
        let answer = self.send(request).await;
        assert!(answer.status.is_client_error(), "{what}: {} {}", answer.status, answer.body);
        assert_problem(what, &answer);
        answer
    }

    /// A voucher that is on sale now, with that stock; its id.
    pub(crate) async fn voucher(&self, stock: u32) -> String {
        let admin = token(1, Role::Admin);
        let created = self.post("/api/admin/vouchers", &admin, voucher_body(stock)).await;
        let id = created.expect(201)["voucher"]["id"].as_str().expect("an id").to_owned();
        self.post(&format!("/api/admin/vouchers/{id}/on-sale"), &admin, json!({}))
            .await
            .expect(200);
        id
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// What every problem has, and what none may say. `what` is what was sent, and may come back.
pub(crate) fn assert_problem(what: &str, answer: &Answer) {
    let Answer { status, headers, body } = answer;
    assert_eq!(headers["content-type"], "application/problem+json", "{what}: {body}");
    assert_eq!(body["status"], status.as_u16(), "{what}");
    for name in ["type", "title", "code", "detail", "request_id"] {
        assert!(body[name].as_str().is_some_and(|text| !text.is_empty()), "{what}: {name}: {body}");
    }
    assert_eq!(body["request_id"].as_str(), headers["x-request-id"].to_str().ok(), "{what}");
    assert_eq!(leak(&body.to_string(), what), None, "{what}: {body}");
}

/// A word that an answer must not contain, unless it was in the request.
pub(crate) fn leak(text: &str, sent: &str) -> Option<&'static str> {
    let (text, sent) = (text.to_lowercase(), sent.to_lowercase());
    SECRETS.split('|').chain([SECRET]).find(|word| text.contains(word) && !sent.contains(word))
}

/// Rows and checksum of every table that requests write to: equal means that nothing changed.
pub(crate) async fn contents(place: &Place) -> BTreeMap<String, (i64, Option<i64>)> {
    const TABLES: [&str; 5] = ["users", "vouchers", "voucher_stock", "stock_grants", "orders"];
    let connected = MySqlConnection::connect(&place.database_url).await;
    let mut database = connected.expect("the test's database");
    let rows = "SELECT (SELECT COUNT(*) FROM users), (SELECT COUNT(*) FROM vouchers), \
                (SELECT COUNT(*) FROM voucher_stock), (SELECT COUNT(*) FROM stock_grants), \
                (SELECT COUNT(*) FROM orders)";
    let rows = sqlx::query(rows).fetch_one(&mut database).await.expect("the counts");
    let sums = "CHECKSUM TABLE users, vouchers, voucher_stock, stock_grants, orders";
    let sums = sqlx::raw_sql(sums).fetch_all(&mut database).await.expect("the checksums");
    let tables = TABLES.into_iter().zip(&sums).enumerate();
    tables.map(|(at, (table, sum))| (table.to_owned(), (rows.get(at), sum.get(1)))).collect()
}

/// The keys in Redis.
pub(crate) async fn keys(place: &Place) -> BTreeSet<String> {
    let mut redis = redis_side::connect(&place.redis_url).await;
    redis::cmd("KEYS").arg("*").query_async(&mut redis).await.expect("the keys")
}
