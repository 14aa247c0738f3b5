//! Requests whose end two parsers might see in different places. Each carries another request in
//! its body, for an address that the proxy does not pass on. If a replica ever answers that one, it
//! was smuggled past the proxy.

use std::sync::Arc;

use reqwest::Method;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::fleet::{Fleet, fleet_of_its_own};
use crate::wire::{SILENCE, exchange};

/// The request in the body.
const INNER: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Request-Id: smuggled-in\r\n\r\n";
/// Requests under way at a time.
const PARALLEL_REQUESTS: usize = 24;

/// What may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nothing but refusals: what follows the head may be taken for another request.
    Refusals,
    /// One answer of 400 (or 501, 505), or a closed connection without a word.
    Refused,
    /// One answer, whatever it says, but no 5xx.
    OneAnswer,
    /// The same; and the inner request may be taken for the next one, which the proxy refuses.
    Pipelined,
}
use Fate::{OneAnswer, Pipelined, Refusals, Refused};

/// Headers around a body that ends at once for a server that reads chunks.
const CHUNKED: [(&str, &str, Fate); 27] = [
    ("both lengths", "Content-Length: LENGTH\r\nTransfer-Encoding: chunked", OneAnswer),
    (
        "both lengths, the other way",
        "Transfer-Encoding: chunked\r\nContent-Length: LENGTH",
        OneAnswer,
    ),
    ("an unknown coding", "Content-Length: LENGTH\r\nTransfer-Encoding: xchunked", Refused),
    ("an unknown coding alone", "Transfer-Encoding: gzip", Refused),
    ("chunked is not last", "Transfer-Encoding: chunked, identity", Refused),
    ("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", Refused),
    ("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Refused),
    ("chunked twice in a line", "Transfer-Encoding: chunked, chunked", Refused),
    ("a quoted coding", "Content-Length: LENGTH\r\nTransfer-Encoding: \"chunked\"", Refused),
    (
        "a coding with a parameter",
        "Content-Length: LENGTH\r\nTransfer-Encoding: chunked;q=1",
        Refused,
    ),
    ("space before the colon", "Content-Length: LENGTH\r\nTransfer-Encoding : chunked", Refused),
    ("space in the name", "Content-Length: LENGTH\r\nTransfer Encoding: chunked", Refused),
    ("a folded line", "Content-Length: LENGTH\r\nTransfer-Encoding:\r\n chunked", OneAnswer),
    (
        "hidden by a fold",
        "Content-Length: LENGTH\r\nX: y\r\n Transfer-Encoding: chunked",
        OneAnswer,
    ),
    ("behind a bare CR", "Content-Length: LENGTH\r\nX: y\rTransfer-Encoding: chunked", Refused),
    ("behind a bare LF", "Content-Length: LENGTH\r\nX: y\nTransfer-Encoding: chunked", OneAnswer),
    ("behind a NUL", "Content-Length: LENGTH\r\nX: y\0Transfer-Encoding: chunked", Refused),
    ("a NUL in the name", "Content-Length: LENGTH\r\nTransfer\0Encoding: chunked", Refused),
    ("a control character", "Content-Length: LENGTH\r\nTransfer-Encoding: \x0bchunked", Refused),
    ("a line without a colon", "Content-Length: LENGTH\r\nTransfer-Encoding chunked", Refused),
    ("an underscore", "Content-Length: LENGTH\r\nTransfer_Encoding: chunked", OneAnswer),
    ("named by Connection", "Connection: Content-Length\r\nContent-Length: LENGTH", OneAnswer),
    ("an upgrade", "Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: LENGTH", OneAnswer),
    (
        "a web socket",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: LENGTH",
        OneAnswer,
    ),
    ("an expectation", "Expect: 100-continue\r\nContent-Length: LENGTH", OneAnswer),
    ("an odd expectation", "Expect: 200-ok\r\nContent-Length: LENGTH", OneAnswer),
    ("a good length", "Content-Length: LENGTH", OneAnswer),
];

/// Headers that tell a length badly.
const LENGTHS: [(&str, &str, Fate); 16] = [
    ("two lengths", "Content-Length: 0\r\nContent-Length: LENGTH", Refused),
    ("two lengths, the other way", "Content-Length: LENGTH\r\nContent-Length: 0", Refused),
    ("two lengths in a line", "Content-Length: 0, LENGTH", Refused),
    ("the same length twice", "Content-Length: LENGTH\r\nContent-Length: LENGTH", OneAnswer),
    ("a plus", "Content-Length: +LENGTH", Refused),
    ("a minus", "Content-Length: -LENGTH", Refused),
    ("hexadecimal", "Content-Length: 0x0", Refused),
    ("a fraction", "Content-Length: LENGTH.0", Refused),
    ("more than 64 bits", "Content-Length: 18446744073709551616", Refused),
    ("nothing", "Content-Length:", Refused),
    ("two words", "Content-Length: 0 LENGTH", Refused),
    ("letters", "Content-Length: LENGTHx", Refused),
    ("space before the colon", "Content-Length : LENGTH", Refused),
    ("a folded length", "Content-Length:\r\n LENGTH", OneAnswer),
    ("a tab", "Content-Length:\tLENGTH", OneAnswer),
    ("capitals", "CONTENT-length: LENGTH", OneAnswer),
];

/// Bodies in chunks that break the rules; SIZE is the right size of the body in hexadecimal.
const CHUNKS: [(&str, &str, Fate); 16] = [
    ("a bare LF after the size", "SIZE\nBODY\r\n0\r\n\r\n", OneAnswer),
    ("no CRLF after the data", "SIZE\r\nBODY0\r\n\r\n", Refused),
    ("a bare LF after the data", "SIZE\r\nBODY\n0\r\n\r\n", OneAnswer),
    ("a size with a sign", "+SIZE\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a negative size", "-SIZE\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a size with 0x", "0xSIZE\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a size of 65 bits", "10000000000000000\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a size that wraps around", "ffffffffffffffff\r\nBODY\r\n0\r\n\r\n", Refused),
    ("no size", "\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a size in letters", "zz\r\nBODY\r\n0\r\n\r\n", Refused),
    ("space before the size", " SIZE\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a bare LF in the extension", "SIZE;a=\nb\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a bare CR in the extension", "SIZE;a=\rb\r\nBODY\r\n0\r\n\r\n", Refused),
    ("a NUL in the extension", "SIZE;a=\0\r\nBODY\r\n0\r\n\r\n", OneAnswer),
    ("a bare LF at the end", "0\n\nBODY", Pipelined),
    ("a bare CR at the end", "0\r\rBODY", Refused),
];

/// First lines, and what else there may be before the headers.
const STARTS: [(&str, &str, Fate); 18] = [
    ("two spaces", "GET  / HTTP/1.1\r\nHost: x", OneAnswer),
    ("a tab", "GET\t/ HTTP/1.1\r\nHost: x", OneAnswer),
    ("no version", "GET /\r\nHost: x", Refused),
    ("HTTP/0.9", "GET / HTTP/0.9\r\nHost: x", OneAnswer),
    ("HTTP/1.2", "GET / HTTP/1.2\r\nHost: x", OneAnswer),
    ("HTTP/2.0", "GET / HTTP/2.0\r\nHost: x", OneAnswer),
    ("HTTP/3", "GET / HTTP/3\r\nHost: x", Refused),
    ("small letters", "GET / http/1.1\r\nHost: x", Refused),
    ("the start of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n", Refusals),
    ("a space in the address", "GET /api vouchers HTTP/1.1\r\nHost: x", Refused),
    ("a CR in the address", "GET /\rX HTTP/1.1\r\nHost: x", Refused),
    ("a NUL in the address", "GET /\0 HTTP/1.1\r\nHost: x", Refused),
    ("a byte above ASCII", "GET /\u{e9} HTTP/1.1\r\nHost: x", Refused),
    ("a header before the first line", "Host: x\r\nGET / HTTP/1.1", Refused),
    ("a folded first header", "GET / HTTP/1.1\r\n Host: x", Refused),
    ("two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y", Refused),
    ("a tunnel", "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1", Pipelined),
    ("an address with a host", "GET http://evil.test/livez HTTP/1.1\r\nHost: x", OneAnswer),
];

/// All requests, each with the inner one where its body is or might be.
fn cases() -> Vec<(String, String, Fate)> {
    // An address that answers before it reads a body, and one that reads it.
    let heads = [
        "POST /livez HTTP/1.1\r\nHost: x",
        "POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json",
    ];
    let mut cases = Vec::new();
    for head in heads {
        let chunked = (format!("0\r\n\r\n{INNER}"), CHUNKED.iter());
        for (body, headers) in [chunked, (INNER.to_owned(), LENGTHS.iter())] {
            for (name, header, fate) in headers {
                let header = header.replace("LENGTH", &body.len().to_string());
                let request = format!("{head}\r\n{header}\r\n\r\n{body}");
                cases.push(((*name).to_owned(), request, *fate));
            }
        }
        for (name, chunks, fate) in CHUNKS {
            let size = format!("{:x}", INNER.len());
            let chunks = chunks.replace("SIZE", &size).replace("BODY", INNER);
            let request = format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            cases.push((format!("chunks: {name}"), request, fate));
        }
    }
    let length = format!("Content-Length: {}", INNER.len());
    for (name, start, fate) in STARTS {
        cases.push((name.to_owned(), format!("{start}\r\n{length}\r\n\r\n{INNER}"), fate));
    }
    for head in ["GET /api/vouchers", "HEAD /api/vouchers", "GET /", "DELETE /api/orders/1"] {
        let request = format!("{head} HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n{INNER}");
        cases.push((format!("a body for {head}"), request, OneAnswer));
    }
    cases
}

/// How often each replica was asked for its metrics, before it was now.
async fn asked(fleet: &Fleet) -> Vec<u64> {
    let mut asked = Vec::new();
    for replica in &fleet.replicas {
        let caller = Caller::new(replica.base_url());
        let metrics = caller.send(caller.request(Method::GET, "/metrics")).await.expect(200);
        let lines = metrics.as_str().expect("text").lines();
        let lines = lines.filter(|line| line.contains(r#"route="/metrics""#));
        asked.push(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum());
    }
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_smuggled_past_the_proxy() {
    // Its replicas count what is asked of them, so no other test may ask them.
    let fleet = fleet_of_its_own("smuggling").await;
    let url: Arc<str> = fleet.proxy.url().into();
    let before = asked(&fleet).await;
    let cases = cases();
    assert!(cases.len() >= 100, "{}", cases.len());
    let (mut running, mut wrong) = (JoinSet::new(), Vec::new());
    for (number, case) in cases.into_iter().enumerate() {
        running.spawn(attack(Arc::clone(&url), number, case));
        if running.len() == PARALLEL_REQUESTS {
            wrong.extend(running.join_next().await.expect("it is not empty").expect("no panic"));
        }
    }
    wrong.extend(running.join_all().await.into_iter().flatten());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let expected: Vec<u64> = before.iter().map(|count| count + 1).collect();
    assert_eq!(asked(&fleet).await, expected, "a replica answered a hidden request");
}

/// Sends the request, and after it a normal one on another connection; what was wrong, if anything.
async fn attack(url: Arc<str>, number: usize, case: (String, String, Fate)) -> Option<String> {
    let (name, request, fate) = case;
    let heard = exchange(&url, request.as_bytes(), SILENCE).await;
    // No other client gets an answer that is not its own.
    let mine = format!("mine-{number}");
    let caller = Caller::new(&url);
    let normal = caller.request(Method::GET, "/api/vouchers").header("x-request-id", &mine);
    let normal = caller.send(normal).await;
    assert_eq!(normal.status, 200, "after {name}");
    assert_eq!(normal.headers["x-request-id"], mine, "after {name}");

    let statuses = heard.statuses();
    let statuses: Vec<u16> = statuses.into_iter().filter(|status| *status != 100).collect();
    let fit = match (fate, &statuses[..]) {
        (_, []) => heard.closed,
        (Refusals, all) => all.iter().all(|status| matches!(status, 400 | 404 | 501 | 505)),
        (Refused, [status]) => matches!(status, 400 | 404 | 501 | 505),
        (OneAnswer | Pipelined, [status]) => *status < 500,
        (Pipelined, [first, 404]) => *first < 500,
        _ => false,
    };
    // The proxy's own refusals of it have its id, too.
    let mut answers = heard.text.split("HTTP/1.");
    let by_replica = answers.any(|answer| {
        answer.contains("x-request-id: smuggled-in") && answer.contains("x-replica:")
    });
    let hidden = heard.text.contains("seckill_http") || by_replica;
    let told = format!("{name}: {fate:?} expected:\n{request}\n{}\n", heard.text);
    (hidden || !fit).then_some(told)
}
