//! Requests with an `Idempotency-Key`.
//!
//! A key stands for the ticket that was given for it: Redis keeps which one, for 24 h. Its repeats
//! get that ticket as long as it is under way or has bought, whether or not the voucher is sold out
//! or its sale over by now. A ticket that ended without an order had no effect, so a repeat is
//! judged anew, as one of a request that was refused is. Another voucher with the key is 422.
//!
//! The key is written in the order's transaction as well, as on the path `direct`. So it is known
//! for what it is to payments and cancellations, and after Redis has lost its data or was never
//! told which ticket was given (then a repeat is told of the order itself). And of two vouchers
//! that are asked for with one key at the very same moment, both of which may be admitted, one is
//! bought: the other's ticket ends as `refused`.

use std::time::Instant;

use super::{Desk, Queue, Requested};
use crate::domain::{RequestKey, TicketId, TicketState, UserId, VoucherId, Wish};
use crate::sale::Sale;
use crate::sale::late::Turned;
use crate::sale::outcome::Refusal;
use crate::sale::twins::Request as Keyed;
use crate::store::{Request, StoreError};

impl Sale {
    /// Asks for one unit of the voucher on the path `queued`.
    /// The rule for keys is that of [`Sale::purchase`], and what is told again is the ticket.
    pub async fn request(
        &self,
        queue: &Queue,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
    ) -> Requested {
        let started = Instant::now();
        let wish = Wish::Purchase(voucher);
        let request = key.map(|key| Keyed { user, key, wish });
        let requested = self.try_to_request(queue, (user, voucher), request).await;
        let requested = requested.unwrap_or_else(Requested::Refused);
        requested.count(started);
        requested
    }

    async fn try_to_request(
        &self,
        queue: &Queue,
        (user, voucher): (UserId, VoucherId),
        request: Option<Keyed>,
    ) -> Result<Requested, Refusal> {
        let key = request.map(|request| request.key);
        let opened = self.open_sale((user, voucher), key).await;
        let may_repeat = opened.as_ref().err().is_none_or(Turned::may_repeat);
        if let Some(request) = request.filter(|_| may_repeat)
            && let Some(requested) = queue.repeat(&request).await?
        {
            return Ok(requested);
        }
        let terms = opened.map_err(|turned| turned.refusal)?;
        let _place = self.admission.try_acquire().map_err(|_| Refusal::Overloaded)?;
        let requested = queue.request((user, voucher), key, &terms).await;
        match (&requested, &request) {
            // Perhaps by this key's earlier request, whose order was written since it was looked
            // for.
            (Requested::Refused(Refusal::AlreadyOrdered(_)), Some(request)) => {
                let replayed = request.replay(&queue.0.orders).await?;
                Ok(replayed.map_or(requested, Requested::Replayed))
            }
            _ => Ok(requested),
        }
    }
}

impl Queue {
    /// What an earlier request with the same key was told, if it had an effect.
    async fn repeat(&self, request: &Keyed) -> Result<Option<Requested>, Refusal> {
        let desk = &self.0;
        if let Some(ticket) = desk.stream.ticket_of(request.user, request.key).await? {
            if request.wish != Wish::Purchase(ticket.voucher()) {
                return Err(Refusal::KeyReused);
            }
            if desk.has_effect(ticket).await? {
                return Ok(Some(Requested::Ticket(ticket)));
            }
        }
        Ok(request.replay(&desk.orders).await?.map(Requested::Replayed))
    }
}

impl Desk {
    /// Whether the ticket is under way, or its user has an order.
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

    /// The request is answered with that ticket, and so are its repeats.
    pub(super) async fn given(&self, request: &Request, ticket: TicketId) -> Requested {
        if let Some(key) = request.key
            && let Err(error) = self.stream.keep_ticket(request.user, key, ticket).await
        {
            // While it is under way the user's mark leads to it, and then its order does.
            tracing::warn!(%error, "the ticket of a request with a key is not kept");
        }
        Requested::Ticket(ticket)
    }
}
