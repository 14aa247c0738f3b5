//! Entries that nobody can read: written by another program, or by hand.
//!
//! What such an entry says is kept in the database, where `seckill dead-letters list` shows it, and
//! only then it is taken out of the stream. If it names a ticket, that ends as `dead`, so that it
//! is not pending for ever, and its unit and its user's mark are given back. If it names none, the
//! unit that it may stand for comes back when the queue's stock is next compared with the
//! database's.

use time::OffsetDateTime;

use super::Desk;
use crate::domain::{TicketState, VoucherId};
use crate::store::{EntryEnd, QueuedOrder, StoreError, Unreadable};

impl Desk {
    /// Keeps what the entry says, and takes it out; its end, if it names a ticket. It comes again
    /// if a server is away.
    pub(super) async fn put_aside(
        &self,
        voucher: VoucherId,
        (id, entry): (String, Unreadable),
    ) -> Option<EntryEnd> {
        tracing::error!(%voucher, id, "an entry that cannot be read is put aside");
        metrics::counter!("seckill_queue_unreadable_total").increment(1);
        let ended = self.try_to_put_aside(voucher, (id, entry)).await;
        ended.unwrap_or_else(|error| {
            tracing::warn!(%error, %voucher, "and comes again");
            None
        })
    }

    async fn try_to_put_aside(
        &self,
        voucher: VoucherId,
        (id, entry): (String, Unreadable),
    ) -> Result<Option<EntryEnd>, StoreError> {
        self.tickets.put_aside((voucher, &id), &entry).await?;
        let Some((ticket, user)) = entry.names else {
            self.stream.drop_entries(voucher, &[id]).await?;
            return Ok(None);
        };
        let state = self.tickets.end(ticket, user, TicketState::Dead).await?;
        // Whatever stands in a stream is of its epoch: an opening begins with an empty one.
        let Some(seen) = self.stream.progress(voucher).await? else { return Ok(None) };
        let at = OffsetDateTime::UNIX_EPOCH;
        let order = QueuedOrder { ticket, user, epoch: seen.epoch, price_cents: 0, at, key: None };
        Ok(Some(EntryEnd { id, order, state }))
    }
}
