//! A forward proxy for HTTP, by which one etcd member reaches the others.
//!
//! All members know one another by one list of addresses. A proxy before each listener would not
//! know which of the others calls. So each member has a forward proxy of its own, which leads each
//! of its calls to the link for that pair. A connection carries one request.

use std::io::{self, Read, Write, copy};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// How long the head of a request, and a connection to a link, may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
const SCHEME: &str = "http://";

/// From the host and port of a URL to the link that leads there.
type Routes = Vec<(String, SocketAddr)>;

/// Passes requests on until it is dropped; those that are under way end with their connections.
#[derive(Debug)]
pub(crate) struct ForwardProxy {
    pub(crate) address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ForwardProxy {
    pub(crate) fn start(ways: Routes) -> Result<Self> {
        let listening = || -> io::Result<_> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listening().map_err(Error::io("listen for a member"))?;
        let (is_closed, ways) = (Arc::new(AtomicBool::new(false)), Arc::new(ways));
        let closed = Arc::clone(&is_closed);
        let thread = thread::spawn(move || {
            for client in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                let ways = Arc::clone(&ways);
                // A request that fails is repeated by the member.
                thread::spawn(move || client.and_then(|client| pass_on(&client, &ways)));
            }
        });
        Ok(Self { address, is_closed, thread: Some(thread) })
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes one request on, and its response back.
fn pass_on(mut client: &TcpStream, ways: &Routes) -> io::Result<()> {
    client.set_read_timeout(Some(HEAD_TIMEOUT))?;
    let (head, rest) = read_head(client)?;
    let (host, head) = rewritten(&head).ok_or_else(|| io::Error::other("no absolute URL"))?;
    let way = ways.iter().find(|(name, _)| *name == host);
    let (_, link) = way.ok_or_else(|| io::Error::other("no such member"))?;
    let server = TcpStream::connect_timeout(link, HEAD_TIMEOUT)?;
    for stream in [client, &server] {
        stream.set_read_timeout(None)?;
        stream.set_nodelay(true)?;
    }
    (&server).write_all(head.as_bytes())?;
    (&server).write_all(&rest)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let requests = thread::spawn(move || {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let passed = copy(&mut &server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = requests.join();
    passed.map(drop)
}

/// The head of a request with its empty line, and what was read after it.
fn read_head(mut client: &TcpStream) -> io::Result<(String, Vec<u8>)> {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = client.read(&mut buffer)?;
        if count == 0 || read.len() > MAX_HEAD_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&buffer[..count]);
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&read).into_owned(), rest));
        }
    }
}

/// The host of the URL, and the head as the server itself wants it, for one request.
fn rewritten(head: &str) -> Option<(String, String)> {
    let (line, headers) = head.split_once("\r\n")?;
    let mut words = line.split(' ');
    let (method, url, version) = (words.next()?, words.next()?, words.next()?);
    let url = url.strip_prefix(SCHEME)?;
    let (host, path) = url.split_at(url.find('/')?);
    Some((host.to_owned(), format!("{method} {path} {version}\r\nConnection: close\r\n{headers}")))
}

#[cfg(test)]
mod tests {
    use super::rewritten;

    #[test]
    fn a_request_to_a_proxy_becomes_one_to_its_server() {
        let head = "GET http://192.0.2.1:2380/raft/stream/1 HTTP/1.1\r\nHost: x\r\n\r\n";
        let (host, head) = rewritten(head).unwrap();
        assert_eq!(host, "192.0.2.1:2380");
        assert_eq!(head, "GET /raft/stream/1 HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n");
        assert_eq!(rewritten("GET /path HTTP/1.1\r\n\r\n"), None);
    }
}
