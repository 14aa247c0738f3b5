//! A fair mutex per key inside this process.
//!
//! It is the whole of the kind `local`, and the first stage of the kinds that live on a server:
//! of all tasks of a process that want one name, one goes to the server and the others queue here,
//! first come first served. A turn that ends is handed to the next waiter, so that nobody gets in
//! between. An entry goes with its last turn, so that a key nobody uses is forgotten; only how long
//! the last few keys of a shard had been used without a break is remembered a little longer, for a
//! task that comes again and again (see `streak`).
//!
//! Bounds: an entry keeps no more waiters, with those that have given up, than four times as many
//! as have waited for it at the same time.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::streak::Streak;
use crate::{LockName, Owner};

/// Shards keep their own mutexes from becoming the contended ones.
const SHARDS: usize = 64;
/// The most streaks that a shard remembers of keys nobody uses.
const REMEMBERED: usize = 8;

/// Cheap to clone; clones have the same keys.
#[derive(Clone)]
pub struct KeyedMutex(Arc<Keys>);

struct Keys {
    hasher: RandomState,
    /// Each behind a pointer of its own: turns of different keys share no count of references.
    shards: Vec<Arc<Shard>>,
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
    /// Those that have given up are among them until their turn would come.
    waiters: VecDeque<oneshot::Sender<Turn>>,
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
    /// When the turn before it ended, where that one said so.
    since: Option<Instant>,
}

/// A place in the queue for the turn of a key; dropping it leaves the queue.
pub(crate) struct Queued<'a> {
    keys: &'a KeyedMutex,
    name: &'a LockName,
    turn: oneshot::Receiver<Turn>,
}

impl Queued<'_> {
    /// Waits for the turn.
    pub(crate) async fn turn(mut self) -> Turn {
        loop {
            // An entry is not dropped before its waiters, so it comes.
            if let Ok(turn) = self.turn.await {
                return turn;
            }
            match self.keys.ask(self.name) {
                Ok(turn) => return turn,
                Err(queued) => self = queued,
            }
        }
    }
}

impl Shard {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the maps half changed, so a poisoned mutex is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let waiters = VecDeque::new();
        let entry = Entry { place, name, streak, waiters, owner: None, expected: None };
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

impl Entry {
    /// Where the turn will come.
    fn queue(&mut self) -> oneshot::Receiver<Turn> {
        if self.waiters.len() == self.waiters.capacity() {
            self.waiters.retain(|waiter| !waiter.is_closed());
            // Or the next ones would look at all of them again, each for the one place it needs.
            if self.waiters.len() > self.waiters.capacity() / 2 {
                self.waiters.reserve(self.waiters.capacity());
            }
        }
        let (waiter, turn) = oneshot::channel();
        self.waiters.push_back(waiter);
        turn
    }

    fn is_waited_for(&self) -> bool {
        self.waiters.iter().any(|waiter| !waiter.is_closed())
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
    pub(crate) fn free_since(&mut self) -> Option<Instant> {
        self.since.take()
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
    /// Lets the next one in, who may want to know since when he could have been: what the turn
    /// itself was told, if nobody has had it.
    pub(crate) fn end(&mut self, at: Option<Instant>) {
        let (place, since) = (self.place, at.or(self.since));
        while let Some(shard) = self.shard.take() {
            let mut state = shard.state();
            let Ok(mut found) = state.entries.find_entry(place.hash, |entry| entry.place == place)
            else {
                return;
            };
            let entry = found.get_mut();
            let Some(next) = entry.waiters.pop_front() else {
                let (mut left, _) = found.remove();
                if left.streak.goes_on() {
                    left.streak.ended();
                    state.remember(&left.name, left.streak);
                }
                drop(state);
                // What was still expected may be anything, and is dropped without the lock.
                drop(left);
                return;
            };
            entry.streak.ended();
            entry.owner = None;
            let expected = entry.expected.take();
            drop(state);
            drop(expected);
            // Who has given up hands it back.
            let handed_on = next.send(Self { place, shard: Some(shard), since });
            self.shard = handed_on.err().and_then(|mut turn| turn.shard.take());
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
        if !entry.is_waited_for() {
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
        Self(Arc::new(Keys { hasher: RandomState::new(), shards }))
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_lock(&self, name: &LockName) -> Option<Turn> {
        loop {
            match self.enter(name, |entry| entry.expected.take()) {
                Ok(turn) => return Some(turn),
                // That may be the end of the turn.
                Err(Some(expected)) => expected(),
                Err(None) => return None,
            }
        }
    }

    /// The turn if nobody has it, else a place in the queue.
    pub(crate) fn ask<'a>(&'a self, name: &'a LockName) -> Result<Turn, Queued<'a>> {
        let (turn, expected) =
            match self.enter(name, |entry| (entry.queue(), entry.expected.take())) {
                Ok(turn) => return Ok(turn),
                Err(busy) => busy,
            };
        if let Some(expected) = expected {
            expected();
        }
        Err(Queued { keys: self, name, turn })
    }

    /// Queues for the turn; dropping the future leaves the queue.
    pub(crate) async fn lock(&self, name: &LockName) -> Turn {
        match self.ask(name) {
            Ok(turn) => turn,
            Err(queued) => queued.turn().await,
        }
    }

    /// Whether the turn is that owner's.
    pub(crate) fn is_turn_of(&self, name: &LockName, owner: &Owner) -> bool {
        let (shard, hash) = self.shard(name);
        let mut state = shard.state();
        state.of(name, hash).is_some_and(|entry| entry.owner.as_ref() == Some(owner))
    }

    /// Takes the turn if nobody has it, else does that.
    fn enter<T>(&self, name: &LockName, busy: impl FnOnce(&mut Entry) -> T) -> Result<Turn, T> {
        let (shard, hash) = self.shard(name);
        let mut state = shard.state();
        if let Some(entry) = state.of(name, hash) {
            return Err(busy(entry));
        }
        let place = state.add(name, hash);
        Ok(Turn { place, shard: Some(Arc::clone(shard)), since: None })
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
