//! A Redis connection as bytes, on which everything can be seen.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use testbed::Proxy;

use crate::{LIMIT, SERVERS};

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    /// A connection that is logged in.
    pub(crate) fn through(proxy: &Proxy) -> Self {
        Self::login(proxy.addr())
    }

    /// Connects without a proxy.
    pub(crate) fn direct() -> Self {
        Self::login(SERVERS.redis.addr())
    }

    fn login(address: SocketAddr) -> Self {
        let mut client = Self::open(address);
        let url = SERVERS.redis.url();
        let password = url.trim_start_matches("redis://:").split('@').next().unwrap();
        client.asks(&["AUTH", password], "+OK\r\n");
        client
    }

    /// A connection on which nothing has been said.
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn say(&mut self, words: &[&str]) {
        self.0.write_all(&command(words)).unwrap();
    }

    /// Reads that many bytes, which must be these.
    pub(crate) fn hears(&mut self, answer: &str) {
        let mut heard = vec![0; answer.len()];
        self.0.read_exact(&mut heard).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
        assert_eq!(String::from_utf8_lossy(&heard), answer);
    }

    pub(crate) fn asks(&mut self, words: &[&str], answer: &str) {
        self.say(words);
        self.hears(answer);
    }

    /// How long an answer takes.
    pub(crate) fn time(&mut self, words: &[&str], answer: &str) -> Duration {
        let start = Instant::now();
        self.asks(words, answer);
        start.elapsed()
    }

    /// A key's value.
    pub(crate) fn get(&mut self, key: &str) -> Option<String> {
        self.say(&["GET", key]);
        self.hears("$");
        let length: usize = self.line().parse().ok()?;
        let mut value = vec![0; length + 2];
        self.0.read_exact(&mut value).unwrap();
        Some(String::from_utf8(value).unwrap().trim_end().to_owned())
    }

    /// The rest of a line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        while !line.ends_with("\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0].into());
        }
        line.trim_end().to_owned()
    }

    /// The server has ended it, and said nothing before.
    pub(crate) fn sees_the_end(&mut self) {
        assert_eq!(self.0.read(&mut [0; 64]).expect("an end"), 0);
    }

    pub(crate) fn sees_a_reset(&mut self) {
        let error = self.0.read(&mut [0; 64]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }

    /// Nothing is there to be read at this moment, and it is not closed.
    pub(crate) fn hears_nothing(&mut self) {
        self.0.set_nonblocking(true).unwrap();
        let error = self.0.read(&mut [0; 64]).expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }
}

pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let parts: Vec<String> = words.iter().map(|w| format!("${}\r\n{w}\r\n", w.len())).collect();
    format!("*{}\r\n{}", words.len(), parts.concat()).into_bytes()
}
