//! A `ZooKeeper` whose sessions may be short, and which keeps what it acknowledged.

mod support;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use support::await_that;
use testbed::{Bed, ZooKeeper, ZooKeeperOptions};

const TRIES: u32 = 5;
const CREATE: u32 = 1;
const DELETE: u32 = 2;
const EXISTS: u32 = 3;
const CREATE_CONTAINER: u32 = 19;
const CREATE_TTL: u32 = 21;

const PERSISTENT: u32 = 0;
const EPHEMERAL: u32 = 1;
const CONTAINER: u32 = 4;
const PERSISTENT_WITH_TTL: u32 = 5;

const NO_NODE: i32 = -101;
const SESSION_EXPIRED: i32 = -112;

/// A session of the protocol's few words that are needed here.
struct Session {
    stream: TcpStream,
    timeout_ms: u32,
    id: i64,
}

impl Session {
    fn open(address: SocketAddr, timeout_ms: u32) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut hello = vec![0; 12];
        hello.extend(timeout_ms.to_be_bytes());
        hello.extend([0; 8]);
        hello.extend(string("\0".repeat(16).as_str()));
        let answer = exchange(&mut stream, &hello)?;
        let id = i64::from_be_bytes(answer[8..16].try_into().unwrap());
        Ok(Self { stream, timeout_ms: u32::try_from(number(&answer, 4)).unwrap(), id })
    }

    /// The error code of the answer.
    fn request(&mut self, operation: u32, body: &[u8]) -> io::Result<i32> {
        let mut request = 1_u32.to_be_bytes().to_vec();
        request.extend(operation.to_be_bytes());
        request.extend(body);
        Ok(number(&exchange(&mut self.stream, &request)?, 12))
    }

    fn create(&mut self, operation: u32, path: &str, flags: u32) -> io::Result<i32> {
        let mut body = string(path);
        body.extend(string("data"));
        // One entry of access control: everything, to every client.
        body.extend([1_u32, 31].map(u32::to_be_bytes).concat());
        body.extend([string("world"), string("anyone"), flags.to_be_bytes().to_vec()].concat());
        if flags == PERSISTENT_WITH_TTL {
            body.extend(1_000_u64.to_be_bytes());
        }
        self.request(operation, &body)
    }

    fn delete(&mut self, path: &str) {
        let any_version = u32::MAX.to_be_bytes().to_vec();
        assert_eq!(self.request(DELETE, &[string(path), any_version].concat()).unwrap(), 0);
    }

    fn exists(&mut self, path: &str) -> bool {
        match self.request(EXISTS, &[string(path), vec![0]].concat()).unwrap() {
            0 => true,
            NO_NODE => false,
            code => panic!("{path}: {code}"),
        }
    }
}

fn exchange(stream: &mut TcpStream, message: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(&[&length(message), message].concat())?;
    let mut size = [0; 4];
    stream.read_exact(&mut size)?;
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}

fn string(text: &str) -> Vec<u8> {
    [&length(text.as_bytes()), text.as_bytes()].concat()
}

fn number(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn open(zookeeper: &ZooKeeper, timeout_ms: u32) -> Session {
    Session::open(zookeeper.addr(), timeout_ms).unwrap()
}

#[test]
fn a_session_of_400_ms_is_legal_and_ends_in_its_time() {
    let bed = Bed::start().unwrap();
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).unwrap();
    assert_eq!(zookeeper.connect_string(), zookeeper.addr().to_string());
    let mut watcher = open(&zookeeper, 30_000);
    assert_eq!(watcher.timeout_ms, 30_000);
    assert_eq!(open(&zookeeper, 1).timeout_ms, 400);
    assert_eq!(open(&zookeeper, 600_000).timeout_ms, 60_000);
    // A machine that stands still for 400 ms ends the session too early.
    let mut last = None;
    for number in 0..TRIES {
        let path = &format!("/lock-{number}");
        let mut owner = open(&zookeeper, 400);
        assert_eq!(owner.timeout_ms, 400);
        // Before the session is heard of for the last time: a delay makes it seem longer.
        let start = Instant::now();
        let made = owner.create(CREATE, path, EPHEMERAL);
        let is_made = matches!(made, Ok(0)) && watcher.exists(path);
        last = Some(made);
        if !is_made {
            continue;
        }
        await_that("the end of the session", Duration::from_secs(5), || !watcher.exists(path));
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(300), "{took:?}");
        if took < Duration::from_secs(2) {
            return;
        }
    }
    panic!("no session ended in its time in {TRIES} tries: {last:?}");
}

#[test]
fn a_session_that_is_ended_from_outside_takes_its_nodes_along_and_no_other_session() {
    let bed = Bed::start().unwrap();
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).unwrap();
    let [mut ended, mut other] = [(); 2].map(|()| open(&zookeeper, 60_000));
    assert_eq!(ended.create(CREATE, "/of-the-ended", EPHEMERAL).unwrap(), 0);
    assert_eq!(other.create(CREATE, "/of-the-other", EPHEMERAL).unwrap(), 0);
    zookeeper.end_session(ended.id).unwrap();
    assert!(other.exists("/of-the-other") && !other.exists("/of-the-ended"));
    let is_refused = ended.request(EXISTS, &[string("/"), vec![0]].concat());
    assert!(matches!(is_refused, Err(_) | Ok(SESSION_EXPIRED)), "{is_refused:?}");
    let error = zookeeper.end_session(ended.id).unwrap_err().to_string();
    assert!(error.ends_with("there is no such session"), "{error}");
}

#[test]
fn container_and_ttl_nodes_are_supported_and_reaped_on_request() {
    let bed = Bed::start().unwrap();
    let options = ZooKeeperOptions { container_check_ms: 100, ..Default::default() };
    let zookeeper = bed.zookeeper(options).unwrap();
    let mut session = open(&zookeeper, 10_000);
    assert_eq!(session.create(CREATE_TTL, "/for-a-second", PERSISTENT_WITH_TTL).unwrap(), 0);
    assert_eq!(session.create(CREATE_CONTAINER, "/locks", CONTAINER).unwrap(), 0);
    assert!(session.exists("/locks") && session.exists("/for-a-second"));
    let limit = Duration::from_secs(10);
    await_that("the end of its second", limit, || !session.exists("/for-a-second"));
    // A container goes with its last child; this one has had none.
    assert!(session.exists("/locks"));
    assert_eq!(session.create(CREATE, "/locks/one", PERSISTENT).unwrap(), 0);
    session.delete("/locks/one");
    await_that("the end of the container", limit, || !session.exists("/locks"));
}

#[test]
fn a_killed_zookeeper_restarts_on_its_port_with_its_data() {
    let bed = Bed::start().unwrap();
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).unwrap();
    assert_eq!(open(&zookeeper, 10_000).create(CREATE, "/kept", PERSISTENT).unwrap(), 0);
    let (pid, address) = (zookeeper.pid(), zookeeper.addr());
    zookeeper.kill().unwrap();
    assert!(TcpStream::connect(address).is_err());
    zookeeper.restart().unwrap();
    assert!(zookeeper.pid() != pid && zookeeper.addr() == address);
    assert!(open(&zookeeper, 10_000).exists("/kept"));
}

#[test]
fn a_frozen_zookeeper_answers_nothing_until_it_is_thawed() {
    let bed = Bed::start().unwrap();
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).unwrap();
    assert_eq!(zookeeper.four_letter_word("ruok").unwrap(), "imok");
    let _session = open(&zookeeper, 10_000);
    let clients = zookeeper.four_letter_word("cons").unwrap();
    assert!(clients.contains("to=10000"), "{clients}");
    assert!(zookeeper.four_letter_word("mntr").unwrap().contains("zk_server_state\tstandalone"));
    zookeeper.freeze().unwrap();
    let error = zookeeper.four_letter_word("ruok").unwrap_err().to_string();
    assert!(error.starts_with("cannot ask zookeeper for ruok: "), "{error}");
    zookeeper.thaw().unwrap();
    assert_eq!(zookeeper.four_letter_word("ruok").unwrap(), "imok");
}

#[test]
fn more_lines_win_and_a_bad_one_is_shown() {
    let bed = Bed::start().unwrap();
    let with = |line: &str| ZooKeeperOptions { extra: vec![line.into()], ..Default::default() };
    let zookeeper = bed.zookeeper(with("maxSessionTimeout=1000")).unwrap();
    assert_eq!(open(&zookeeper, 60_000).timeout_ms, 1_000);
    let error = bed.zookeeper(with("clientPort=none")).unwrap_err().to_string();
    let sentence = "zookeeper-2 ended before it was ready (exit status: 2): Caused by: \
                    java.lang.NumberFormatException: For input string: \"none\"\n";
    assert!(error.starts_with(sentence), "{error}");
}
