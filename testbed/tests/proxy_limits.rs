//! What one address can take from the proxy that ships, and what is left for the others.

mod support;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use support::{await_that, request, stand_in};
use testbed::{Bed, Haproxy, HaproxyOptions};

const GREEDY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const NORMAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Connections that the proxy holds in all.
const MAXCONN: usize = 40;
/// Connections that it holds for one address.
const MAXCONN_SOURCE: usize = 20;
const CLOSE: &str = "Connection: close\r\n";
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// What a client that knows HTTP/2 sends first: the preface, and empty SETTINGS.
const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A connection from that address, over which a request was sent.
fn ask(proxy: &Haproxy, from: Ipv4Addr, headers: &str) -> io::Result<TcpStream> {
    let request = format!("GET /livez HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    send_bytes(proxy, from, request.as_bytes())
}

/// A connection from that address, over which these bytes were sent.
fn send_bytes(proxy: &Haproxy, from: Ipv4Addr, bytes: &[u8]) -> io::Result<TcpStream> {
    let to: SocketAddr = proxy.url().strip_prefix("http://").unwrap().parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(bytes)?;
    Ok(stream)
}

/// The status of the answer; 0 if the connection was closed without one. The rest stays unread, as
/// with a client that takes a byte now and then.
fn status(stream: &mut io::Result<TcpStream>) -> u16 {
    let mut start = [0; 12];
    let Ok(stream) = stream else { return 0 };
    match stream.read_exact(&mut start) {
        Ok(()) => String::from_utf8_lossy(&start[9..]).parse().expect("a status"),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("no answer: {error}"),
        Err(_) => 0,
    }
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|one| **one == status).count()
}

#[test]
fn one_address_with_many_slow_connections_leaves_room_for_the_others() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("replica")).unwrap();
    let setting = |name: &str, value: usize| (name.to_owned(), value.to_string());
    let env = vec![
        setting("SECKILL_MAXCONN", MAXCONN),
        setting("SECKILL_MAXCONN_SOURCE", MAXCONN_SOURCE),
    ];
    let options = HaproxyOptions { env, ..HaproxyOptions::default() };
    let proxy = bed.haproxy_with(&options, &[replica.addr()]).unwrap();

    // Twice as many as the proxy holds in all; each takes a bit of its answer and stays.
    let mut greedy: Vec<_> = (0..2 * MAXCONN).map(|_| ask(&proxy, GREEDY, "")).collect();
    for number in 0..50 {
        assert_eq!(status(&mut ask(&proxy, NORMAL, CLOSE)), 200, "{number}");
    }
    let statuses: Vec<_> = greedy.iter_mut().map(status).collect();
    assert_eq!(count(&statuses, 200), MAXCONN_SOURCE, "{statuses:?}");
    assert_eq!(count(&statuses, 429), 1, "{statuses:?}");
    let rejected = count(&statuses, 0);
    assert_eq!(rejected, 2 * MAXCONN - MAXCONN_SOURCE - 1, "{statuses:?}");

    // One line in the log, and every rejected connection in the metrics.
    await_that("a line in the log", ANSWER_LIMIT, || proxy.log_tail(50).contains(" 429 "));
    let log = proxy.log_tail(50);
    let told: Vec<_> = log.lines().filter(|line| line.contains(&GREEDY.to_string())).collect();
    assert!(told.len() == 1 && told[0].contains(" 429 "), "{log}");
    let metrics = request(proxy.operator_url(), "/proxy/metrics", "").body;
    let line =
        format!("haproxy_frontend_denied_connections_total{{proxy=\"public\"}} {rejected}\n");
    assert!(metrics.contains(&line), "{line}{metrics}");

    // Its connections are its own again as soon as it hangs up.
    for stream in greedy.iter().flatten() {
        let _closed_already = stream.shutdown(Shutdown::Both);
    }
    drop(greedy);
    await_that("an answer to the same address", ANSWER_LIMIT, || {
        status(&mut ask(&proxy, GREEDY, CLOSE)) == 200
    });
}

#[test]
fn a_load_from_one_address_is_not_limited_in_a_bed() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("replica")).unwrap();
    let proxy = bed.haproxy(&[replica.addr()]).unwrap();
    let mut load: Vec<_> = (0..300).map(|_| ask(&proxy, NORMAL, "")).collect();
    assert!(load.iter_mut().all(|stream| status(stream) == 200));
}

#[test]
fn a_connection_carries_one_request_at_a_time_because_http2_is_refused() {
    let bed = Bed::start().unwrap();
    let replica = bed.replica(stand_in("replica")).unwrap();
    let proxy = bed.haproxy(&[replica.addr()]).unwrap();
    let mut stream = send_bytes(&proxy, GREEDY, HTTP2_START).unwrap();
    let mut answer = Vec::new();
    // To the end of the connection; a reset ends it as well, and a time-out does not.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it stays open: {answer:?}");
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    assert_eq!(status(&mut ask(&proxy, GREEDY, CLOSE)), 200, "HTTP/1 is as before");
}
