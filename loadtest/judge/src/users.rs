//! What each user asked for beside what each user holds: one pass over both, in the order of ids.
//!
//! Which request wrote an order is known where an answer names it. Of a user's other orders, each
//! request with an unknown outcome explains one: the order that it names, or any if it names none.
//! An order with a known idempotency key is explained only by a request with that key. The
//! remaining orders were left by a refused request if the user has one with that key. Otherwise
//! they have no request.

use std::collections::HashMap;

use loadtest_load::history::final_state::OrderRow;
use loadtest_load::history::record::Record;
use loadtest_load::outcome::Outcome;

use crate::claims::Claims;
use crate::evidence::Evidence;
use crate::proof::Breaches;

/// The code of a request whose admission had no answer.
const UNANSWERED: &str = "503 dependency_unavailable";

/// What the walk finds.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Acknowledged requests.
    pub(super) acknowledged: u64,
    /// Acknowledged orders that do not exist, or have no id to look for.
    pub(super) lost: Breaches,
    /// Orders that a refused request left.
    pub(super) after_refusal: Breaches,
    /// Orders without a request.
    pub(super) phantom: Breaches,
    /// Users with more than one order.
    pub(super) duplicates: Breaches,
    /// Users who got "already ordered" without an order.
    pub(super) falsely_ordered: Breaches,
    /// When units may have been taken: by orders, those whose request is not known at their user's
    /// first, and by requests with unknown outcomes.
    pub(super) claims: Claims,
    /// Whether requests were given tickets.
    has_tickets: bool,
}

/// What one user asked for and holds.
struct User<'a> {
    asked: &'a [Record],
    /// By id; those from before the load included.
    held: &'a [OrderRow],
    /// Ids of acknowledged orders and when they were first asked for; by id, each once.
    acknowledged: Vec<(u64, u64)>,
    /// Orders from the load that no acknowledgement names; those last that nothing explains.
    unclaimed: Vec<OrderRow>,
    /// How many of them nothing explains.
    excess: usize,
    /// From when on the user may hold an order, if ever.
    may_hold_from: Option<u64>,
}

impl Users {
    pub(super) fn walk(evidence: &Evidence<'_>) -> Self {
        let mut rows = evidence.rows.to_vec();
        rows.sort_unstable_by_key(|row| (row.user_id, row.id));
        let has_tickets = evidence.records.iter().any(|record| record.admitted);
        let mut found = Self { has_tickets, ..Self::default() };
        let mut held = rows.chunk_by(|a, b| a.user_id == b.user_id).peekable();
        let mut asked = evidence.records.chunk_by(|a, b| a.user == b.user).peekable();
        loop {
            let ids = (asked.peek().map(|of| of[0].user), held.peek().map(|of| of[0].user_id));
            let next = match ids {
                (None, None) => return found,
                (Some(id), None) | (None, Some(id)) => id,
                (Some(asks), Some(holds)) => asks.min(holds),
            };
            let asked = asked.next_if(|of| of[0].user == next).unwrap_or_default();
            let held = held.next_if(|of| of[0].user_id == next).unwrap_or_default();
            found.add(evidence, &User::of(evidence, asked, held));
        }
    }

    fn add(&mut self, evidence: &Evidence<'_>, user: &User<'_>) {
        self.add_acknowledged(evidence, user);
        self.add_unexplained(evidence, user);
        self.add_falsely_ordered(evidence, user);
        if user.held.len() > 1 {
            let why = || {
                let ids: Vec<_> = user.held.iter().map(|row| row.id.to_string()).collect();
                let user_id = user.held[0].user_id;
                format!("user {user_id} holds {} orders: {}", ids.len(), first_few(&ids))
            };
            let named = user.asked.iter().filter(|record| {
                record.outcome == Outcome::Bought
                    || record.outcome == Outcome::Unknown && !user.unclaimed.is_empty()
            });
            self.duplicates.add(evidence, why, || named);
        }
        let unknown = user.asked.iter().filter(|record| record.outcome == Outcome::Unknown);
        if self.has_tickets {
            self.claims.may_have_tickets(unknown);
        } else {
            self.claims.unknown(unknown, user.unclaimed.len() - user.excess);
        }
        let ended = |record: &&Record| record.admitted && record.outcome.is_definite_refusal();
        user.asked.iter().filter(ended).for_each(|record| self.claims.given_back(record));
        if self.has_tickets {
            let unanswered = |record: &&Record| evidence.names.code(record) == UNANSWERED;
            let refused = user.asked.iter().filter(|record| !record.admitted);
            let refused = refused.filter(|record| record.outcome.is_definite_refusal());
            self.claims.may_have_tickets(refused.filter(unanswered));
        }
        let first = user.asked.first().map_or(0, |record| record.start_ns);
        let asked_at = user.acknowledged.iter().map(|(_, asked_ns)| *asked_ns);
        for asked_ns in asked_at.chain(std::iter::repeat_n(first, user.excess)) {
            self.claims.order(asked_ns);
        }
    }

    fn add_acknowledged(&mut self, evidence: &Evidence<'_>, user: &User<'_>) {
        for record in user.asked.iter().filter(|record| record.outcome == Outcome::Bought) {
            self.acknowledged += 1;
            match record.order_id() {
                None => {
                    self.claims.order(record.start_ns);
                    let why = || "an acknowledgement names no order".to_owned();
                    self.lost.add(evidence, why, || [record]);
                }
                Some(id) if !user.holds(id) => {
                    let why = || format!("order {id} was acknowledged and does not exist");
                    self.lost.add(evidence, why, || [record]);
                }
                Some(_) => {}
            }
        }
    }

    fn add_unexplained(&mut self, evidence: &Evidence<'_>, user: &User<'_>) {
        if user.excess == 0 {
            return;
        }
        let refused = |already: bool| {
            user.asked.iter().filter(move |record| match record.outcome {
                Outcome::AlreadyOrdered => already,
                Outcome::SoldOut | Outcome::Refused => !already,
                Outcome::Bought | Outcome::Unknown => false,
            })
        };
        // A refusal that speaks of an earlier order is the least likely to have written this one.
        let refused: Vec<&Record> = refused(false).chain(refused(true)).collect();
        let mut by_key = HashMap::<u32, usize>::new();
        for record in &refused {
            *by_key.entry(record.key).or_default() += 1;
        }
        let mut without_key = refused.len();
        for OrderRow { id, key, .. } in &user.unclaimed[user.unclaimed.len() - user.excess..] {
            let left = match key {
                Some(key) => by_key.entry(*key).or_default(),
                None => &mut without_key,
            };
            if *left > 0 {
                *left -= 1;
                let why = || format!("order {id} exists, and its user was refused");
                let may_be = |one: &&Record| key.is_none_or(|key| one.key == key);
                self.after_refusal.add(evidence, why, || refused.iter().copied().filter(may_be));
            } else {
                let owner = user.held[0].user_id;
                let why = || format!("order {id} of user {owner} exists without a request");
                self.phantom.add(evidence, why, || user.asked);
            }
        }
    }

    fn add_falsely_ordered(&mut self, evidence: &Evidence<'_>, user: &User<'_>) {
        let told = user.asked.iter().filter(|one| one.outcome == Outcome::AlreadyOrdered);
        let mut falsely = told.filter(|record| !user.could_hold_one(record)).peekable();
        if let Some(first) = falsely.peek() {
            let why = || format!("user {} had not ordered by then", first.user);
            self.falsely_ordered.add(evidence, why, || falsely);
        }
    }
}

impl<'a> User<'a> {
    fn of(evidence: &Evidence<'_>, asked: &'a [Record], held: &'a [OrderRow]) -> Self {
        let with = |outcome| asked.iter().filter(move |record| record.outcome == outcome);
        let acknowledged = acknowledged(asked);
        let new = held.iter().copied().filter(|row| !evidence.earlier.contains(&row.id));
        let claimed =
            |row: &OrderRow| acknowledged.binary_search_by_key(&row.id, |(id, _)| *id).is_ok();
        let mut unclaimed: Vec<OrderRow> = new.filter(|row| !claimed(row)).collect();
        let excess = explain(&mut unclaimed, asked);
        let resolved = unclaimed.len() > excess;
        let mut keys: Vec<u32> = with(Outcome::Bought).map(|record| record.key).collect();
        keys.sort_unstable();
        // The order of an acknowledged request may have been written by an earlier one that it
        // repeats.
        let may_order = |record: &&Record| match record.outcome {
            Outcome::Bought => true,
            Outcome::Unknown => resolved || keys.binary_search(&record.key).is_ok(),
            Outcome::SoldOut | Outcome::AlreadyOrdered | Outcome::Refused => false,
        };
        let always = excess > 0 || held.iter().any(|row| evidence.earlier.contains(&row.id));
        let first = asked.iter().find(may_order).map(|record| record.start_ns);
        let may_hold_from = if always { Some(0) } else { first };
        Self { asked, held, acknowledged, unclaimed, excess, may_hold_from }
    }

    fn holds(&self, id: u64) -> bool {
        self.held.binary_search_by_key(&id, |row| row.id).is_ok()
    }

    /// Whether this answer "already ordered" may have been true when it came.
    fn could_hold_one(&self, told: &Record) -> bool {
        let acknowledged = |id| self.acknowledged.binary_search_by_key(&id, |(id, _)| *id).is_ok();
        let exists = told.order_id().is_none_or(|id| self.holds(id) || acknowledged(id));
        exists && self.may_hold_from.is_some_and(|from_ns| from_ns < told.end_ns)
    }
}

/// Acknowledged order ids, each once, with the time of the first request that may have written it.
///
/// That is the request itself, an earlier one without an answer that it repeats, or one that may
/// have been given the same ticket.
fn acknowledged(asked: &[Record]) -> Vec<(u64, u64)> {
    let with = |outcome| asked.iter().filter(move |record| record.outcome == outcome);
    let mut lost: Vec<(u32, u64)> =
        with(Outcome::Unknown).map(|record| (record.key, record.start_ns)).collect();
    lost.sort_unstable();
    let tickets = Tickets::of(asked);
    let asked_ns = |record: &Record| {
        let first = lost.get(lost.partition_point(|(key, _)| *key < record.key));
        let same = first.filter(|(key, _)| *key == record.key);
        let first_ns = same.map_or(record.start_ns, |(_, lost_ns)| record.start_ns.min(*lost_ns));
        if record.admitted { first_ns.min(tickets.first_asked_ns(record)) } else { first_ns }
    };
    let mut found: Vec<(u64, u64)> = with(Outcome::Bought)
        .filter_map(|record| Some((record.order_id()?, asked_ns(record))))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(id, _)| *id);
    found
}

/// Which of a user's requests may have been given the ticket of a later one.
struct Tickets<'a> {
    /// By the time at which they were sent.
    asked: &'a [Record],
    /// For each of them the latest end of all up to it, so that the first that was still under way
    /// at a time is found by halves. Empty where there are no tickets.
    latest_ends: Vec<u64>,
    /// When the first was sent whose answer was lost.
    first_lost_ns: Option<u64>,
}

impl<'a> Tickets<'a> {
    fn of(asked: &'a [Record]) -> Self {
        let has_tickets = asked.iter().any(|one| one.admitted);
        let ends = asked.iter().filter(|_| has_tickets).scan(0, |latest, one| {
            *latest = one.end_ns.max(*latest);
            Some(*latest)
        });
        let lost = asked.iter().find(|one| one.outcome == Outcome::Unknown);
        let first_lost_ns = lost.map(|one| one.start_ns);
        Self { asked, latest_ends: ends.collect(), first_lost_ns }
    }

    /// When the first request was sent that may have been given this one's ticket before: one whose
    /// answer was lost, or that was under way when this one was sent.
    fn first_asked_ns(&self, told: &Record) -> u64 {
        let first = self.latest_ends.partition_point(|end_ns| *end_ns < told.start_ns);
        let under_way_ns = self.asked.get(first).map_or(told.start_ns, |one| one.start_ns);
        under_way_ns.min(self.first_lost_ns.unwrap_or(told.start_ns)).min(told.start_ns)
    }
}

/// Brings the orders that nothing explains to the end; how many they are.
fn explain(unclaimed: &mut Vec<OrderRow>, asked: &[Record]) -> usize {
    if unclaimed.is_empty() {
        return 0;
    }
    let mut lost = UnknownRequests::of(asked);
    // Those first that fewer requests explain.
    unclaimed.sort_by_key(|row| (!lost.names(row), row.key.is_none()));
    let (explained, excess): (Vec<_>, Vec<_>) =
        unclaimed.drain(..).partition(|row| lost.names(row) || lost.explains_one_more(row));
    unclaimed.extend(explained.into_iter().chain(excess.iter().copied()));
    excess.len()
}

/// A user's requests whose order is not known.
struct UnknownRequests {
    /// Orders that they name, sorted, each with the key of the request.
    named: Vec<(u64, Option<u32>)>,
    /// Requests that name no order, by key; each explains one more order.
    of_key: HashMap<Option<u32>, usize>,
    /// All of these.
    left: usize,
}

impl UnknownRequests {
    fn of(asked: &[Record]) -> Self {
        // A ticket may be that of an earlier request, and its order of that one's key.
        let key = |record: &Record| (!record.admitted).then_some(record.key);
        let unknown = asked.iter().filter(|record| record.outcome == Outcome::Unknown);
        let mut named: Vec<_> =
            unknown.filter_map(|record| Some((record.order_id()?, key(record)))).collect();
        named.sort_unstable();
        // An acknowledgement that names no order is of one all the same.
        let nameless = asked.iter().filter(|record| {
            record.order.is_none() && matches!(record.outcome, Outcome::Unknown | Outcome::Bought)
        });
        let (mut of_key, mut left) = (HashMap::new(), 0);
        for record in nameless {
            *of_key.entry(key(record)).or_default() += 1;
            left += 1;
        }
        Self { named, of_key, left }
    }

    /// Whether one of them names the order, and may have written it.
    fn names(&self, row: &OrderRow) -> bool {
        let from = self.named.partition_point(|(id, _)| *id < row.id);
        let same = self.named[from..].iter().take_while(|(id, _)| *id == row.id);
        let suits = |key: Option<u32>| key.is_none() || row.key.is_none() || key == row.key;
        same.into_iter().any(|(_, key)| suits(*key))
    }

    /// Whether one of the others may have written it, which then explains no other.
    fn explains_one_more(&mut self, row: &OrderRow) -> bool {
        let mut take = |key: Option<u32>| match self.of_key.get_mut(&key) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        let explained = match row.key {
            Some(_) => take(row.key) || take(None),
            None => self.left > 0,
        };
        self.left -= usize::from(explained);
        explained
    }
}

/// The first few of a list, in words.
fn first_few(ids: &[String]) -> String {
    const MAX_LISTED: usize = 8;
    let rest = ids.len().saturating_sub(MAX_LISTED);
    let text = ids[..ids.len() - rest].join(", ");
    if rest > 0 { format!("{text} and {rest} more") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of one user, in the order in which they were sent.
    fn asked(seed: u64) -> Vec<Record> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut below = |bound: u64| random.u64(..bound);
        let mut records: Vec<Record> = (0..30)
            .map(|n| {
                let start_ns = below(40);
                let outcome = match below(12) {
                    0 => Outcome::Unknown,
                    1..4 => Outcome::Refused,
                    _ => Outcome::Bought,
                };
                let end_ns = start_ns + below(12);
                let admitted = outcome == Outcome::Bought;
                Record { start_ns, end_ns, n, key: n, admitted, ..Record::that_ended(outcome) }
            })
            .collect();
        Record::sort(&mut records);
        records
    }

    #[test]
    fn a_ticket_may_be_that_of_any_earlier_request_that_was_lost_or_under_way() {
        for seed in 0..300 {
            let asked = asked(seed);
            let tickets = Tickets::of(&asked);
            for told in asked.iter().filter(|one| one.admitted) {
                let may = |one: &&Record| {
                    let first = one.outcome == Outcome::Unknown || one.end_ns >= told.start_ns;
                    one.start_ns <= told.start_ns && first
                };
                let first = asked.iter().filter(may).map(|one| one.start_ns).min();
                assert_eq!(Some(tickets.first_asked_ns(told)), first, "seed {seed}, {told:?}");
            }
        }
    }
}
