//! Faults of the way as a whole.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use testbed::{Action, Bed, Command, Direction, Proxy, RedisOptions, Times};

use crate::redis_client::{Client, command};
use crate::{LIMIT, await_that, before_redis};

const LATENCY: Duration = Duration::from_millis(40);
const PONG: &str = "+PONG\r\n";
/// In one of these tries the machine does not stand still for as long as a latency takes.
const TRIES: u64 = 20;

/// A server that the test itself plays, and a connection to it through a proxy.
fn played() -> (Proxy, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::before(listener.local_addr().unwrap()).unwrap();
    let client = TcpStream::connect(proxy.addr()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    (proxy, client, server)
}

fn hears(socket: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    socket.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

#[test]
fn bytes_pass_unchanged_and_every_one_is_counted() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    let before = proxy.counts();
    let long = "x".repeat(3_000_000);
    client.asks(&["ECHO", &long], &format!("${}\r\n{long}\r\n", long.len()));
    let after = proxy.counts();
    let asked = command(&["ECHO", &long]).len() as u64;
    assert_eq!(after.bytes_to_server - before.bytes_to_server, asked);
    assert_eq!(after.bytes_to_client - before.bytes_to_client, asked - 14);
    assert_eq!((after.connections, after.open, after.commands), (1, 1, 2));
    drop(client);
    await_that("both ends are closed", || proxy.counts().open == 0);
    assert_eq!(proxy.counts().cut, 0, "that was no fault");
}

#[test]
fn an_unknown_protocol_passes_byte_by_byte_and_half_closed() {
    let (proxy, mut client, mut server) = played();
    client.write_all(b"\0\0").unwrap();
    hears(&mut server, "\0\0");
    server.write_all(b"hello").unwrap();
    hears(&mut client, "hello");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    server.write_all(b"bye").unwrap();
    hears(&mut client, "bye");
    assert_eq!(proxy.counts().opaque, 1);
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    await_that("it is over", || proxy.counts().open == 0);
}

#[test]
fn a_redirected_link_sends_new_connections_there_and_keeps_the_old_ones() {
    let (proxy, mut old, mut server) = played();
    old.write_all(b"a").unwrap();
    hears(&mut server, "a");
    let successor = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.lead_to(successor.local_addr().unwrap());
    let mut new = TcpStream::connect(proxy.addr()).unwrap();
    successor.set_nonblocking(true).unwrap();
    let mut accepted = None;
    await_that("the successor is reached", || {
        accepted = successor.accept().ok();
        accepted.is_some()
    });
    let (mut after, _) = accepted.unwrap();
    after.set_nonblocking(false).unwrap();
    after.set_read_timeout(Some(LIMIT)).unwrap();
    new.write_all(b"b").unwrap();
    hears(&mut after, "b");
    old.write_all(b"c").unwrap();
    hears(&mut server, "c");
}

#[test]
fn a_reset_of_one_side_is_a_reset_for_the_other() {
    let (proxy, mut client, server) = played();
    client.write_all(b"unread").unwrap();
    await_that("it has arrived", || proxy.counts().bytes_to_server == 6);
    // With something unread, the end of a socket is a reset.
    drop(server);
    assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.counts().open, 0);
}

#[test]
fn latency_counts_in_its_direction_and_is_not_added_for_what_is_sent_together() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    proxy.set_latency(Direction::ToServer, LATENCY, Duration::ZERO);
    let there = pings_until(&mut client, LATENCY..LATENCY * 2);
    let late = || (proxy.counts().late_to_server, proxy.counts().late_to_client);
    assert_eq!(late(), (there, 0), "what was late is counted in its direction");
    proxy.set_latency(Direction::ToClient, LATENCY * 2, Duration::ZERO);
    let both = pings_until(&mut client, LATENCY * 3..LATENCY * 4);
    assert_eq!(late(), (there + both, both));
    let mut is_added = || {
        let start = Instant::now();
        for _ in 0..20 {
            client.say(&["PING"]);
        }
        client.hears(&PONG.repeat(20));
        let took = start.elapsed();
        assert!(took >= LATENCY * 3, "{took:?}");
        took >= LATENCY * 9
    };
    assert!(!(0..TRIES).all(|_| is_added()), "each of the 20 waits for the one before");
    proxy.set_latency(Direction::Both, Duration::ZERO, Duration::ZERO);
    let before = late();
    assert!((0..TRIES).any(|_| client.time(&["PING"], PONG) < LATENCY));
    assert_eq!(late(), before, "without latency nothing is late");
}

/// How many pings it takes until one takes such a time. None takes less.
fn pings_until(client: &mut Client, expected: Range<Duration>) -> u64 {
    let mut times = Vec::new();
    for number in 1..=TRIES {
        let took = client.time(&["PING"], PONG);
        assert!(took >= expected.start, "{took:?}");
        if took < expected.end {
            return number;
        }
        times.push(took);
    }
    panic!("{expected:?}: {times:?}");
}

#[test]
fn jitter_varies_delays_and_keeps_the_order() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    proxy.set_latency(Direction::ToClient, Duration::ZERO, LATENCY);
    let mut times: Vec<Duration> = (0..10).map(|_| client.time(&["PING"], PONG)).collect();
    times.sort();
    assert!(times[9] > times[0] + LATENCY / 4, "{times:?}");
    let words: Vec<String> = (100..150).map(|number| number.to_string()).collect();
    for word in &words {
        client.say(&["ECHO", word]);
    }
    for word in &words {
        client.hears(&format!("$3\r\n{word}\r\n"));
    }
}

#[test]
fn held_bytes_arrive_in_order_when_they_are_released() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    proxy.hold(Direction::ToClient);
    client.say(&["SET", "held", "1"]);
    client.say(&["APPEND", "held", "2"]);
    await_that("both are executed", || direct.get("held").as_deref() == Some("12"));
    client.hears_nothing();
    proxy.release(Direction::ToClient);
    client.hears("+OK\r\n:2\r\n");

    proxy.hold(Direction::ToServer);
    client.say(&["SET", "held", "3"]);
    client.say(&["APPEND", "held", "4"]);
    await_that("both have come", || proxy.counts().commands == 5);
    assert_eq!(direct.get("held").as_deref(), Some("12"), "they went through");
    proxy.release(Direction::ToServer);
    client.hears("+OK\r\n:2\r\n");
    assert_eq!(direct.get("held").as_deref(), Some("34"));
}

/// Sends until no more is taken; returns how much that was.
fn fill(client: &mut TcpStream) -> usize {
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut quiet_since = Instant::now();
    // Full is full: no progress for 200 ms.
    while quiet_since.elapsed() < Duration::from_millis(200) {
        match client.write(&[7; 4096]) {
            Ok(count) => {
                sent += count;
                quiet_since = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(sent < 64_000_000, "it takes everything");
    }
    client.shutdown(Shutdown::Write).unwrap();
    sent
}

#[test]
fn held_bytes_are_bounded_and_none_is_lost() {
    for is_held in [true, false] {
        let (proxy, mut client, mut server) = played();
        if is_held {
            proxy.hold(Direction::ToServer);
        }
        // If it is not held back, it waits for the server, which does not read.
        let sent = fill(&mut client);
        proxy.release(Direction::ToServer);
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).unwrap();
        assert_eq!(heard.len(), sent);
    }
}

#[test]
fn swallowed_bytes_are_executed_or_not_and_neither_side_notices() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let mut other = Client::through(&proxy);
    proxy.set_swallowing(Direction::ToClient, true);
    client.say(&["SET", "swallowed", "1"]);
    await_that("the answer is gone", || proxy.counts().swallowed_to_client == 5);
    assert_eq!(direct.get("swallowed").as_deref(), Some("1"));
    let mut newcomer = Client::open(proxy.addr());
    newcomer.say(&["SET", "swallowed", "2"]);
    await_that("a refusal is gone", || proxy.counts().swallowed_to_client > 5);
    proxy.set_swallowing(Direction::ToClient, false);
    let before = proxy.counts().swallowed_to_client;
    client.say(&["SET", "swallowed", "3"]);
    await_that("another answer", || proxy.counts().swallowed_to_client == before + 5);
    client.hears_nothing();
    newcomer.hears_nothing();
    // It has lost nothing.
    other.asks(&["PING"], PONG);

    proxy.set_swallowing(Direction::ToServer, true);
    other.say(&["SET", "swallowed", "4"]);
    await_that("the request is gone", || proxy.counts().swallowed_to_server > 0);
    assert_eq!(direct.get("swallowed").as_deref(), Some("3"));
    other.hears_nothing();
}

#[test]
fn an_end_that_is_swallowed_leaves_the_other_side_half_open() {
    let (proxy, client, mut server) = played();
    proxy.set_swallowing(Direction::ToServer, true);
    drop(client);
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(proxy.counts().open, 1);
    // There is no client to be told, but the server need not know.
    for _ in 0..3 {
        server.write_all(b"still there?").unwrap();
    }
    assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(server);
    await_that("both are gone", || proxy.counts().open == 0);
}

#[test]
fn all_connections_are_cut_or_reset_at_once_and_new_ones_work() {
    let proxy = before_redis();
    let mut clients: Vec<Client> = (0..3).map(|_| Client::through(&proxy)).collect();
    proxy.cut();
    assert_eq!((proxy.counts().cut, proxy.counts().open), (3, 0));
    clients.iter_mut().for_each(Client::sees_the_end);
    let mut client = Client::through(&proxy);
    proxy.reset();
    client.sees_a_reset();
    assert_eq!(proxy.counts().cut, 4);
    Client::through(&proxy).asks(&["PING"], PONG);

    let (proxy, _client, mut server) = played();
    proxy.cut();
    assert_eq!(server.read(&mut [0; 8]).unwrap(), 0);
    let (proxy, _client, mut server) = played();
    proxy.reset();
    assert_eq!(server.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn in_an_outage_nothing_is_open_and_nothing_can_be_opened() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    proxy.start_outage();
    client.sees_the_end();
    for refused in 1..=3 {
        Client::open(proxy.addr()).sees_a_reset();
        assert_eq!(proxy.counts().refused, refused);
    }
    assert_eq!((proxy.counts().connections, proxy.counts().open), (1, 0));
    proxy.end_outage();
    Client::through(&proxy).asks(&["PING"], PONG);
}

#[test]
fn a_missing_server_is_a_reset_and_reached_when_it_is_back() {
    let bed = Bed::start().unwrap();
    let redis = bed.redis(RedisOptions::default()).unwrap();
    let proxy = Proxy::before(redis.addr()).unwrap();
    redis.kill().unwrap();
    Client::open(proxy.addr()).sees_a_reset();
    assert_eq!(proxy.counts().unreachable, 1);
    redis.restart().unwrap();
    Client::open(proxy.addr()).asks(&["PING"], "-NOAUTH");
    assert_eq!(proxy.instead_of(redis.addr(), "x://y@h/1"), "x://y@h/1");
    let url = proxy.instead_of(redis.addr(), redis.url());
    assert!(url.ends_with(&format!("@{}/0", proxy.addr())), "{url}");
}

#[test]
fn more_connections_than_a_test_needs_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::before(listener.local_addr().unwrap()).unwrap();
    let mut clients: Vec<Client> = (0..300).map(|_| Client::open(proxy.addr())).collect();
    Client::open(proxy.addr()).sees_a_reset();
    assert_eq!((proxy.counts().connections, proxy.counts().refused), (300, 1));
    clients[299].hears_nothing();
}

#[test]
fn a_proxy_that_is_dropped_closes_everything_and_its_port() {
    let proxy = before_redis();
    let address = proxy.addr();
    let mut client = Client::through(&proxy);
    let waiting = thread::spawn(move || client.sees_the_end());
    let rule = proxy.watch(Command::redis("AUTH"));
    drop(proxy);
    assert_eq!(rule.matched(), 0, "a rule outlives its proxy");
    waiting.join().unwrap();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn healing_ends_every_fault() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    let cut = proxy.arm(Command::redis("ECHO"), Action::CutRequest, Times::Always);
    let held = proxy.arm(Command::redis("PING"), Action::HoldAnswer, Times::Always);
    client.say(&["PING"]);
    await_that("it is held", || held.fired() == 1);
    proxy.set_latency(Direction::Both, LIMIT, LIMIT);
    proxy.hold(Direction::Both);
    proxy.heal();
    client.hears(PONG);
    assert!(client.time(&["PING"], PONG) < LIMIT / 2);
    client.asks(&["ECHO", "x"], "$1\r\nx\r\n");
    assert_eq!(cut.fired(), 0);
    proxy.set_swallowing(Direction::Both, true);
    proxy.start_outage();
    proxy.heal();
    Client::through(&proxy).asks(&["PING"], PONG);
}
