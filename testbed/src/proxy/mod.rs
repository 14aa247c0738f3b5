//! A link to a server that fails on command.
//!
//! A [`Proxy`] listens on a port of its own and passes everything on to one server. Faults are
//! switched on and off while it runs, and each change is complete when the call returns:
//!
//! - of the way as a whole, whatever is said on it: latency, bytes held back or swallowed in one or
//!   both directions, connections cut or reset, an outage;
//! - of one chosen command of Redis or MySQL ([`Proxy::arm`]): it never arrives, or it is executed
//!   and its answer is lost, cut off, delayed or held back;
//! - of one chosen request to `ZooKeeper`, which never arrives;
//! - of published messages of Redis, which are dropped without notice to their subscribers.
//!
//! Commands are recognized by what is said first, on unencrypted connections only; the rest works
//! for any protocol. Everything that happens is counted ([`Counts`]), so a test can show that it
//! did.
//!
//! ```no_run
//! use testbed::{Action, Bed, Command, Proxy, RedisOptions, Times};
//!
//! # fn main() -> testbed::Result<()> {
//! let bed = Bed::start()?;
//! let redis = bed.redis(RedisOptions::default())?;
//! let proxy = Proxy::before(redis.addr())?;
//! let url = proxy.instead_of(redis.addr(), redis.url());
//! let lost = proxy.arm(Command::redis("SET").containing("lock:7"), Action::LoseAnswer,
//!     Times::Next(1));
//! // ... a client at `url` takes the lock and never learns of it ...
//! assert_eq!(lost.fired(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Modules in reading order: `faults` (of the way), `rules` (for commands), `pipe` (what is under
//! way in one direction). What is understood of it is in `talk`, `resp`, `mysql`, `mysql_answers`
//! and `zookeeper`. Then `connection`, `engine` (the thread that serves all of them) and `counts`.

mod connection;
mod counts;
mod engine;
mod faults;
mod mysql;
mod mysql_answers;
mod pipe;
mod resp;
mod rules;
mod talk;
mod zookeeper;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use self::counts::Counts;
use self::engine::EngineHandle;
pub use self::faults::{Direction, MessageDrop};
use self::rules::ArmedRule;
pub use self::rules::{Action, Command, Times};
use crate::error::{Error, Result};

/// A way to one server. Dropping it closes everything.
///
/// All methods may be called from any thread, and none of them blocks.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<EngineHandle>,
    thread: Option<JoinHandle<()>>,
}

/// What was armed, to see whether it happened. Dropping it changes nothing.
pub struct Rule {
    shared: Arc<EngineHandle>,
    index: usize,
}

impl Proxy {
    /// A proxy in front of that server, which need not be there yet.
    ///
    /// # Errors
    /// If the system has no port or no thread for it.
    pub fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(Error::io("listen on 127.0.0.1"))?;
        let address = listener.local_addr().map_err(Error::io("read a port"))?;
        listener.set_nonblocking(true).map_err(Error::io("prepare a port"))?;
        let shared = EngineHandle::new(server).map_err(Error::io("prepare a proxy"))?;
        let shared = Arc::new(shared);
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new().name("testbed-proxy".into());
        let thread =
            thread.spawn(move || serving.run(&listener)).map_err(Error::io("start a proxy"))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server with the proxy's address in place of the server's.
    #[must_use]
    pub fn instead_of(&self, server: SocketAddr, url: &str) -> String {
        url.replacen(&server.to_string(), &self.address.to_string(), 1)
    }

    /// Leads to another server from now on, as an address does that a failover has moved. What is
    /// open stays with the old one until it is cut.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.change(|engine| engine.server = server);
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts()
    }

    /// How long everything takes from now on in that direction, at least: the latency, and up to
    /// the jitter more. The order stays.
    pub fn set_latency(&self, direction: Direction, latency: Duration, jitter: Duration) {
        self.shared.change(|engine| {
            let set = |way: &mut faults::Way| (way.latency, way.jitter) = (latency, jitter);
            engine.world.faults.each(direction, set);
        });
    }

    /// Holds back what goes in that direction, ends of connections too. When too much waits, its
    /// senders cannot send any more.
    pub fn hold(&self, direction: Direction) {
        self.shared.change(|engine| engine.world.faults.each(direction, |way| way.held = true));
    }

    /// Delivers what was held back in that direction, in order, and holds no more.
    pub fn release(&self, direction: Direction) {
        self.shared.change(|engine| engine.world.faults.each(direction, |way| way.held = false));
    }

    /// Swallows what goes in that direction, ends of connections too: they seem to be open to the
    /// side that receives nothing. New connections are accepted and swallowed.
    ///
    /// A connection that lost something stays silent in that direction also after this is switched
    /// off, because a stream with a hole would be a lie; others continue.
    pub fn set_swallowing(&self, direction: Direction, on: bool) {
        self.shared.change(|engine| engine.world.faults.each(direction, |way| way.swallowed = on));
    }

    /// Has a server that refuses connections tried again for so long: one that is about to listen.
    /// Its client has been accepted, and cannot be refused any more.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.shared.change(|engine| engine.patience = patience);
    }

    /// Closes all connections: both sides see an end.
    pub fn cut(&self) {
        self.shared.change(|engine| engine.cut(|_| true));
    }

    /// Resets all connections: both sides see a reset.
    pub fn reset(&self) {
        self.shared.change(|engine| {
            engine.each(|connection, world| connection.reset(&mut world.counts));
        });
    }

    /// Closes the connections that have subscribed to a channel of Redis, and no others.
    pub fn cut_subscribers(&self) {
        self.shared.change(|engine| engine.cut(connection::Connection::has_subscribed));
    }

    /// Closes all connections, and refuses new ones (they see a reset) until the outage ends.
    pub fn start_outage(&self) {
        self.shared.change(|engine| engine.world.faults.outage = true);
    }

    /// Lets the server be reached again.
    pub fn end_outage(&self) {
        self.shared.change(|engine| engine.world.faults.outage = false);
    }

    /// Drops published messages whose channel contains that text, keeping their subscribers
    /// connected. It takes the place of what was said before.
    pub fn drop_messages(&self, channel: &str, dropping: MessageDrop) {
        self.shared.change(|engine| engine.world.faults.drop_messages(channel, dropping));
    }

    /// Arms an action for a command, for a number of matches. If several rules fire on one command,
    /// the first that was armed counts.
    #[allow(clippy::must_use_candidate, reason = "dropping the rule changes nothing")]
    pub fn arm(&self, command: Command, action: Action, times: Times) -> Rule {
        self.arm_rule(ArmedRule::new(command, action, times, false))
    }

    /// Arms an action for a command; when it fires, an outage begins.
    #[must_use]
    pub fn arm_with_outage(&self, command: Command, action: Action, times: Times) -> Rule {
        self.arm_rule(ArmedRule::new(command, action, times, true))
    }

    /// Counts commands and does nothing to them.
    #[must_use]
    pub fn watch(&self, command: Command) -> Rule {
        self.arm(command, Action::CutBoth, Times::Next(0))
    }

    fn arm_rule(&self, rule: ArmedRule) -> Rule {
        let index = self.shared.change(|engine| engine.world.rules.arm(rule));
        Rule { shared: Arc::clone(&self.shared), index }
    }

    /// Ends all faults and disarms all rules. What was held back is delivered; a connection that
    /// lost something stays as it is.
    pub fn heal(&self) {
        self.shared.change(|engine| {
            engine.world.faults = faults::Faults::none();
            engine.world.rules.disarm_all();
            engine.each(|connection, _| connection.release_all());
        });
    }
}

impl Rule {
    /// Commands that it was about.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.shared.lock().world.rules.get(self.index).matched
    }

    /// How often it did something.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.shared.lock().world.rules.get(self.index).fired
    }

    /// Makes the rule match nothing any more. Answers that it holds stay held.
    pub fn disarm(&self) {
        self.shared.change(|engine| engine.world.rules.get(self.index).disarmed = true);
    }

    /// Lets go what [`Action::HoldRequest`] and [`Action::HoldAnswer`] have held so far.
    pub fn release(&self) {
        let index = self.index;
        self.shared.change(|engine| engine.each(|connection, _| connection.release(index)));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|engine| {
            engine.stopped = true;
            engine.cut(|_| true);
        });
        if let Some(thread) = self.thread.take() {
            // It has panicked, and said so.
            let _panicked = thread.join();
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("index", &self.index).finish_non_exhaustive()
    }
}
