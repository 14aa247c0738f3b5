//! What the holds of one owner have in common: their fencing token.
//!
//! A token is issued once per ownership. With a token of its own, a re-entry would make the outer
//! hold stale for the resource although that hold lives. So each hold of [`Locks`] with a token
//! issuer is registered here, by name and owner, for the life of its guard. The first hold that
//! asks issues the token; the others of the ownership get the same one. If only the inner hold
//! asks, the outer hold has no token. A lost hold does not count: a later hold of its owner is a
//! new ownership.
//!
//! The registry belongs to one [`Locks`] and those that share its token issuer, such as the other
//! side of a read-write lock. A fenced re-entry into a hold of other `Locks`, or of another
//! process, is refused, because its token is not known here. A hold that was taken away by force is
//! noticed at its next renewal. A re-entry before that gets the old token, which the resource
//! refuses once it has seen a later one. Bound: one entry per guard. Test:
//! `tests/fenced_reentry.rs`.
//!
//! [`Locks`]: crate::Locks

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::hold_state::HoldState;
use crate::{LockError, LockName, Owner, Token, TokenIssuer};

type OwnershipKey = (LockName, Owner);

/// Those there are. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct OwnershipRegistry(Arc<Mutex<HashMap<OwnershipKey, Ownership>>>);

struct Ownership {
    token: SharedToken,
    holds: Vec<Arc<HoldState>>,
}

/// The token of an ownership, once one of its holds has asked for it.
#[derive(Clone, Default)]
pub(crate) struct SharedToken(Arc<OnceCell<Token>>);

impl SharedToken {
    /// Returns the token; issues it on the first call.
    pub(crate) async fn get(
        &self,
        token_issuer: &dyn TokenIssuer,
        name: &LockName,
    ) -> Result<Token, LockError> {
        self.0.get_or_try_init(|| token_issuer.next(name)).await.copied()
    }
}

/// A hold's part in an ownership; it ends when this is dropped.
pub(crate) struct OwnershipGuard {
    all: OwnershipRegistry,
    key: OwnershipKey,
    hold_state: Arc<HoldState>,
    pub(crate) token: SharedToken,
}

impl OwnershipRegistry {
    /// Whether the token of that owner's hold can be known here.
    pub(crate) fn knows(&self, name: &LockName, owner: &Owner) -> bool {
        self.lock().contains_key(&(name.clone(), owner.clone()))
    }

    /// Joins the ownership that there is, or begins one.
    pub(crate) fn join(&self, key: OwnershipKey, hold_state: Arc<HoldState>) -> OwnershipGuard {
        let mut ownerships = self.lock();
        let living = |ownership: &&mut Ownership| ownership.holds.iter().any(|t| !t.is_lost());
        let token = if let Some(ownership) = ownerships.get_mut(&key).filter(living) {
            ownership.holds.push(Arc::clone(&hold_state));
            ownership.token.clone()
        } else {
            let token = SharedToken::default();
            let holds = vec![Arc::clone(&hold_state)];
            ownerships.insert(key.clone(), Ownership { token: token.clone(), holds });
            token
        };
        drop(ownerships);
        OwnershipGuard { all: self.clone(), key, hold_state, token }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnershipKey, Ownership>> {
        // Each change is one step that does not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OwnershipGuard {
    fn drop(&mut self) {
        let mut ownerships = self.all.lock();
        let Some(ownership) = ownerships.get_mut(&self.key) else { return };
        ownership.holds.retain(|hold_state| !Arc::ptr_eq(hold_state, &self.hold_state));
        if ownership.holds.is_empty() {
            ownerships.remove(&self.key);
        }
    }
}
