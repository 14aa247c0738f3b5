//! Which channels are wanted, and which the server sends.
//!
//! Bounds: one entry per channel that somebody waits for or waited for a moment ago, and at most
//! one place in each of the two queues per entry.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{BATCH, CLOSE_AFTER, LINGER, MOST_LOOKS, WAKE_ALL};

/// What the waiters of a channel share.
pub(super) struct Channel {
    /// Messages that one waiter each may take.
    pub(super) wakes: Semaphore,
    /// Rises with each message for all.
    pub(super) looks: watch::Sender<u64>,
    live: AtomicBool,
    /// Another server has it now.
    moved: AtomicBool,
    /// Who had the lock lately: how often it was passed on, how often that had been at this
    /// process's last release, how often it will have been with that one, if it was told of it, and
    /// how many processes took part in it.
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

    /// How often this process looks at the lock before it asks for it: once for each of the others
    /// that take part and have not had it since; twice for the only other one, who has been told
    /// for certain, and may have to be given a processor first.
    pub(super) fn looks(&self) -> u64 {
        let released_at = self.released_at.load(Ordering::Relaxed);
        let since = self.passed_on.load(Ordering::Relaxed).saturating_sub(released_at);
        let processes = self.processes.load(Ordering::Relaxed);
        let others = processes.saturating_sub(since.max(1));
        if processes == 2 { others * MOST_LOOKS } else { others.min(MOST_LOOKS) }
    }

    /// How many messages say nothing to whoever looks now: this process has released the lock
    /// since, and may be told of it later.
    pub(super) fn heard(&self) -> u64 {
        self.with_own.load(Ordering::Relaxed)
    }

    /// Whether the last message was one of so many.
    pub(super) fn has_only_heard(&self, heard: u64) -> bool {
        self.passed_on.load(Ordering::Relaxed) <= heard
    }

    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn has_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    fn tell_all(&self) {
        self.looks.send_modify(|looks| *looks += 1);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be subscribed to.
    Wanted,
    /// The server was asked.
    Asked,
    /// The server said yes.
    Live,
}

struct Entry {
    channel: Arc<Channel>,
    state: State,
    subscribers: usize,
    /// When the last one went.
    idle_since: Instant,
    /// Whether it has a place in the queue of the idle.
    queued: bool,
}

#[derive(Default)]
pub(super) struct Table {
    channels: HashMap<Arc<str>, Entry>,
    wanted: VecDeque<Arc<str>>,
    idle: VecDeque<(Instant, Arc<str>)>,
    task: Option<AbortHandle>,
    empty_since: Option<Instant>,
    closed: bool,
}

/// What the task has to do.
pub(super) struct Work {
    pub(super) subscribe: Vec<Arc<str>>,
    pub(super) unsubscribe: Vec<Arc<str>>,
    /// When to look again, unless told.
    pub(super) next: Option<Instant>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.wanted.len() + self.idle.len()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// One more subscriber. Starts the task if there is none, or if its runtime has gone.
    pub(super) fn enter(
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
            let (channel, state) = (Channel::new(), State::Wanted);
            let idle_since = Instant::now();
            let entry = Entry { channel, state, subscribers: 0, idle_since, queued: false };
            self.channels.insert(name, entry);
        }
        self.empty_since = None;
        self.join(name).unwrap_or_else(|| (name.into(), Channel::new()))
    }

    /// One more subscriber, if the channel is known.
    pub(super) fn join(&mut self, name: &str) -> Option<(Arc<str>, Arc<Channel>)> {
        let name = Arc::clone(self.channels.get_key_value(name)?.0);
        let entry = self.channels.get_mut(&name)?;
        if entry.subscribers == 0 {
            // A message that nobody took was for those who have gone.
            entry.channel.wakes.forget_permits(usize::MAX);
        }
        entry.subscribers += 1;
        Some((name, Arc::clone(&entry.channel)))
    }

    /// One subscriber less. Whether the task has to know.
    pub(super) fn leave(&mut self, name: &Arc<str>, channel: &Arc<Channel>) -> bool {
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
        self.idle.push_back((entry.idle_since + LINGER, Arc::clone(name)));
        true
    }

    /// What is to be done now.
    pub(super) fn take(&mut self, now: Instant) -> Work {
        let mut subscribe = Vec::new();
        while subscribe.len() < BATCH
            && let Some(name) = self.wanted.pop_front()
        {
            if let Some(entry) = self.channels.get_mut(&name)
                && entry.state == State::Wanted
            {
                entry.state = State::Asked;
                subscribe.push(name);
            }
        }
        let mut unsubscribe = Vec::new();
        while unsubscribe.len() < BATCH
            && let Some((due, name)) = self.idle.pop_front_if(|(due, _)| *due <= now)
        {
            let Some(entry) = self.channels.get_mut(&name) else { continue };
            entry.queued = entry.subscribers == 0;
            if entry.queued && entry.idle_since + LINGER > due {
                // It was used since.
                self.idle.push_back((entry.idle_since + LINGER, name));
            } else if entry.queued {
                if entry.state == State::Live {
                    unsubscribe.push(Arc::clone(&name));
                }
                self.channels.remove(&name);
            }
        }
        Work { subscribe, unsubscribe, next: self.idle.front().map(|(due, _)| *due) }
    }

    /// The server sends these from now on.
    pub(super) fn confirm(&mut self, names: &[Arc<str>]) {
        for name in names {
            if let Some(entry) = self.channels.get_mut(name) {
                entry.state = State::Live;
                entry.channel.live.store(true, Ordering::Relaxed);
                entry.channel.tell_all();
            }
        }
    }

    /// The server sends nothing any more: all that somebody waits for is wanted again.
    pub(super) fn lost(&mut self) {
        self.channels.retain(|_, entry| entry.subscribers > 0);
        for entry in self.channels.values_mut() {
            entry.state = State::Wanted;
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
    pub(super) fn moved(&mut self, is_elsewhere: impl Fn(&str) -> bool) {
        for (_, entry) in self.channels.extract_if(|name, _| is_elsewhere(name)) {
            entry.channel.moved.store(true, Ordering::Relaxed);
            entry.channel.live.store(false, Ordering::Relaxed);
            entry.channel.tell_all();
        }
    }

    /// The server has said yes, and the task that asked has yet to hear of it: what comes next from
    /// the server may be that it is no longer so.
    pub(super) fn answered(&mut self, channel: &[u8]) {
        let name = std::str::from_utf8(channel).ok();
        if let Some(entry) = name.and_then(|name| self.channels.get_mut(name))
            && entry.state == State::Asked
        {
            entry.state = State::Live;
        }
    }

    /// Whether the server sends the messages of that channel, as far as is known.
    pub(super) fn is_live(&self, channel: &[u8]) -> bool {
        let name = std::str::from_utf8(channel).ok();
        let entry = name.and_then(|name| self.channels.get(name));
        entry.is_some_and(|entry| entry.state == State::Live)
    }

    /// A message: for one waiter, or for all.
    pub(super) fn deliver(&self, channel: &[u8], message: &[u8]) {
        let Ok(name) = std::str::from_utf8(channel) else { return };
        let Some(entry) = self.channels.get(name) else { return };
        if message == WAKE_ALL.as_bytes() {
            entry.channel.tell_all();
            return;
        }
        entry.channel.passed_on.fetch_add(1, Ordering::Relaxed);
        if entry.channel.wakes.available_permits() < entry.subscribers {
            // More than one for each would be of no use to anybody.
            entry.channel.wakes.add_permits(1);
        }
    }

    /// This process is about to pass the lock on. Says how often that had been done, because its
    /// own message may come before the answer to the release or after it, and another task may
    /// release the lock again before this one has heard the answer.
    pub(super) fn releasing(&self, name: &str) -> u64 {
        let Some(Entry { channel, .. }) = self.channels.get(name) else { return 0 };
        let before = channel.passed_on.load(Ordering::Relaxed);
        channel.released_at.store(before, Ordering::Relaxed);
        before
    }

    /// It has, and so many processes were told, itself included if it has subscribed.
    pub(super) fn released(&self, name: &str, told: u64, before: u64) {
        let Some(Entry { channel, .. }) = self.channels.get(name) else { return };
        if channel.is_live() {
            channel.with_own.store(before + 1, Ordering::Relaxed);
            channel.processes.store(told, Ordering::Relaxed);
        } else {
            channel.passed_on.fetch_add(1, Ordering::Relaxed);
            channel.processes.store(told + 1, Ordering::Relaxed);
        }
    }

    /// Whether there is but one subscriber.
    pub(super) fn is_alone(&self, name: &str) -> bool {
        self.channels.get(name).is_some_and(|entry| entry.subscribers == 1)
    }

    /// Whether the task may end, because nobody has needed the connection for long enough. If so,
    /// the next subscriber starts another.
    pub(super) fn may_end(&mut self, now: Instant) -> bool {
        if !self.channels.is_empty() {
            return false;
        }
        let since = *self.empty_since.get_or_insert(now);
        let ends = self.closed || now >= since + CLOSE_AFTER;
        if ends {
            self.task = None;
        }
        ends
    }

    /// The same for a task that has no connection.
    pub(super) fn ends_without_link(&mut self) -> bool {
        let ends = self.channels.is_empty();
        if ends {
            self.task = None;
        }
        ends
    }
}
