//! A fair mutex per key inside this process.
//!
//! It is the whole of the kind `local`, and the first stage of the kinds that live on a server:
//! of all tasks of a process that want one name, one goes to the server and the others queue here,
//! first come first served. Entries are counted, so that a key nobody uses is forgotten.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::{LockName, Owner};

/// Shards keep the map's own mutex from becoming the contended one.
const SHARDS: usize = 64;

#[derive(Clone)]
pub(crate) struct KeyedMutex {
    shards: Arc<Shards>,
}

struct Shards {
    hasher: RandomState,
    maps: Vec<Mutex<HashMap<LockName, Entry>>>,
}

struct Entry {
    mutex: Arc<tokio::sync::Mutex<()>>,
    /// Holders and waiters; the entry goes with the last.
    places: usize,
    /// For whom the turn is used, where it says so.
    owner: Option<Owner>,
}

/// The right to be in the section of one key; dropping it lets the next one in.
pub(crate) struct Turn {
    // Dropped in this order: let the next one in, then give up the place.
    _guard: OwnedMutexGuard<()>,
    place: Place,
}

impl Turn {
    /// Says for whom the turn is used.
    pub(crate) fn belongs_to(&self, owner: &Owner) {
        if let Some(entry) = self.place.shards.map_of(&self.place.name).get_mut(&self.place.name) {
            entry.owner = Some(owner.clone());
        }
    }
}

impl KeyedMutex {
    pub(crate) fn new() -> Self {
        let maps = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards: Arc::new(Shards { hasher: RandomState::new(), maps }) }
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_lock(&self, name: &LockName) -> Option<Turn> {
        let place = self.place(name);
        let guard = Arc::clone(&place.mutex).try_lock_owned().ok()?;
        Some(Turn { _guard: guard, place })
    }

    /// Queues for the turn; dropping the future leaves the queue.
    pub(crate) async fn lock(&self, name: &LockName) -> Turn {
        let place = self.place(name);
        let guard = Arc::clone(&place.mutex).lock_owned().await;
        Turn { _guard: guard, place }
    }

    /// Whether the turn is that owner's.
    pub(crate) fn is_turn_of(&self, name: &LockName, owner: &Owner) -> bool {
        self.shards.map_of(name).get(name).is_some_and(|entry| entry.owner.as_ref() == Some(owner))
    }

    fn place(&self, name: &LockName) -> Place {
        let mut map = self.shards.map_of(name);
        let entry = map.entry(name.clone()).or_insert_with(|| Entry {
            mutex: Arc::default(),
            places: 0,
            owner: None,
        });
        entry.places += 1;
        Place {
            mutex: Arc::clone(&entry.mutex),
            name: name.clone(),
            shards: Arc::clone(&self.shards),
        }
    }

    #[cfg(test)]
    fn keys(&self) -> usize {
        self.shards.maps.iter().map(|map| map.lock().unwrap().len()).sum()
    }
}

impl Shards {
    fn map_of(&self, name: &LockName) -> MutexGuard<'_, HashMap<LockName, Entry>> {
        let hash = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or(0);
        // A panic cannot leave the map half changed, so a poisoned mutex is still good.
        self.maps[hash].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counted interest in one key.
struct Place {
    mutex: Arc<tokio::sync::Mutex<()>>,
    name: LockName,
    shards: Arc<Shards>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut map = self.shards.map_of(&self.name);
        if let Some(entry) = map.get_mut(&self.name) {
            entry.places -= 1;
            if entry.places == 0 {
                map.remove(&self.name);
            }
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
        assert_eq!(keyed.keys(), 1);
        drop(turn);
        assert_eq!(keyed.keys(), 0);
        assert!(keyed.try_lock(&name("a")).is_some(), "the waiter that gave up holds nothing");
    }
}
