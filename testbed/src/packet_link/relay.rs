//! Passes connections on from one listener to one address; TCP or Unix sockets, in any mixture.

use std::io::{self, copy};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use socket2::{SockAddr, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Accepts connections until it is dropped; those that are open end with one of their sides.
pub(super) struct Relay {
    address: SockAddr,
    is_closed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(super) fn start(listener: Socket, to: SockAddr) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        let thread = thread::Builder::new().name("testbed-relay".into()).spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                let to = to.clone();
                // A client whose server cannot be reached sees an end.
                thread::spawn(move || connect(&to).map(|server| pass_on(client, server)));
            }
        })?;
        Ok(Self { address, is_closed, thread: Some(thread) })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &SockAddr {
        &self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = connect(&self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A listener at that address; TCP chooses the port if that is 0.
pub(super) fn listen(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn connect(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Passes on what both say until both have ended.
fn pass_on(client: Socket, server: Socket) {
    for socket in [&client, &server] {
        // A Unix socket has no such option, and never waits.
        let _ = socket.set_tcp_nodelay(true);
    }
    let (client, server) = (Arc::new(client), Arc::new(server));
    let requests = {
        let (client, server) = (Arc::clone(&client), Arc::clone(&server));
        thread::spawn(move || pass_one_way(&client, &server))
    };
    pass_one_way(&server, &client);
    let _ = requests.join();
}

fn pass_one_way(mut from: &Socket, mut to: &Socket) {
    let ends = match copy(&mut from, &mut to) {
        Ok(_) => to.shutdown(Shutdown::Write),
        // One side is broken, and the other one learns of it.
        Err(_) => to.shutdown(Shutdown::Both).and(from.shutdown(Shutdown::Both)),
    };
    // What has ended needs no end.
    let _ = ends;
}
