//! What the tests of this crate share.

// Each test program compiles this file and uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use testbed::ReplicaSpec;

/// The program that stands in for a replica and for a bed's owner.
pub(crate) const STAND_IN: &str = env!("CARGO_BIN_EXE_testbed-stand-in");

/// A stand-in replica.
pub(crate) fn stand_in(name: &str) -> ReplicaSpec {
    ReplicaSpec::new(name, STAND_IN).args(["serve", "127.0.0.1:0"])
}

/// An HTTP answer: status, head and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One request on a connection of its own. `target` is sent as it is.
pub(crate) fn request(base_url: &str, target: &str, headers: &str) -> Answer {
    let address = base_url.strip_prefix("http://").expect("an http URL");
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}");
    let text = send(address, &format!("{head}\r\n"));
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// Sends bytes and reads to the end of the connection.
pub(crate) fn send(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(15))).expect("a time limit");
    stream.write_all(text.as_bytes()).expect("a request sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Polls until `done`; panics with `what` after `limit`.
pub(crate) fn await_that(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Processes that mention the folder in their arguments or environment. Every process of a bed has
/// TMPDIR there.
pub(crate) fn processes_with(dir: &Path) -> Vec<u32> {
    let mentions = |path: PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(&*dir.to_string_lossy())
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| {
            mentions(entry.path().join("cmdline")) || mentions(entry.path().join("environ"))
        })
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| is_alive(*pid))
        .collect()
}
