//! One NATS server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use testbed::{Bed, Nats, NatsOptions};

/// What the server says to one line of its protocol, after the login.
fn talk(nats: &Nats, login: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(nats.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(stream, "CONNECT {{\"verbose\":false{login}}}\r\n{line}").unwrap();
    let mut said = String::new();
    for text in BufReader::new(stream).lines().map_while(Result::ok) {
        said += &text;
        if !text.starts_with("INFO") && !text.starts_with("PING") {
            break;
        }
    }
    said
}

#[test]
fn a_killed_nats_restarts_on_its_port_with_jetstream() {
    let bed = Bed::start().unwrap();
    let nats = bed.nats(&NatsOptions::default()).unwrap();
    let (pid, address) = (nats.pid(), nats.addr());
    nats.kill().unwrap();
    assert!(TcpStream::connect(address).is_err(), "it listens no more");
    nats.restart().unwrap();
    assert!(nats.pid() != pid && nats.addr() == address);
    let said = talk(&nats, "", "PING\r\n");
    assert!(said.contains("\"jetstream\":true") && said.ends_with("PONG"), "{said}");
}

#[test]
fn a_nats_with_a_login_refuses_others() {
    let bed = Bed::start().unwrap();
    let login = Some(["me".to_owned(), "s3cret".to_owned()]);
    let nats = bed.nats(&NatsOptions { login }).unwrap();
    assert_eq!(nats.url(), format!("nats://me:s3cret@{}", nats.addr()));
    let login = ",\"user\":\"me\",\"pass\":\"s3cret\"";
    assert!(talk(&nats, login, "PING\r\n").ends_with("PONG"));
    let refused = talk(&nats, "", "PING\r\n");
    assert!(refused.contains("Authorization Violation"), "{refused}");
}
