//! One thread that serves all connections of a proxy.
//!
//! It waits for sockets and for times with `poll`; everything else happens with the engine locked.
//! While a fault is changed the whole proxy therefore stands still, and the change is complete when
//! the call returns.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::libc::EINPROGRESS;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Socket, Type};

use super::connection::{Connection, Side, World, reset_when_dropped};
use super::counts::Counts;
use super::faults::Faults;
use super::rules::Rules;

/// More than any test opens, and few enough for the usual limit of 1024 open files; beyond them
/// connections are refused.
const MAX_CONNECTIONS: usize = 300;

/// How long nothing at all may happen before the engine looks again.
const IDLE_INTERVAL: Duration = Duration::from_mins(1);

/// Between two tries to reach a server that refuses connections.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct Engine {
    pub(super) world: World,
    pub(super) stopped: bool,
    pub(super) server: SocketAddr,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    /// How long a server that refuses connections is tried again.
    pub(super) patience: Duration,
    /// The clients for whom it is tried again, each with a deadline.
    waiting: Vec<(TcpStream, Instant)>,
}

/// What the engine's thread and its owners share.
pub(super) struct EngineHandle {
    engine: Mutex<Engine>,
    /// A byte into the first is a readable second: the engine looks again at once.
    waker: UnixStream,
    woken: UnixStream,
}

/// A socket that is waited for.
struct Watch {
    connection: u64,
    side: Side,
    socket: Arc<TcpStream>,
    flags: PollFlags,
}

impl EngineHandle {
    pub(super) fn new(server: SocketAddr) -> io::Result<Self> {
        let (waker, woken) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (faults, rules) = (Faults::none(), Rules::default());
        let engine = Engine {
            world: World { faults, rules, counts: Counts::default() },
            stopped: false,
            server,
            connections: BTreeMap::new(),
            next: 0,
            patience: Duration::ZERO,
            waiting: Vec::new(),
        };
        Ok(Self { engine: Mutex::new(engine), waker, woken })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something and has it carried out.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        let mut engine = self.lock();
        let result = change(&mut engine);
        engine.deliver(Instant::now());
        drop(engine);
        // If the buffer is full, the engine is about to wake up.
        let _full = (&self.waker).write(&[0]);
        result
    }

    /// Serves the connections of a non-blocking listener, until stopped.
    pub(super) fn run(&self, listener: &TcpListener) {
        loop {
            let engine = self.lock();
            if engine.stopped {
                return;
            }
            let (watched, wait) = (engine.watched(), engine.wait(Instant::now()));
            drop(engine);
            let ready = self.await_any(listener, &watched, wait);
            // A socket that was given up meanwhile is closed only now.
            drop(watched);
            // The engine was woken to look again, which it does.
            while matches!((&self.woken).read(&mut [0; 64]), Ok(1..)) {}
            let mut engine = self.lock();
            engine.accept(listener);
            for (connection, side) in ready {
                engine.wake(connection, side);
            }
            engine.deliver(Instant::now());
        }
    }

    /// Waits until one of the sockets is ready; which ones are.
    fn await_any(
        &self,
        listener: &TcpListener,
        watched: &[Watch],
        wait: Duration,
    ) -> Vec<(u64, Side)> {
        let own = [listener.as_fd(), self.woken.as_fd()];
        let own = own.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).into_iter();
        let others = watched.iter().map(|watch| PollFd::new(watch.socket.as_fd(), watch.flags));
        let mut fds: Vec<PollFd> = own.chain(others).collect();
        // Interrupted, or out of memory: the engine looks again.
        let _again = ppoll(&mut fds, Some(TimeSpec::from_duration(wait)), None);
        let events = fds[2..].iter().map(|fd| fd.any().unwrap_or(true));
        let ready = events.zip(watched).filter(|(ready, _)| *ready);
        ready.map(|(_, watch)| (watch.connection, watch.side)).collect()
    }
}

impl Engine {
    fn watched(&self) -> Vec<Watch> {
        let mut watched = Vec::new();
        for (&connection, one) in &self.connections {
            for (side, socket, reads, writes) in one.waits_for() {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::POLLIN, reads);
                flags.set(PollFlags::POLLOUT, writes);
                if !flags.is_empty() {
                    watched.push(Watch { connection, side, socket: Arc::clone(socket), flags });
                }
            }
        }
        watched
    }

    /// How long until something is due.
    fn wait(&self, now: Instant) -> Duration {
        let faults = &self.world.faults;
        let due = self.connections.values().filter_map(|one| one.next_due(faults)).min();
        let interval = if self.waiting.is_empty() { IDLE_INTERVAL } else { RETRY_INTERVAL };
        due.map_or(interval, |due| due.saturating_duration_since(now).min(interval))
    }

    fn accept(&mut self, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            let open = self.connections.len() + self.waiting.len();
            if self.world.faults.outage || open >= MAX_CONNECTIONS {
                self.world.counts.refused += 1;
                reset_when_dropped(&client);
                continue;
            }
            self.world.counts.connections += 1;
            self.waiting.push((client, Instant::now() + self.patience));
        }
        for (client, until) in mem::take(&mut self.waiting) {
            let is_patient = !self.patience.is_zero();
            let both = if is_patient { reach } else { begin_to_reach }(self.server);
            let both = both.and_then(|server| {
                client.set_nonblocking(true)?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                Ok(server)
            });
            if let Ok(server) = both {
                self.connections.insert(self.next, Connection::new(client, server));
                self.next += 1;
            } else if Instant::now() < until && !self.world.faults.outage {
                self.waiting.push((client, until));
            } else {
                self.world.counts.unreachable += 1;
                reset_when_dropped(&client);
            }
        }
    }

    fn wake(&mut self, connection: u64, side: Side) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.wake(side, &mut self.world);
        }
    }

    /// Delivers what is due, and forgets what is over.
    fn deliver(&mut self, now: Instant) {
        for connection in self.connections.values_mut() {
            connection.deliver(&mut self.world, now);
        }
        self.connections.retain(|_, connection| !connection.is_over());
        if self.world.faults.outage {
            self.cut(|_| true);
        }
    }

    /// Closes all connections of that kind.
    pub(super) fn cut(&mut self, chosen: impl Fn(&Connection) -> bool) {
        self.each(|connection, world| {
            if chosen(connection) {
                connection.cut(&mut world.counts);
            }
        });
    }

    /// Does something to each connection, and forgets those that are over.
    pub(super) fn each(&mut self, mut act: impl FnMut(&mut Connection, &mut World)) {
        for connection in self.connections.values_mut() {
            act(connection, &mut self.world);
        }
        self.connections.retain(|_, connection| !connection.is_over());
    }

    pub(super) fn counts(&self) -> Counts {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let subscribers = self.connections.values().filter(|one| one.has_subscribed()).count();
        Counts {
            open: count(self.connections.len()),
            subscribers: count(subscribers),
            ..self.world.counts
        }
    }
}

/// Begins to connect, without waiting for it.
fn begin_to_reach(server: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    match socket.connect(&server.into()) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

/// Connects, to know whether the server refuses.
fn reach(server: SocketAddr) -> io::Result<TcpStream> {
    let server = TcpStream::connect_timeout(&server, RETRY_INTERVAL)?;
    server.set_nonblocking(true)?;
    Ok(server)
}
