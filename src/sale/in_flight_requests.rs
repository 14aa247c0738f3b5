//! Requests with an `Idempotency-Key`: concurrent ones, and repeats of one that had an effect.
//!
//! A concurrent request with the same key in this replica is refused at once (409
//! `request_in_progress`). One in another replica waits for the user's lock or at the key's row in
//! the database, and then finds what the first has written (`store/idempotency`). Refusals are not
//! stored.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Refusal;
use crate::domain::{IdempotencyKeyHash, Operation, Order, UserId};
use crate::store::Orders;

/// A request that has a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdempotentRequest {
    pub(super) user: UserId,
    pub(super) key: IdempotencyKeyHash,
    pub(super) operation: Operation,
}

impl IdempotentRequest {
    /// The order of an earlier request with this key, if that had an effect.
    pub(super) async fn replay(&self, orders: &Orders) -> Result<Option<Order>, Refusal> {
        match orders.find_by_key(self.user, self.key).await? {
            Some(stored) if stored.operation.matches(self.operation) => Ok(Some(stored.order)),
            Some(_) => Err(Refusal::KeyReused),
            None => Ok(None),
        }
    }
}

type OperationsByKey = HashMap<(UserId, IdempotencyKeyHash), Operation>;

/// The requests with keys that are in flight in this replica. Cheap to clone.
///
/// Their number is bounded by `--max-requests` and by purchases whose clients have disconnected.
#[derive(Clone, Default)]
pub(super) struct InFlightRequests(Arc<Mutex<OperationsByKey>>);

impl InFlightRequests {
    /// Registers a request until the guard is dropped, if no other with its key is in flight.
    pub(super) fn enter(
        &self,
        request: Option<IdempotentRequest>,
    ) -> Result<Option<InFlightGuard>, Refusal> {
        let Some(request) = request else { return Ok(None) };
        match self.operations().entry((request.user, request.key)) {
            Entry::Occupied(other) if !other.get().matches(request.operation) => {
                Err(Refusal::KeyReused)
            }
            Entry::Occupied(_) => Err(Refusal::KeyInUse),
            Entry::Vacant(vacant) => {
                vacant.insert(request.operation);
                Ok(Some(InFlightGuard { requests: self.clone(), id: (request.user, request.key) }))
            }
        }
    }

    /// Whether a request with that key of that user is in flight.
    pub(super) fn has(&self, id: (UserId, IdempotencyKeyHash)) -> bool {
        self.operations().contains_key(&id)
    }

    fn operations(&self) -> MutexGuard<'_, OperationsByKey> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a request registered as in flight.
pub(super) struct InFlightGuard {
    requests: InFlightRequests,
    id: (UserId, IdempotencyKeyHash),
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.requests.operations().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::VoucherId;

    #[test]
    fn a_second_request_with_the_key_is_refused_until_the_first_ends() {
        let requests = InFlightRequests::default();
        let request = |user, voucher| {
            let key = IdempotencyKeyHash::of(b"a key");
            Some(IdempotentRequest {
                user: UserId(user),
                key,
                operation: Operation::Purchase { voucher: VoucherId(voucher), price_cents: None },
            })
        };
        let first = requests.enter(request(1, 1));
        assert!(first.is_ok());
        assert!(matches!(requests.enter(request(1, 1)), Err(Refusal::KeyInUse)));
        assert!(
            matches!(requests.enter(request(1, 2)), Err(Refusal::KeyReused)),
            "another operation"
        );
        assert!(requests.enter(request(2, 1)).is_ok(), "another user's key is another key");
        assert!(requests.enter(None).is_ok_and(|entered| entered.is_none()));
        drop(first);
        assert!(requests.enter(request(1, 2)).is_ok(), "its end was not noticed");
        assert!(requests.operations().is_empty());
    }
}
