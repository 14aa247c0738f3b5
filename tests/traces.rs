//! Traces of a replica, as a collector of OTLP gets them. Built with the feature `otlp` only, as is
//! the replica.

// Half of what the service's other tests share.
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/redis_side.rs"]
mod redis_side;
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use seckill::domain::Role;
use serde_json::{Value, json};
use testbed::{Replica, ReplicaSpec};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::support::{Place, SECRET, client, eventually, servers, token, voucher_body};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A span, as far as the tests look.
#[derive(Debug, Clone)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    attributes: BTreeMap<String, String>,
}

/// Spans by name.
type Spans = Arc<Mutex<Vec<(String, Span)>>>;

/// A collector on a port of its own; its address, and what it has got.
async fn collector() -> (String, Spans) {
    let spans = Spans::default();
    let kept = Arc::clone(&spans);
    let take = async move |body: Bytes| {
        let batch: Value = serde_json::from_slice(&body).expect("JSON");
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend(read(&batch));
        (StatusCode::OK, "{}")
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let app = axum::Router::new().route("/v1/traces", post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, spans)
}

fn read(batch: &Value) -> Vec<(String, Span)> {
    let each = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let resources = each(batch, "resourceSpans");
    let scopes = resources.iter().flat_map(|one| each(one, "scopeSpans"));
    let spans = scopes.flat_map(|one| each(&one, "spans"));
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let read = |span: Value| {
        let attributes = each(&span, "attributes");
        let attributes = attributes.iter().map(|one| {
            let value = one["value"].as_object().and_then(|value| value.values().next().cloned());
            (text(&one["key"]), text(&value.unwrap_or_default()))
        });
        let read = Span {
            trace: text(&span["traceId"]),
            id: text(&span["spanId"]),
            parent: text(&span["parentSpanId"]),
            attributes: attributes.collect(),
        };
        (text(&span["name"]), read)
    };
    spans.map(read).collect()
}

async fn replica(place: &Place, flags: &'static [&'static str], endpoint: &str) -> Replica {
    let spec =
        ReplicaSpec::new(format!("traced-{}", uuid::Uuid::new_v4()), env!("CARGO_BIN_EXE_seckill"))
            .args(["serve", "--bind", "127.0.0.1:0", "--dev", "--lab", "--drain-delay-ms", "0"])
            .args(flags.iter().copied())
            .env("DATABASE_URL", &place.database_url)
            .env("REDIS_URL", place.service_redis_url())
            .env("JWT_SECRET", SECRET)
            .env("OTLP_ENDPOINT", endpoint)
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    spawn_blocking(|| servers().bed.replica(spec).expect("a replica")).await.expect("a replica")
}

async fn place() -> Place {
    spawn_blocking(Place::fresh).await.expect("a place")
}

/// A new voucher on sale, with one unit; its id.
async fn voucher(replica: &Replica) -> String {
    voucher_with_stock(replica, 1).await
}

async fn voucher_with_stock(replica: &Replica, stock: u32) -> String {
    let post = |path: String| {
        client().post(format!("http://{}{path}", replica.addr())).bearer_auth(token(1, Role::Admin))
    };
    let made = post("/api/admin/vouchers".to_owned()).json(&voucher_body(stock)).send().await;
    let made: Value = made.expect("an answer").json().await.expect("JSON");
    let id = made["voucher"]["id"].as_str().expect("an id").to_owned();
    let on_sale = post(format!("/api/admin/vouchers/{id}/on-sale")).json(&json!({})).send().await;
    assert!(on_sale.expect("an answer").status().is_success());
    id
}

/// Buys a unit, as part of the caller's trace.
async fn buy(replica: &Replica, voucher: &str) -> StatusCode {
    let url = format!("http://{}/api/vouchers/{voucher}/orders", replica.addr());
    let order = client().post(url).bearer_auth(token(7, Role::Buyer));
    let order = order.header("traceparent", format!("00-{TRACE}-{CALLER}-00"));
    order.send().await.expect("an answer").status()
}

/// Stops in order; how long that took.
async fn stop(replica: Replica) -> Duration {
    let began = Instant::now();
    let stopping = move || replica.stop(Duration::from_secs(30)).expect("an orderly stop");
    spawn_blocking(stopping).await.expect("an end");
    began.elapsed()
}

fn of_caller(spans: &Spans) -> BTreeMap<String, Span> {
    let spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
    spans.iter().filter(|(_, span)| span.trace == TRACE).cloned().collect()
}

/// The outcome of a span of a purchase's lock.
fn outcome_of_purchase(span: &Span) -> &str {
    assert_eq!(span.attributes["lock.kind"], "redisson", "{span:?}");
    assert_eq!(span.attributes["lock.name"], "lock:order:*", "a name without the user: {span:?}");
    &span.attributes["outcome"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_is_one_trace_from_its_request_through_its_lock_to_its_order() {
    let (endpoint, spans) = collector().await;
    let replica = replica(&place().await, &["--trace-ratio", "1"], &endpoint).await;
    assert_eq!(buy(&replica, &voucher(&replica).await).await, StatusCode::CREATED);
    stop(replica).await;
    let spans = of_caller(&spans);
    let request = &spans["POST /api/vouchers/{id}/orders"];
    assert_eq!(request.parent, CALLER);
    assert_eq!(request.attributes["http.response.status_code"], "201", "{request:?}");
    for inside in ["lock.wait", "lock.hold", "order.write"] {
        assert_eq!(spans[inside].parent, request.id, "{inside} in {spans:?}");
    }
    assert_eq!(spans["lock.release"].parent, spans["lock.hold"].id, "{spans:?}");
    for (name, outcome) in
        [("lock.wait", "acquired"), ("lock.hold", "kept"), ("lock.release", "released")]
    {
        assert_eq!(outcome_of_purchase(&spans[name]), outcome, "{name}");
    }
    assert_eq!(spans.len(), 5, "{spans:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_busy_lock_shows_its_hand_off() {
    const LOCK: &str = "lock:order:7";
    const CHANNEL: &str = "redisson_lock__channel:{lock:order:7}";
    let (endpoint, spans) = collector().await;
    let flags = &["--trace-ratio", "1", "--lock-wait-ms", "20000"];
    // Inside of one replica a lock is handed on by its queue, and the server is asked once.
    let place = place().await;
    let replicas =
        [replica(&place, flags, &endpoint).await, replica(&place, flags, &endpoint).await];
    let vouchers = [voucher(&replicas[0]).await, voucher(&replicas[0]).await];
    // Another process has the lock until both have found it busy and listen.
    let mut redis = redis_side::connect(&place.redis_url).await;
    let mut taken = redis::pipe();
    taken.hset(LOCK, "theirs:1", 1).ignore().pexpire(LOCK, 60_000).ignore();
    taken.exec_async(&mut redis).await.expect("a lock");
    let handing_on = async {
        let listeners = async || {
            let mut listeners = redis::cmd("PUBSUB");
            listeners.arg("NUMSUB").arg(CHANNEL);
            let answer: (String, u64) =
                listeners.query_async(&mut redis.clone()).await.expect("an answer");
            answer.1
        };
        eventually("both wait for the lock", async || listeners().await == 2).await;
        let mut released = redis::pipe();
        released.del(LOCK).ignore().publish(CHANNEL, 0).ignore();
        released.exec_async(&mut redis.clone()).await.expect("no lock");
    };
    let (first, second, ()) =
        tokio::join!(buy(&replicas[0], &vouchers[0]), buy(&replicas[1], &vouchers[1]), handing_on);
    assert!(first.is_success() && second.is_success(), "{first} {second}: two vouchers");
    for replica in replicas {
        stop(replica).await;
    }
    let all = spans.lock().unwrap_or_else(PoisonError::into_inner);
    let named = |wanted: &str| all.iter().filter(|(name, _)| name == wanted).count();
    assert_eq!(named("lock.hold"), 2, "{all:?}");
    let hand_offs = all.iter().filter(|(name, _)| name == "lock.hand_off");
    let outcomes: Vec<_> = hand_offs.map(|(_, span)| outcome_of_purchase(span)).collect();
    assert!(outcomes.contains(&"acquired"), "{all:?}");
    assert!(outcomes.iter().all(|outcome| ["acquired", "busy"].contains(outcome)), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_sampled_send_nothing() {
    let (endpoint, spans) = collector().await;
    let replica = replica(&place().await, &["--trace-ratio", "0"], &endpoint).await;
    assert_eq!(buy(&replica, &voucher(&replica).await).await, StatusCode::CREATED);
    stop(replica).await;
    assert!(spans.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampled_request_is_traced_whole_beside_requests_that_are_not() {
    const BUYERS: u32 = 64;
    let (endpoint, spans) = collector().await;
    let replica = replica(&place().await, &["--trace-ratio", "0.5"], &endpoint).await;
    let voucher = voucher_with_stock(&replica, BUYERS).await;
    let url = format!("http://{}/api/vouchers/{voucher}/orders", replica.addr());
    let buy = |buyer| client().post(&url).bearer_auth(token(buyer, Role::Buyer)).send();
    let answers = futures_util::future::join_all((1..=BUYERS).map(|buyer| buy(buyer.into()))).await;
    for answer in answers {
        assert_eq!(answer.expect("an answer").status(), StatusCode::CREATED);
    }
    stop(replica).await;
    let mut traces = BTreeMap::<String, BTreeMap<String, Span>>::new();
    for (name, span) in spans.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        traces.entry(span.trace.clone()).or_default().insert(name, span);
    }
    let is_of_setup = |name: &String| name.contains("/api/admin/") || name == "GET /readyz";
    traces.retain(|_, spans| !spans.keys().any(is_of_setup));
    // Chance has all or none of 64 once in 2^63 runs.
    assert!((1..64).contains(&traces.len()), "{} traces", traces.len());
    let request = "POST /api/vouchers/{id}/orders";
    for spans in traces.into_values() {
        let names: Vec<&str> = spans.keys().map(String::as_str).collect();
        assert_eq!(names, [request, "lock.hold", "lock.release", "lock.wait", "order.write"]);
        for name in ["lock.wait", "lock.hold", "order.write"] {
            assert_eq!(spans[name].parent, spans[request].id, "the parent of {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_delays_no_purchase_and_no_stop() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", silent.local_addr().expect("an address"));
    let replica = replica(&place().await, &["--trace-ratio", "1"], &endpoint).await;
    assert_eq!(buy(&replica, &voucher(&replica).await).await, StatusCode::CREATED);
    eventually("the replica is ready", async || {
        let ready = client().get(format!("http://{}/readyz", replica.addr())).send().await;
        ready.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    let took = stop(replica).await;
    assert!(took < Duration::from_secs(15), "{took:?}, and 5 s are the bound of the last batch");
}
