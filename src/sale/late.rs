//! Those who come too late, answered from memory: no lock, no transaction, no question.
//!
//! How it works. Terms that are read while no unit is left carry everybody who had bought by then
//! ([`Buyers`]), so they answer for one second from before they were read: `sold_out`, and
//! `already_ordered` to buyers. The writer's "no unit left" has the terms read anew at once. What
//! this replica sold itself it knows longer ([`Late`]): an order stays for ever, also a cancelled
//! one, so its user can never buy again.
//!
//! It guarantees that what it says was committed: the stock is read by itself, and an order whose
//! transaction may still be rolled back is in no committed stock. "Sold out" is said only to users
//! who had no order a second ago, so a buyer who asks again because the answer was lost is never
//! sent away with it. Whoever may be repeating the request that bought, as its `Idempotency-Key`
//! says, is told what that was told (one read, still no lock and no transaction).
//!
//! It does not know of a unit that came back less than a second ago. Of a voucher with more orders
//! than [`MOST_BUYERS`] the buyers are not kept, and each answer costs a read. Shown by
//! `tests/service/late.rs`.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter, Weighter};

use super::Refusal;
use super::catalogue::Terms;
use crate::domain::{OrderId, RequestKey, UserId, VoucherId};
use crate::store::{Orders, StoreError};

/// The most buyers of a voucher that are kept, at 16 bytes.
const MOST_BUYERS: u32 = 65_536;
/// Of all vouchers together.
const MOST_BUYERS_IN_ALL: u64 = 262_144;
/// How many of this replica's own orders are kept: nearly the last ones, at about 80 bytes.
const MOST_ORDERS: usize = 16_384;

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

/// Somebody who is turned away before anything was tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turned {
    pub(super) refusal: Refusal,
    /// Whether it is certain that no request of this user has bought the voucher, or not this one.
    pub(super) has_no_order: bool,
}

impl From<Refusal> for Turned {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, has_no_order: false }
    }
}

impl Turned {
    /// Of a voucher that is sold out, to somebody who has that order of it.
    fn late(order: Option<OrderId>) -> Self {
        let refusal = order.map_or(Refusal::SoldOut, |order| Refusal::AlreadyOrdered(Some(order)));
        Self { refusal, has_no_order: order.is_none() }
    }

    /// Whether an earlier request with the same key may have had another answer, which counts.
    pub(super) fn may_repeat(&self) -> bool {
        self.refusal.is_of_the_sale() && !self.has_no_order
    }
}

/// An order of this replica, and the key of the request that made it.
#[derive(Clone, Copy)]
struct Bought {
    order: OrderId,
    key: Option<RequestKey>,
}

/// The weight of a voucher's buyers is their number.
#[derive(Clone)]
struct ByNumber;

impl Weighter<VoucherId, Arc<Buyers>> for ByNumber {
    fn weight(&self, _: &VoucherId, buyers: &Arc<Buyers>) -> u64 {
        buyers.0.len() as u64 + 1
    }
}

/// What is remembered. Cheap to clone.
#[derive(Clone)]
pub(super) struct Late {
    orders: Orders,
    buyers: Arc<Cache<VoucherId, Arc<Buyers>, ByNumber>>,
    bought: Arc<Cache<(UserId, VoucherId), Bought>>,
}

/// A memory of buyers. Said to be for a few vouchers, it is not divided into parts, none of which
/// would hold the buyers of a large one.
fn of_vouchers() -> Cache<VoucherId, Arc<Buyers>, ByNumber> {
    Cache::with_weighter(1, MOST_BUYERS_IN_ALL, ByNumber)
}

/// A memory of the last so many, in parts of which each forgets its oldest: nothing, but for one in
/// each part, is kept longer because it was there first, or for being asked for.
fn last<K: Eq + Hash, V: Clone>(most: usize) -> Cache<K, V> {
    let options = OptionsBuilder::new()
        .estimated_items_capacity(most)
        .weight_capacity(most as u64)
        .hot_allocation(0.0)
        .ghost_allocation(0.0)
        .build()
        .expect("both capacities are given");
    let (hashes, life) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
    Cache::with_options(options, UnitWeighter, hashes, life)
}

impl Late {
    pub(super) fn new(orders: Orders) -> Self {
        Self { orders, buyers: Arc::new(of_vouchers()), bought: Arc::new(last(MOST_ORDERS)) }
    }

    /// Why that user cannot buy, if that is certain.
    pub(super) async fn turn_away(
        &self,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
        terms: &Terms,
    ) -> Option<Turned> {
        let now = Instant::now();
        match self.recall((user, voucher), key, (terms, now)) {
            None if terms.is_sold_out_at(now) => {
                // An error is met again on the long way, and explained there.
                Some(Turned::late(self.orders.of_pair(user, voucher).await.ok()?))
            }
            turned => turned,
        }
    }

    /// The same from memory alone, at that moment: `None` also if only the database can tell.
    pub(super) fn recall(
        &self,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
        (terms, now): (&Terms, Instant),
    ) -> Option<Turned> {
        if let Some(Bought { order, key: made_by }) = self.bought.get(&(user, voucher)) {
            let refusal = Refusal::AlreadyOrdered(Some(order));
            return Some(Turned { refusal, has_no_order: key != made_by });
        }
        let buyers = terms.buyers().filter(|_| terms.is_sold_out_at(now))?;
        Some(Turned::late(buyers.order_of(user)))
    }

    /// Remembers an order that is committed, and with which key it was made.
    pub(super) fn remember(
        &self,
        pair: (UserId, VoucherId),
        order: OrderId,
        key: Option<RequestKey>,
    ) {
        self.bought.insert(pair, Bought { order, key });
    }

    /// Everybody who has an order of the voucher; `None` if they are too many to be kept.
    pub(super) async fn buyers(
        &self,
        voucher: VoucherId,
    ) -> Result<Option<Arc<Buyers>>, StoreError> {
        let count = self.orders.count(voucher, MOST_BUYERS + 1).await?;
        if count > u64::from(MOST_BUYERS) {
            return Ok(None);
        }
        // Orders are never deleted, so as many are the same.
        if let Some(known) = self.buyers.get(&voucher)
            && known.0.len() as u64 == count
        {
            return Ok(Some(known));
        }
        let orders = self.orders.buyers(voucher, MOST_BUYERS + 1).await?;
        if orders.len() > MOST_BUYERS as usize {
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
    fn buyers_are_found_and_nobody_else() {
        let orders = [(9, 1), (2, 7), (5, 3)].map(|(user, order)| (UserId(user), OrderId(order)));
        let buyers = Buyers::of(orders.to_vec());
        let found = [1, 2, 5, 6, 9].map(|user| buyers.order_of(UserId(user)).map(|order| order.0));
        assert_eq!(found, [None, Some(7), Some(3), None, Some(1)]);
    }

    #[test]
    fn of_more_orders_than_are_kept_the_last_ones_are() {
        let kept = last(MOST_ORDERS);
        let most = MOST_ORDERS as u64;
        for order in 0..4 * most {
            kept.insert((UserId(order), VoucherId(1)), order);
            // Somebody asks for the first ones all the time.
            kept.get(&(UserId(order % 1000), VoucherId(1)));
        }
        assert!(kept.len() <= MOST_ORDERS, "{} are kept", kept.len());
        for order in 4 * most - most / 4..4 * most {
            assert_eq!(kept.get(&(UserId(order), VoucherId(1))), Some(order));
        }
    }

    #[test]
    fn as_many_buyers_of_a_voucher_are_kept_as_may_be_and_no_more_in_all() {
        let kept = of_vouchers();
        let buyers = (1..=u64::from(MOST_BUYERS)).map(|user| (UserId(user), OrderId(user)));
        let buyers = Arc::new(Buyers::of(buyers.collect()));
        for voucher in 1..=9 {
            kept.insert(VoucherId(voucher), Arc::clone(&buyers));
            assert!(kept.get(&VoucherId(voucher)).is_some(), "the last one of {voucher}");
            assert!(kept.weight() <= MOST_BUYERS_IN_ALL);
        }
        assert_eq!(kept.len(), 3);
    }
}
