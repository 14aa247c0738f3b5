//! A fair mutex per key inside this process.
//!
//! It is the whole of the kind `local`, and the first stage of the kinds that live on a server:
//! of all tasks of a process that want one name, one goes to the server and the others queue here,
//! first come first served. Entries are counted, so that a key nobody uses is forgotten; only how
//! long the last few keys of a shard had been used without a break is remembered a little longer,
//! for a task that comes again and again (see `streak`).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::streak::Streak;
use crate::{LockName, Owner};

/// Shards keep the map's own mutex from becoming the contended one.
const SHARDS: usize = 64;
/// The most streaks that a shard remembers of keys nobody uses.
const REMEMBERED: usize = 8;

#[derive(Clone)]
pub(crate) struct KeyedMutex {
    keys: Arc<Keys>,
}

struct Keys {
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<LockName, Entry>,
    /// Of keys that nobody uses any more, the latest last.
    remembered: VecDeque<(LockName, Streak)>,
}

impl Shard {
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

struct Entry {
    mutex: Arc<tokio::sync::Mutex<Streak>>,
    /// Holders and waiters; the entry goes with the last.
    places: usize,
    /// For whom the turn is used, where it says so.
    owner: Option<Owner>,
    /// What is to be done when somebody comes who has to wait for this turn.
    expected: Option<Expected>,
}

/// Done once, without a lock of this file held.
type Expected = Box<dyn FnOnce() + Send>;

/// The right to be in the section of one key; dropping it lets the next one in.
pub(crate) struct Turn {
    // Dropped in this order: let the next one in, then give up the place.
    streak: OwnedMutexGuard<Streak>,
    place: Place,
}

impl Turn {
    /// Says for whom the turn is used.
    pub(crate) fn belongs_to(&self, owner: &Owner) {
        let mut shard = self.place.keys.shard_of(&self.place.name);
        if let Some(entry) = shard.entries.get_mut(&self.place.name) {
            entry.owner = Some(owner.clone());
        }
    }

    /// Where to say what is to be done when somebody has to wait for this turn.
    pub(crate) fn expected(&self) -> Expectation {
        Expectation { name: self.place.name.clone(), keys: Arc::clone(&self.place.keys) }
    }

    /// When the turn before it ended; now if there was none.
    pub(crate) fn free_since(&self) -> Instant {
        self.streak.ended_at().unwrap_or_else(Instant::now)
    }

    /// How long this process has had the key.
    pub(crate) fn streak(&mut self) -> &mut Streak {
        &mut self.streak
    }
}

/// See [`Turn::expected`].
pub(crate) struct Expectation {
    name: LockName,
    keys: Arc<Keys>,
}

impl Expectation {
    /// Does that once somebody waits for the turn, which may be now. What was said of an earlier
    /// turn is forgotten.
    pub(crate) fn when_somebody_waits(self, then: Expected) {
        let mut shard = self.keys.shard_of(&self.name);
        let Some(entry) = shard.entries.get_mut(&self.name) else { return };
        if entry.places == 1 {
            entry.expected = Some(then);
            return;
        }
        entry.expected = None;
        drop(shard);
        then();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.streak.ended();
    }
}

impl KeyedMutex {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { keys: Arc::new(Keys { hasher: RandomState::new(), shards }) }
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_lock(&self, name: &LockName) -> Option<Turn> {
        let place = self.place(name);
        let streak = Arc::clone(&place.mutex).try_lock_owned().ok()?;
        Some(Turn { streak, place })
    }

    /// Queues for the turn; dropping the future leaves the queue.
    pub(crate) async fn lock(&self, name: &LockName) -> Turn {
        let place = self.place(name);
        let streak = Arc::clone(&place.mutex).lock_owned().await;
        Turn { streak, place }
    }

    /// Whether the turn is that owner's.
    pub(crate) fn is_turn_of(&self, name: &LockName, owner: &Owner) -> bool {
        let shard = self.keys.shard_of(name);
        shard.entries.get(name).is_some_and(|entry| entry.owner.as_ref() == Some(owner))
    }

    fn place(&self, name: &LockName) -> Place {
        let mut shard = self.keys.shard_of(name);
        let mut expected = None;
        let mutex = if let Some(entry) = shard.entries.get_mut(name) {
            entry.places += 1;
            expected = entry.expected.take();
            Arc::clone(&entry.mutex)
        } else {
            let mutex = Arc::new(tokio::sync::Mutex::new(shard.recall(name)));
            let own = Arc::clone(&mutex);
            let entry = Entry { mutex: own, places: 1, owner: None, expected: None };
            shard.entries.insert(name.clone(), entry);
            mutex
        };
        drop(shard);
        if let Some(expected) = expected {
            expected();
        }
        Place { mutex, name: name.clone(), keys: Arc::clone(&self.keys) }
    }

    /// How many keys are in use, and how many streaks are remembered.
    #[cfg(test)]
    fn sizes(&self) -> (usize, usize) {
        let shards = || self.keys.shards.iter().map(|shard| shard.lock().unwrap());
        let used = shards().map(|shard| shard.entries.len()).sum();
        (used, shards().map(|shard| shard.remembered.len()).sum())
    }
}

impl Keys {
    fn shard_of(&self, name: &LockName) -> MutexGuard<'_, Shard> {
        let hash = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or(0);
        // A panic cannot leave the maps half changed, so a poisoned mutex is still good.
        self.shards[hash].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counted interest in one key.
struct Place {
    mutex: Arc<tokio::sync::Mutex<Streak>>,
    name: LockName,
    keys: Arc<Keys>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shard = self.keys.shard_of(&self.name);
        let Some(entry) = shard.entries.get_mut(&self.name) else { return };
        entry.places -= 1;
        if entry.places > 0 {
            return;
        }
        shard.entries.remove(&self.name);
        // Nobody else can have it.
        if let Ok(streak) = self.mutex.try_lock()
            && streak.goes_on()
        {
            shard.remember(&self.name, *streak);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    #[tokio::test]
    async fn one_turn_per_key_and_first_come_first_served() {
        let keyed = KeyedMutex::new();
        let first = keyed.try_lock(&name("a")).unwrap();
        assert!(keyed.try_lock(&name("a")).is_none());
        assert!(keyed.try_lock(&name("b")).is_some());
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (keyed, order) = (keyed.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _turn = keyed.lock(&name("a")).await;
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn no_key_is_left_behind_by_holders_or_by_waiters_that_gave_up() {
        let keyed = KeyedMutex::new();
        let turn = keyed.lock(&name("a")).await;
        let key = name("a");
        let mut waiter = Box::pin(keyed.lock(&key));
        let waiting = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(waiter.as_mut().poll(cx).is_pending())
        });
        assert!(waiting.await);
        drop(waiter);
        assert_eq!(keyed.sizes(), (1, 0));
        drop(turn);
        assert_eq!(keyed.sizes(), (0, 0));
        assert!(keyed.try_lock(&name("a")).is_some(), "the waiter that gave up holds nothing");
    }

    #[tokio::test]
    async fn a_streak_is_remembered_between_turns_and_of_few_keys_only() {
        let keyed = KeyedMutex::new();
        for number in 0..10_000 {
            let mut turn = keyed.try_lock(&name(&number.to_string())).unwrap();
            turn.streak().entered();
        }
        let (used, remembered) = keyed.sizes();
        assert_eq!(used, 0);
        assert!(remembered <= SHARDS * REMEMBERED, "{remembered}");
        let mut turn = keyed.try_lock(&name("9999")).unwrap();
        assert!(turn.streak().goes_on(), "the latest is among them");
        drop(turn);
        assert_eq!(keyed.sizes(), (0, remembered), "and is remembered once");
    }
}
