//! Stands before the port for elections of a `ZooKeeper` server.
//!
//! Of two members the one with the higher number opens the connection for elections. If the other
//! one connects, it is called back at the address that it names, which is its own: a way around
//! every link. So its call ends here, and the member with the higher number is told of an address
//! of our choice (`QuorumCnxManager` in the server's source).

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};

/// Of the first message, whose address is one `host:port`.
const PROTOCOL_VERSION: i64 = -65_536;
/// How long a member that calls may take to say who it is.
const HEARD_WITHIN: Duration = Duration::from_millis(500);
/// How long the member may take to call back.
const CALLED_BACK_WITHIN: Duration = Duration::from_secs(5);

/// Waits for calls of one member to another.
#[derive(Debug)]
pub(crate) struct Introducer {
    pub(crate) address: SocketAddr,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Introducer {
    /// Tells the server at `to`, at each call, that member `number` is to be called at `back`.
    pub(crate) fn start(number: usize, to: SocketAddr, back: SocketAddr) -> Result<Self> {
        let listening = || -> io::Result<_> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listening().map_err(Error::io("listen for calls"))?;
        let (number, named) = (number as u64, back.to_string());
        let length = u32::try_from(named.len()).expect("an address is short");
        let greeting = [
            &PROTOCOL_VERSION.to_be_bytes()[..],
            &number.to_be_bytes(),
            &length.to_be_bytes(),
            named.as_bytes(),
        ]
        .concat();
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let thread = thread::spawn(move || {
            for call in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                // A call that fails is repeated by the member.
                let _ = call.and_then(|call| introduce(&call, to, &greeting));
            }
        });
        Ok(Self { address, is_closed, thread: Some(thread) })
    }
}

impl Drop for Introducer {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The server ends the connection when it calls back. A caller of whom nothing is heard has a link
/// that swallows what it says.
fn introduce(mut call: &TcpStream, to: SocketAddr, greeting: &[u8]) -> io::Result<()> {
    call.set_read_timeout(Some(HEARD_WITHIN))?;
    call.read_exact(&mut [0])?;
    let mut stream = TcpStream::connect_timeout(&to, CALLED_BACK_WITHIN)?;
    stream.set_read_timeout(Some(CALLED_BACK_WITHIN))?;
    stream.write_all(greeting)?;
    stream.read(&mut [0]).map(drop)
}
