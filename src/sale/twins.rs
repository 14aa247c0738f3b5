//! Requests with an `Idempotency-Key`: twins of one that is under way, and repeats of one that had
//! an effect.
//!
//! A twin in this replica is refused at once (409 `request_in_progress`). One in another replica
//! waits as any second request does, for the user's lock or at the key's row in the database, and
//! then finds what the first has written (`store/idempotency`). What was refused is not kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Refusal;
use crate::domain::{Order, RequestKey, UserId, Wish};
use crate::store::Orders;

/// A request that has a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) user: UserId,
    pub(super) key: RequestKey,
    pub(super) wish: Wish,
}

impl Request {
    /// What the same request was told before, if it had an effect then.
    pub(super) async fn replay(&self, orders: &Orders) -> Result<Option<Order>, Refusal> {
        match orders.of_key(self.user, self.key).await? {
            Some(kept) if kept.wish == self.wish => Ok(Some(kept.order)),
            Some(_) => Err(Refusal::KeyReused),
            None => Ok(None),
        }
    }
}

type UnderWay = HashMap<(UserId, RequestKey), Wish>;

/// The requests with keys that are under way in this replica: never more than requests at all
/// (`--max-requests`) and purchases that their clients have left. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Twins(Arc<Mutex<UnderWay>>);

impl Twins {
    /// Enters a request until the answer is dropped, if no other with its key is under way.
    pub(super) fn enter(&self, request: Option<Request>) -> Result<Option<Entered>, Refusal> {
        let Some(request) = request else { return Ok(None) };
        match self.under_way().entry((request.user, request.key)) {
            Entry::Occupied(other) if *other.get() != request.wish => Err(Refusal::KeyReused),
            Entry::Occupied(_) => Err(Refusal::KeyInUse),
            Entry::Vacant(place) => {
                place.insert(request.wish);
                Ok(Some(Entered { twins: self.clone(), of: (request.user, request.key) }))
            }
        }
    }

    /// Whether a request with that key of that user is under way.
    pub(super) fn has(&self, of: (UserId, RequestKey)) -> bool {
        self.under_way().contains_key(&of)
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is under way.
pub(super) struct Entered {
    twins: Twins,
    of: (UserId, RequestKey),
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.twins.under_way().remove(&self.of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::VoucherId;

    #[test]
    fn a_twin_is_refused_for_as_long_as_the_first_is_under_way() {
        let twins = Twins::default();
        let request = |user, voucher| {
            let key = RequestKey::of(b"a key");
            Some(Request { user: UserId(user), key, wish: Wish::Purchase(VoucherId(voucher)) })
        };
        let first = twins.enter(request(1, 1));
        assert!(first.is_ok());
        assert!(matches!(twins.enter(request(1, 1)), Err(Refusal::KeyInUse)));
        assert!(matches!(twins.enter(request(1, 2)), Err(Refusal::KeyReused)), "another wish");
        assert!(twins.enter(request(2, 1)).is_ok(), "another user's key is another key");
        assert!(twins.enter(None).is_ok_and(|entered| entered.is_none()));
        drop(first);
        assert!(twins.enter(request(1, 2)).is_ok(), "its end was not noticed");
        assert!(twins.under_way().is_empty());
    }
}
