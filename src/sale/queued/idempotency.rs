//! Requests with an `Idempotency-Key` in the queued mode.
//!
//! A key stands for the ticket of its request: Redis stores which one, for 24 h. A repeat gets that
//! ticket if it is pending or has bought, also if the voucher is sold out or its sale over by then.
//! A ticket that ended without an order had no effect, so its repeat is a new request. The key with
//! another voucher or price is 422.
//!
//! The key is also written in the order's transaction, as in the direct mode. So payments and
//! cancellations know it, and so do repeats after Redis has lost its data: they get the order
//! itself. If two vouchers are requested with one key at a time, both may be admitted. One is
//! bought, and the other's ticket ends as `refused`.

use super::{AdmissionOutcome, Queue, QueueContext};
use crate::domain::{Operation, TicketId, TicketState};
use crate::sale::in_flight_requests::IdempotentRequest;
use crate::sale::outcome::Refusal;
use crate::store::{AdmissionRequest, StoreError};

impl Queue {
    /// The answer of an earlier request with the same key, if that had an effect.
    pub(super) async fn repeat(
        &self,
        request: &IdempotentRequest,
    ) -> Result<Option<AdmissionOutcome>, Refusal> {
        let context = &self.0;
        if let Some((ticket, price_cents)) =
            context.stream.ticket_of(request.user, request.key).await?
        {
            let earlier = Operation::Purchase { voucher: ticket.voucher(), price_cents };
            if !request.operation.matches(earlier) {
                return Err(Refusal::KeyReused);
            }
            if context.has_effect(ticket).await? {
                return Ok(Some(AdmissionOutcome::Ticket(ticket)));
            }
        }
        Ok(request.replay(&context.orders).await?.map(AdmissionOutcome::Replayed))
    }
}

impl QueueContext {
    /// Whether the ticket is pending, or its user has an order.
    async fn has_effect(&self, ticket: TicketId) -> Result<bool, StoreError> {
        let state = match self.stream.state(ticket).await? {
            None => self.tickets.find(ticket).await?,
            state => state,
        };
        Ok(match state {
            Some(
                TicketState::Pending | TicketState::Bought(_) | TicketState::AlreadyOrdered(_),
            ) => true,
            None
            | Some(
                TicketState::SoldOut | TicketState::Refused | TicketState::Lost | TicketState::Dead,
            ) => false,
        })
    }

    /// Answers the request, and its repeats at that price, with that ticket.
    pub(super) async fn answer_with(
        &self,
        request: &AdmissionRequest,
        ticket: TicketId,
        price_cents: Option<u64>,
    ) -> AdmissionOutcome {
        if let Some(key) = request.key
            && let Err(error) =
                self.stream.keep_ticket((request.user, key), ticket, price_cents).await
        {
            // A repeat still finds it: by the user's mark, and later by its order.
            tracing::warn!(%error, "ticket not stored for its idempotency key");
        }
        AdmissionOutcome::Ticket(ticket)
    }
}
