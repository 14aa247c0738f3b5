//! Rejections that are certain before the purchase begins, from memory and without waiting.
//!
//! They are those of [`Sale::purchase`] and [`Sale::request`], by the same functions and counted in
//! the same way. What memory cannot tell at once is left to these two: a voucher that has to be
//! read, buyers that are not kept, a key whose earlier request may have bought.

use std::time::Instant;

use super::late::Turned;
use super::outcome::{Outcome, Refusal};
use super::queued::Requested;
use super::{Sale, count};
use crate::domain::{RequestKey, UserId, VoucherId};

impl Sale {
    /// Why that buyer cannot buy the voucher, if that is known without a question to a server. The
    /// buyer, and the request's key, are asked for only if the voucher is sold out or not on sale.
    pub fn reject_early(
        &self,
        voucher: VoucherId,
        buyer: impl FnOnce() -> Option<(UserId, Option<RequestKey>)>,
    ) -> Option<Refusal> {
        let now = Instant::now();
        if self.health.down().next().is_some() {
            return None;
        }
        let terms = self.catalogue.cached(voucher, now)?.ok()??;
        let closed = terms.closed_at(now);
        if closed.is_none() && !terms.is_sold_out_at(now) {
            return None;
        }
        let (user, key) = buyer()?;
        let key = self.kept(key);
        let turned = match (closed, &self.late) {
            (Some(refusal), _) => Turned { refusal, has_no_order: terms.has_no_order(user) },
            (None, Some(late)) => late.recall((user, voucher), key, (&terms, now))?,
            (None, None) => return None,
        };
        if key.is_some_and(|key| turned.may_repeat() || self.twins.has((user, key))) {
            return None;
        }
        match &self.queue {
            Some(_) => Requested::Refused(turned.refusal).count(now),
            None => drop(count(Outcome::Refused(turned.refusal), now)),
        }
        Some(turned.refusal)
    }
}
