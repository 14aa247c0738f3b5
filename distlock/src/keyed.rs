//! A fair mutex per key inside this process.
//!
//! It is the whole of the kind `local`, and the first stage of the kinds that live on a server:
//! of all tasks of a process that want one name, one goes to the server and the others queue here,
//! first come first served. A turn that ends is handed to the next waiter, so that nobody gets in
//! between. An entry goes with its last turn, so that a key nobody uses is forgotten; only how long
//! the last few keys of a shard had been used without a break is remembered a little longer, for a
//! task that comes again and again (see `streak`).
//!
//! Bounds: see `queue` and `watch`.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use hashbrown::HashTable;
use tokio::time::Instant;

use crate::streak::Streak;
use crate::{LockName, Owner};

/// Shards keep their own mutexes from becoming the contended ones.
const SHARDS: usize = 64;
/// The most waiters that a tick calls without letting others in between.
const CALLED_AT_ONCE: usize = 256;
/// The most streaks that a shard remembers of keys nobody uses.
const REMEMBERED: usize = 8;

mod queue;
mod waiting;
mod watch;

use queue::{Queue, Waiter};
use waiting::{Queued, Waiting};
use watch::Watch;

/// Cheap to clone; clones have the same keys.
#[derive(Clone)]
pub struct KeyedMutex(Arc<Keys>);

struct Keys {
    hasher: RandomState,
    /// Each behind a pointer of its own: turns of different keys share no count of references.
    shards: Vec<Arc<Shard>>,
    watch: Watch,
}

#[derive(Default)]
struct Shard(Mutex<State>);

#[derive(Default)]
struct State {
    /// One for each key that somebody has the turn of.
    entries: HashTable<Entry>,
    /// How many there have been.
    number: u64,
    /// Of keys that nobody uses any more, the latest last.
    remembered: VecDeque<(LockName, Streak)>,
}

struct Entry {
    place: Place,
    name: LockName,
    streak: Streak,
    waiters: Queue,
    /// Up to which of them all have been called because they had waited for a while.
    late: u64,
    /// Up to which of them had come when that was looked at last, and when that was; `None` if
    /// nobody looks.
    seen: Option<(u64, std::time::Instant)>,
    /// The turn is on its way to the waiter of that number, who has been woken for it.
    given: Option<u64>,
    /// When the turn before it ended, where that one said so and nobody has asked.
    free_since: Option<Instant>,
    /// For whom the turn is used, where it says so.
    owner: Option<Owner>,
    /// What is to be done when somebody comes who has to wait for this turn.
    expected: Option<Expected>,
}

/// Done once, without a lock of this file held.
type Expected = Box<dyn FnOnce() + Send>;

/// Where an entry is in its shard.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    hash: u64,
    number: u64,
}

/// The right to be in the section of one key; dropping it lets the next one in.
pub(crate) struct Turn {
    place: Place,
    /// Away once it was handed on.
    shard: Option<Arc<Shard>>,
}

impl Shard {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the maps half changed, so a poisoned mutex is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn if nobody has it, else does that.
    fn enter<T>(
        self: &Arc<Self>,
        name: &LockName,
        hash: u64,
        busy: impl FnOnce(&mut Entry) -> T,
    ) -> Result<Turn, T> {
        let mut state = self.state();
        if let Some(entry) = state.of(name, hash) {
            return Err(busy(entry));
        }
        let place = state.add(name, hash);
        Ok(Turn { place, shard: Some(Arc::clone(self)) })
    }

    /// Calls those who had come at the last tick and still wait. Whether there are others.
    fn tick(&self, place: Place, call: impl Fn(Waker)) -> bool {
        loop {
            let mut state = self.state();
            let Some(entry) = state.at(place) else { return false };
            let Some((seen, at)) = entry.seen else { return false };
            let due = entry.waiters.between(entry.late, seen).take(CALLED_AT_ONCE);
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

    /// Gives the turn to whoever has waited for it longest, or forgets the key.
    fn pass_on(&self, place: Place, note: impl FnOnce(&mut Entry)) {
        let mut state = self.state();
        let Ok(mut found) = state.entries.find_entry(place.hash, |entry| entry.place == place)
        else {
            return;
        };
        let entry = found.get_mut();
        let Some((number, waiter)) = entry.waiters.pop() else {
            let (mut left, _) = found.remove();
            if left.streak.goes_on() {
                left.streak.ended();
                state.remember(&left.name, left.streak);
            }
            drop(state);
            // What was still expected may be anything, and is dropped without the lock.
            return drop(left);
        };
        entry.given = Some(number);
        note(entry);
        entry.streak.ended();
        entry.owner = None;
        let expected = entry.expected.take();
        drop(state);
        waiter.waker.wake();
        drop(expected);
    }
}

impl State {
    fn at(&mut self, place: Place) -> Option<&mut Entry> {
        self.entries.find_mut(place.hash, |entry| entry.place == place)
    }

    fn of(&mut self, name: &LockName, hash: u64) -> Option<&mut Entry> {
        self.entries.find_mut(hash, |entry| entry.name == *name)
    }

    fn add(&mut self, name: &LockName, hash: u64) -> Place {
        self.number += 1;
        let place = Place { hash, number: self.number };
        let (name, streak) = (name.clone(), self.recall(name));
        let entry = Entry {
            place,
            name,
            streak,
            waiters: Queue::default(),
            late: 0,
            seen: None,
            given: None,
            free_since: None,
            owner: None,
            expected: None,
        };
        self.entries.insert_unique(hash, entry, |entry| entry.place.hash);
        place
    }

    fn remember(&mut self, name: &LockName, streak: Streak) {
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((name.clone(), streak));
    }

    fn recall(&mut self, name: &LockName) -> Streak {
        let position = self.remembered.iter().position(|(known, _)| known == name);
        let remembered = position.and_then(|position| self.remembered.remove(position));
        remembered.map(|(_, streak)| streak).unwrap_or_default()
    }
}

impl Turn {
    fn with<T>(&self, what: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.shard.as_ref()?.state().at(self.place).map(what)
    }

    /// Says for whom the turn is used.
    pub(crate) fn belongs_to(&self, owner: &Owner) {
        self.with(|entry| entry.owner = Some(owner.clone()));
    }

    /// Where to say what is to be done when somebody has to wait for this turn.
    pub(crate) fn expected(&self) -> Expectation {
        Expectation { place: self.place, shard: self.shard.clone() }
    }

    /// When the turn before it ended, if that one was handed on with [`Turn::end`]. Told once: who
    /// has heard it has the turn.
    pub(crate) fn free_since(&self) -> Option<Instant> {
        self.with(|entry| entry.free_since.take()).flatten()
    }

    #[cfg(test)]
    pub(crate) fn waited_for(&self) -> u64 {
        self.with(|entry| entry.waiters.last()).unwrap_or(0)
    }

    /// How long this process has had the key. `None` cannot be while the turn lasts.
    pub(crate) fn streak<T>(&self, what: impl FnOnce(&mut Streak) -> T) -> Option<T> {
        self.with(|entry| what(&mut entry.streak))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl Turn {
    /// Lets the next one in, who may want to know since when he could have been.
    pub(crate) fn end(&mut self, at: Option<Instant>) {
        if let Some(shard) = self.shard.take() {
            shard.pass_on(self.place, |entry| entry.free_since = at);
        }
    }
}

/// See [`Turn::expected`].
pub(crate) struct Expectation {
    place: Place,
    shard: Option<Arc<Shard>>,
}

impl Expectation {
    /// Does that once somebody waits for the turn, which may be now. What was said of an earlier
    /// turn is forgotten.
    pub(crate) fn when_somebody_waits(self, then: Expected) {
        let Some(shard) = &self.shard else { return };
        let mut state = shard.state();
        let Some(entry) = state.at(self.place) else { return };
        if entry.waiters.is_empty() {
            entry.expected = Some(then);
            return;
        }
        entry.expected = None;
        drop(state);
        then();
    }
}

impl KeyedMutex {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Arc::default()).collect();
        Self(Arc::new(Keys { hasher: RandomState::new(), shards, watch: Watch::default() }))
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_lock(&self, name: &LockName) -> Option<Turn> {
        let (shard, hash) = self.shard(name);
        loop {
            match shard.enter(name, hash, |entry| entry.expected.take()) {
                Ok(turn) => return Some(turn),
                // That may be the end of the turn.
                Err(Some(expected)) => expected(),
                Err(None) => return None,
            }
        }
    }

    /// Queues for the turn.
    pub(crate) fn lock<'a>(&'a self, name: &'a LockName) -> Waiting<'a> {
        Waiting { keys: self, name, wants_watch: false, is_watched: false, queued: None }
    }

    /// The turn if nobody has it, else a place in the queue.
    fn ask(&self, name: &LockName, waker: &Waker, is_watched: bool) -> Result<Turn, Queued<'_>> {
        let (shard, hash) = self.shard(name);
        let queue = |entry: &mut Entry| {
            let number = entry.waiters.push(Waiter::new(waker.clone()));
            let is_first = is_watched && entry.seen.is_none();
            if is_first {
                // Nobody new: they have waited for less than a tick when the next one comes.
                entry.seen = Some((entry.late, std::time::Instant::now()));
            }
            (entry.place, number, is_first, entry.expected.take())
        };
        let (place, number, is_first, expected) = match shard.enter(name, hash, queue) {
            Ok(turn) => return Ok(turn),
            Err(queued) => queued,
        };
        if is_first {
            self.0.watch.add(shard, place);
        }
        if let Some(expected) = expected {
            expected();
        }
        Err(Queued { shard, place, number, late_since: None })
    }

    /// Whether the turn is that owner's.
    pub(crate) fn is_turn_of(&self, name: &LockName, owner: &Owner) -> bool {
        let (shard, hash) = self.shard(name);
        let mut state = shard.state();
        state.of(name, hash).is_some_and(|entry| entry.owner.as_ref() == Some(owner))
    }

    fn shard(&self, name: &LockName) -> (&Arc<Shard>, u64) {
        let hash = self.0.hasher.hash_one(name);
        // The table of a shard goes by other bits.
        let number = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0);
        (&self.0.shards[number], hash)
    }

    /// How many keys are in use, and how many streaks are remembered.
    #[cfg(test)]
    fn sizes(&self) -> (usize, usize) {
        let shards = || self.0.shards.iter().map(|shard| shard.0.lock().unwrap());
        let used = shards().map(|state| state.entries.len()).sum();
        (used, shards().map(|state| state.remembered.len()).sum())
    }
}

#[cfg(test)]
mod tests;
