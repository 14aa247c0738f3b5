//! What fenced holders did at what their lock protects, in the order of its commits.
//!
//! Tokens of one resource must not fall: an effect under a lower token after one under a higher is
//! that of a holder who had lost the lock and was not stopped. A token is one holder's, and a
//! holder writes one order, so two orders do not share one; one order may have several effects
//! under its token. Since tokens of two resources are not comparable, the orders of a voucher must
//! have been written under the one lock of the voucher, or each under the one lock of its buyer.
//! Nor may an order have been written past the fence, or an effect be that of no order.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use crate::judge::evidence::{Effect, Evidence, Protects, Record};
use crate::judge::proof::Breaches;
use crate::load::outcome::Outcome;

pub(super) fn judge(evidence: &Evidence<'_>, breaches: &mut Breaches) -> (Option<bool>, String) {
    if evidence.effects.is_empty() {
        return (None, "nobody was fenced".to_owned());
    }
    let mut effects = evidence.effects.to_vec();
    effects.sort_unstable_by_key(|effect| (effect.resource, effect.seq));
    add_fallen(evidence, &effects, breaches);
    let fallen = breaches.count;
    add_incomparable(evidence, &effects, breaches);
    let incomparable = breaches.count - fallen;
    let without = add_unmatched(evidence, &effects, breaches);
    let detail = format!(
        "{} effects, {fallen} under a token that had fallen or was another's, {incomparable} under \
         another lock, {} of no order; {without} orders without",
        effects.len(),
        breaches.count - fallen - incomparable - without
    );
    (Some(breaches.count == 0), detail)
}

/// The requests that may have written an order.
fn of<'e>(evidence: &Evidence<'e>, order: u64) -> Vec<&'e Record> {
    let wrote = |outcome| matches!(outcome, Outcome::Bought | Outcome::Unknown);
    let records = evidence.records.iter().filter(|one| one.order_id() == Some(order));
    records.filter(|one| wrote(one.outcome)).collect()
}

/// Effects under a token lower than an earlier one's, or under that of another order.
fn add_fallen(evidence: &Evidence<'_>, effects: &[Effect], breaches: &mut Breaches) {
    for resource in effects.chunk_by(|a, b| a.resource == b.resource) {
        let mut highest: &Effect = &resource[0];
        for effect in resource {
            let is_again = effect.token == highest.token && effect.order == highest.order;
            if effect.token > highest.token || is_again {
                highest = effect;
                continue;
            }
            let why = || {
                let (low, high) = (effect, highest);
                format!(
                    "order {} was written under token {} after order {} under token {}",
                    low.order, low.token, high.order, high.token
                )
            };
            let requests = || [of(evidence, effect.order), of(evidence, highest.order)].concat();
            breaches.add(evidence, why, requests);
        }
    }
}

/// Effects whose tokens nothing compares with those of the others: of a lock that protects neither
/// the voucher nor the order's buyer, of a second one for the same, or of one for the buyer where
/// others had that of the voucher.
fn add_incomparable(evidence: &Evidence<'_>, effects: &[Effect], breaches: &mut Breaches) {
    let owners: HashMap<u64, u64> = evidence.rows.iter().map(|row| (row.id, row.user_id)).collect();
    let mut locks = HashMap::<Protects, u32>::new();
    for effect in effects {
        let suits = match effect.protects {
            Protects::Voucher => true,
            Protects::User(user) => owners.get(&effect.order).is_none_or(|owner| *owner == user),
            Protects::Other => false,
        };
        let is_of_first = discriminant(&effect.protects) == discriminant(&effects[0].protects);
        let lock = *locks.entry(effect.protects).or_insert(effect.resource);
        if !suits || !is_of_first || lock != effect.resource {
            let order = effect.order;
            let why = || format!("order {order} was written under another lock than it should be");
            breaches.add(evidence, why, || of(evidence, order));
        }
    }
}

/// Effects of orders that do not exist, and orders without an effect; how many the latter are.
fn add_unmatched(evidence: &Evidence<'_>, effects: &[Effect], breaches: &mut Breaches) -> u64 {
    let exists: HashSet<u64> = evidence.rows.iter().map(|row| row.id).collect();
    for effect in effects.iter().filter(|effect| !exists.contains(&effect.order)) {
        let (order, token) = (effect.order, effect.token);
        let why = || format!("order {order} was written under token {token} and does not exist");
        breaches.add(evidence, why, || of(evidence, order));
    }
    let (before, fenced) = (breaches.count, effects.iter().map(|effect| effect.order));
    let fenced: HashSet<u64> = fenced.collect();
    for row in evidence.rows {
        if !evidence.earlier.contains(&row.id) && !fenced.contains(&row.id) {
            let why = || format!("order {} was written under no token", row.id);
            breaches.add(evidence, why, || of(evidence, row.id));
        }
    }
    breaches.count - before
}
