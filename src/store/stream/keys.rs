//! Which ticket was given for a request with an `Idempotency-Key`. One key of Redis each, for 24
//! hours; it stands alone, because the same key may come with another voucher.

use std::time::Duration;

use super::{SaleStream, StoreError};
use crate::domain::{IdempotencyKeyHash, TicketId, UserId};

/// For so long it is kept.
const RETENTION: Duration = Duration::from_hours(24);

impl SaleStream {
    /// The ticket that the user's earlier request with that key was given, and its price in cents
    /// if that is known.
    pub async fn ticket_of(
        &self,
        user: UserId,
        key: IdempotencyKeyHash,
    ) -> Result<Option<(TicketId, Option<u64>)>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(name(user, key));
        let text: Option<String> = get.query_async(&mut self.connection.clone()).await?;
        let Some(text) = text else { return Ok(None) };
        let unexpected = || StoreError::Unexpected(format!("a request's ticket: {text}"));
        // A replica of the former version writes no price.
        let (ticket, price) = match text.split_once(' ') {
            Some((ticket, price)) => (ticket, Some(price.parse().map_err(|_| unexpected())?)),
            None => (text.as_str(), None),
        };
        Ok(Some((ticket.parse().map_err(|_| unexpected())?, price)))
    }

    /// The user's request with that key was given this ticket, at that price in cents.
    pub async fn keep_ticket(
        &self,
        (user, key): (UserId, IdempotencyKeyHash),
        ticket: TicketId,
        price_cents: Option<u64>,
    ) -> Result<(), StoreError> {
        let price = price_cents.map(|price| format!(" {price}")).unwrap_or_default();
        let mut set = redis::cmd("SET");
        set.arg(name(user, key)).arg(format!("{ticket}{price}")).arg("EX").arg(RETENTION.as_secs());
        Ok(set.exec_async(&mut self.connection.clone()).await?)
    }
}

fn name(user: UserId, key: IdempotencyKeyHash) -> String {
    format!("request:{user}:{key}")
}
