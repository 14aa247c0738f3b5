//! Requests that never end. All are tried at the same time, so the test takes as long as one: the
//! time-outs are of 10 s.

use std::time::{Duration, Instant};

use seckill::domain::Role;
use testbed::Stopwatch;
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::caller::Caller;
use crate::fleet::fleet;
use crate::support::{Service, token};
use crate::wire::{ReceivedBytes, connect, listen};

/// How long a request may take to arrive: ten seconds, give or take one on a busy machine.
const MIN_CUT_OFF: Duration = Duration::from_secs(9);
const DEADLINE: Duration = Duration::from_secs(15);
/// Connections of each kind.
const CONNECTIONS_PER_KIND: usize = 30;

/// Sends the start, then the drop again and again, until the connection is closed; how long it was
/// open, and what was heard.
async fn dribble(url: String, start: String, drop: &'static str) -> (Duration, ReceivedBytes) {
    let started = Instant::now();
    let (mut heard, mut drips) = (String::new(), 0);
    let mut stream = connect(&url).await;
    let mut open = stream.write_all(start.as_bytes()).await.is_ok();
    while open && started.elapsed() < DEADLINE {
        let more = listen(&mut stream, Duration::from_millis(500)).await;
        heard.push_str(&more.text);
        open = !more.closed && (drop.is_empty() || stream.write_all(drop.as_bytes()).await.is_ok());
        drips += 1;
    }
    assert!(drips > 1 || !open);
    (started.elapsed(), ReceivedBytes { text: heard, closed: !open })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_never_ends_is_cut_off_after_ten_seconds_and_blocks_no_other() {
    let service = Service::start(&[]).await;
    let proxy = fleet().await.proxy.url().to_owned();
    let caller = Caller::new(&service.url);
    let token = token(7, Role::Buyer);
    let post = format!(
        "POST /api/vouchers/1/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n"
    );
    let kinds: [(&str, String, &str, &[u16]); 5] = [
        ("says nothing", String::new(), "", &[]),
        ("drips headers", "GET / HTTP/1.1\r\nHost: x\r\n".into(), "X-A: b\r\n", &[]),
        ("drips the first line", "GET /".into(), "a", &[]),
        ("drips a body", format!("{post}Content-Length: 1000\r\n\r\n{{"), " ", &[408]),
        ("drips chunks", format!("{post}Transfer-Encoding: chunked\r\n\r\n"), "1\r\n \r\n", &[408]),
    ];
    let mut slow = tokio::task::JoinSet::new();
    for (kind, start, drop, statuses) in kinds {
        for number in 0..=CONNECTIONS_PER_KIND {
            // One of each kind comes through the proxy, which has a time-out of its own.
            let by_proxy = number == CONNECTIONS_PER_KIND;
            let url = if by_proxy { proxy.clone() } else { service.url.clone() };
            let start = start.clone();
            slow.spawn(async move {
                let (took, heard) = dribble(url, start, drop).await;
                let expected: &[u16] =
                    if by_proxy && !kind.contains("nothing") { &[408] } else { statuses };
                (kind, took, heard, expected)
            });
        }
    }
    // While they hang, every other client is served.
    let mut worst = Duration::ZERO;
    for _ in 0..80 {
        let started = Stopwatch::start();
        caller.send(caller.request(reqwest::Method::GET, "/api/vouchers")).await.expect(200);
        worst = worst.max(started.elapsed());
        sleep(Duration::from_millis(100)).await;
    }
    println!("the slowest of the good requests took {worst:?}");
    assert!(worst < Duration::from_secs(2), "{worst:?}");
    for (kind, took, heard, expected) in slow.join_all().await {
        assert!(heard.closed, "{kind}: still open after {took:?}");
        assert!(took >= MIN_CUT_OFF, "{kind}: cut off after {took:?} already");
        let statuses = heard.statuses();
        let fit = statuses == expected || expected.is_empty() && statuses == [408];
        assert!(fit, "{kind}: {}", heard.text);
    }
}
