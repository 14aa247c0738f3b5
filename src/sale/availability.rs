//! Whether a unit can be bought, for clients that wait for one.

use std::time::Instant;

use super::{Refusal, Sale};
use crate::domain::{Status, VoucherId};

impl Sale {
    /// Whether the voucher is on sale now and a unit is left, as the next purchase would find it.
    /// It is answered from memory, and in the queued mode from the queue while the database has
    /// units.
    pub async fn is_available(&self, voucher: VoucherId) -> Result<bool, Refusal> {
        let terms = self.read_terms(voucher, None).await?;
        if terms.status == Status::Draft {
            return Err(Refusal::VoucherNotFound);
        }
        if terms.was_sold_out() || terms.closed_at(Instant::now()).is_some() {
            return Ok(false);
        }
        match &self.queue {
            Some(queue) => Ok(queue.has_units(voucher).await?),
            None => Ok(true),
        }
    }
}
