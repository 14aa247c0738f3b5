//! The entry of the queued mode: from a request to an admission and its ticket.

use std::time::Instant;

use time::{Duration, OffsetDateTime};

use super::{Queue, QueueContext};
use crate::domain::{Order, TicketId, TicketState, Window};
use crate::failpoint::{self, reach};
use crate::sale::Sale;
use crate::sale::injected_bug::InjectedBug;
use crate::sale::outcome::Refusal;
use crate::sale::request::{EarlyRejection, PurchaseRequest};
use crate::sale::voucher_cache::Terms;
use crate::store::{Admission, AdmissionRequest, StoreError};

/// The answer to a request in the queued mode.
#[derive(Debug)]
pub enum AdmissionOutcome {
    /// The purchase is admitted, now or by an earlier request.
    Ticket(TicketId),
    /// An earlier request with the same key has bought; Redis no longer knows its ticket.
    Replayed(Order),
    /// It is not admitted and will not be.
    Refused(Refusal),
    /// Neither Redis nor the database answered: it may be admitted.
    Unknown(TicketId),
}

impl AdmissionOutcome {
    /// Counts the outcome.
    pub(in crate::sale) fn count(&self, started: Instant) {
        let outcome = match self {
            Self::Ticket(_) => "ticket",
            Self::Replayed(_) => "replayed",
            Self::Refused(refusal) => refusal.name(),
            Self::Unknown(_) => "unknown",
        };
        metrics::counter!("seckill_queue_requests_total", "outcome" => outcome).increment(1);
        metrics::histogram!("seckill_queue_request_seconds")
            .record(started.elapsed().as_secs_f64());
    }
}

impl Sale {
    /// Admits a purchase of one unit in the queued mode.
    ///
    /// The rule for keys is that of [`Sale::purchase`]; a repeated request gets the same ticket.
    pub async fn request(&self, queue: &Queue, request: PurchaseRequest) -> AdmissionOutcome {
        let started = Instant::now();
        let outcome = self.request_or_refuse(queue, request).await;
        let outcome = outcome.unwrap_or_else(AdmissionOutcome::Refused);
        outcome.count(started);
        outcome
    }

    async fn request_or_refuse(
        &self,
        queue: &Queue,
        request: PurchaseRequest,
    ) -> Result<AdmissionOutcome, Refusal> {
        let terms = self.open_terms(&request).await;
        let may_be_repeat = terms.as_ref().err().is_none_or(EarlyRejection::may_be_repeat);
        if let Some(keyed) = request.idempotent().filter(|_| may_be_repeat)
            && let Some(earlier) = queue.repeat(&keyed).await?
        {
            return Ok(earlier);
        }
        let terms = terms.map_err(|rejection| rejection.refusal)?;
        let _admission = self.admission.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let outcome = queue.admit(request, &terms).await;
        match (&outcome, request.idempotent()) {
            // This key's earlier request may have got its order since `repeat` looked for it.
            (AdmissionOutcome::Refused(Refusal::AlreadyOrdered(_)), Some(keyed)) => {
                let replayed = keyed.replay(&queue.0.orders).await?;
                Ok(replayed.map_or(outcome, AdmissionOutcome::Replayed))
            }
            _ => Ok(outcome),
        }
    }
}

impl Queue {
    /// Asks Redis to admit a purchase on those terms.
    async fn admit(&self, request: PurchaseRequest, terms: &Terms) -> AdmissionOutcome {
        let PurchaseRequest { user, voucher, key, .. } = request;
        let context = &self.0;
        let Some(ticket) = context.signer.ticket(user, voucher) else {
            tracing::error!(%voucher, "voucher id too large for tickets; request refused");
            return AdmissionOutcome::Refused(Refusal::Defect);
        };
        let (price_cents, mut window) = (terms.price_cents, terms.window);
        if context.hooks.has_bug(InjectedBug::NoTimeWindow) {
            window = always();
        }
        let request = AdmissionRequest { user, ticket, price_cents, window, key };
        let load = context.admission_load.join();
        let admission = match context.admit(&request).await {
            Ok(admission) => admission,
            Err(error) => {
                drop(load);
                return context.refuse_unanswered(&request, error).await;
            }
        };
        load.answered(matches!(admission, Admission::Admitted));
        AdmissionOutcome::Refused(match admission {
            Admission::Admitted => {
                reach(failpoint::QUEUE_ADMITTED);
                context.wake(voucher);
                return context.answer_with(&request, ticket, Some(price_cents)).await;
            }
            // Its price is that of its own admission.
            Admission::Ticket(earlier) => {
                return context.answer_with(&request, earlier, None).await;
            }
            Admission::Ended(state) => match state {
                TicketState::Bought(order) => Refusal::AlreadyOrdered(Some(order)),
                TicketState::AlreadyOrdered(order) => Refusal::AlreadyOrdered(order),
                // Other states give the user's mark back.
                state => {
                    tracing::error!(
                        ?state,
                        "user marked with a ticket in this state; request refused"
                    );
                    Refusal::Defect
                }
            },
            Admission::SoldOut => Refusal::SoldOut,
            Admission::Full | Admission::Unopened => Refusal::Overloaded,
            Admission::NotStarted => Refusal::NotStarted(terms.window.starts_at),
            Admission::Over => Refusal::Ended(terms.window.ends_at),
        })
    }
}

/// A window without a beginning or an end, of an injected bug.
fn always() -> Window {
    let starts_at = OffsetDateTime::UNIX_EPOCH;
    Window { starts_at, ends_at: starts_at + Duration::weeks(10_000) }
}

impl QueueContext {
    /// Ends the ticket of an admission without an answer, so that the refusal is definite.
    async fn refuse_unanswered(
        &self,
        request: &AdmissionRequest,
        error: StoreError,
    ) -> AdmissionOutcome {
        tracing::warn!(%error, "admission without an answer; ending its ticket");
        let AdmissionRequest { ticket, user, .. } = *request;
        match self.tickets.end(ticket, user, TicketState::Refused).await {
            Ok(TicketState::Refused) => AdmissionOutcome::Refused(error.into()),
            Ok(_) => AdmissionOutcome::Ticket(ticket),
            Err(_) => AdmissionOutcome::Unknown(ticket),
        }
    }
}
