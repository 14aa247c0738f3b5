//! The nodes that this process holds, by lock and owner: an owner may enter again, and its last
//! release frees the lock. As in Curator, the count is the process's own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contender::{Contender, Node};
use crate::Owner;

/// A node that holds a lock, and how often its owner has entered.
pub(crate) struct HeldNode {
    pub(crate) contender: Contender,
    pub(crate) node: Node,
    owner: Owner,
    entries: AtomicU32,
}

impl HeldNode {
    /// With one entry.
    pub(crate) fn new(contender: Contender, node: Node, owner: Owner) -> Arc<Self> {
        Arc::new(Self { contender, node, owner, entries: AtomicU32::new(1) })
    }

    /// One more entry; `false` if the last one has been taken back already.
    pub(crate) fn enter(&self) -> bool {
        let more = |entries: u32| if entries == 0 { None } else { entries.checked_add(1) };
        self.entries.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// Takes an entry back; says whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.entries.fetch_sub(1, Ordering::SeqCst) == 1
    }

    fn key(&self) -> HeldNodeKey {
        (Arc::clone(&self.contender.container), self.owner.clone())
    }
}

type HeldNodeKey = (Arc<str>, Owner);

/// One entry for each owner of each lock that this process holds.
#[derive(Default)]
pub(crate) struct HeldNodes(Mutex<HashMap<HeldNodeKey, Arc<HeldNode>>>);

impl HeldNodes {
    pub(crate) fn find(&self, container: &Arc<str>, owner: &Owner) -> Option<Arc<HeldNode>> {
        self.lock().get(&(Arc::clone(container), owner.clone())).cloned()
    }

    /// In the place of an earlier one, whose session has ended.
    pub(crate) fn add(&self, held_node: &Arc<HeldNode>) {
        self.lock().insert(held_node.key(), Arc::clone(held_node));
    }

    /// Does nothing if another one has its place.
    pub(crate) fn remove(&self, held_node: &Arc<HeldNode>) {
        let mut held_nodes = self.lock();
        let key = held_node.key();
        if held_nodes.get(&key).is_some_and(|present| Arc::ptr_eq(present, held_node)) {
            held_nodes.remove(&key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HeldNodeKey, Arc<HeldNode>>> {
        // Each change is one step that does not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
