//! One purchase of the direct mode, top to bottom: checks, admission, critical section, answer.
//!
//! Before the lock the caller's future does the work, and dropping it leaves nothing. From the lock
//! on a task of its own does it, which a client that hangs up cannot abort.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::attempt::PurchaseAttempt;
use super::critical_section::release;
use super::in_flight_requests::{IdempotentRequest, InFlightGuard};
use super::request::{EarlyRejection, PurchaseRequest};
use super::voucher_cache::Terms;
use super::{Guards, InjectedBug, LockHoldTimes, Outcome, Refusal, Sale};
use crate::domain::{IdempotencyKeyHash, UserId, VoucherId};
use crate::failpoint::{self, reach};
use crate::telemetry::{DurationMetric, count_purchase, purchase_in_progress, record_duration};

impl Sale {
    /// Sells one unit of the voucher to the user, or says why not.
    ///
    /// Every refusal is definite: no order was written and none will be. A request with the key of
    /// an earlier one that had an effect gets that one's answer. `hold_times` records when the
    /// purchase holds its lock.
    pub async fn purchase(
        &self,
        request: PurchaseRequest,
        hold_times: Option<Arc<LockHoldTimes>>,
    ) -> Outcome {
        let started = Instant::now();
        let request = PurchaseRequest { key: self.idempotency_key(request.key), ..request };
        let in_flight = match self.in_flight.enter(request.idempotent()) {
            Ok(in_flight) => in_flight,
            Err(refusal) => return count(Outcome::Refused(refusal), started),
        };
        let rejection = match self.admit(request, in_flight, hold_times).await {
            Ok(purchase) => return purchase.await,
            Err(rejection) => rejection,
        };
        match request.idempotent().filter(|_| rejection.may_be_repeat()) {
            Some(earlier) => {
                count(Box::pin(self.replay_or(rejection.refusal, &earlier)).await, started)
            }
            None => count(Outcome::Refused(rejection.refusal), started),
        }
    }

    /// The key of a request. The unguarded sale is the textbook's, which keeps no keys.
    pub(super) fn idempotency_key(
        &self,
        key: Option<IdempotencyKeyHash>,
    ) -> Option<IdempotencyKeyHash> {
        key.filter(|_| self.config.guards == Guards::On)
    }

    /// The checks that need no lock; then the rest, in a task of its own.
    async fn admit(
        &self,
        request: PurchaseRequest,
        in_flight: Option<InFlightGuard>,
        hold_times: Option<Arc<LockHoldTimes>>,
    ) -> Result<impl Future<Output = Outcome> + use<>, EarlyRejection> {
        let started = Instant::now();
        let terms = self.open_terms(&request).await?;
        let admission = Arc::clone(&self.admission).try_acquire_owned();
        let admission = admission.map_err(|_| Refusal::Overloaded)?;
        let PurchaseRequest { user, voucher, key, .. } = request;
        let attempt = Arc::new(PurchaseAttempt {
            user,
            voucher,
            created_at: terms.now(),
            terms,
            key,
            operation: request.operation(),
            admitted: None,
            hold_times,
        });
        let sale = self.clone();
        let (answer, answered) = oneshot::channel();
        purchase_in_progress(1);
        // Boxed: a task moves its future when it is spawned, polled and dropped.
        let work = Box::pin(async move {
            let (outcome, mut guard) = sale.section.run(&attempt).await;
            let outcome = count(outcome, started);
            sale.update_cache(&attempt, &outcome);
            let release_slot = sale.reserve_release_slot();
            if release_slot.is_none() {
                release(guard.take(), &attempt).await;
            }
            // Before the answer: a client may send its next request as soon as it has it.
            drop((admission, in_flight));
            reach(failpoint::BEFORE_ANSWER);
            let _client_is_gone = answer.send(outcome);
            release(guard, &attempt).await;
            drop(release_slot);
            purchase_in_progress(-1);
        });
        let task = self.tasks.spawn(work.in_current_span());
        let aborts = self.section.hooks.has_bug(InjectedBug::AbortWithClient);
        let aborting = aborts.then(|| AbortOnDropHandle::new(task));
        Ok(async move {
            let outcome = answered.await.unwrap_or(Outcome::Failed);
            if let Some(task) = aborting {
                drop(task.detach());
            }
            outcome
        })
    }

    /// The terms of a voucher that is on sale now, or why this user cannot buy it.
    pub(super) async fn open_terms(
        &self,
        request: &PurchaseRequest,
    ) -> Result<Arc<Terms>, EarlyRejection> {
        if let Some(server) = self.health.down().next() {
            return Err(Refusal::Unavailable(server).into());
        }
        let terms = self.read_terms(request.voucher, None).await?;
        self.reject_closed(request, &terms).await?;
        if request.accepts(terms.price_cents) {
            return Ok(terms);
        }
        // The client may have read a later price than the cache.
        let terms = self.read_terms(request.voucher, Some(&terms)).await?;
        self.reject_closed(request, &terms).await?;
        if request.accepts(terms.price_cents) {
            return Ok(terms);
        }
        Err(Refusal::PriceChanged(terms.price_cents).into())
    }

    /// The terms of a voucher: cached ones, or later ones than those of `outdated`.
    pub(super) async fn read_terms(
        &self,
        voucher: VoucherId,
        outdated: Option<&Arc<Terms>>,
    ) -> Result<Arc<Terms>, Refusal> {
        if let Some(outdated) = outdated {
            self.voucher_cache.expire(voucher, outdated);
        }
        tokio::select! {
            biased;
            terms = self.voucher_cache.terms(voucher) => terms?.ok_or(Refusal::VoucherNotFound),
            () = self.health.until_database_is_down() => Err(Refusal::Unavailable("database")),
        }
    }

    /// Whether it is certain that no earlier request of this user buys. A ticket that waits since
    /// before the end may, however late it is.
    pub(super) fn will_have_no_order(&self, terms: &Terms, user: UserId) -> bool {
        self.queue.is_none() && terms.has_no_order(user)
    }

    /// Why the voucher is not for sale at that moment. An injected bug does not look.
    pub(super) fn closed_at(&self, terms: &Terms, now: Instant) -> Option<Refusal> {
        terms.closed_at(now).filter(|_| !self.section.hooks.has_bug(InjectedBug::NoTimeWindow))
    }

    /// Refuses if the voucher is not for sale now, or has no unit left for this user.
    async fn reject_closed(
        &self,
        request: &PurchaseRequest,
        terms: &Terms,
    ) -> Result<(), EarlyRejection> {
        if let Some(refusal) = self.closed_at(terms, Instant::now()) {
            let has_no_order = self.will_have_no_order(terms, request.user);
            return Err(EarlyRejection { refusal, has_no_order });
        }
        if let Some(cache) = &self.sold_out_cache
            && let Some(rejection) = cache.reject(request, terms).await
        {
            return Err(rejection);
        }
        Ok(())
    }

    /// The answer of an earlier request with the same key, if it had an effect; else the refusal.
    async fn replay_or(&self, refusal: Refusal, request: &IdempotentRequest) -> Outcome {
        match request.replay(&self.settlement.orders).await {
            Ok(Some(order)) => Outcome::Replayed(order),
            Ok(None) => Outcome::Refused(refusal),
            Err(other) => Outcome::Refused(other),
        }
    }

    /// Records what the outcome says about later requests.
    fn update_cache(&self, attempt: &PurchaseAttempt, outcome: &Outcome) {
        let Some(cache) = &self.sold_out_cache else { return };
        match outcome {
            Outcome::Bought(order) => cache.record_order(order, attempt.key),
            Outcome::Refused(Refusal::SoldOut) => {
                self.voucher_cache.invalidate_if_in_stock(attempt.voucher);
            }
            Outcome::Refused(_) | Outcome::Replayed(_) | Outcome::Unknown(_) | Outcome::Failed => {}
        }
    }

    /// A slot for a release after the answer; `None` if the release comes first.
    fn reserve_release_slot(&self) -> Option<OwnedSemaphorePermit> {
        let slot = || Arc::clone(&self.release_slots).try_acquire_owned().ok();
        self.config.releases_after_response().then(slot).flatten()
    }
}

/// Counts the outcome, also if its client has disconnected.
pub(super) fn count(outcome: Outcome, started: Instant) -> Outcome {
    count_purchase(outcome.name());
    record_duration(DurationMetric::Purchase, started.elapsed());
    outcome
}
