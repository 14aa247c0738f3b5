use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::{CallError, Connection, HangUp, Target};

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A server for one connection after the other: it reads a request, writes the pieces with pauses
/// between them, and closes the connection if it is told to. Gives the bytes that came on each.
struct Server {
    target: std::sync::Arc<Target>,
    seen: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Server {
    async fn answering(pieces: &[&[u8]], closes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let (tell, seen) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (pieces, tell) = (pieces.clone(), tell.clone());
                tokio::spawn(async move {
                    let mut all = Vec::new();
                    let mut buffer = [0; 4096];
                    loop {
                        let read = stream.read(&mut buffer).await.unwrap_or(0);
                        all.extend_from_slice(&buffer[..read]);
                        if read == 0 {
                            break;
                        }
                        if !all.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        for piece in &pieces {
                            stream.write_all(piece).await.expect("written");
                            tokio::time::sleep(Duration::from_millis(2)).await;
                        }
                        if closes {
                            break;
                        }
                    }
                    drop(stream);
                    // The test may have seen enough.
                    let _ = tell.send(all);
                });
            }
        });
        Self { target: Target::parse(&url).expect("a target"), seen }
    }

    fn connection(&self) -> Connection {
        Connection::new(self.target.clone(), Duration::from_secs(20))
    }

    /// All bytes of the next connection that ended.
    async fn bytes(&mut self) -> Vec<u8> {
        let bytes = tokio::time::timeout(Duration::from_secs(20), self.seen.recv()).await;
        bytes.expect("in time").expect("told")
    }
}

/// Status, replica, whether a problem, body.
type WireAnswer = (u16, Option<String>, bool, String);

async fn call(connection: &mut Connection) -> Result<WireAnswer, CallError> {
    connection.request().extend_from_slice(REQUEST);
    let answer = connection.call().await?;
    let body = String::from_utf8(answer.body.to_vec()).expect("text");
    Ok((answer.status, answer.replica.map(str::to_owned), answer.is_problem, body))
}

async fn called(pieces: &[&[u8]], closes: bool) -> Result<WireAnswer, CallError> {
    call(&mut Server::answering(pieces, closes).await.connection()).await
}

#[tokio::test]
async fn an_answer_is_read_however_it_is_framed_and_cut() {
    let body = |got: Result<WireAnswer, CallError>| got.expect("an answer").3;
    let whole: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(body(called(&[whole], false).await), "hello");
    let single: Vec<&[u8]> = whole.chunks(1).collect();
    assert_eq!(body(called(&single, false).await), "hello");
    let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n";
    assert_eq!(body(called(&[chunked], false).await), "hello");
    let single: Vec<&[u8]> = chunked.chunks(1).collect();
    assert_eq!(body(called(&single, false).await), "hello");
    let until_closed: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";
    assert_eq!(body(called(&[until_closed], true).await), "hello");
    let interim: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(called(&[interim], false).await.expect("an answer").0, 204);
}

#[tokio::test]
async fn status_replica_and_problem_are_known_by_the_head() {
    let problem: &[u8] = b"HTTP/1.1 409 Conflict\r\ncontent-type: application/problem+json\r\n\
        X-Replica: r7\r\ncontent-length: 2\r\n\r\n{}";
    let got = called(&[problem], false).await.expect("an answer");
    assert_eq!(got, (409, Some("r7".to_owned()), true, "{}".to_owned()));
}

#[tokio::test]
async fn when_a_lock_was_held_is_known_by_the_head_if_it_says_so_in_full() {
    for (value, expected) in [("300-1500-200", Some([300, 1500, 200])), ("1500", None)] {
        let text = format!("HTTP/1.1 204 No Content\r\nX-Lab-Held: {value}\r\n\r\n");
        let mut connection = Server::answering(&[text.as_bytes()], false).await.connection();
        connection.request().extend_from_slice(REQUEST);
        let told = connection.call().await.expect("an answer").hold;
        let told = told.map(|told| [told.waited, told.held, told.since]);
        assert_eq!(told, expected.map(|times| times.map(Duration::from_micros)), "{value}");
    }
}

#[tokio::test]
async fn what_is_no_answer_or_too_large_is_a_broken_connection() {
    let long_head = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(20_000));
    for (pieces, closes) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], false),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", true),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 4\r\n\r\nhello", false),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9999999\r\n", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhello", false),
        (b"", true),
        (long_head.as_bytes(), false),
    ] {
        let fault = called(&[pieces], closes).await.expect_err("no answer");
        assert_eq!(fault.code(), "connection_broken", "{fault}");
    }
}

#[tokio::test]
async fn a_connection_is_kept_and_a_request_is_written_once() {
    let mut server = Server::answering(&[b"HTTP/1.1 204 No Content\r\n\r\n"], false).await;
    let mut connection = server.connection();
    for _ in 0..3 {
        assert_eq!(call(&mut connection).await.expect("an answer").0, 204);
    }
    drop(connection);
    assert_eq!(server.bytes().await, REQUEST.repeat(3), "three requests on one connection");
}

#[tokio::test]
async fn a_request_that_may_have_arrived_is_never_sent_again() {
    let mut server = Server::answering(&[], true).await;
    let mut connection = server.connection();
    let fault = call(&mut connection).await.expect_err("closed without an answer");
    assert_eq!(fault.code(), "connection_broken");
    assert_eq!(server.bytes().await, REQUEST, "once");
    let more = tokio::time::timeout(Duration::from_millis(300), server.seen.recv()).await;
    assert!(more.is_err(), "no second connection: {more:?}");
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_left_before_anything_is_sent() {
    let goodbye: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
    let mut server = Server::answering(&[goodbye], true).await;
    let mut connection = server.connection();
    for _ in 0..3 {
        assert_eq!(call(&mut connection).await.expect("an answer").0, 204);
        assert_eq!(server.bytes().await, REQUEST, "each on a connection of its own");
        // It is closed by now; a yield lets the event loop see that.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_closed_port_is_not_connected_and_silence_is_timed_out() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = free.local_addr().expect("bound");
    let target = Target::parse(&format!("http://{address}")).expect("a target");
    let silent = call(&mut Connection::new(target.clone(), Duration::from_millis(50))).await;
    assert_eq!(silent, Err(CallError::TimedOut), "it accepts and says nothing");
    drop(free);
    let refused = call(&mut Connection::new(target, Duration::from_secs(5))).await;
    assert_eq!(refused.expect_err("refused").code(), "not_connected");
}

#[tokio::test]
async fn a_deadline_counts_for_each_call_anew() {
    let server = Server::answering(&[b"HTTP/1.1 204 No Content\r\n\r\n"], false).await;
    let mut connection = Connection::new(server.target.clone(), Duration::from_secs(1));
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        call(&mut connection).await.expect("each takes some milliseconds");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_while_sending_sends_no_whole_request() {
    let mut server = Server::answering(&[b"HTTP/1.1 204 No Content\r\n\r\n"], false).await;
    for (part, bytes) in [(0.0, 0), (0.5, 14), (0.99, 27)] {
        let mut connection = server.connection();
        connection.request().extend_from_slice(REQUEST);
        let fault = connection.hang_up(HangUp::BeforeSent(part)).await;
        assert_eq!(fault, CallError::HungUp);
        assert_eq!(server.bytes().await, &REQUEST[..bytes], "and closed the connection");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_later_sends_all_and_closes_the_connection() {
    let pieces: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"hello"];
    for (pieces, when) in
        [(pieces, HangUp::DuringAnswer), (&[], HangUp::AfterSent(Duration::from_millis(5)))]
    {
        let mut server = Server::answering(pieces, false).await;
        let mut connection = server.connection();
        connection.request().extend_from_slice(REQUEST);
        assert_eq!(connection.hang_up(when).await, CallError::HungUp);
        assert_eq!(server.bytes().await, REQUEST, "{when:?}");
    }
}
