//! Messages that a lock may be free.
//!
//! One connection per server carries the messages of all channels. The first waiter makes it; it is
//! closed after 30 s without subscriptions. Subscriptions are counted: a channel is subscribed to
//! once for all its waiters, and unsubscribed 250 ms after the last one has left. A waiter is woken
//! to try again
//! - when a message comes: [`WAKE_ALL`] wakes every waiter of the channel; any other wakes one,
//!   and is kept for the next to wait if none is waiting;
//! - when the channel was subscribed to, also again after a lost connection: a message may have
//!   been missed before;
//! - when the time is over for which it wanted to wait. That is what a lost message costs, and how
//!   waiters continue while there is no connection.
//!
//! A connection that ends is noticed at once. One that is half open is noticed at the next PING,
//! within [`PING_INTERVAL`] + [`RESPONSE_TIMEOUT`]. While there are waiters it is made again, with
//! growing pauses. Waiters are woken when the connection is back, not when it is lost.
//!
//! **On a Redis Cluster** (7 or later) channels are sharded: a message stays with the slot of its
//! channel. There is one such connection per master with subscribed channels. When a slot moves,
//! the old master says so or falls silent. Then the waiters of the channel try again and subscribe
//! at the new master.
//!
//! Needs RESP3 (Redis 6 or later). Source: Redisson's `PublishSubscribe` and `LockPubSub`; known
//! bugs of theirs that this avoids: redisson#4064, #5761, #6026. Tests: `signal/tests.rs`,
//! `tests/redisson_waiting.rs`.

mod link;
mod subscription_table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::RedisConnection;
use subscription_table::{Channel, SubscriptionTable};

/// The message that one waiter may try: the lock is free, or one permit is.
pub(crate) const WAKE_ONE: &str = "0";
/// The message for all waiters: readers, which share the lock.
pub(crate) const WAKE_ALL: &str = "1";

/// How long the server may take to answer, or to accept the connection.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often an idle connection is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long a channel stays subscribed to after the last waiter: the next one often comes soon.
const UNSUBSCRIBE_DELAY: Duration = Duration::from_millis(250);
/// How long the connection is kept when no channel is.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a connection is tried again doubles from the first to the second of these.
const RECONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How often a process that gives way looks, at most, before it asks for the lock.
const MAX_LOOKS: u64 = 2;
/// The most channels of one SUBSCRIBE or UNSUBSCRIBE.
const MAX_CHANNELS_PER_COMMAND: usize = 500;

/// The channels of a server or a cluster. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub(crate) struct Signals(Arc<SignalLines>);

struct SignalLines {
    connection: RedisConnection,
    /// One for each server that has channels.
    by_server: Mutex<HashMap<Arc<str>, Line>>,
    closed: AtomicBool,
}

/// The channels of one server.
type Line = Arc<ServerLine>;

struct ServerLine {
    /// What the server is called.
    server: Arc<str>,
    /// Knows how to get there, and which server has a channel.
    connection: RedisConnection,
    table: Mutex<SubscriptionTable>,
    /// There is something to do for the task that has the connection.
    changed: Notify,
}

impl Signals {
    /// Makes no connection yet.
    pub(crate) fn new(connection: &RedisConnection) -> Self {
        let (by_server, closed) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(SignalLines { connection: connection.clone(), by_server, closed }))
    }

    /// Waits for the messages of a channel from now on. Comes back at once; the first
    /// [`Subscription::next`] resolves when the server has confirmed the subscription, because
    /// what was sent before may have been missed.
    pub(crate) fn subscribe(&self, channel: &str) -> Subscription {
        let line = self.line(channel);
        let (name, entry) = line.table().enter(channel, ServerLine::start(&line));
        line.changed.notify_one();
        let mut subscription = self.subscription(line, name, entry);
        if subscription.is_live() {
            subscription.looks.mark_changed();
        }
        subscription
    }

    /// Joins the subscription of a channel that this process has already. For a waiter before its
    /// first attempt: it misses no message from now on, and needs no extra attempt.
    pub(crate) fn join(&self, channel: &str) -> Option<Subscription> {
        let line = self.line(channel);
        let (name, entry) = line.table().join(channel)?;
        Some(self.subscription(line, name, entry))
    }

    /// This process is about to release the lock; what it says is for [`Signals::released`].
    #[must_use]
    pub(crate) fn releasing(&self, channel: &str) -> u64 {
        self.line(channel).table().releasing(channel)
    }

    /// Notes that the lock was released, and how many processes got the message. If others want it,
    /// the process follows the channel, to yield to them.
    pub(crate) fn released(&self, channel: &str, told: u64, before: u64) {
        if told > 0 {
            let subscription = self.join(channel).unwrap_or_else(|| self.subscribe(channel));
            subscription.line.table().released(channel, told, before);
        }
    }

    /// How many channels are subscribed to, or about to be, or about to be no longer.
    pub(crate) fn channels(&self) -> usize {
        self.lines().values().map(|line| line.table().len()).sum()
    }

    /// Ends the connections with their last subscription.
    pub(crate) fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        for line in self.lines().values() {
            line.close();
        }
    }

    /// The line of the server that has the channel, as far as is known; if it does not, it says so.
    fn line(&self, channel: &str) -> Line {
        let name = self.0.connection.known_name(channel);
        let mut lines = self.lines();
        if let Some(line) = lines.get(&name) {
            return Arc::clone(line);
        }
        // Those of servers that have no channels any more.
        lines.retain(|_, line| Arc::strong_count(line) > 1 || line.table().len() > 0);
        let (connection, table) = (self.0.connection.clone(), Mutex::default());
        let line = Arc::new(ServerLine {
            server: Arc::clone(&name),
            connection,
            table,
            changed: Notify::new(),
        });
        if self.0.closed.load(Ordering::Relaxed) {
            line.close();
        }
        lines.insert(name, Arc::clone(&line));
        line
    }

    fn subscription(&self, line: Line, name: Arc<str>, channel: Arc<Channel>) -> Subscription {
        let looks = channel.looks.subscribe();
        Subscription { signals: self.clone(), line, name, channel, looks, heard: 0 }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Arc<str>, Line>> {
        // Each change is made of steps that do not panic.
        self.0.by_server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerLine {
    fn table(&self) -> MutexGuard<'_, SubscriptionTable> {
        // Each change is made of steps that do not panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.table().close();
        self.changed.notify_one();
    }

    /// Starts the task that has the connection.
    fn start(line: &Line) -> impl FnOnce() -> Option<tokio::task::AbortHandle> {
        let line = Arc::clone(line);
        // Without a runtime there is no task, and waiters look again after their own time.
        move || Some(Handle::try_current().ok()?.spawn(link::run(line)).abort_handle())
    }
}

/// One waiter's interest in a channel. Dropping it gives the channel up with the last.
pub(crate) struct Subscription {
    signals: Signals,
    line: Line,
    name: Arc<str>,
    channel: Arc<Channel>,
    looks: watch::Receiver<u64>,
    /// How many messages were older than its last look.
    heard: u64,
}

impl Subscription {
    /// Resolves when it is time to look again, at the latest after `at_most`. Dropping the future
    /// loses nothing: a message for one waiter then goes to another.
    pub(crate) async fn next(&mut self, at_most: Duration) {
        if self.channel.has_moved() {
            *self = self.signals.subscribe(&self.name);
        }
        let end = sleep(at_most);
        tokio::pin!(end);
        loop {
            tokio::select! {
                biased;
                // The sender lives in the channel, so this cannot fail.
                _ = self.looks.changed() => return,
                permit = self.channel.wakes.acquire() => {
                    if let Ok(permit) = permit {
                        permit.forget();
                    }
                    if !self.is_old_news() {
                        return;
                    }
                }
                () = &mut end => return,
            }
        }
    }

    /// Notes that the waiter is about to look at the lock. The message of this process's own last
    /// release is older than that, although it may come later.
    pub(crate) fn looks_now(&mut self) {
        self.heard = self.channel.heard();
    }

    /// Whether a message need not be looked after. Where several wait, it may be for another one.
    fn is_old_news(&self) -> bool {
        self.channel.has_only_heard(self.heard) && self.line.table().is_alone(&self.name)
    }

    /// Yields to the other processes that want the lock, if this process had it lately; else the
    /// quickest would have it again and again. Until the lock is taken it looks at it up to
    /// [`MAX_LOOKS`] times, a round trip each.
    pub(crate) async fn give_way<T, F: Future<Output = RedisResult<Option<T>>>>(
        &self,
        look: impl Fn() -> F,
    ) -> Option<T> {
        for _ in 0..self.channel.looks() {
            match look().await {
                Ok(None) => {}
                Ok(taken) => return taken,
                // The attempt that follows says what failed.
                Err(_) => return None,
            }
        }
        None
    }

    /// Whether the server has confirmed the subscription, as far as is known.
    pub(crate) fn is_live(&self) -> bool {
        self.channel.is_live()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.line.table().leave(&self.name, &self.channel) {
            self.line.changed.notify_one();
        }
    }
}
