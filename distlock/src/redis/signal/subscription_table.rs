//! Which channels are wanted, and which the server sends.
//!
//! Bounds: one entry per channel with waiters, or with waiters in the last 250 ms. At most one
//! place in each of the two queues per entry.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{IDLE_TIMEOUT, MAX_CHANNELS_PER_COMMAND, MAX_LOOKS, UNSUBSCRIBE_DELAY, WAKE_ALL};

/// What the waiters of a channel share.
pub(crate) struct Channel {
    /// Messages that one waiter each may take.
    pub(crate) wakes: Semaphore,
    /// Rises with each message for all.
    pub(crate) looks: watch::Sender<u64>,
    live: AtomicBool,
    /// Another server has it now.
    moved: AtomicBool,
    /// Counts of recent hand-offs:
    /// - `passed_on`: how often it was passed on;
    /// - `released_at`: `passed_on` at this process's last release;
    /// - `with_own`: `passed_on` including the message of that release, if this process gets it;
    /// - `processes`: how many processes took part in that release.
    passed_on: AtomicU64,
    released_at: AtomicU64,
    with_own: AtomicU64,
    processes: AtomicU64,
}

impl Channel {
    fn new() -> Arc<Self> {
        let (looks, _) = watch::channel(0);
        Arc::new(Self {
            wakes: Semaphore::new(0),
            looks,
            live: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            passed_on: AtomicU64::new(0),
            released_at: AtomicU64::new(0),
            with_own: AtomicU64::new(0),
            processes: AtomicU64::new(0),
        })
    }

    /// How often this process looks at the lock before it asks for it: once for each other process
    /// that takes part and has not had it since. Twice for the only other one: it was woken for
    /// certain, and may first need a processor.
    pub(crate) fn looks(&self) -> u64 {
        let released_at = self.released_at.load(Ordering::Relaxed);
        let since = self.passed_on.load(Ordering::Relaxed).saturating_sub(released_at);
        let processes = self.processes.load(Ordering::Relaxed);
        let others = processes.saturating_sub(since.max(1));
        if processes == 2 { others * MAX_LOOKS } else { others.min(MAX_LOOKS) }
    }

    /// The number of messages that are older than a look now. This process has released the lock
    /// since, and may get that message later.
    pub(crate) fn heard(&self) -> u64 {
        self.with_own.load(Ordering::Relaxed)
    }

    /// Whether the last message is among the first `heard` ones.
    pub(crate) fn has_only_heard(&self, heard: u64) -> bool {
        self.passed_on.load(Ordering::Relaxed) <= heard
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    pub(crate) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    fn tell_all(&self) {
        self.looks.send_modify(|looks| *looks += 1);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelState {
    /// To be subscribed to.
    Wanted,
    /// The server was asked.
    Requested,
    /// The server said yes.
    Live,
}

struct ChannelEntry {
    channel: Arc<Channel>,
    state: ChannelState,
    subscribers: usize,
    /// When the last one went.
    idle_since: Instant,
    /// Whether it has a place in the queue of the idle.
    queued: bool,
}

#[derive(Default)]
pub(crate) struct SubscriptionTable {
    channels: HashMap<Arc<str>, ChannelEntry>,
    wanted: VecDeque<Arc<str>>,
    idle: VecDeque<(Instant, Arc<str>)>,
    task: Option<AbortHandle>,
    empty_since: Option<Instant>,
    closed: bool,
}

/// What the task has to do.
pub(crate) struct SubscriptionWork {
    pub(crate) subscribe: Vec<Arc<str>>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
    /// When to ask again without a message.
    pub(crate) next: Option<Instant>,
}

impl SubscriptionTable {
    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.wanted.len() + self.idle.len()
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// One more subscriber. Starts the task if there is none, or if its runtime has ended.
    pub(crate) fn enter(
        &mut self,
        name: &str,
        start: impl FnOnce() -> Option<AbortHandle>,
    ) -> (Arc<str>, Arc<Channel>) {
        if self.task.as_ref().is_none_or(AbortHandle::is_finished) {
            self.lost();
            self.task = start();
        }
        if !self.channels.contains_key(name) {
            let name: Arc<str> = name.into();
            self.wanted.push_back(Arc::clone(&name));
            let (channel, state) = (Channel::new(), ChannelState::Wanted);
            let idle_since = Instant::now();
            let entry = ChannelEntry { channel, state, subscribers: 0, idle_since, queued: false };
            self.channels.insert(name, entry);
        }
        self.empty_since = None;
        self.join(name).unwrap_or_else(|| (name.into(), Channel::new()))
    }

    /// One more subscriber, if the channel is known.
    pub(crate) fn join(&mut self, name: &str) -> Option<(Arc<str>, Arc<Channel>)> {
        let name = Arc::clone(self.channels.get_key_value(name)?.0);
        let entry = self.channels.get_mut(&name)?;
        if entry.subscribers == 0 {
            // A message that is still here was for waiters that have left.
            entry.channel.wakes.forget_permits(usize::MAX);
        }
        entry.subscribers += 1;
        Some((name, Arc::clone(&entry.channel)))
    }

    /// One subscriber less. Whether the task has to know.
    pub(crate) fn leave(&mut self, name: &Arc<str>, channel: &Arc<Channel>) -> bool {
        let entry = self.channels.get_mut(name);
        // One that has moved may have come back since, as another one.
        let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.channel, channel)) else {
            return false;
        };
        entry.subscribers -= 1;
        if entry.subscribers > 0 {
            return false;
        }
        entry.idle_since = Instant::now();
        if std::mem::replace(&mut entry.queued, true) {
            return false;
        }
        self.idle.push_back((entry.idle_since + UNSUBSCRIBE_DELAY, Arc::clone(name)));
        true
    }

    /// Returns what the task has to do now.
    pub(crate) fn take(&mut self, now: Instant) -> SubscriptionWork {
        let mut subscribe = Vec::new();
        while subscribe.len() < MAX_CHANNELS_PER_COMMAND
            && let Some(name) = self.wanted.pop_front()
        {
            if let Some(entry) = self.channels.get_mut(&name)
                && entry.state == ChannelState::Wanted
            {
                entry.state = ChannelState::Requested;
                subscribe.push(name);
            }
        }
        let mut unsubscribe = Vec::new();
        while unsubscribe.len() < MAX_CHANNELS_PER_COMMAND
            && let Some((due, name)) = self.idle.pop_front_if(|(due, _)| *due <= now)
        {
            let Some(entry) = self.channels.get_mut(&name) else { continue };
            entry.queued = entry.subscribers == 0;
            if entry.queued && entry.idle_since + UNSUBSCRIBE_DELAY > due {
                // It was used since.
                self.idle.push_back((entry.idle_since + UNSUBSCRIBE_DELAY, name));
            } else if entry.queued {
                if entry.state == ChannelState::Live {
                    unsubscribe.push(Arc::clone(&name));
                }
                self.channels.remove(&name);
            }
        }
        SubscriptionWork { subscribe, unsubscribe, next: self.idle.front().map(|(due, _)| *due) }
    }

    /// The server sends these from now on.
    pub(crate) fn confirm(&mut self, names: &[Arc<str>]) {
        for name in names {
            if let Some(entry) = self.channels.get_mut(name) {
                entry.state = ChannelState::Live;
                entry.channel.live.store(true, Ordering::Relaxed);
                entry.channel.tell_all();
            }
        }
    }

    /// Notes that the connection is lost: all channels with waiters have to be subscribed to again.
    pub(crate) fn lost(&mut self) {
        self.channels.retain(|_, entry| entry.subscribers > 0);
        for entry in self.channels.values_mut() {
            entry.state = ChannelState::Wanted;
            entry.queued = false;
            let Channel { live, passed_on, with_own, .. } = &*entry.channel;
            live.store(false, Ordering::Relaxed);
            // The message of its own release, if that is under way, does not come any more.
            with_own.fetch_min(passed_on.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.idle.clear();
        self.wanted = self.channels.keys().cloned().collect();
    }

    /// Another server has these: their waiters look, and then subscribe there.
    pub(crate) fn moved(&mut self, is_elsewhere: impl Fn(&str) -> bool) {
        for (_, entry) in self.channels.extract_if(|name, _| is_elsewhere(name)) {
            entry.channel.moved.store(true, Ordering::Relaxed);
            entry.channel.live.store(false, Ordering::Relaxed);
            entry.channel.tell_all();
        }
    }

    /// Notes a confirmation that the asking task has not seen yet: the server's next message may be
    /// the end of the subscription.
    pub(crate) fn answered(&mut self, channel: &[u8]) {
        let name = std::str::from_utf8(channel).ok();
        if let Some(entry) = name.and_then(|name| self.channels.get_mut(name))
            && entry.state == ChannelState::Requested
        {
            entry.state = ChannelState::Live;
        }
    }

    /// Whether the server sends the messages of that channel, as far as is known.
    pub(crate) fn is_live(&self, channel: &[u8]) -> bool {
        let name = std::str::from_utf8(channel).ok();
        let entry = name.and_then(|name| self.channels.get(name));
        entry.is_some_and(|entry| entry.state == ChannelState::Live)
    }

    /// A message: for one waiter, or for all.
    pub(crate) fn deliver(&self, channel: &[u8], message: &[u8]) {
        let Ok(name) = std::str::from_utf8(channel) else { return };
        let Some(entry) = self.channels.get(name) else { return };
        if message == WAKE_ALL.as_bytes() {
            entry.channel.tell_all();
            return;
        }
        entry.channel.passed_on.fetch_add(1, Ordering::Relaxed);
        if entry.channel.wakes.available_permits() < entry.subscribers {
            // More than one message per waiter has no taker.
            entry.channel.wakes.add_permits(1);
        }
    }

    /// Notes that this process is about to release the lock, and returns `passed_on` before that.
    /// Its own message may come before or after the answer to the release. Another task may release
    /// the lock again before this one has seen the answer.
    pub(crate) fn releasing(&self, name: &str) -> u64 {
        let Some(ChannelEntry { channel, .. }) = self.channels.get(name) else { return 0 };
        let before = channel.passed_on.load(Ordering::Relaxed);
        channel.released_at.store(before, Ordering::Relaxed);
        before
    }

    /// Notes the release and the number of processes that got its message, this one included if it
    /// has subscribed.
    pub(crate) fn released(&self, name: &str, told: u64, before: u64) {
        let Some(ChannelEntry { channel, .. }) = self.channels.get(name) else { return };
        if channel.is_live() {
            channel.with_own.store(before + 1, Ordering::Relaxed);
            channel.processes.store(told, Ordering::Relaxed);
        } else {
            channel.passed_on.fetch_add(1, Ordering::Relaxed);
            channel.processes.store(told + 1, Ordering::Relaxed);
        }
    }

    /// Whether there is but one subscriber.
    pub(crate) fn is_alone(&self, name: &str) -> bool {
        self.channels.get(name).is_some_and(|entry| entry.subscribers == 1)
    }

    /// Whether the task may end, because the connection was unused for long enough. The next
    /// subscriber then starts another.
    pub(crate) fn may_end(&mut self, now: Instant) -> bool {
        if !self.channels.is_empty() {
            return false;
        }
        let since = *self.empty_since.get_or_insert(now);
        let ends = self.closed || now >= since + IDLE_TIMEOUT;
        if ends {
            self.task = None;
        }
        ends
    }

    /// Whether a task without a connection may end.
    pub(crate) fn ends_without_link(&mut self) -> bool {
        let ends = self.channels.is_empty();
        if ends {
            self.task = None;
        }
        ends
    }
}
