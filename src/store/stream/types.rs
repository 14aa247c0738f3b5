//! What goes into a queue, and what comes out of it.

use std::time::Duration;

use time::OffsetDateTime;

use crate::domain::{IdempotencyKeyHash, TicketId, TicketState, UserId, Window};

/// What an admission is about.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest {
    /// The buyer.
    pub user: UserId,
    /// The ticket that is given if it is admitted.
    pub ticket: TicketId,
    /// What a unit costs, in cents.
    pub price_cents: u64,
    /// When it is sold.
    pub window: Window,
    /// The key of the request, if it has one.
    pub key: Option<IdempotencyKeyHash>,
}

/// How an admission ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The ticket is in the stream.
    Admitted,
    /// The user's earlier ticket is under way.
    Ticket(TicketId),
    /// The user's earlier ticket ended so.
    Ended(TicketState),
    /// All units are admitted.
    SoldOut,
    /// Too many are under way.
    Full,
    /// The sale has not begun, by the database's clock.
    NotStarted,
    /// The sale is over, by the same.
    Over,
    /// Redis knows nothing of the sale.
    Unopened,
}

/// An entry of the stream.
#[derive(Debug, Clone)]
pub struct StreamEntry {
    /// Its id in the stream.
    pub id: String,
    /// What it says, if that can be read.
    pub order: Result<QueuedOrder, Unreadable>,
}

/// An entry that says nothing that makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its fields as they are, or the beginning of them.
    pub text: String,
    /// The ticket of this voucher and the user that it names, if it does.
    pub names: Option<(TicketId, UserId)>,
}

/// What an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedOrder {
    /// The ticket.
    pub ticket: TicketId,
    /// The buyer.
    pub user: UserId,
    /// The epoch in which it was admitted.
    pub epoch: u64,
    /// The price at admission, in cents.
    pub price_cents: u64,
    /// When it was admitted, by the database's clock.
    pub at: OffsetDateTime,
    /// The key of the request, if it had one: written with the order.
    pub key: Option<IdempotencyKeyHash>,
}

/// Which entries are read.
#[derive(Debug, Clone, Copy)]
pub enum ReadMode<'a> {
    /// New entries, delivered to no consumer.
    New,
    /// Entries after that id that this consumer had read before a restart.
    Own(&'a str),
    /// Entries of any consumer without a heartbeat for that long.
    Idle(Duration),
}

/// The end of an entry.
#[derive(Debug, Clone)]
pub struct EntryEnd {
    /// The entry.
    pub id: String,
    /// What it said.
    pub order: QueuedOrder,
    /// How its ticket ended.
    pub state: TicketState,
}

/// An opening of a voucher's queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueOpening {
    /// Its number.
    pub epoch: u64,
    /// What the database had then.
    pub units: Units,
    /// When that was read, by the database's clock.
    pub read_at: OffsetDateTime,
}

/// What the database has of a voucher, all of one moment.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    /// Units left.
    pub left: i64,
    /// Units that ever came into the stock: granted, or of orders that were cancelled.
    pub came: i64,
}

/// How far a sale has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The opening.
    pub epoch: u64,
    /// How many were admitted since.
    pub seq: u64,
    /// Entries that are not acknowledged.
    pub under_way: u64,
}

impl Progress {
    /// How many tickets have ended since the opening.
    pub fn ended(&self) -> u64 {
        self.seq.saturating_sub(self.under_way)
    }
}

/// The place of a pending ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePlace {
    /// It was admitted as the nth since the opening.
    pub number: u64,
    /// How far the sale has come.
    pub progress: Progress,
}

impl QueuePlace {
    /// How many tickets are before it, as if tickets ended in the order of their admission.
    ///
    /// Orders are written many at a time. A later ticket that has ended counts as an earlier one,
    /// so the number may be too small. It is never larger than that of the other pending tickets.
    pub fn ahead(&self) -> u64 {
        let earlier = self.number.saturating_sub(1);
        let others = self.progress.under_way.saturating_sub(1);
        earlier.saturating_sub(self.progress.ended()).min(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ahead_is_the_earlier_tickets_that_have_not_ended_and_never_more_than_the_pending_ones() {
        for (number, seq, under_way, ahead) in [
            (1, 1, 1, 0),
            (5, 5, 5, 4),
            (5, 9, 9, 4),
            (5, 9, 6, 1),
            // Five later ones have ended before it.
            (5, 10, 5, 0),
            // An entry that was not admitted is in the stream.
            (2, 2, 3, 1),
            (7, 7, 2, 1),
            (1, 1, 0, 0),
        ] {
            let place = QueuePlace { number, progress: Progress { epoch: 1, seq, under_way } };
            assert_eq!(place.ahead(), ahead, "{place:?}");
        }
    }
}
