//! A fair mutex per key inside this process.
//!
//! It is the whole of the kind `local`. For the kinds on a server it is the local queue. Of all
//! tasks of a process that want one name, one goes to the server; the others queue here in the
//! order of arrival. A key guard that ends is handed to the next waiter, so no later task can
//! overtake it. An entry is removed with its last guard. A shard remembers only the states of
//! its last few keys ([`KeyState`]), for a user that returns often.
//!
//! Bounds: see `waiter_queue` and `slow_waiter_waker`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use hashbrown::HashTable;
use tokio::time::Instant;

use crate::LockName;

/// Shards keep their own mutexes from becoming the contended ones.
const SHARD_COUNT: usize = 64;
/// The most waiters that a tick calls without letting others in between.
const MAX_WAKES_PER_PASS: usize = 256;
/// The most states of unused keys that a shard remembers.
const MAX_REMEMBERED_STATES: usize = 8;

mod lock_future;
mod slow_waiter_waker;
mod waiter_queue;

use lock_future::{KeyLockFuture, QueuePosition};
use slow_waiter_waker::SlowWaiterWaker;
use waiter_queue::{Waiter, WaiterQueue};

/// What a user of the mutex keeps with each key, for as long as the key has a guard. It may be kept
/// for the next guard of the key as well.
pub(crate) trait KeyState: Default + Send + 'static {
    /// Records the end of a guard.
    fn ended(&mut self) {}

    /// Whether the next guard of the key should find it again, if that comes soon.
    fn is_worth_keeping(&self) -> bool {
        false
    }
}

/// Nothing is kept.
impl KeyState for () {}

/// Cheap to clone; clones have the same keys.
#[derive(Clone)]
pub(crate) struct KeyedMutex<S: KeyState = ()>(Arc<KeyShards<S>>);

struct KeyShards<S: KeyState> {
    hasher: RandomState,
    /// Each shard has its own `Arc`: guards of different keys share no reference count.
    shards: Vec<Arc<Shard<S>>>,
    slow_waker: SlowWaiterWaker<S>,
}

#[derive(Default)]
struct Shard<S: KeyState>(Mutex<ShardState<S>>);

#[derive(Default)]
struct ShardState<S: KeyState> {
    /// One entry for each key that has a guard.
    entries: HashTable<KeyEntry<S>>,
    /// How many there have been.
    number: u64,
    /// The states of keys without an entry, the latest last.
    remembered: VecDeque<(LockName, S)>,
}

struct KeyEntry<S: KeyState> {
    place: EntryId,
    name: LockName,
    state: S,
    waiters: WaiterQueue,
    /// The number of the last waiter that was woken early, as a slow one.
    late: u64,
    /// The number of the last waiter at the latest tick, and the time of that tick; `None` if the
    /// waker does not know this key.
    seen: Option<(u64, std::time::Instant)>,
    /// The number of the waiter that was woken with the guard and has not polled yet.
    given: Option<u64>,
    /// When the previous guard ended, if that guard recorded it.
    free_since: Option<Instant>,
    /// Called when the first task has to wait for this guard.
    on_contention: Option<ContentionCallback>,
}

/// Done once, without a lock of this file held.
type ContentionCallback = Box<dyn FnOnce() + Send>;

/// Where an entry is in its shard.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EntryId {
    hash: u64,
    number: u64,
}

/// The right to be in the section of one key; dropping it admits the next one.
pub(crate) struct KeyGuard<S: KeyState = ()> {
    place: EntryId,
    /// Away once it was handed on.
    shard: Option<Arc<Shard<S>>>,
}

impl<S: KeyState> Shard<S> {
    fn state(&self) -> MutexGuard<'_, ShardState<S>> {
        // A panic cannot leave the maps half changed, so a poisoned mutex is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the key if it is free, else calls `busy` with its entry.
    fn enter<T>(
        self: &Arc<Self>,
        name: &LockName,
        hash: u64,
        busy: impl FnOnce(&mut KeyEntry<S>) -> T,
    ) -> Result<KeyGuard<S>, T> {
        let mut state = self.state();
        if let Some(entry) = state.of(name, hash) {
            return Err(busy(entry));
        }
        let place = state.add(name, hash);
        Ok(KeyGuard { place, shard: Some(Arc::clone(self)) })
    }

    /// Wakes the waiters that had come by the last tick. Returns whether there are others.
    fn tick(&self, place: EntryId, call: impl Fn(Waker)) -> bool {
        loop {
            let mut state = self.state();
            let Some(entry) = state.at(place) else { return false };
            let Some((seen, at)) = entry.seen else { return false };
            let due = entry.waiters.between(entry.late, seen).take(MAX_WAKES_PER_PASS);
            let (numbers, wakers): (Vec<_>, Vec<_>) =
                due.map(|(number, waiter)| (number, waiter.mark_late(at))).unzip();
            if let Some(last) = numbers.last() {
                entry.late = *last;
                drop(state);
                wakers.into_iter().for_each(&call);
                continue;
            }
            let last = entry.waiters.last();
            let goes_on = entry.waiters.between(seen, last).next().is_some();
            (entry.late, entry.seen) = (seen, goes_on.then(|| (last, std::time::Instant::now())));
            return goes_on;
        }
    }

    /// Hands the guard to the first waiter, or removes the key.
    fn pass_on(&self, place: EntryId, note: impl FnOnce(&mut KeyEntry<S>)) {
        let mut state = self.state();
        let Ok(mut found) = state.entries.find_entry(place.hash, |entry| entry.place == place)
        else {
            return;
        };
        let entry = found.get_mut();
        let Some((number, waiter)) = entry.waiters.pop() else {
            let (mut left, _) = found.remove();
            if left.state.is_worth_keeping() {
                left.state.ended();
                let kept = std::mem::take(&mut left.state);
                state.remember(&left.name, kept);
            }
            drop(state);
            // The unused callback may own anything, so it is dropped without the lock.
            return drop(left);
        };
        entry.given = Some(number);
        note(entry);
        entry.state.ended();
        let on_contention = entry.on_contention.take();
        drop(state);
        waiter.waker.wake();
        drop(on_contention);
    }
}

impl<S: KeyState> ShardState<S> {
    fn at(&mut self, place: EntryId) -> Option<&mut KeyEntry<S>> {
        self.entries.find_mut(place.hash, |entry| entry.place == place)
    }

    fn of(&mut self, name: &LockName, hash: u64) -> Option<&mut KeyEntry<S>> {
        self.entries.find_mut(hash, |entry| entry.name == *name)
    }

    fn add(&mut self, name: &LockName, hash: u64) -> EntryId {
        self.number += 1;
        let place = EntryId { hash, number: self.number };
        let (name, state) = (name.clone(), self.recall(name));
        let entry = KeyEntry {
            place,
            name,
            state,
            waiters: WaiterQueue::default(),
            late: 0,
            seen: None,
            given: None,
            free_since: None,
            on_contention: None,
        };
        self.entries.insert_unique(hash, entry, |entry| entry.place.hash);
        place
    }

    fn remember(&mut self, name: &LockName, state: S) {
        if self.remembered.len() == MAX_REMEMBERED_STATES {
            self.remembered.pop_front();
        }
        self.remembered.push_back((name.clone(), state));
    }

    fn recall(&mut self, name: &LockName) -> S {
        let position = self.remembered.iter().position(|(known, _)| known == name);
        let remembered = position.and_then(|position| self.remembered.remove(position));
        remembered.map(|(_, state)| state).unwrap_or_default()
    }
}

impl<S: KeyState> KeyGuard<S> {
    fn with<T>(&self, what: impl FnOnce(&mut KeyEntry<S>) -> T) -> Option<T> {
        self.shard.as_ref()?.state().at(self.place).map(what)
    }

    /// Returns the place to register a callback for contention.
    pub(crate) fn on_contention(&self) -> OnContention<S> {
        OnContention { place: self.place, shard: self.shard.clone() }
    }

    /// When the previous guard ended, if it was ended by [`KeyGuard::end`]. Returned once, then
    /// `None`.
    pub(crate) fn free_since(&self) -> Option<Instant> {
        self.with(|entry| entry.free_since.take()).flatten()
    }

    #[cfg(test)]
    pub(crate) fn waited_for(&self) -> u64 {
        self.with(|entry| entry.waiters.last()).unwrap_or(0)
    }

    /// Calls `what` with the state of this key. Always `Some` while the guard lives.
    pub(crate) fn with_state<T>(&self, what: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.with(|entry| what(&mut entry.state))
    }
}

impl<S: KeyState> Drop for KeyGuard<S> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<S: KeyState> KeyGuard<S> {
    /// Hands the key on, and records the time for the next guard.
    pub(crate) fn end(&mut self, at: Option<Instant>) {
        if let Some(shard) = self.shard.take() {
            shard.pass_on(self.place, |entry| entry.free_since = at);
        }
    }
}

/// See [`KeyGuard::on_contention`].
pub(crate) struct OnContention<S: KeyState> {
    place: EntryId,
    shard: Option<Arc<Shard<S>>>,
}

impl<S: KeyState> OnContention<S> {
    /// Registers the callback for the first waiter of this guard; calls it at once if there is one.
    /// It replaces an earlier callback.
    pub(crate) fn call(self, then: ContentionCallback) {
        let Some(shard) = &self.shard else { return };
        let mut state = shard.state();
        let Some(entry) = state.at(self.place) else { return };
        if entry.waiters.is_empty() {
            entry.on_contention = Some(then);
            return;
        }
        entry.on_contention = None;
        drop(state);
        then();
    }
}

impl<S: KeyState> KeyedMutex<S> {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Arc::default()).collect();
        Self(Arc::new(KeyShards {
            hasher: RandomState::new(),
            shards,
            slow_waker: SlowWaiterWaker::default(),
        }))
    }

    /// Returns the guard if the key is free.
    pub(crate) fn try_lock(&self, name: &LockName) -> Option<KeyGuard<S>> {
        let (shard, hash) = self.shard(name);
        loop {
            match shard.enter(name, hash, |entry| entry.on_contention.take()) {
                Ok(key_guard) => return Some(key_guard),
                // The callback may end the guard: try again.
                Err(Some(on_contention)) => on_contention(),
                Err(None) => return None,
            }
        }
    }

    /// Queues for the key.
    pub(crate) fn lock<'a>(&'a self, name: &'a LockName) -> KeyLockFuture<'a, S> {
        KeyLockFuture { keys: self, name, wants_slow_wake: false, is_in_waker: false, queued: None }
    }

    /// Returns the guard if the key is free, else a place in the queue.
    fn ask(
        &self,
        name: &LockName,
        waker: &Waker,
        is_in_waker: bool,
    ) -> Result<KeyGuard<S>, QueuePosition<'_, S>> {
        let (shard, hash) = self.shard(name);
        let queue = |entry: &mut KeyEntry<S>| {
            let number = entry.waiters.push(Waiter::new(waker.clone()));
            let is_first = is_in_waker && entry.seen.is_none();
            if is_first {
                // No new waiter: each has waited for less than a tick when the next one comes.
                entry.seen = Some((entry.late, std::time::Instant::now()));
            }
            (entry.place, number, is_first, entry.on_contention.take())
        };
        let (place, number, is_first, on_contention) = match shard.enter(name, hash, queue) {
            Ok(key_guard) => return Ok(key_guard),
            Err(queued) => queued,
        };
        if is_first {
            self.0.slow_waker.add(shard, place);
        }
        if let Some(on_contention) = on_contention {
            on_contention();
        }
        Err(QueuePosition { shard, place, number, late_since: None })
    }

    fn shard(&self, name: &LockName) -> (&Arc<Shard<S>>, u64) {
        let hash = self.0.hasher.hash_one(name);
        // The table of a shard goes by other bits.
        let number = usize::try_from((hash >> 32) % SHARD_COUNT as u64).unwrap_or(0);
        (&self.0.shards[number], hash)
    }

    /// The number of keys in use, and of states that are remembered.
    #[cfg(test)]
    fn sizes(&self) -> (usize, usize) {
        let shards = || self.0.shards.iter().map(|shard| shard.0.lock().unwrap());
        let used = shards().map(|state| state.entries.len()).sum();
        (used, shards().map(|state| state.remembered.len()).sum())
    }
}

#[cfg(test)]
mod tests;
