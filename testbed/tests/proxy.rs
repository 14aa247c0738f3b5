//! The proxy that ships: what it publishes, whom it asks, what it repeats, what it answers itself.

mod support;

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{Answer, await_that, request, send, stand_in};
use testbed::{Bed, Haproxy, Replica, Stopwatch};

/// Stand-in replicas and the proxy in front of them. The bed comes last, so it is dropped last.
struct Cluster {
    proxy: Haproxy,
    replicas: Vec<Replica>,
    _bed: Bed,
}

fn cluster(replicas: usize) -> Cluster {
    let bed = Bed::start().unwrap();
    let replicas: Vec<_> =
        (0..replicas).map(|_| bed.replica(stand_in("replica")).unwrap()).collect();
    let addresses: Vec<_> = replicas.iter().map(Replica::addr).collect();
    Cluster { proxy: bed.haproxy(&addresses).unwrap(), replicas, _bed: bed }
}

/// The process id of the stand-in that answered.
fn replica_of(answer: &Answer) -> u32 {
    let pid = answer.head.split("x-replica: ").nth(1).and_then(|rest| rest.lines().next());
    pid.unwrap_or_default().parse().unwrap_or(0)
}

fn assert_problem(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert!(answer.head.contains("content-type: application/problem+json"), "{answer:?}");
    assert!(
        answer.body.contains(&format!("\"status\":{status},\"code\":\"{code}\"")),
        "{answer:?}"
    );
    let id = answer.head.split("x-request-id: ").nth(1).and_then(|rest| rest.lines().next());
    let id = id.unwrap_or_else(|| panic!("no id: {answer:?}"));
    assert!(answer.body.contains(&format!("\"request_id\":\"{id}\"")), "{id}: {answer:?}");
    // The proxy knows that nothing was executed only if it reached no replica.
    assert_eq!(answer.body.contains("\"executed\":false"), status == 503, "{answer:?}");
}

#[test]
fn the_public_listener_publishes_the_page_and_the_api_and_nothing_else() {
    let cluster = cluster(1);
    for target in [
        "/",
        "/?x=/../%2f//",
        "/app.js",
        "/img/logo-1.svg",
        "/api/vouchers",
        "/api/vouchers/7/orders",
        "/api/orders?cursor=a%2Fb..//metrics",
        "/api/admin/vouchers/7/on-sale",
        "/livez",
    ] {
        let answer = request(cluster.proxy.url(), target, "");
        assert_eq!(answer.status, 200, "{target}");
        assert!(answer.body.starts_with(&format!("GET {target} ")), "passed as it is: {answer:?}");
    }
    for target in [
        "/metrics",
        "/metrics/",
        "/METRICS",
        "/readyz",
        "/readyz?x=.js",
        "/api/admin/vouchers/7/audit",
        "/api/admin/vouchers/7/audit/",
        "/api/admin/vouchers/7/audit?x",
        "/api/admin/vouchers/7/Audit",
        "/api",
        "/apix",
        "/debug/pprof",
        "/.env",
        "/.git/config.json",
    ] {
        assert_problem(&request(cluster.proxy.url(), target, ""), 404, "not_found");
        assert_eq!(request(cluster.proxy.operator_url(), target, "").status, 200, "{target}");
    }
}

#[test]
fn no_spelling_of_a_path_gets_round_the_public_listener() {
    let cluster = cluster(1);
    for target in [
        "//metrics",
        "/%6detrics",
        "/%6Detrics",
        "/api/../metrics",
        "/api/%2e%2e/metrics",
        "/api/..%2fmetrics",
        "/api/..;/metrics",
        "/./metrics",
        "/api/./vouchers",
        "/api//vouchers",
        "/api/admin/vouchers/7//audit",
        "/api/admin/vouchers/7/%61udit",
        "/api/admin/vouchers/7/audit%2f",
        "/api/admin/vouchers/7/audit;x",
        "/api/admin/vouchers/7/audit%00",
        "/api/admin/vouchers/7/audit%3fx",
        "/metrics;.js",
        "/metrics%3f.js",
        "/metrics\\.js",
        "/metrics/.js",
        "http://elsewhere/metrics",
        "http://elsewhere//metrics",
        "http://elsewhere/api/admin/vouchers/7/audit",
    ] {
        let answer = request(cluster.proxy.url(), target, "");
        // Some of these are no valid requests for HAProxy.
        assert!(answer.status == 404 || answer.status == 400, "{target}: {answer:?}");
    }
    let address = cluster.proxy.url().strip_prefix("http://").unwrap();
    for line in [
        "GET /metrics#.js HTTP/1.1",
        "GET /metrics# HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "CONNECT localhost:80 HTTP/1.1",
        "GET metrics HTTP/1.1",
        "GET /metrics HTTP/1.0",
        "GET /livez\t/metrics HTTP/1.1",
    ] {
        let answer = send(address, &format!("{line}\r\nHost: x\r\nConnection: close\r\n\r\n"));
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["400", "404"].contains(&status), "{line}: {answer}");
    }
    for headers in ["X-Original-URL: /metrics\r\n", "X-Rewrite-Url: /metrics\r\n"] {
        let answer = request(cluster.proxy.url(), "/livez", headers);
        assert!(!answer.body.contains("metrics"), "{answer:?}");
    }
}

#[test]
fn the_clients_address_is_set_by_the_proxy_and_not_by_the_client() {
    let cluster = cluster(1);
    let headers = [
        "X-Forwarded-For: 9.9.9.9",
        "x-forwarded-for: 8.8.8.8",
        "Forwarded: for=9.9.9.9",
        "X-Real-IP: 9.9.9.9",
        "TRUE-CLIENT-IP: 9.9.9.9",
        "X-Forwarded-Host: evil",
        "X-Forwarded-User: evil",
        "X-User-Id: 1",
        "X-Remote-User: evil",
        "X-Request-Id: mine",
        "Authorization: Bearer t",
        "",
    ]
    .join("\r\n");
    for listener in [cluster.proxy.url(), cluster.proxy.operator_url()] {
        let seen = request(listener, "/api/me", &headers).body.to_lowercase();
        assert_eq!(seen.matches("x-forwarded-for:").count(), 1, "{seen}");
        assert!(seen.contains("x-forwarded-for: 127.0.0.1\r\n"), "{seen}");
        assert!(!seen.contains("9.9.9.9") && !seen.contains("8.8.8.8"), "{seen}");
        assert!(!seen.contains("evil") && !seen.contains("x-user-id"), "{seen}");
        assert!(seen.contains("x-request-id: mine") && seen.contains("authorization: bearer t"));
    }
}

#[test]
fn requests_of_one_connection_take_turns_over_the_replicas() {
    let cluster = cluster(3);
    let address = cluster.proxy.url().strip_prefix("http://").unwrap();
    let get = "GET /livez HTTP/1.1\r\nHost: x\r\n";
    let answer = send(address, &format!("{get}\r\n").repeat(29).add_last(get));
    let mut turns: HashMap<&str, u32> = HashMap::new();
    for rest in answer.to_lowercase().leak().split("x-replica: ").skip(1) {
        *turns.entry(rest.lines().next().unwrap()).or_default() += 1;
    }
    assert_eq!(turns.values().copied().collect::<Vec<_>>(), [10, 10, 10], "{turns:?}");
}

/// Appends a last request, after which the connection is closed.
trait AddLast {
    fn add_last(self, get: &str) -> String;
}

impl AddLast for String {
    fn add_last(self, get: &str) -> String {
        format!("{self}{get}Connection: close\r\n\r\n")
    }
}

#[test]
fn a_killed_replica_costs_no_request_and_takes_part_again_after_its_restart() {
    let cluster = cluster(2);
    let url = cluster.proxy.url();
    let pid = cluster.replicas[0].pid();
    for number in 0..100 {
        if number == 10 {
            cluster.replicas[0].kill().unwrap();
        }
        assert_eq!(request(url, "/livez", "").status, 200, "request {number}");
    }
    cluster.replicas[0].restart().unwrap();
    let again = cluster.replicas[0].pid();
    assert_ne!(pid, again);
    await_that("requests for the restarted replica", Duration::from_secs(5), || {
        replica_of(&request(url, "/livez", "")) == again
    });
}

#[test]
fn a_replica_that_is_not_ready_gets_no_requests_a_second_later() {
    let cluster = cluster(2);
    let url = cluster.proxy.url();
    let asked = Stopwatch::start();
    let drained = replica_of(&request(url, "/api/drain", ""));
    let is_drained = |replica: &Replica| replica.pid() == drained;
    let number = 1 + cluster.replicas.iter().position(is_drained).unwrap();
    let is_left_out = || {
        let log = fs::read_to_string(cluster.proxy.log_path()).unwrap();
        let last = |state: &str| log.rfind(&format!("/replica{number} is {state}"));
        last("DOWN") > last("UP")
    };
    await_that("the proxy leaves it out", Duration::from_secs(10), || {
        let is_left_out = is_left_out();
        let answer = request(url, "/livez", "");
        assert_eq!(answer.status, 200);
        assert!(
            !is_left_out || replica_of(&answer) != drained,
            "it is asked after it was left out"
        );
        is_left_out
    });
    // The service goes on serving for 2 s after it has said that it is not ready.
    let left_out_after = asked.elapsed();
    println!("it was left out after {left_out_after:?}");
    assert!(left_out_after < Duration::from_secs(1), "{left_out_after:?}");
    for _ in 0..100 {
        let answer = request(url, "/livez", "");
        assert_eq!(answer.status, 200);
        assert_ne!(replica_of(&answer), drained, "it is asked after it was left out");
    }
}

#[test]
fn a_request_that_was_sent_is_never_repeated() {
    let cluster = cluster(2);
    let crashes = |cluster: &Cluster| -> usize {
        cluster.replicas.iter().map(|replica| replica.log_tail(50).matches("crash").count()).sum()
    };
    let answer = request(cluster.proxy.url(), "/api/crash", "X-Request-Id: of-the-client\r\n");
    assert_problem(&answer, 502, "bad_gateway");
    assert!(answer.head.contains("x-request-id: of-the-client"), "{answer:?}");
    await_that("a line with the id", Duration::from_secs(5), || {
        cluster.proxy.log_tail(50).lines().any(|line| line.ends_with(" id=of-the-client"))
    });
    assert_eq!(crashes(&cluster), 1);

    // Also as the second request of a client, over a connection that was used before.
    let mut stream =
        TcpStream::connect(cluster.proxy.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for target in ["/livez", "/livez", "/api/crash"] {
        write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
    }
    assert_eq!(crashes(&cluster), 2);
}

#[test]
fn without_a_live_replica_the_answer_is_a_503_with_retry_after() {
    let cluster = cluster(1);
    cluster.replicas[0].kill().unwrap();
    for _ in 0..3 {
        let answer = request(cluster.proxy.url(), "/api/vouchers", "");
        assert_problem(&answer, 503, "no_replica");
        assert!(answer.head.contains("retry-after: 1"), "{answer:?}");
    }
    let bed = Bed::start().unwrap();
    let lonely = bed.haproxy(&[]).unwrap();
    assert_problem(&request(lonely.url(), "/", ""), 503, "no_replica");
    assert_problem(&request(lonely.url(), "/metrics", ""), 404, "not_found");
}

#[test]
fn broken_and_dribbling_requests_are_answered_by_the_proxy() {
    let cluster = cluster(1);
    let address = cluster.proxy.url().strip_prefix("http://").unwrap();
    let start = Instant::now();
    let answers = [
        ("HTTP/1.1 400 ", "GET / HTTP/1.1\r\nbroken header\r\n\r\n"),
        ("HTTP/1.1 408 ", "GET / HTTP/1.1\r\nHost: x\r\n"),
        (
            "HTTP/1.1 408 ",
            "POST /api/login HTTP/1.1\r\nHost: x\r\nX-Request-Id: slow\r\n\
             Content-Length: 9\r\n\r\n{",
        ),
    ];
    thread::scope(|scope| {
        for (status, unfinished) in answers {
            scope.spawn(move || {
                let answer = send(address, unfinished);
                assert!(answer.starts_with(status), "{answer}");
                // What was no request has no id either.
                let has_id = answer.contains("\"request_id\":\"slow\"");
                assert_eq!(has_id, unfinished.contains("slow"), "{answer}");
            });
        }
    });
    println!("the slow ones were given up after {:?}", start.elapsed());
}

#[test]
fn a_request_has_one_id_the_clients_or_one_that_the_proxy_makes() {
    let cluster = cluster(1);
    let seen = |headers: &str| {
        let answer = request(cluster.proxy.url(), "/livez", headers);
        let ids = answer.body.lines().filter_map(|line| line.strip_prefix("x-request-id: "));
        let ids: Vec<_> = ids.map(str::to_owned).collect();
        assert_eq!(ids.len(), 1, "{answer:?}");
        assert!(answer.head.contains(&format!("x-request-id: {}", ids[0].to_lowercase())));
        ids[0].clone()
    };
    let longest = "x".repeat(64);
    for id in ["a", "{\"<>'\\,;%[src]", &longest] {
        assert_eq!(seen(&format!("X-Request-Id: {id}\r\n")), id);
    }
    assert_eq!(seen("X-Request-Id: one\r\nX-Request-Id: two\r\n"), "one");
    for unfit in ["", "two words", "tab\there", "\u{fc}ber", &"x".repeat(65)] {
        let id = seen(&format!("X-Request-Id: {unfit}\r\n"));
        assert!(id.len() == 36 && id != seen(""), "{unfit}: {id}");
    }
}

#[test]
fn the_configuration_is_valid_as_it_ships_with_and_without_its_settings() {
    let check = |settings: &[(&str, &str)]| {
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/haproxy.cfg");
        let output = Command::new("sh")
            .args(["-c", "PATH=$PATH:/usr/sbin haproxy -c -f \"$0\"", template])
            .envs(settings.iter().copied())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        // Not a single warning either.
        assert!(output.status.success() && !text.contains("WARNING"), "{text}");
    };
    check(&[]);
    check(&[
        ("SECKILL_PUBLIC_BIND", "0.0.0.0:80"),
        ("SECKILL_OPERATOR_BIND", "0.0.0.0:8081"),
        ("SECKILL_HOST", "app"),
        ("SECKILL_MAXCONN", "1000"),
    ]);
}
