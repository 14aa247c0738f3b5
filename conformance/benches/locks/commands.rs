//! What clients send to a server, counted from outside. On Redis MONITOR counts, without calls of
//! scripts and without keep-alives. `ZooKeeper` counts its own packets, keep-alives included.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use loadtest_measure::error::{Error, Result};
use testbed::Redis;
use uuid::Uuid;

/// How long the server may take to say what it was sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Counts what one server is sent.
pub(crate) enum Commands {
    /// By MONITOR, which is there only while it counts: it costs the server.
    Redis(Box<Place>, Option<Box<Monitor>>),
    /// The address, and the count at the beginning.
    ZooKeeper(String, f64),
}

/// Where a Redis is.
pub(crate) struct Place {
    client: redis::Client,
    address: SocketAddr,
}

impl Commands {
    /// Those that this Redis is sent.
    pub(crate) fn of_redis(redis: &Redis) -> Result<Self> {
        let client = redis::Client::open(redis.url()).map_err(failed)?;
        let place = Place { client, address: redis.addr() };
        Ok(Self::Redis(Box::new(place), None))
    }

    /// Those that the `ZooKeeper` at this address is sent.
    pub(crate) fn of_zookeeper(address: &str) -> Self {
        Self::ZooKeeper(address.to_owned(), 0.0)
    }

    /// Counts from now on.
    pub(crate) fn begin(&mut self) -> Result<()> {
        match self {
            Self::Redis(place, monitor) => {
                *monitor = Some(Box::new(Monitor::start(place)?));
                Ok(())
            }
            Self::ZooKeeper(address, received) => {
                *received = packets_received(address)?;
                Ok(())
            }
        }
    }

    /// How many there were since.
    pub(crate) fn end(&mut self) -> Result<f64> {
        match self {
            Self::Redis(_, monitor) => {
                monitor.take().map_or(Ok(0.0), |mut it| it.count_until_now())
            }
            Self::ZooKeeper(address, received) => Ok(packets_received(address)? - *received),
        }
    }
}

/// A connection on which the server says what others send it.
pub(crate) struct Monitor {
    lines: Receiver<String>,
    /// By which the server is sent what marks a moment.
    marks: redis::Connection,
    stream: TcpStream,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _it_has_ended = self.stream.shutdown(Shutdown::Both);
    }
}

impl Monitor {
    fn start(place: &Place) -> Result<Self> {
        let marks = place.client.get_connection().map_err(failed)?;
        let info = place.client.get_connection_info().redis_settings().clone();
        let mut stream = TcpStream::connect(place.address).map_err(failed)?;
        let ends = stream.try_clone().map_err(failed)?;
        let password = info.password().unwrap_or_default();
        write!(stream, "AUTH {password}\r\nMONITOR\r\n").map_err(failed)?;
        let (sender, lines) = channel();
        // It ends with the connection, which ends with this value.
        thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut monitor = Self { lines, marks, stream: ends };
        monitor.count_until_now()?;
        Ok(monitor)
    }

    /// How many commands were sent since the last time. (The first time waits for MONITOR itself.)
    fn count_until_now(&mut self) -> Result<f64> {
        let mark = Uuid::new_v4().to_string();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut sent = Instant::now();
        let mut count = 0.0;
        self.mark(&mark)?;
        loop {
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line.contains(&mark) => return Ok(count),
                Ok(line) => count += f64::from(u8::from(is_sent_by_a_client(&line))),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    // It was sent before MONITOR was.
                    if sent.elapsed() > Duration::from_millis(100) {
                        self.mark(&mark)?;
                        sent = Instant::now();
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn mark(&mut self, mark: &str) -> Result<()> {
        redis::cmd("ECHO").arg(mark).exec(&mut self.marks).map_err(failed)
    }
}

/// A line of MONITOR: `+<time> [<database> <address>] "<command>" "<argument>" ...`.
fn is_sent_by_a_client(line: &str) -> bool {
    let Some((sender, command)) = line.split_once("] \"") else { return false };
    let command = command.split('"').next().unwrap_or_default();
    !sender.ends_with(" lua") && !["PING", "ECHO"].contains(&command.to_uppercase().as_str())
}

/// What `mntr` says.
fn packets_received(address: &str) -> Result<f64> {
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
    stream.write_all(b"mntr").map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed)?;
    let count = text.lines().find_map(|line| line.strip_prefix("zk_packets_received"));
    let count = count.and_then(|count| count.trim().parse().ok());
    count.ok_or_else(|| Error::Setup(format!("mntr says {text:?}")))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Setup(format!("what clients send: {error}"))
}
