//! What a replica in Java answers, beside one in Rust.

use loadtest_lab::cluster::{Cluster, ServerPrograms};
use loadtest_lab::deployment::{Deployment, DeploymentSpec};
use loadtest_lab::fleet::{Fleet, ReplicasOf};
use loadtest_load::tokens::User;
use serde_json::{Value, json};

use super::seckill;

/// What one replica answers to a script of requests, without what differs between two of them.
struct Script<'a> {
    base_url: &'a str,
    replica: usize,
    admin: &'a User,
    said: Vec<(&'static str, Value)>,
}

impl Script<'_> {
    /// Notes the answer to a request; gives the id of the voucher in it.
    async fn call(
        &mut self,
        what: &'static str,
        (method, path): (&str, &str),
        authorization: Option<&str>,
        body: Option<Value>,
    ) -> String {
        let method = method.parse().expect("a method");
        let url = format!("{}{path}", self.base_url);
        let mut request = reqwest::Client::new().request(method, url);
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let name = format!("r{}", self.replica + 1);
        assert_eq!(answer.headers()["x-replica"], name.as_str());
        let headers = answer.headers().clone();
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let told = ["content-type", "www-authenticate", "retry-after", "x-lab", "cache-control"];
        let told = told.map(header);
        let location = header("location").map(|at| at.trim_end_matches(char::is_numeric));
        // A refusal may come before the lock in one and under it in the other.
        let held = header("x-lab-held").filter(|_| status == 201);
        let holds = held.map(|held| held.split('-').count());
        let mut body: Value = answer.json().await.expect("JSON");
        let voucher = body["voucher"]["id"].as_str().unwrap_or_default().to_owned();
        forget_what_differs(&mut body);
        let answer = json!([status, told, location, holds, body]);
        self.said.push((what, answer));
        voucher
    }

    async fn voucher(&mut self, stock: u64, (starts, ends): (&str, &str)) -> String {
        let new = json!({
            "title": "Dinner", "description": "For two.", "price_cents": 8000,
            "face_value_cents": 10_000, "stock": stock,
            "starts_at": format!("{starts}-01-01T00:00:00Z"),
            "ends_at": format!("{ends}-01-01T00:00:00Z"),
        });
        let admin = text(self.admin);
        let at = ("POST", "/api/admin/vouchers");
        let id = self.call("create", at, Some(admin), Some(new)).await;
        let path = format!("/api/admin/vouchers/{id}/on-sale");
        self.call("put on sale", ("POST", &path), Some(admin), Some(json!({}))).await;
        id
    }

    async fn buy(
        &mut self,
        what: &'static str,
        id: &str,
        user: Option<&User>,
        body: Option<Value>,
    ) {
        let path = format!("/api/vouchers/{id}/orders");
        self.call(what, ("POST", &path), user.map(text), body).await;
    }

    /// Purchases that end in each way, and what an admin sees of them.
    async fn run(&mut self, [first, second]: [&User; 2]) {
        let open = self.voucher(1, ("2020", "2090")).await;
        self.buy("no token", &open, None, None).await;
        let path = format!("/api/vouchers/{open}/orders");
        self.call("a bad token", ("POST", &path), Some("Bearer x.y.z"), None).await;
        self.buy("no id", "x", Some(first), None).await;
        self.buy("no voucher", "999999", Some(first), None).await;
        let price = Some(json!({"price_cents": 1}));
        self.buy("another price", &open, Some(first), price).await;
        self.buy("bought", &open, Some(first), None).await;
        self.buy("sold out", &open, Some(second), None).await;
        let admin = text(self.admin);
        let stock = format!("/api/admin/vouchers/{open}/stock");
        self.call("stock", ("POST", &stock), Some(admin), Some(json!({"units": 2}))).await;
        self.buy("bought already", &open, Some(first), None).await;
        let early = self.voucher(1, ("2080", "2090")).await;
        self.buy("not started", &early, Some(first), None).await;
        let late = self.voucher(1, ("2020", "2021")).await;
        self.buy("ended", &late, Some(first), None).await;
        let path = format!("/api/vouchers/{open}");
        self.call("a voucher", ("GET", &path), None, None).await;
        let audit = format!("/api/admin/vouchers/{open}/audit");
        self.call("audit", ("GET", &audit), Some(admin), None).await;
        self.call("a buyer's audit", ("GET", &audit), Some(text(first)), None).await;
        self.call("no audit", ("GET", &audit), None, None).await;
        self.call("no address", ("GET", "/api/nothing"), None, None).await;
        self.call("no such method", ("DELETE", &path), None, None).await;
        self.call("alive", ("GET", "/livez"), None, None).await;
    }
}

/// A request that is refused for its form.
struct BadRequest {
    what: &'static str,
    method: &'static str,
    /// `{id}` is that of a voucher on sale.
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

const ORDER: &str = "/api/vouchers/{id}/orders";
const VOUCHERS: &str = "/api/admin/vouchers";
const STOCK: &str = "/api/admin/vouchers/{id}/stock";
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];
const LIKE_JSON: &[(&str, &str)] = &[("content-type", "application/vnd.api+json")];
const PACKED: &[(&str, &str)] =
    &[("content-type", "application/json; charset=utf-8"), ("content-encoding", "gzip")];
const BASIC: &[(&str, &str)] = &[("authorization", "Basic eDp5")];
const IMAGE: &[(&str, &str)] = &[("accept", "image/png")];

const fn bad(
    what: &'static str,
    (method, path): (&'static str, &'static str),
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
) -> BadRequest {
    BadRequest { what, method, path, headers, body }
}

/// Each is sent with an admin's token, unless it has one of its own.
const BAD_REQUESTS: [BadRequest; 52] = [
    bad("a form", ("POST", STOCK), FORM, "units=2"),
    bad("no content type", ("POST", STOCK), &[], "{\"units\":2}"),
    bad("no content type and no body", ("POST", STOCK), &[], ""),
    bad("a type like JSON", ("POST", STOCK), LIKE_JSON, "{\"units\":2}"),
    bad("a type that is none", ("POST", STOCK), &[("content-type", "json")], "{\"units\":2}"),
    bad("a packed body", ("POST", STOCK), PACKED, "{\"units\":2}"),
    bad("an order as a form", ("POST", ORDER), FORM, "price_cents=1"),
    bad("a packed order", ("POST", ORDER), PACKED, "{}"),
    bad("a voucher as text", ("POST", VOUCHERS), &[("content-type", "text/plain")], "{}"),
    bad("on sale as a form", ("POST", "/api/admin/vouchers/{id}/on-sale"), FORM, "a=b"),
    bad("on sale with a field", ("POST", "/api/admin/vouchers/{id}/on-sale"), JSON, "{\"a\":1}"),
    bad("no object", ("POST", STOCK), JSON, "[2]"),
    bad("an object in UTF-16", ("POST", STOCK), JSON, "{\0\"\0u\0n\0i\0t\0s\0\"\0:\x002\0}\0"),
    bad("an object in UTF-16BE", ("POST", STOCK), JSON, "\0{\0\"\0u\0n\0i\0t\0s\0\"\0:\x002\0}"),
    bad("an empty object in UTF-32", ("POST", ORDER), JSON, "{\0\0\0}\0\0\0"),
    bad("a mark of the order of bytes", ("POST", STOCK), JSON, "\u{feff}{\"units\":2}"),
    bad("a wide blank before the object", ("POST", STOCK), JSON, "\u{3000}{\"units\":2}"),
    bad("an empty body", ("POST", STOCK), JSON, ""),
    bad("half an object", ("POST", STOCK), JSON, "{\"units\":2"),
    bad("two objects", ("POST", STOCK), JSON, "{\"units\":2}{}"),
    bad("an order that is no JSON", ("POST", ORDER), JSON, "{price_cents:1}"),
    bad("an unknown field", ("POST", STOCK), JSON, "{\"units\":2,\"more\":1}"),
    bad("a field of an order", ("POST", ORDER), JSON, "{\"priceCents\":1}"),
    bad("a field given twice", ("POST", STOCK), JSON, "{\"units\":2,\"units\":3}"),
    bad("a missing field", ("POST", STOCK), JSON, "{}"),
    bad("a field without a value", ("POST", STOCK), JSON, "{\"units\":null}"),
    bad("a number as text", ("POST", STOCK), JSON, "{\"units\":\"2\"}"),
    bad("a broken number", ("POST", STOCK), JSON, "{\"units\":2.5}"),
    bad("no units", ("POST", STOCK), JSON, "{\"units\":0}"),
    bad("too many units", ("POST", STOCK), JSON, "{\"units\":1000001}"),
    bad("units beyond 32 bits", ("POST", STOCK), JSON, "{\"units\":5000000000}"),
    bad("a negative price", ("POST", ORDER), JSON, "{\"price_cents\":-1}"),
    bad("a price beyond the limit", ("POST", ORDER), JSON, "{\"price_cents\":10000000001}"),
    bad("a voucher with a title alone", ("POST", VOUCHERS), JSON, "{\"title\":\"Dinner\"}"),
    bad("an id of zero", ("GET", "/api/vouchers/0"), &[], ""),
    bad("a negative id", ("GET", "/api/vouchers/-1"), &[], ""),
    bad("an id with a sign", ("GET", "/api/vouchers/+1"), &[], ""),
    bad("a hexadecimal id", ("GET", "/api/vouchers/0x1"), &[], ""),
    bad("an id with a blank", ("GET", "/api/vouchers/%201"), &[], ""),
    bad("an id beyond 63 bits", ("GET", "/api/vouchers/9223372036854775808"), &[], ""),
    bad("an id of 20 digits", ("GET", "/api/vouchers/00000000000000000001"), &[], ""),
    bad("an id with a slash", ("POST", "/api/vouchers/1%2F2/orders"), &[], ""),
    bad("a bad id and a form", ("POST", "/api/admin/vouchers/x/stock"), FORM, "units=2"),
    bad("an id of an audit", ("GET", "/api/admin/vouchers/1.0/audit"), &[], ""),
    bad("another scheme", ("POST", ORDER), BASIC, ""),
    bad("a scheme, a bad id and a form", ("POST", "/api/vouchers/x/orders"), BASIC, "a=b"),
    bad("PUT of an order", ("PUT", ORDER), JSON, "{}"),
    bad("OPTIONS of an order", ("OPTIONS", ORDER), &[], ""),
    bad("POST to no address", ("POST", "/api/nothing"), JSON, "{}"),
    bad("an admin's address that is none", ("GET", "/api/admin/nothing"), &[], ""),
    bad("a voucher that is not there, as an image", ("GET", "/api/vouchers/999999"), IMAGE, ""),
    bad("another token", ("POST", ORDER), &[("authorization", "Bearer x")], "{}"),
];

/// What a replica answers to a bad request: status, code, and the words but for their place in
/// the text, which parsers count in their own ways.
async fn refusal(base_url: &str, id: &str, admin: &User, bad: &BadRequest) -> Value {
    let url = format!("{base_url}{}", bad.path.replace("{id}", id));
    let method = bad.method.parse().expect("a method");
    let mut request = reqwest::Client::new().request(method, url);
    if bad.headers.iter().all(|(name, _)| *name != "authorization") {
        request = request.header("authorization", text(admin));
    }
    for (name, value) in bad.headers {
        request = request.header(*name, *value);
    }
    let answer = request.body(bad.body).send().await.expect("an answer");
    let status = answer.status().as_u16();
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let headers = ["content-type", "accept-encoding", "www-authenticate"].map(header);
    let headers = json!(headers);
    let text = answer.text().await.expect("a body");
    let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let words = body["detail"].as_str().unwrap_or(&text).split(" (line").next();
    json!([status, body["code"], body["field"], words, headers])
}

fn text(user: &User) -> &str {
    user.authorization.to_str().expect("text")
}

/// Ids, and moments that the server chooses.
fn forget_what_differs(body: &mut Value) {
    const DIFFER: [&str; 7] =
        ["id", "voucher_id", "user_id", "order_id", "request_id", "created_at", "server_time"];
    for (name, value) in body.as_object_mut().into_iter().flatten() {
        if DIFFER.contains(&name.as_str()) {
            *value = json!(value.is_string());
        } else {
            forget_what_differs(value);
        }
    }
}

/// One replica in Rust, and one in Java.
async fn one_of_each(cluster: &Cluster) -> Deployment {
    let flags = ["--lab", "--lock", "redisson"].map(str::to_owned).to_vec();
    let fleet = Fleet { replicas_of: ReplicasOf::Mixed, ..Fleet::RUST };
    let spec = DeploymentSpec { replicas: 2, flags, fleet, ..DeploymentSpec::default() };
    cluster.deploy(spec).await.expect("a deployment")
}

#[tokio::test]
async fn a_replica_in_java_refuses_bad_requests_as_one_in_rust_does() {
    let cluster =
        Cluster::start(ServerPrograms::INSTALLED, seckill(), &[]).await.expect("the servers");
    let deployment = one_of_each(&cluster).await;
    let (admins, _) = deployment.users(1, true).await.expect("an admin");
    let admin = &admins[0];
    let base_urls = [0, 1].map(|replica| deployment.replicas()[replica].base_url());
    let mut script = Script { base_url: base_urls[0], replica: 0, admin, said: Vec::new() };
    let id = script.voucher(1, ("2020", "2090")).await;
    let (mut differ, mut codes) = (Vec::new(), std::collections::BTreeSet::new());
    for bad in &BAD_REQUESTS {
        let ours = refusal(base_urls[0], &id, admin, bad).await;
        let java = refusal(base_urls[1], &id, admin, bad).await;
        codes.insert(ours[1].as_str().unwrap_or("none").to_owned());
        if ours != java {
            differ.push(format!("{}: {ours}, in Java {java}", bad.what));
        }
    }
    let too_large = json!({"units": "2".repeat(17_000)}).to_string();
    let too_large =
        BadRequest { body: too_large.leak(), ..bad("large", ("POST", STOCK), JSON, "") };
    let large = [base_urls[0], base_urls[1]].map(|at| refusal(at, &id, admin, &too_large));
    let [ours, java] = large;
    let (ours, java) = (ours.await, java.await);
    assert_eq!((&ours[1], &ours), (&json!("body_too_large"), &java));
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    let all = "body_encoded invalid_body invalid_id method_not_allowed not_found not_json";
    let all = format!("{all} unauthorized voucher_not_found");
    assert_eq!(codes.into_iter().collect::<Vec<_>>().join(" "), all);
}

#[tokio::test]
async fn a_replica_in_java_answers_as_one_in_rust_does() {
    let cluster =
        Cluster::start(ServerPrograms::INSTALLED, seckill(), &[]).await.expect("the servers");
    let deployment = one_of_each(&cluster).await;
    let (users, _) = deployment.users(4, false).await.expect("buyers");
    let (admins, _) = deployment.users(1, true).await.expect("an admin");
    let mut said = Vec::new();
    for (replica, running) in deployment.replicas().iter().enumerate() {
        let base_url = running.base_url();
        let mut script = Script { base_url, replica, admin: &admins[0], said: Vec::new() };
        script.run([&users[2 * replica], &users[2 * replica + 1]]).await;
        said.push(script.said);
    }
    let [ours, java] = &said[..] else { panic!("two replicas") };
    assert_eq!(ours.len(), java.len());
    for ((what, ours), (_, java)) in ours.iter().zip(java) {
        assert_eq!(java, ours, "{what}");
    }
}
