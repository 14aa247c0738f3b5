//! Which ticket was given for a request with an `Idempotency-Key`. One key of Redis each, for 24
//! hours; it stands alone, because the same key may come with another voucher.

use std::time::Duration;

use super::{SaleStream, StoreError};
use crate::domain::{IdempotencyKeyHash, TicketId, UserId};

/// For so long it is kept.
const RETENTION: Duration = Duration::from_hours(24);

impl SaleStream {
    /// The ticket that the user's earlier request with that key was given.
    pub async fn ticket_of(
        &self,
        user: UserId,
        key: IdempotencyKeyHash,
    ) -> Result<Option<TicketId>, StoreError> {
        let mut get = redis::cmd("GET");
        get.arg(name(user, key));
        let text: Option<String> = get.query_async(&mut self.connection.clone()).await?;
        let Some(text) = text else { return Ok(None) };
        let unexpected = |_| StoreError::Unexpected(format!("a request's ticket: {text}"));
        text.parse().map(Some).map_err(unexpected)
    }

    /// The user's request with that key was given this ticket.
    pub async fn keep_ticket(
        &self,
        user: UserId,
        key: IdempotencyKeyHash,
        ticket: TicketId,
    ) -> Result<(), StoreError> {
        let mut set = redis::cmd("SET");
        set.arg(name(user, key)).arg(ticket.to_string()).arg("EX").arg(RETENTION.as_secs());
        Ok(set.exec_async(&mut self.connection.clone()).await?)
    }
}

fn name(user: UserId, key: IdempotencyKeyHash) -> String {
    format!("request:{user}:{key}")
}
