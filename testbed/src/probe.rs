//! When is a server ready? When it answers what its clients will ask, not when a port is open.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::mysql_wire::{Login, MySqlConnection};
use crate::resp;

/// Limit of one look, far below the limit of the whole start.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a replica prints on a line of its own once it listens.
const LISTENING: &str = "listening on http://";

/// What is looked at, per kind of server.
pub(crate) enum Probe {
    /// Not a server: it does its work and exits with code 0.
    Exit,
    /// Not a server: its caller talks to it, and so finds out when it is ready.
    Talks,
    /// PING, which a server that still loads its data refuses; a replica must have got its data.
    Redis { address: SocketAddr, password: String },
    /// A login, which is possible only after the init file has made the user.
    Database { login: Login, version: Arc<OnceLock<String>> },
    /// `srvr`, whose answer names the mode only when the server serves.
    ZooKeeper { address: SocketAddr },
    /// `/health`, which asks a majority.
    Etcd { address: SocketAddr },
    /// PING by that user.
    Nats { address: SocketAddr, login: Option<[String; 2]> },
    /// The line that names its address, then 200 from `/readyz` there.
    Replica { address: Arc<OnceLock<SocketAddr>> },
    /// It listens on all these addresses. Without live replicas its answers say nothing, and those
    /// of another server on the port would look the same.
    Listens { addresses: Vec<SocketAddr> },
}

/// What was seen.
pub(crate) enum Look {
    Ready,
    /// Not ready, and why.
    NotYet(String),
}

impl Probe {
    /// Whether it is the end of the process that is awaited.
    pub(crate) fn is_exit(&self) -> bool {
        matches!(self, Self::Exit)
    }

    /// Whether its stdin and stdout are pipes to its caller.
    pub(crate) fn is_talk(&self) -> bool {
        matches!(self, Self::Talks)
    }

    /// Looks once. `log` is what the process has logged since it was started.
    pub(crate) fn look(&self, pid: u32, log: &str) -> Look {
        let seen = match self {
            Self::Exit => Err("it still runs".into()),
            Self::Talks => Ok(()),
            Self::Redis { address, password } => redis_serves(*address, password),
            Self::Database { login, version } => login_works(login, version),
            Self::ZooKeeper { address } => zookeeper_serves(*address),
            Self::Etcd { address } => etcd_serves(*address),
            Self::Nats { address, login } => nats_serves(*address, login.as_ref()),
            Self::Replica { address } => replica_is_ready(log, address),
            Self::Listens { addresses } => listens_on(pid, addresses),
        };
        seen.map_or_else(Look::NotYet, |()| Look::Ready)
    }
}

fn redis_serves(address: SocketAddr, password: &str) -> Result<(), String> {
    let ask = || -> Result<String, resp::Failure> {
        let mut connection = resp::RespConnection::open(address, password, PROBE_TIMEOUT)?;
        connection.command(&["PING"])?;
        connection.command(&["INFO", "replication"])
    };
    let state = ask().map_err(|failure| format!("{address}: {failure}"))?;
    let is_ready = |line: &str| line == "role:master" || line == "master_link_status:up";
    let waits = "it is a replica and has not got the data of its master";
    if state.lines().any(is_ready) { Ok(()) } else { Err(waits.into()) }
}

fn login_works(login: &Login, version: &OnceLock<String>) -> Result<(), String> {
    let connection = MySqlConnection::open(login).map_err(|error| error.to_string())?;
    version.get_or_init(|| connection.server_version().to_owned());
    Ok(())
}

fn zookeeper_serves(address: SocketAddr) -> Result<(), String> {
    let answer = four_letter_word(address, "srvr")?;
    if answer.contains("\nMode: ") { Ok(()) } else { Err(format!("it answers {answer:?}")) }
}

fn etcd_serves(address: SocketAddr) -> Result<(), String> {
    let answer = http_get(address, "/health")?;
    let is_healthy = answer.contains("\"health\":\"true\"");
    if is_healthy { Ok(()) } else { Err(format!("it answers {answer:?}")) }
}

fn nats_serves(address: SocketAddr, login: Option<&[String; 2]>) -> Result<(), String> {
    let login = login.map_or(String::new(), |[user, password]| {
        format!(",\"user\":\"{user}\",\"pass\":\"{password}\"")
    });
    let request = format!("CONNECT {{\"verbose\":false{login}}}\r\nPING\r\n");
    let is_enough = |answer: &str| answer.contains("PONG\r\n");
    let answer = exchange(address, &request, is_enough)?;
    // Without JetStream it says nothing of it.
    let serves = is_enough(&answer) && answer.contains("\"jetstream\":true");
    if serves { Ok(()) } else { Err(format!("it answers {answer:?}")) }
}

/// What a `ZooKeeper` says to one of its four-letter words.
pub(crate) fn four_letter_word(address: SocketAddr, word: &str) -> Result<String, String> {
    exchange(address, word, |_| false)
}

fn replica_is_ready(log: &str, address: &OnceLock<SocketAddr>) -> Result<(), String> {
    let line = log
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .find_map(|line| line.trim_end().strip_prefix(LISTENING))
        .ok_or_else(|| format!("it has not printed `{LISTENING}...`"))?;
    let printed: SocketAddr = line
        .trim_end_matches('/')
        .parse()
        .map_err(|_| format!("`{line}` is not an address with a port"))?;
    let expected = *address.get_or_init(|| printed);
    if printed != expected {
        return Err(format!("it came back on {printed} instead of {expected}"));
    }
    // The body matters only if it says why the server is not ready.
    let is_enough = |answer: &str| answer.starts_with("HTTP/1.1 200 ");
    let answer = http_get_until(printed, "/readyz", is_enough)?;
    let status_line = answer.lines().next().unwrap_or_default();
    if status_line.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Err(format!("/readyz answers `{status_line}` {body}"))
}

fn http_get(address: SocketAddr, path: &str) -> Result<String, String> {
    http_get_until(address, path, |_| false)
}

/// The answer to a GET, up to where it is enough.
pub(crate) fn http_get_until(
    address: SocketAddr,
    path: &str,
    enough: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    exchange(address, &request, enough)
}

/// Sends `request` and reads until `enough`, or the end.
fn exchange(
    address: SocketAddr,
    request: &str,
    enough: impl Fn(&str) -> bool,
) -> Result<String, String> {
    const MAX_BYTES: usize = 64 * 1024;
    let talk = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut buffer)?;
            answer.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&answer);
            if count == 0 || answer.len() > MAX_BYTES || enough(&text) {
                return Ok(text.into_owned());
            }
        }
    };
    talk().map_err(|error| format!("{address}: {error}"))
}

/// Whether this very process holds listening sockets on all addresses, by the kernel's tables.
fn listens_on(pid: u32, addresses: &[SocketAddr]) -> Result<(), String> {
    const LISTEN: &str = "0A";
    let own: Vec<PathBuf> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").map_err(|error| error.to_string())?;
    for address in addresses {
        // "0100007F:1F90": the IPv4 address in the machine's byte order, then the port.
        let SocketAddr::V4(v4) = address else { return Err("not an IPv4 address".into()) };
        let ip = u32::from_ne_bytes(v4.ip().octets());
        let local = format!("{ip:08X}:{:04X}", v4.port());
        let found = table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, at, _, state, _, _, _, _, _, inode, ..]
                if at == local && state == LISTEN
                    && own.contains(&PathBuf::from(format!("socket:[{inode}]"))))
        });
        if !found {
            return Err(format!("it does not listen on {address}"));
        }
    }
    Ok(())
}
