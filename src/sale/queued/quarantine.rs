//! Quarantine of entries that cannot be read: written by another program, or by hand.
//!
//! The fields of such an entry are stored in the database, where `seckill dead-letters list` shows
//! them; then the entry is taken out of the stream. If it names a ticket, that ends as `dead`, and
//! its unit and its user's mark are given back. If it names none, its unit comes back when the
//! queue's stock is next compared with the database's.

use time::OffsetDateTime;

use super::QueueContext;
use crate::domain::{TicketState, VoucherId};
use crate::store::{EntryEnd, QueuedOrder, StoreError, Unreadable};

impl QueueContext {
    /// Stores the entry's fields and takes it out of the stream; its end, if it names a ticket. It
    /// is redelivered if a server is down.
    pub(super) async fn quarantine(
        &self,
        voucher: VoucherId,
        id: String,
        entry: Unreadable,
    ) -> Option<EntryEnd> {
        tracing::error!(%voucher, id, "unreadable entry; moving it to the quarantine");
        metrics::counter!("seckill_queue_unreadable_total").increment(1);
        let ended = self.try_to_quarantine(voucher, id, entry).await;
        ended.unwrap_or_else(|error| {
            tracing::warn!(%error, %voucher, "unreadable entry not moved; it is redelivered");
            None
        })
    }

    async fn try_to_quarantine(
        &self,
        voucher: VoucherId,
        id: String,
        entry: Unreadable,
    ) -> Result<Option<EntryEnd>, StoreError> {
        self.tickets.quarantine(voucher, &id, &entry).await?;
        let Some((ticket, user)) = entry.names else {
            self.stream.drop_entries(voucher, &[id]).await?;
            return Ok(None);
        };
        let state = self.tickets.end(ticket, user, TicketState::Dead).await?;
        // All entries of a stream are of its epoch: opening a queue empties it.
        let Some(seen) = self.stream.progress(voucher).await? else { return Ok(None) };
        let at = OffsetDateTime::UNIX_EPOCH;
        let order = QueuedOrder { ticket, user, epoch: seen.epoch, price_cents: 0, at, key: None };
        Ok(Some(EntryEnd { id, order, state }))
    }
}
