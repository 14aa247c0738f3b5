//! Too much of everything: refused fast, and without the process growing.

use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::caller::{Caller, bearer, contents};
use crate::fleet::{Fleet, fleet, fleet_of_its_own};
use crate::support::{Service, token};
use crate::wire::{ReceivedBytes, SILENCE, connect, exchange, listen};

/// The longest body that is taken, in bytes.
const LIMIT: usize = 16 * 1024;
/// Faster than any time-out of the service's.
const FAST: Duration = Duration::from_secs(3);
/// What a replica may grow by while it is attacked.
const GROWTH_KIB: u64 = 50 * 1024;

/// A login without a code, and well formed.
const LOGIN: &str = r#"{"phone":"13800000001","challenge":"00000000000000000000000000000000",
    "code":"123456"}"#;

/// Every route that takes a body, and the shortest good one.
fn routes(id: &str) -> [(Method, String, &'static str); 7] {
    [
        (Method::POST, "/api/login/codes".into(), r#"{"phone":"13800000001"}"#),
        (Method::POST, "/api/login".into(), LOGIN),
        (
            Method::POST,
            "/api/admin/vouchers".into(),
            r#"{"title":"t","description":"","price_cents":1,"face_value_cents":1,"stock":1,
                "starts_at":"2020-01-01T00:00:00Z","ends_at":"2120-01-01T00:00:00Z"}"#,
        ),
        (Method::PATCH, format!("/api/admin/vouchers/{id}"), r#"{"title":"t"}"#),
        (Method::POST, format!("/api/admin/vouchers/{id}/stock"), r#"{"units":1}"#),
        (Method::POST, format!("/api/admin/vouchers/{id}/on-sale"), "{}"),
        (Method::POST, format!("/api/vouchers/{id}/orders"), "{}"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_may_have_16384_bytes_and_not_one_more() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(5).await;
    for (method, path, body) in routes(&id) {
        let sized = |bytes: usize| format!("{body}{}", " ".repeat(bytes - body.len()));
        let request = |bytes| {
            let request = caller.raw((method.clone(), &path), sized(bytes));
            request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)))
        };
        let before = contents(&service.place).await;
        for bytes in [LIMIT + 1, LIMIT * 2, LIMIT * 100] {
            let answer = caller.refused(&path, request(bytes)).await;
            assert_eq!(answer.problem(413), "body_too_large", "{path}: {bytes} bytes");
        }
        assert_eq!(contents(&service.place).await, before);
        let answer = caller.send(request(LIMIT)).await;
        let good = answer.status.is_success() || answer.body["code"] == "wrong_code";
        assert!(good, "{path}: {}", answer.body);
    }
}

/// The head of a request to that route, up to where the body's length would stand.
fn head(method: &Method, path: &str) -> String {
    let token = token(1, Role::Admin);
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n"
    )
}

fn resident_kib(fleet: &Fleet) -> u64 {
    let status = format!("/proc/{}/status", fleet.replicas[0].pid());
    let status = std::fs::read_to_string(status).expect("a running replica");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("of KiB")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_far_too_large_is_refused_fast_and_not_kept_in_memory() {
    let fleet = fleet().await;
    let caller = Caller::new(fleet.replicas[0].base_url());
    let id = caller.voucher(5).await;
    // Once each, so that what is allocated once is allocated.
    attack(fleet, &id).await;
    let path = format!("/api/vouchers/{id}");
    let voucher = async || {
        let answer = caller.send(caller.request(Method::GET, &path)).await;
        answer.expect(200)["voucher"].clone()
    };
    let before = (voucher().await, resident_kib(fleet));
    for _ in 0..5 {
        attack(fleet, &id).await;
    }
    let grown = resident_kib(fleet).saturating_sub(before.1);
    assert!(grown < GROWTH_KIB, "grew by {grown} KiB");
    assert_eq!(voucher().await, before.0);
}

async fn attack(fleet: &Fleet, id: &str) {
    let url = fleet.replicas[0].base_url();
    for (method, path, _) in routes(id) {
        let what = format!("{method} {path}");
        let declared = format!("{}Content-Length: 1073741824\r\n\r\n", head(&method, &path));
        timed(&what, 413, exchange(url, declared.as_bytes(), FAST)).await;
        timed(&what, 413, endless(url, head(&method, &path))).await;
    }
    let many = "X-Many: 1\r\n".repeat(10_000);
    for end in [many, format!("X-Long: {}\r\n", "x".repeat(1 << 20)), "x".repeat(100_000)] {
        let request = format!("GET /api/vouchers HTTP/1.1\r\nHost: x\r\n{end}\r\n");
        timed("headers", 431, exchange(url, request.as_bytes(), FAST)).await;
    }
    for long in [64 * 1024, 1 << 20] {
        for uri in
            [format!("/{}", "a".repeat(long)), format!("/api/orders?cursor={}", "1".repeat(long))]
        {
            let request = format!("GET {uri} HTTP/1.1\r\nHost: x\r\n\r\n");
            timed("address", 414, exchange(url, request.as_bytes(), FAST)).await;
        }
    }
}

/// A body in chunks that never ends, until one side closes the connection.
async fn endless(url: &str, head: String) -> ReceivedBytes {
    let mut stream = connect(url).await;
    let start = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    stream.write_all(start.as_bytes()).await.expect("the head is taken");
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let started = Instant::now();
    while stream.write_all(chunk.as_bytes()).await.is_ok() {
        assert!(started.elapsed() < FAST, "a body without end was read for {FAST:?}");
    }
    listen(&mut stream, FAST).await
}

/// The answer is of that kind, the connection is closed, and both came fast.
async fn timed(what: &str, expected: u16, answer: impl Future<Output = ReceivedBytes>) {
    let started = Instant::now();
    let heard = answer.await;
    assert!(started.elapsed() < FAST, "{what}: {:?}", started.elapsed());
    assert!(heard.closed, "{what}: the rest would be read as the next request");
    // Unread bytes make the kernel reset the connection, at times before the answer.
    let statuses = heard.statuses();
    let fit = match statuses[..] {
        [] => true,
        [414 | 431] => matches!(expected, 414 | 431),
        [status] => status == expected,
        _ => false,
    };
    assert!(fit, "{what}: {expected} was expected: {}", heard.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_bomb_is_not_unpacked() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    // What gzip makes of a gigabyte of zeros begins like this.
    let mut bomb = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\xec\xc1\x31\x01\0\0\0\xc2\xa0\xf5\x4f".to_vec();
    bomb.resize(LIMIT, 0);
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let request = caller.raw((Method::POST, "/api/login/codes"), bomb.clone());
        let answer = caller.refused(encoding, request.header("content-encoding", encoding)).await;
        assert_eq!(answer.problem(415), "body_encoded", "{encoding}");
    }
}

/// Attempts of each, since an answer is lost now and then.
const ATTEMPTS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn a_far_too_long_body_is_answered_each_time_also_through_the_proxy() {
    let fleet = fleet().await;
    let json = "Host: x\r\nConnection: close\r\nContent-Type: application/json";
    let login = format!("POST /api/login HTTP/1.1\r\n{json}");
    let nobody = format!("POST /api/vouchers/1/orders HTTP/1.1\r\n{json}");
    let mut lost = Vec::new();
    for url in [fleet.proxy.url(), fleet.replicas[0].base_url()] {
        for (head, bytes, status, code) in [
            (&login, 200_000, 413, "body_too_large"),
            (&login, 3_000_000, 413, "body_too_large"),
            (&nobody, 3_000_000, 401, "unauthorized"),
        ] {
            let body = " ".repeat(bytes);
            let sized = format!("{head}\r\nContent-Length: {bytes}\r\n\r\n{body}");
            let chunked = format!(
                "{head}\r\nTransfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n{body}\r\n0\r\n\r\n"
            );
            for request in [sized, chunked] {
                for _ in 0..ATTEMPTS {
                    let heard = exchange(url, request.as_bytes(), FAST).await;
                    let told = heard.text.contains(&format!(r#""code":"{code}""#));
                    if heard.statuses() != [status] || !told || !heard.closed {
                        lost.push(format!("{url} {head} {bytes}: {}", heard.text));
                    }
                }
            }
        }
    }
    assert!(lost.is_empty(), "{} without a good answer: {}", lost.len(), lost.join("\n"));
}

/// More than a replica reads the rest of at a time.
const STALLED: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn stalled_clients_that_are_refused_are_answered_within_seconds_however_many() {
    // Of its own: these take all places of a replica, and meanwhile others may miss their answers.
    let fleet = fleet_of_its_own("stalled").await;
    let start = format!(
        "POST /api/vouchers/1/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n{}",
        " ".repeat(40_000)
    );
    for url in [fleet.proxy.url(), fleet.replicas[0].base_url()] {
        let mut stalled = tokio::task::JoinSet::new();
        for _ in 0..STALLED {
            let (url, start) = (url.to_owned(), start.clone());
            stalled.spawn(async move {
                let mut stream = connect(&url).await;
                let _cut_short = stream.write_all(start.as_bytes()).await;
                let mut answer = vec![0; 1024];
                let length = timeout(FAST, stream.read(&mut answer)).await.expect("in time");
                // Where there was no place the reset may have come first.
                answer.truncate(length.unwrap_or(0));
                String::from_utf8_lossy(&answer).into_owned()
            });
        }
        let heard = stalled.join_all().await;
        let refused = heard.iter().filter(|heard| heard.starts_with("HTTP/1.1 401")).count();
        let reset = heard.iter().filter(|heard| heard.is_empty()).count();
        assert!(refused > 0 && refused + reset == STALLED, "{url}: {heard:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_100_continue_is_not_asked_to_send_too_much() {
    let service = Service::start(&[]).await;
    let question = "POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 200000\r\n\r\n";
    let started = Instant::now();
    let heard = exchange(&service.url, question.as_bytes(), FAST).await;
    assert_eq!(heard.statuses(), [413], "{}", heard.text);
    assert!(heard.closed && started.elapsed() < FAST, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_headers_are_refused_by_the_proxy_with_a_problem() {
    let fleet = fleet().await;
    for (count, status) in [(96, 200), (97, 431), (150, 431), (600, 431)] {
        let headers = "X-Many: a, b\r\n".repeat(count);
        // The page, which needs no other server.
        let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        let heard = exchange(fleet.proxy.url(), request.as_bytes(), SILENCE).await;
        assert_eq!(heard.statuses(), [status], "{count}: {}", heard.text);
        let problem = heard.text.contains("content-type: application/problem+json");
        assert_eq!(problem, status == 431, "{count}: {}", heard.text);
    }
}
