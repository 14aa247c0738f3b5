//! Clients that ask and never read, beside slow ones, and what they leave for a normal client.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use reqwest::Method;
use socket2::{Domain, Socket, Type};
use testbed::Replica;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::caller::Caller;
use crate::replicas::spec;
use crate::support::{Place, servers};

/// Clients of each kind; 500 together.
const UNREAD: usize = 200;
const SLOW: usize = 150;
/// Requests that an unread client sends: their answers are more than the kernel's buffers hold.
const PIPELINED: usize = 100;
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the normal client is timed, before and during.
const TIMED: Duration = Duration::from_secs(3);
/// The longest that one of its requests may take on a busy machine.
const WIDE_BOUND: Duration = Duration::from_secs(5);
/// Slow heads and bodies are cut off after 10 s.
const CUT_OFF_WITHIN: Duration = Duration::from_secs(20);
/// What a replica may grow by.
const GROWTH_KIB: u64 = 50 * 1024;
/// Sockets that a replica may open for its servers meanwhile.
const OWN_SOCKETS: usize = 40;

/// A connection with the smallest buffer, over which this was sent.
async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(1).expect("a small buffer");
    socket.connect(&address.into()).expect("a connection");
    socket.set_nonblocking(true).expect("a socket for tokio");
    let mut stream = TcpStream::from_std(socket.into()).expect("a stream");
    stream.write_all(bytes).await.expect("it is taken");
    stream
}

/// The times of the requests of a normal client, the longest last.
async fn normal_client(caller: &Caller) -> Vec<Duration> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < TIMED {
        let started = Instant::now();
        caller.send(caller.request(Method::GET, "/api/vouchers")).await.expect(200);
        times.push(started.elapsed());
    }
    times.sort();
    times
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

fn sockets(replica: &Replica) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", replica.pid())).expect("a running replica");
    let links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

fn resident_kib(replica: &Replica) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", replica.pid())).expect("a replica");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("of KiB")
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_are_cut_off_and_leave_a_normal_client_alone() {
    let starting = tokio::task::spawn_blocking(|| {
        let flags = ["--write-timeout-s", &WRITE_TIMEOUT.as_secs().to_string()];
        servers().bed.replica(spec(&Place::fresh(), "unread", &flags))
    });
    let replica = starting.await.expect("no panic").expect("a replica");
    let caller = Caller::new(replica.base_url());
    normal_client(&caller).await;
    let before = normal_client(&caller).await;
    let (sockets_before, memory) = (sockets(&replica), resident_kib(&replica));

    let asked = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(PIPELINED);
    let head = "GET /livez HTTP/1.1\r\nHost: x\r\n";
    let body = "POST /api/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Content-Length: 1000\r\n\r\n{";
    let (mut unread, mut slow) = (Vec::new(), tokio::task::JoinSet::new());
    for _ in 0..UNREAD {
        unread.push(send(replica.addr(), asked.as_bytes()).await);
    }
    for (start, drop) in [(head, "X-A: b\r\n"), (body, " ")] {
        for _ in 0..SLOW {
            let mut stream = send(replica.addr(), start.as_bytes()).await;
            slow.spawn(async move {
                while stream.write_all(drop.as_bytes()).await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            });
        }
    }
    let opened = Instant::now();
    // On a busy machine the first are cut off before the last come.
    let mut most = sockets(&replica);
    while most < sockets_before + SLOW {
        assert!(opened.elapsed() < CUT_OFF_WITHIN, "they are not there: {most}");
        sleep(Duration::from_millis(10)).await;
        most = most.max(sockets(&replica));
    }
    let during = normal_client(&caller).await;
    let grown = resident_kib(&replica).saturating_sub(memory);
    let ratio = p99(&during).as_secs_f64() / p99(&before).as_secs_f64();
    println!(
        "p99 of a normal client: {:?} alone, {:?} beside 500 others, {ratio:.2} times as long; \
         {} and {} requests; memory grew by {grown} KiB",
        p99(&before),
        p99(&during),
        before.len(),
        during.len()
    );
    assert!(during.last() < Some(&WIDE_BOUND), "{:?}", during.last());
    assert!(grown < GROWTH_KIB, "grew by {grown} KiB");

    // All are cut off, the unread ones too, though their clients keep them open.
    while sockets(&replica) > sockets_before + OWN_SOCKETS {
        assert!(opened.elapsed() < CUT_OFF_WITHIN, "{} sockets are open", sockets(&replica));
        sleep(Duration::from_millis(100)).await;
    }
    println!("all were cut off after {:?}", opened.elapsed());
    slow.join_all().await;
    drop(unread);
}
