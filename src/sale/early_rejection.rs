//! Rejections before the router, from memory and without waiting.
//!
//! They are those of [`Sale::purchase`] and [`Sale::request`], by the same functions and counted
//! the same way. What memory cannot decide is left to these two:
//!
//! - a voucher that has to be read,
//! - buyers that are not cached,
//! - a key whose earlier request may have bought.

use std::time::Instant;

use super::Sale;
use super::outcome::{Outcome, Refusal};
use super::purchase::count;
use super::queued::AdmissionOutcome;
use super::request::{EarlyRejection, PurchaseRequest};
use crate::domain::{IdempotencyKeyHash, UserId, VoucherId};

impl Sale {
    /// Why that buyer cannot buy the voucher, if memory alone decides it.
    ///
    /// `buyer` reads the user and the request's key. It is called only if the voucher is sold out
    /// or not on sale. The request states no price.
    pub fn reject_early(
        &self,
        voucher: VoucherId,
        buyer: impl FnOnce() -> Option<(UserId, Option<IdempotencyKeyHash>)>,
    ) -> Option<Refusal> {
        let now = Instant::now();
        if self.health.down().next().is_some() {
            return None;
        }
        let terms = self.voucher_cache.cached(voucher, now)?.ok()??;
        let closed = self.closed_at(&terms, now);
        if closed.is_none() && !terms.is_sold_out_at(now) {
            return None;
        }
        let (user, key) = buyer()?;
        let key = self.idempotency_key(key);
        let request = PurchaseRequest { user, voucher, key, price_cents: None };
        let rejection = match (closed, &self.sold_out_cache) {
            (Some(refusal), _) => {
                EarlyRejection { refusal, has_no_order: self.will_have_no_order(&terms, user) }
            }
            (None, Some(cache)) => cache.reject_from_memory(&request, &terms, now)?,
            (None, None) => return None,
        };
        if request
            .key
            .is_some_and(|key| rejection.may_be_repeat() || self.in_flight.has((user, key)))
        {
            return None;
        }
        match &self.queue {
            Some(_) => AdmissionOutcome::Refused(rejection.refusal).count(now),
            None => drop(count(Outcome::Refused(rejection.refusal), now)),
        }
        Some(rejection.refusal)
    }
}
