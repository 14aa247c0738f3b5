//! What a purchase must know of a voucher, and what time it is.
//!
//! The clock of the sale is the database's: one for all replicas. A replica reads voucher and
//! clock together, keeps both for at most a second, and counts on from there by its own monotonic
//! clock. So the window opens everywhere within a round trip of the same moment, however wrong a
//! replica's wall clock is, and a change by an admin counts everywhere within a second. The second
//! begins before the read: a slow answer is as old as its question.
//!
//! Of many that ask at once one reads. A read that was begun before the voucher was changed here
//! answers those who have asked for it, and nobody later. A voucher without a unit left is read
//! with its buyers, for those who come too late: see [`super::late`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use time::OffsetDateTime;

use super::late::{Buyers, Late};
use super::{Path, Refusal};
use crate::domain::{Phase, Status, UserId, Voucher, VoucherId, Window};
use crate::store::{StoreError, Vouchers};

/// How long a voucher is believed.
const LIFE: Duration = Duration::from_secs(1);
/// The same where a queue stands between it and its buyers, which has to be refilled as well before
/// units that came back are sold.
const QUEUED_LIFE: Duration = Duration::from_millis(500);
/// Longer than a purchase takes that was let in at the last moment.
const LAST_PURCHASE: time::Duration = time::Duration::minutes(1);
/// How many vouchers are kept.
const MOST: u64 = 1024;

/// The terms on which a voucher is sold.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) title: String,
    pub(super) price_cents: u64,
    pub(super) window: Window,
    pub(super) status: Status,
    server_time: OffsetDateTime,
    read_at: Instant,
    /// Everybody who had bought, if nobody can buy now and that is kept.
    buyers: Option<Arc<Buyers>>,
    /// Whether no unit was left.
    sold_out: bool,
    /// Until when that may be said.
    until: Option<Instant>,
}

impl Terms {
    /// The same at that price, which may be an earlier one.
    pub(super) fn at_price(self: Arc<Self>, price_cents: u64) -> Arc<Self> {
        if self.price_cents == price_cents {
            return self;
        }
        Arc::new(Self { price_cents, ..(*self).clone() })
    }

    /// The database's time, in whole milliseconds.
    pub(super) fn now(&self) -> OffsetDateTime {
        self.time_at(Instant::now())
    }

    fn time_at(&self, now: Instant) -> OffsetDateTime {
        let elapsed = now.saturating_duration_since(self.read_at);
        self.server_time + Duration::from_millis(elapsed.as_millis().try_into().unwrap_or(0))
    }

    /// Why nobody can buy at that moment, whatever is left.
    pub(super) fn closed_at(&self, now: Instant) -> Option<Refusal> {
        match (self.status, self.window.phase(self.time_at(now))) {
            (Status::Draft, _) => Some(Refusal::NotOnSale),
            (_, Phase::NotStarted) => Some(Refusal::NotStarted(self.window.starts_at)),
            (_, Phase::Ended) => Some(Refusal::Ended(self.window.ends_at)),
            (Status::OnSale, Phase::Open) => None,
        }
    }

    /// Whether no unit was left less than a second before that moment.
    pub(super) fn is_sold_out_at(&self, now: Instant) -> bool {
        self.sold_out && self.until.is_none_or(|until| now < until)
    }

    /// Everybody who had bought, if nobody could buy any more and that is kept.
    pub(super) fn buyers(&self) -> Option<&Buyers> {
        self.buyers.as_deref()
    }

    /// Whether it is certain that this user has not bought.
    pub(super) fn has_no_order(&self, user: UserId) -> bool {
        self.buyers().is_some_and(|buyers| buyers.order_of(user).is_none())
    }
}

/// Whether no order comes any more, so that those that are there are all: no unit is left, the sale
/// has not begun, or it has been over for longer than any purchase takes. What takes the last unit
/// is committed together with that.
fn is_closed(voucher: &Voucher, now: OffsetDateTime) -> bool {
    let over = voucher.window.ends_at.saturating_add(LAST_PURCHASE);
    voucher.stock <= 0 || voucher.window.phase(now) == Phase::NotStarted || now > over
}

/// What was read, or why it could not be, and until when it is believed.
#[derive(Clone)]
struct Known {
    terms: Result<Option<Arc<Terms>>, Refusal>,
    until: Option<Instant>,
}

impl Known {
    fn is_believed_at(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn is_of_units_left(&self) -> bool {
        matches!(&self.terms, Ok(Some(terms)) if !terms.sold_out)
    }
}

/// Said to be for few, it is not divided into parts, some of which would be full before others.
fn known() -> Cache<VoucherId, Known> {
    Cache::with_weighter(1, MOST, UnitWeighter)
}

/// What is too old goes with the next read, and its buyers with it: nobody may ask for it again.
fn drop_what_is_old(known: &Cache<VoucherId, Known>) {
    let now = Instant::now();
    known.retain(|_, known| known.is_believed_at(now));
}

/// What is remembered of sales that are sold out.
#[derive(Clone)]
pub(super) struct Remembering {
    pub(super) late: Late,
    /// Whether "sold out" is never taken back (a planted bug of the laboratory).
    pub(super) for_ever: bool,
}

#[derive(Clone)]
pub(super) struct Catalogue {
    vouchers: Vouchers,
    life: Duration,
    remembering: Option<Remembering>,
    known: Arc<Cache<VoucherId, Known>>,
}

impl Catalogue {
    /// Vouchers; those without a unit left with their buyers, if they are to be remembered.
    pub(super) fn new(vouchers: Vouchers, path: Path, remembering: Option<Remembering>) -> Self {
        let life = match path {
            Path::Direct => LIFE,
            Path::Queued => QUEUED_LIFE,
        };
        Self { vouchers, life, remembering, known: Arc::new(known()) }
    }

    /// The terms; of many that ask at once, one reads. `None` if there is no such voucher.
    pub(super) async fn terms(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, Refusal> {
        if let Some(terms) = self.cached(voucher, Instant::now()) {
            return terms;
        }
        // In a task of its own, which goes on without whoever began it: a reader that went away
        // would have the others begin anew.
        let catalogue = self.clone();
        let reading = tokio::spawn(async move { catalogue.read_once(voucher).await });
        reading.await.unwrap_or(Err(Refusal::Defect))
    }

    /// The terms as they are believed at that moment, without a read.
    pub(super) fn cached(
        &self,
        voucher: VoucherId,
        now: Instant,
    ) -> Option<Result<Option<Arc<Terms>>, Refusal>> {
        self.known.get(&voucher).filter(|known| known.is_believed_at(now)).map(|known| known.terms)
    }

    async fn read_once(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, Refusal> {
        let now = Instant::now();
        self.known.remove_if(&voucher, |known| !known.is_believed_at(now));
        match self.known.get_value_or_guard_async(&voucher).await {
            Ok(known) => known.terms,
            Err(turn) => {
                let known = self.read(voucher).await;
                drop_what_is_old(&self.known);
                // Those who wait are told anyway, but what was forgotten meanwhile is not kept.
                let _forgotten = turn.insert(known.clone());
                known.terms
            }
        }
    }

    /// The voucher is not what it was. What is being read now may be older than that.
    pub(super) fn forget(&self, voucher: VoucherId) {
        if !self.remembering.as_ref().is_some_and(|one| one.for_ever) {
            self.known.remove(&voucher);
        }
    }

    /// A purchase has found no unit left: who comes next looks, unless somebody has looked already.
    pub(super) fn look_again(&self, voucher: VoucherId) {
        if self.remembering.is_some() {
            self.known.remove_if(&voucher, Known::is_of_units_left);
        }
    }

    /// An error is for those who have asked by now: whoever comes later tries again.
    async fn read(&self, voucher: VoucherId) -> Known {
        let asked = Instant::now();
        self.try_to_read(voucher)
            .await
            .unwrap_or_else(|error| Known { terms: Err(unread(&error)), until: Some(asked) })
    }

    async fn try_to_read(&self, voucher: VoucherId) -> Result<Known, StoreError> {
        let until = Instant::now() + self.life;
        let found = self.vouchers.find(voucher).await?;
        let read_at = Instant::now();
        let Some((voucher, server_time)) = found else {
            return Ok(Known { terms: Ok(None), until: Some(until) });
        };
        let buyers = match &self.remembering {
            Some(remembering) if is_closed(&voucher, server_time) => {
                remembering.late.buyers(voucher.id).await?
            }
            _ => None,
        };
        let sold_out = voucher.stock <= 0;
        let for_ever = self.remembering.as_ref().is_some_and(|one| one.for_ever);
        let until = (!for_ever || !sold_out).then_some(until);
        let terms = Terms {
            title: voucher.title,
            price_cents: voucher.price_cents,
            window: voucher.window,
            status: voucher.status,
            server_time,
            read_at,
            buyers,
            sold_out,
            until,
        };
        Ok(Known { terms: Ok(Some(Arc::new(terms))), until })
    }
}

/// Why somebody is refused because a voucher could not be read.
fn unread(error: &StoreError) -> Refusal {
    match error {
        StoreError::Busy => Refusal::Overloaded,
        StoreError::NoAnswer { server }
        | StoreError::Unavailable { server, .. }
        | StoreError::AccessDenied { server, .. } => Refusal::Unavailable(server),
        error => {
            tracing::error!(%error, "a voucher could not be read");
            Refusal::Defect
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_vouchers_as_may_be_are_known_at_once_and_no_more() {
        let kept = known();
        let one = Known { terms: Ok(None), until: None };
        (1..=MOST).for_each(|voucher| kept.insert(VoucherId(voucher), one.clone()));
        assert_eq!(kept.len() as u64, MOST);
        kept.insert(VoucherId(MOST + 1), one);
        assert_eq!(kept.len() as u64, MOST);
    }

    #[test]
    fn what_is_too_old_goes_with_whatever_is_read_next() {
        let kept = known();
        let one = |until| Known { terms: Ok(None), until };
        let now = Instant::now();
        let others = [Some(now), Some(now + LIFE), None];
        for (voucher, until) in (1..).zip(others) {
            kept.insert(VoucherId(voucher), one(until));
        }
        drop_what_is_old(&kept);
        let left = [1, 2, 3].map(|voucher| kept.get(&VoucherId(voucher)).is_some());
        assert_eq!(left, [false, true, true]);
    }
}
