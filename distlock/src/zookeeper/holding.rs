//! What this process holds, by lock and owner: an owner who holds a lock may enter again, and the
//! lock is freed with his last release. As in Curator the count is the process's own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contender::{Contender, Node};
use crate::Owner;

/// A node that holds a lock, and how often its owner has entered.
pub(super) struct Holding {
    pub(super) contender: Contender,
    pub(super) node: Node,
    owner: Owner,
    entries: AtomicU32,
}

impl Holding {
    /// With one entry.
    pub(super) fn new(contender: Contender, node: Node, owner: Owner) -> Arc<Self> {
        Arc::new(Self { contender, node, owner, entries: AtomicU32::new(1) })
    }

    /// One more entry; `false` if the last one has been taken back already.
    pub(super) fn enter(&self) -> bool {
        let more = |entries: u32| if entries == 0 { None } else { entries.checked_add(1) };
        self.entries.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes an entry back; says whether it was the last.
    pub(super) fn leave(&self) -> bool {
        self.entries.fetch_sub(1, Ordering::SeqCst) == 1
    }

    fn key(&self) -> Key {
        (Arc::clone(&self.contender.container), self.owner.clone())
    }
}

type Key = (Arc<str>, Owner);

/// One entry for each owner of each lock that this process holds.
#[derive(Default)]
pub(super) struct Holdings(Mutex<HashMap<Key, Arc<Holding>>>);

impl Holdings {
    pub(super) fn find(&self, container: &Arc<str>, owner: &Owner) -> Option<Arc<Holding>> {
        self.lock().get(&(Arc::clone(container), owner.clone())).cloned()
    }

    /// In the place of an earlier one, whose session has ended.
    pub(super) fn add(&self, holding: &Arc<Holding>) {
        self.lock().insert(holding.key(), Arc::clone(holding));
    }

    /// Does nothing if another one has its place.
    pub(super) fn remove(&self, holding: &Arc<Holding>) {
        let mut holdings = self.lock();
        let key = holding.key();
        if holdings.get(&key).is_some_and(|present| Arc::ptr_eq(present, holding)) {
            holdings.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Holding>>> {
        // Each change is one step that does not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
