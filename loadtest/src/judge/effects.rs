//! What fenced holders did at what their lock protects, in the order of its commits.
//!
//! Tokens of one resource must not fall: an effect under a lower token after one under a higher is
//! that of a holder who had lost the lock and was not stopped. Nor may an order have been written
//! past the fence.

use std::collections::HashSet;

use crate::judge::evidence::{Effect, Evidence, Record};
use crate::judge::proof::Breaches;
use crate::load::outcome::Outcome;

pub(super) fn judge(evidence: &Evidence<'_>, breaches: &mut Breaches) -> (Option<bool>, String) {
    if evidence.effects.is_empty() {
        return (None, "nobody was fenced".to_owned());
    }
    let mut effects = evidence.effects.to_vec();
    effects.sort_unstable_by_key(|effect| (effect.resource, effect.seq));
    let of = |order: u64| -> Vec<&Record> {
        let wrote = |outcome| matches!(outcome, Outcome::Bought | Outcome::Unknown);
        let records = evidence.records.iter().filter(|one| one.order_id() == Some(order));
        records.filter(|one| wrote(one.outcome)).collect()
    };
    for resource in effects.chunk_by(|a, b| a.resource == b.resource) {
        let mut highest: &Effect = &resource[0];
        for effect in resource {
            if effect.token < highest.token {
                let why = || {
                    let (low, high) = (effect, highest);
                    format!(
                        "order {} was written under token {} after order {} under token {}",
                        low.order, low.token, high.order, high.token
                    )
                };
                let requests = || [of(effect.order), of(highest.order)].concat();
                breaches.add(evidence, why, requests);
            } else {
                highest = effect;
            }
        }
    }
    let fallen = breaches.count;
    let fenced: HashSet<u64> = effects.iter().map(|effect| effect.order).collect();
    for row in evidence.rows {
        if !evidence.earlier.contains(&row.id) && !fenced.contains(&row.id) {
            let why = || format!("order {} was written under no token", row.id);
            breaches.add(evidence, why, || of(row.id));
        }
    }
    let detail = format!(
        "{} effects, {fallen} under a token that had fallen, {} orders without",
        effects.len(),
        breaches.count - fallen
    );
    (Some(breaches.count == 0), detail)
}
