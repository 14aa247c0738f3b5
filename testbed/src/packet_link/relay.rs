//! Passes connections on from one listener to one address; TCP or Unix sockets, in any mixture.

use std::io::{self, ErrorKind, copy};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{SockAddr, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Accepts connections until it is dropped; those that are open end with one of their sides.
pub(super) struct Relay {
    listener: Arc<Socket>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(super) fn start(listener: Socket, to: SockAddr) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let thread = thread::Builder::new()
            .name("testbed-relay".into())
            .spawn(move || accept_connections(&accepting, &to))?;
        Ok(Self { listener, thread: Some(thread) })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<SockAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Wakes `accept` without a connection: the loopback device of a namespace is down.
        let is_shut = self.listener.shutdown(Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_shut) {
            let _ = thread.join();
        }
    }
}

/// Runs until the listener is shut down.
fn accept_connections(listener: &Socket, to: &SockAddr) {
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                let to = to.clone();
                // A client whose server cannot be reached sees an end.
                thread::spawn(move || connect(&to).map(|server| pass_on(client, server)));
            }
            // EINVAL: the socket does not listen any more.
            Err(error) if error.kind() == ErrorKind::InvalidInput => break,
            // The client has left, or there are too many open files: others can still come.
            Err(_) => thread::sleep(ACCEPT_PAUSE),
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn dropping_a_relay_ends_its_thread_whatever_its_listener() {
        let path = std::env::temp_dir().join(format!("relay-{}", std::process::id()));
        let tcp = SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        for address in [tcp, SockAddr::unix(&path).expect("an address")] {
            let listener = listen(&address).expect("a listener");
            let relay = Relay::start(listener, address).expect("a relay");
            let (dropped, ends) = mpsc::channel();
            thread::spawn(move || {
                drop(relay);
                dropped.send(()).expect("awaited");
            });
            ends.recv_timeout(Duration::from_secs(10)).expect("it is dropped in time");
        }
        std::fs::remove_file(path).expect("a socket");
    }
}
