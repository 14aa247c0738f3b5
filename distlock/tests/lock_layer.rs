//! `LockLayer` in a service of axum, on a real Redis.
#![cfg(feature = "tower")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::routing::post;
use distlock::{Lease, LockKind, LockLayer, LockName, LockOptions, Locks};
use support::{Look, connect, eventually, fresh_name, locks_of, server};
use testbed::{Bed, RedisOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// The handler of the service, which waits at a gate.
struct Gate {
    inside: AtomicU32,
    open: Semaphore,
}

impl Gate {
    async fn pass(&self) -> &'static str {
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await.expect("it is not closed").forget();
        "done"
    }
}

/// A service whose requests lock the name that is their path, without waiting for it.
struct Service {
    address: SocketAddr,
    gate: Arc<Gate>,
    locks: Locks,
}

impl Service {
    async fn start(redis: &str, lease: Duration) -> Self {
        let locks = locks_of(LockKind::Redisson, connect(redis).await);
        let options = LockOptions::new(Duration::ZERO, Lease::Renewed(lease));
        let layer = LockLayer::new(locks.clone(), options, |request: &Request<_>| {
            LockName::new(&request.uri().path()[1..])
        });
        let gate = Arc::new(Gate { inside: AtomicU32::new(0), open: Semaphore::new(0) });
        let handler = Arc::clone(&gate);
        let handler = post(async move || handler.pass().await);
        let app = Router::new().route("/{name}", handler.clone()).route("/", handler).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, gate, locks }
    }

    async fn send(&self, name: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        let request = format!("POST /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        stream
    }

    async fn post(&self, name: &str) -> String {
        answer(self.send(name).await).await
    }

    async fn until_inside(&self, requests: u32) {
        eventually("the handler runs", async || {
            self.gate.inside.load(Ordering::SeqCst) == requests
        })
        .await;
    }
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    let read = timeout(ANSWER, stream.read_to_string(&mut answer)).await;
    read.expect("an answer in time").expect("an answer");
    answer
}

fn assert_problem(answer: &str, status: &str, code: &str) {
    let is_problem = answer.starts_with(&format!("HTTP/1.1 {status}"))
        && answer.contains("content-type: application/problem+json")
        && answer.contains(&format!("\"code\":\"{code}\""));
    assert!(is_problem, "{status}, {code}: {answer}");
}

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_held_key_is_answered_with_409_and_another_key_or_the_next_request_is_not() {
    let service = Service::start(server().url(), LEASE).await;
    let (name, other) = (fresh_name(), fresh_name());
    let first = service.send(name.as_str()).await;
    service.until_inside(1).await;
    assert_problem(&service.post(name.as_str()).await, "409 Conflict", "lock_taken");
    let beside = service.send(other.as_str()).await;
    service.until_inside(2).await;
    service.gate.open.add_permits(2);
    for stream in [first, beside] {
        let answer = answer(stream).await;
        assert!(answer.ends_with("\r\n\r\ndone"), "{answer}");
    }
    // A client that has its answer finds the lock free.
    assert_eq!(Look::at(server().url()).await.lease(&name).await, None);
    service.gate.open.add_permits(1);
    assert!(service.post(name.as_str()).await.ends_with("done"));
    assert_problem(&service.post("").await, "400 Bad Request", "lock_name_invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_client_has_left_leaves_no_lock() {
    let (service, name) = (Service::start(server().url(), LEASE).await, fresh_name());
    let stream = service.send(name.as_str()).await;
    service.until_inside(1).await;
    let look = Look::at(server().url()).await;
    // Redisson's key is a hash: its time to live tells that it is there.
    assert!(look.lease(&name).await.is_some(), "it is held");
    drop(stream);
    eventually("it is released", async || look.lease(&name).await.is_none()).await;
    service.locks.flush().await;
    service.gate.open.add_permits(1);
    assert!(service.post(name.as_str()).await.ends_with("done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_server_a_request_is_answered_with_503_and_not_begun() {
    let bed = Bed::start().expect("a private bed");
    let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
    let service = Service::start(redis.url(), LEASE).await;
    redis.kill().expect("a dead server");
    let answer = service.post(fresh_name().as_str()).await;
    assert_problem(&answer, "503 Service Unavailable", "lock_unavailable");
    assert!(!answer.contains("127.0.0.1"), "it names the server: {answer}");
    assert_eq!(service.gate.inside.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_lock_is_lost_ends_with_503() {
    // Not lost by itself where all stands still for a moment.
    let lease = Duration::from_millis(3600);
    let (service, name) = (Service::start(server().url(), lease).await, fresh_name());
    let stream = service.send(name.as_str()).await;
    service.until_inside(1).await;
    Look::at(server().url()).await.delete(&name).await;
    assert_problem(&answer(stream).await, "503 Service Unavailable", "lock_lost");
}
