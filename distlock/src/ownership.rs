//! What the holds of one owner have in common: their fencing token.
//!
//! A token is minted once per ownership. A re-entry that got one of its own would make the hold
//! around it stale for the resource, although that lives. So each hold under [`Locks`] with a mint
//! is entered here, by name and owner, for as long as its guard keeps it; the first that asks for a
//! token mints it, and all others of the same ownership are handed that one. If only the inner hold
//! asks, it has a token and the outer one has not. A hold that is lost no longer counts: what its
//! owner takes afterwards, where a kind allows that, is a new ownership.
//!
//! This is the memory of one [`Locks`] and those that share its mint, such as the other side of a
//! read-write lock. A fenced re-entry into a hold of any others, as in another process, is refused,
//! because its token is not known here. Does not notice that a hold was taken away by force before
//! its watchdog does; a re-entry that becomes a new ownership in between has the old token, which
//! the resource refuses once it has seen a later one. Bound: as many entries as there are guards.
//! Test: `tests/fenced_reentry.rs`.
//!
//! [`Locks`]: crate::Locks

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::tenure::Tenure;
use crate::{LockError, LockName, Mint, Owner, Token};

type Key = (LockName, Owner);

/// Those there are. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Ownerships(Arc<Mutex<HashMap<Key, Ownership>>>);

struct Ownership {
    token: SharedToken,
    holds: Vec<Arc<Tenure>>,
}

/// The token of an ownership, once one of its holds has asked for it.
#[derive(Clone, Default)]
pub(crate) struct SharedToken(Arc<OnceCell<Token>>);

impl SharedToken {
    /// The token, minted if this is the first to ask.
    pub(crate) async fn get(&self, mint: &dyn Mint, name: &LockName) -> Result<Token, LockError> {
        self.0.get_or_try_init(|| mint.next(name)).await.copied()
    }
}

/// A hold's part in an ownership; it ends when this is dropped.
pub(crate) struct Share {
    all: Ownerships,
    key: Key,
    tenure: Arc<Tenure>,
    pub(crate) token: SharedToken,
}

impl Ownerships {
    /// Whether the token of that owner's hold can be known here.
    pub(crate) fn knows(&self, name: &LockName, owner: &Owner) -> bool {
        self.lock().contains_key(&(name.clone(), owner.clone()))
    }

    /// Joins the ownership that there is, or begins one.
    pub(crate) fn join(&self, key: Key, tenure: Arc<Tenure>) -> Share {
        let mut ownerships = self.lock();
        let living = |ownership: &&mut Ownership| ownership.holds.iter().any(|t| !t.is_lost());
        let token = if let Some(ownership) = ownerships.get_mut(&key).filter(living) {
            ownership.holds.push(Arc::clone(&tenure));
            ownership.token.clone()
        } else {
            let token = SharedToken::default();
            let holds = vec![Arc::clone(&tenure)];
            ownerships.insert(key.clone(), Ownership { token: token.clone(), holds });
            token
        };
        drop(ownerships);
        Share { all: self.clone(), key, tenure, token }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Ownership>> {
        // Each change is one step that does not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut ownerships = self.all.lock();
        let Some(ownership) = ownerships.get_mut(&self.key) else { return };
        ownership.holds.retain(|tenure| !Arc::ptr_eq(tenure, &self.tenure));
        if ownership.holds.is_empty() {
            ownerships.remove(&self.key);
        }
    }
}
