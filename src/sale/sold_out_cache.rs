//! Rejections of late purchases from memory: no lock, no transaction, no round trip.
//!
//! Terms that are read while no unit is left carry the voucher's buyers ([`Buyers`]). Until they
//! are one second old, counted from before the read, they answer `sold_out`, and `already_ordered`
//! to buyers. A writer that finds no unit left has the terms read again at once. This replica's own
//! orders stay longer ([`SoldOutCache`]): an order is for ever, a cancelled one as well.
//!
//! - Every rejection is about something committed: the stock is read by itself, and an order whose
//!   transaction may still be rolled back is in no committed stock.
//! - "Sold out" is answered only to users who had no order when the terms were read. A buyer whose
//!   answer was lost gets it for a repetition only if a unit returned, and was bought at another
//!   replica, since.
//! - A request that may repeat the one that bought, by its `Idempotency-Key`, gets that one's
//!   answer.
//!
//! A unit that came back less than a second ago is not seen. Of a voucher with more than
//! [`MAX_BUYERS_OF_VOUCHER`] orders the buyers are not cached, and each answer costs a read.
//! Test: `tests/service/late.rs`.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter, Weighter};

use super::Refusal;
use super::request::{EarlyRejection, PurchaseRequest};
use super::voucher_cache::Terms;
use crate::domain::{IdempotencyKeyHash, Order, OrderId, UserId, VoucherId};
use crate::store::{Orders, StoreError};

/// The most cached buyers of a voucher, at 16 bytes.
const MAX_BUYERS_OF_VOUCHER: u32 = 65_536;
/// The most cached buyers of all vouchers together.
const MAX_CACHED_BUYERS: u64 = 262_144;
/// The most cached orders of this replica, nearly the last ones, at about 80 bytes.
const MAX_CACHED_ORDERS: usize = 16_384;

/// The users who have bought a voucher, and their orders.
pub(super) struct Buyers(Box<[(UserId, OrderId)]>);

impl Buyers {
    fn of(mut orders: Vec<(UserId, OrderId)>) -> Self {
        orders.sort_unstable();
        Self(orders.into())
    }

    pub(super) fn order_of(&self, user: UserId) -> Option<OrderId> {
        let at = self.0.binary_search_by_key(&user, |(user, _)| *user).ok()?;
        self.0.get(at).map(|(_, order)| *order)
    }
}

/// An order of this replica, and the key of the request that made it.
#[derive(Clone, Copy)]
struct CachedOrder {
    order: OrderId,
    key: Option<IdempotencyKeyHash>,
}

/// Weighs a voucher's buyers by their number.
#[derive(Clone)]
struct BuyerCount;

impl Weighter<VoucherId, Arc<Buyers>> for BuyerCount {
    fn weight(&self, _: &VoucherId, buyers: &Arc<Buyers>) -> u64 {
        buyers.0.len() as u64 + 1
    }
}

/// Buyers of sold out vouchers, and orders of this replica. Cheap to clone.
#[derive(Clone)]
pub(super) struct SoldOutCache {
    orders: Orders,
    buyers: Arc<Cache<VoucherId, Arc<Buyers>, BuyerCount>>,
    own_orders: Arc<Cache<(UserId, VoucherId), CachedOrder>>,
}

/// A cache of buyers in one shard: no shard of many could hold the buyers of a large voucher.
fn buyers_cache() -> Cache<VoucherId, Arc<Buyers>, BuyerCount> {
    Cache::with_weighter(1, MAX_CACHED_BUYERS, BuyerCount)
}

/// A cache of the last `capacity` entries, in shards; each shard evicts its oldest.
///
/// But for one entry of each shard, nothing stays longer for being older or for being read.
fn recent_cache<K: Eq + Hash, V: Clone>(capacity: usize) -> Cache<K, V> {
    let options = OptionsBuilder::new()
        .estimated_items_capacity(capacity)
        .weight_capacity(capacity as u64)
        .hot_allocation(0.0)
        .ghost_allocation(0.0)
        .build()
        .expect("both capacities are given");
    let (hashes, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
    Cache::with_options(options, UnitWeighter, hashes, lifecycle)
}

impl SoldOutCache {
    pub(super) fn new(orders: Orders) -> Self {
        Self {
            orders,
            buyers: Arc::new(buyers_cache()),
            own_orders: Arc::new(recent_cache(MAX_CACHED_ORDERS)),
        }
    }

    /// Why that user cannot buy, if that is certain.
    pub(super) async fn reject(
        &self,
        request: &PurchaseRequest,
        terms: &Terms,
    ) -> Option<EarlyRejection> {
        let now = Instant::now();
        match self.reject_from_memory(request, terms, now) {
            None if terms.is_sold_out_at(now) => {
                // On an error the purchase continues, meets it again and reports it.
                let order = self.orders.of_pair(request.user, request.voucher).await.ok()?;
                Some(EarlyRejection::sold_out(order))
            }
            rejection => rejection,
        }
    }

    /// Why that user cannot buy at that moment, from memory alone; `None` if only the database
    /// knows.
    pub(super) fn reject_from_memory(
        &self,
        request: &PurchaseRequest,
        terms: &Terms,
        now: Instant,
    ) -> Option<EarlyRejection> {
        let &PurchaseRequest { user, voucher, key, .. } = request;
        if let Some(CachedOrder { order, key: made_by }) = self.own_orders.get(&(user, voucher)) {
            let refusal = Refusal::AlreadyOrdered(Some(order));
            return Some(EarlyRejection { refusal, has_no_order: key != made_by });
        }
        let buyers = terms.buyers().filter(|_| terms.is_sold_out_at(now))?;
        Some(EarlyRejection::sold_out(buyers.order_of(user)))
    }

    /// Caches a committed order, and the key of the request that made it.
    pub(super) fn record_order(&self, order: &Order, key: Option<IdempotencyKeyHash>) {
        let pair = (order.user_id, order.voucher_id);
        self.own_orders.insert(pair, CachedOrder { order: order.id, key });
    }

    /// All buyers of the voucher; `None` if they are too many for the cache.
    pub(super) async fn buyers(
        &self,
        voucher: VoucherId,
    ) -> Result<Option<Arc<Buyers>>, StoreError> {
        let count = self.orders.count(voucher, MAX_BUYERS_OF_VOUCHER + 1).await?;
        if count > u64::from(MAX_BUYERS_OF_VOUCHER) {
            return Ok(None);
        }
        // Orders are never deleted: if their number is the same, so are they.
        if let Some(known) = self.buyers.get(&voucher)
            && known.0.len() as u64 == count
        {
            return Ok(Some(known));
        }
        let orders = self.orders.buyers(voucher, MAX_BUYERS_OF_VOUCHER + 1).await?;
        if orders.len() > MAX_BUYERS_OF_VOUCHER as usize {
            return Ok(None);
        }
        let buyers = Arc::new(Buyers::of(orders));
        self.buyers.insert(voucher, Arc::clone(&buyers));
        Ok(Some(buyers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_finds_buyers_only() {
        let orders = [(9, 1), (2, 7), (5, 3)].map(|(user, order)| (UserId(user), OrderId(order)));
        let buyers = Buyers::of(orders.to_vec());
        let found = [1, 2, 5, 6, 9].map(|user| buyers.order_of(UserId(user)).map(|order| order.0));
        assert_eq!(found, [None, Some(7), Some(3), None, Some(1)]);
    }

    #[test]
    fn recent_cache_keeps_the_last_entries() {
        let kept = recent_cache(MAX_CACHED_ORDERS);
        let most = MAX_CACHED_ORDERS as u64;
        for order in 0..4 * most {
            kept.insert((UserId(order), VoucherId(1)), order);
            // The first entries are read all the time.
            kept.get(&(UserId(order % 1000), VoucherId(1)));
        }
        assert!(kept.len() <= MAX_CACHED_ORDERS, "{} are kept", kept.len());
        for order in 4 * most - most / 4..4 * most {
            assert_eq!(kept.get(&(UserId(order), VoucherId(1))), Some(order));
        }
    }

    #[test]
    fn buyers_cache_holds_a_full_voucher_and_stays_within_its_total() {
        let kept = buyers_cache();
        let buyers =
            (1..=u64::from(MAX_BUYERS_OF_VOUCHER)).map(|user| (UserId(user), OrderId(user)));
        let buyers = Arc::new(Buyers::of(buyers.collect()));
        for voucher in 1..=9 {
            kept.insert(VoucherId(voucher), Arc::clone(&buyers));
            assert!(kept.get(&VoucherId(voucher)).is_some(), "the last one of {voucher}");
            assert!(kept.weight() <= MAX_CACHED_BUYERS);
        }
        assert_eq!(kept.len(), 3);
    }
}
