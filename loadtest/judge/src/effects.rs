//! What fenced holders wrote to the resource that their lock protects, in the order of commits.
//!
//! Tokens of one resource must not fall: an effect under a lower token after one under a higher
//! token is a write by a holder that had lost the lock. A token belongs to one holder, and a holder
//! writes one order, so two orders do not share a token; one order may have several effects under
//! its token. Tokens of two resources are not comparable. So the orders of a voucher must have been
//! written under the voucher's one lock, or each under its buyer's one lock. An order must not have
//! been written past the fence, and each effect must belong to an order.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use loadtest_load::history::final_state::{Effect, Protects};
use loadtest_load::history::record::Record;
use loadtest_load::outcome::Outcome;

use crate::evidence::Evidence;
use crate::proof::Breaches;

pub(super) fn judge(evidence: &Evidence<'_>, breaches: &mut Breaches) -> (Option<bool>, String) {
    if evidence.effects.is_empty() {
        return (None, "no holder was fenced".to_owned());
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
fn requests_for<'e>(evidence: &Evidence<'e>, order: u64) -> Vec<&'e Record> {
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
            let requests = || {
                [requests_for(evidence, effect.order), requests_for(evidence, highest.order)]
                    .concat()
            };
            breaches.add(evidence, why, requests);
        }
    }
}

/// Adds effects whose tokens cannot be compared with the others'.
///
/// Their lock protects neither the voucher nor the order's buyer, or is a second lock for the same
/// resource. Or it protects the buyer where the other effects have the voucher's lock.
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
            breaches.add(evidence, why, || requests_for(evidence, order));
        }
    }
}

/// Effects of orders that do not exist, and orders without an effect; how many the latter are.
fn add_unmatched(evidence: &Evidence<'_>, effects: &[Effect], breaches: &mut Breaches) -> u64 {
    let exists: HashSet<u64> = evidence.rows.iter().map(|row| row.id).collect();
    for effect in effects.iter().filter(|effect| !exists.contains(&effect.order)) {
        let (order, token) = (effect.order, effect.token);
        let why = || format!("order {order} was written under token {token} and does not exist");
        breaches.add(evidence, why, || requests_for(evidence, order));
    }
    let (before, fenced) = (breaches.count, effects.iter().map(|effect| effect.order));
    let fenced: HashSet<u64> = fenced.collect();
    for row in evidence.rows {
        if !evidence.earlier.contains(&row.id) && !fenced.contains(&row.id) {
            let why = || format!("order {} was written under no token", row.id);
            breaches.add(evidence, why, || requests_for(evidence, row.id));
        }
    }
    breaches.count - before
}
