//! Vouchers as purchases see them, and the time of the sale.
//!
//! The clock of the sale is the database's: one for all replicas. A replica reads voucher and clock
//! together, caches both for at most a second, and advances the time by its own monotonic clock. So
//! the window opens on all replicas within a round trip, however wrong their wall clocks are. A
//! change by an admin counts everywhere within a second. The second begins before the read.
//!
//! Of concurrent callers one reads. A read that began before the voucher was invalidated answers
//! its callers and is not cached. A voucher without a unit left is read with its buyers, for
//! [`super::sold_out_cache`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use time::OffsetDateTime;
use tracing::Instrument;

use super::sold_out_cache::{Buyers, SoldOutCache};
use super::{PurchaseMode, Refusal};
use crate::domain::{Phase, Status, UserId, Voucher, VoucherId, Window};
use crate::store::{StoreError, Vouchers};

/// How long a voucher is cached.
const TTL: Duration = Duration::from_secs(1);
/// How long a voucher is cached in the queued mode, where a refill of the queue adds to the delay.
const QUEUED_TTL: Duration = Duration::from_millis(500);
/// Terms that are younger are not read again for a request that states another price.
const PRICE_REREAD_AGE: Duration = Duration::from_millis(50);
/// Longer than any purchase takes that was admitted before the end of the sale.
const MAX_PURCHASE_TIME: time::Duration = time::Duration::minutes(1);
/// The most cached vouchers.
const MAX_VOUCHERS: u64 = 1024;

/// The terms on which a voucher is sold.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) title: String,
    pub(super) price_cents: u64,
    pub(super) window: Window,
    pub(super) status: Status,
    /// Buckets that the stock is split into; 0 if none has a unit.
    pub(super) buckets: u32,
    server_time: OffsetDateTime,
    read_at: Instant,
    /// All buyers, if the voucher was closed and they fit into the cache.
    buyers: Option<Arc<Buyers>>,
    /// Whether no unit was left.
    sold_out: bool,
    /// Until when `sold_out` may be answered.
    until: Option<Instant>,
}

impl Terms {
    /// Terms at another price, which may be an earlier one.
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

    /// Why the voucher cannot be bought at that moment, whatever is left.
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

    /// Whether no unit was left when the voucher was read.
    pub(super) fn was_sold_out(&self) -> bool {
        self.sold_out
    }

    /// All buyers, if the voucher was closed and they fit into the cache.
    pub(super) fn buyers(&self) -> Option<&Buyers> {
        self.buyers.as_deref()
    }

    /// Whether it is certain that this user has not bought.
    pub(super) fn has_no_order(&self, user: UserId) -> bool {
        self.buyers().is_some_and(|buyers| buyers.order_of(user).is_none())
    }
}

/// Whether no order can be added: no unit is left, the sale has not begun, or it is long over.
///
/// The order that takes the last unit is committed with it, so the orders that exist are all.
fn is_closed(voucher: &Voucher, now: OffsetDateTime) -> bool {
    let over = voucher.window.ends_at.saturating_add(MAX_PURCHASE_TIME);
    voucher.stock <= 0 || voucher.window.phase(now) == Phase::NotStarted || now > over
}

/// The result of a read, and until when it is fresh.
#[derive(Clone)]
struct CacheEntry {
    terms: Result<Option<Arc<Terms>>, Refusal>,
    until: Option<Instant>,
}

impl CacheEntry {
    fn is_fresh_at(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    fn has(&self, terms: &Arc<Terms>) -> bool {
        matches!(&self.terms, Ok(Some(cached)) if Arc::ptr_eq(cached, terms))
    }

    fn has_units_left(&self) -> bool {
        matches!(&self.terms, Ok(Some(terms)) if !terms.sold_out)
    }
}

/// A cache in one shard: of several, some would be full before others.
fn new_cache() -> Cache<VoucherId, CacheEntry> {
    Cache::with_weighter(1, MAX_VOUCHERS, UnitWeighter)
}

/// Removes expired vouchers and their buyers, also those that are never asked for again.
fn remove_expired(entries: &Cache<VoucherId, CacheEntry>) {
    let now = Instant::now();
    entries.retain(|_, entry| entry.is_fresh_at(now));
}

/// How sold out vouchers are cached.
#[derive(Clone)]
pub(super) struct SoldOutPolicy {
    pub(super) cache: SoldOutCache,
    /// Whether "sold out" is never taken back (an injected bug of the laboratory).
    pub(super) never_expires: bool,
}

/// The cache of vouchers. Cheap to clone.
#[derive(Clone)]
pub(super) struct VoucherCache {
    vouchers: Vouchers,
    ttl: Duration,
    sold_out_policy: Option<SoldOutPolicy>,
    entries: Arc<Cache<VoucherId, CacheEntry>>,
}

impl VoucherCache {
    /// A cache of vouchers; of those without a unit left also the buyers, if there is a policy.
    pub(super) fn new(
        vouchers: Vouchers,
        mode: PurchaseMode,
        sold_out_policy: Option<SoldOutPolicy>,
    ) -> Self {
        let ttl = match mode {
            PurchaseMode::Direct => TTL,
            PurchaseMode::Queued => QUEUED_TTL,
        };
        Self { vouchers, ttl, sold_out_policy, entries: Arc::new(new_cache()) }
    }

    /// The terms of a voucher; `None` if there is no such voucher. Concurrent callers share a read.
    pub(super) async fn terms(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, Refusal> {
        if let Some(terms) = self.cached(voucher, Instant::now()) {
            return terms;
        }
        // In a task of its own: if the reader were dropped, the other callers would start over.
        let cache = self.clone();
        let reading = async move { cache.read_once(voucher).await };
        let reading = tokio::spawn(reading.in_current_span());
        reading.await.unwrap_or(Err(Refusal::Defect))
    }

    /// The cached terms, if they are fresh at that moment; no read.
    pub(super) fn cached(
        &self,
        voucher: VoucherId,
        now: Instant,
    ) -> Option<Result<Option<Arc<Terms>>, Refusal>> {
        self.entries.get(&voucher).filter(|entry| entry.is_fresh_at(now)).map(|entry| entry.terms)
    }

    async fn read_once(&self, voucher: VoucherId) -> Result<Option<Arc<Terms>>, Refusal> {
        let now = Instant::now();
        self.entries.remove_if(&voucher, |entry| !entry.is_fresh_at(now));
        match self.entries.get_value_or_guard_async(&voucher).await {
            Ok(entry) => entry.terms,
            Err(placeholder) => {
                let entry = self.read(voucher).await;
                remove_expired(&self.entries);
                // If the voucher was invalidated meanwhile, waiting callers get it uncached.
                let _invalidated = placeholder.insert(entry.clone());
                entry.terms
            }
        }
    }

    /// Drops a changed voucher. A read in flight may be older than the change and is not cached.
    pub(super) fn invalidate(&self, voucher: VoucherId) {
        if !self.sold_out_policy.as_ref().is_some_and(|policy| policy.never_expires) {
            self.entries.remove(&voucher);
        }
    }

    /// Drops those terms, unless they were read just now or are no longer cached.
    pub(super) fn expire(&self, voucher: VoucherId, terms: &Arc<Terms>) {
        if terms.read_at.elapsed() >= PRICE_REREAD_AGE {
            self.entries.remove_if(&voucher, |entry| entry.has(terms));
        }
    }

    /// Drops a voucher after a purchase found no unit left, unless that was read already.
    pub(super) fn invalidate_if_in_stock(&self, voucher: VoucherId) {
        if self.sold_out_policy.is_some() {
            self.entries.remove_if(&voucher, CacheEntry::has_units_left);
        }
    }

    /// Reads a voucher. An error is for the callers that wait now; the next caller reads again.
    async fn read(&self, voucher: VoucherId) -> CacheEntry {
        let started = Instant::now();
        self.try_to_read(voucher).await.unwrap_or_else(|error| CacheEntry {
            terms: Err(refusal_of(&error)),
            until: Some(started),
        })
    }

    async fn try_to_read(&self, voucher: VoucherId) -> Result<CacheEntry, StoreError> {
        let until = Instant::now() + self.ttl;
        let found = self.vouchers.find(voucher).await?;
        let read_at = Instant::now();
        let Some((voucher, server_time)) = found else {
            return Ok(CacheEntry { terms: Ok(None), until: Some(until) });
        };
        let buyers = match &self.sold_out_policy {
            Some(policy) if is_closed(&voucher, server_time) => {
                policy.cache.buyers(voucher.id).await?
            }
            _ => None,
        };
        let sold_out = voucher.stock <= 0;
        let never_expires =
            self.sold_out_policy.as_ref().is_some_and(|policy| policy.never_expires);
        let until = (!never_expires || !sold_out).then_some(until);
        let terms = Terms {
            title: voucher.title,
            price_cents: voucher.price_cents,
            window: voucher.window,
            status: voucher.status,
            buckets: voucher.buckets,
            server_time,
            read_at,
            buyers,
            sold_out,
            until,
        };
        Ok(CacheEntry { terms: Ok(Some(Arc::new(terms))), until })
    }
}

/// The refusal of a purchase whose voucher could not be read.
fn refusal_of(error: &StoreError) -> Refusal {
    match error {
        StoreError::PoolTimedOut => Refusal::Overloaded,
        StoreError::TimedOut { server }
        | StoreError::Unavailable { server, .. }
        | StoreError::AccessDenied { server, .. } => Refusal::Unavailable(server),
        error => {
            tracing::error!(%error, "voucher not read; purchase refused");
            Refusal::Defect
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_holds_exactly_its_maximum() {
        let cache = new_cache();
        let one = CacheEntry { terms: Ok(None), until: None };
        (1..=MAX_VOUCHERS).for_each(|voucher| cache.insert(VoucherId(voucher), one.clone()));
        assert_eq!(cache.len() as u64, MAX_VOUCHERS);
        cache.insert(VoucherId(MAX_VOUCHERS + 1), one);
        assert_eq!(cache.len() as u64, MAX_VOUCHERS);
    }

    #[test]
    fn remove_expired_keeps_fresh_entries_only() {
        let cache = new_cache();
        let one = |until| CacheEntry { terms: Ok(None), until };
        let now = Instant::now();
        let others = [Some(now), Some(now + TTL), None];
        for (voucher, until) in (1..).zip(others) {
            cache.insert(VoucherId(voucher), one(until));
        }
        remove_expired(&cache);
        let left = [1, 2, 3].map(|voucher| cache.get(&VoucherId(voucher)).is_some());
        assert_eq!(left, [false, true, true]);
    }
}
