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

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;

use super::Refusal;
use super::catalogue::Terms;
use crate::domain::{OrderId, RequestKey, UserId, VoucherId};
use crate::store::{Orders, StoreError};

/// The most buyers of a voucher that are kept, at 16 bytes.
const MOST_BUYERS: u32 = 65_536;
/// Of all vouchers together.
const MOST_BUYERS_IN_ALL: u64 = 262_144;
/// How many of this replica's own orders are kept, and for how long.
const MOST_ORDERS: u64 = 16_384;
const KEPT: Duration = Duration::from_mins(10);

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

/// What is remembered. Cheap to clone.
#[derive(Clone)]
pub(super) struct Late {
    orders: Orders,
    buyers: Cache<VoucherId, Arc<Buyers>>,
    bought: Cache<(UserId, VoucherId), Bought>,
}

impl Late {
    pub(super) fn new(orders: Orders) -> Self {
        let weight = |_: &VoucherId, buyers: &Arc<Buyers>| {
            u32::try_from(buyers.0.len()).unwrap_or(u32::MAX).saturating_add(1)
        };
        let buyers = Cache::builder().weigher(weight).max_capacity(MOST_BUYERS_IN_ALL);
        let bought = Cache::builder().max_capacity(MOST_ORDERS).time_to_live(KEPT).build();
        Self { orders, buyers: buyers.build(), bought }
    }

    /// Why that user cannot buy, if that is certain.
    pub(super) async fn turn_away(
        &self,
        (user, voucher): (UserId, VoucherId),
        key: Option<RequestKey>,
        terms: &Terms,
    ) -> Option<Turned> {
        if let Some(Bought { order, key: made_by }) = self.bought.get(&(user, voucher)).await {
            let refusal = Refusal::AlreadyOrdered(Some(order));
            return Some(Turned { refusal, has_no_order: key != made_by });
        }
        if !terms.is_sold_out() {
            return None;
        }
        let order = match terms.buyers() {
            Some(buyers) => buyers.order_of(user),
            // An error is met again on the long way, and explained there.
            None => self.orders.of_pair(user, voucher).await.ok()?,
        };
        let refusal = order.map_or(Refusal::SoldOut, |order| Refusal::AlreadyOrdered(Some(order)));
        Some(Turned { refusal, has_no_order: order.is_none() })
    }

    /// Remembers an order that is committed, and with which key it was made.
    pub(super) async fn remember(
        &self,
        pair: (UserId, VoucherId),
        order: OrderId,
        key: Option<RequestKey>,
    ) {
        self.bought.insert(pair, Bought { order, key }).await;
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
        if let Some(known) = self.buyers.get(&voucher).await
            && known.0.len() as u64 == count
        {
            return Ok(Some(known));
        }
        let orders = self.orders.buyers(voucher, MOST_BUYERS + 1).await?;
        if orders.len() > MOST_BUYERS as usize {
            return Ok(None);
        }
        let buyers = Arc::new(Buyers::of(orders));
        self.buyers.insert(voucher, Arc::clone(&buyers)).await;
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
}
