//! How each rule is judged: the answers to clients, the reads of the judge, the reports of the
//! service.
//!
//! Nothing here does I/O, and nothing takes longer than sorting. A rule that cannot be judged with
//! what is known is `None`, which is never counted as held.

use std::collections::HashSet;

use loadtest_load::history::final_state::{OrderRow, signed};
use loadtest_load::history::record::Record;
use loadtest_load::outcome::Outcome;

use crate::evidence::{AuditCheck, Evidence};
use crate::proof::{Breaches, MAX_PROOFS, seconds};
use crate::users::Users;
use crate::verdict::{Rule, RuleFinding, Verdict};
use crate::{effects, holds, recovery};

/// Judges every rule.
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let is_new = |row: &&OrderRow| !evidence.earlier.contains(&row.id);
    let new_rows = evidence.rows.iter().filter(is_new).count();
    let has_unit = |row: &&OrderRow| !row.cancelled;
    let new_units = evidence.rows.iter().filter(is_new).filter(has_unit).count();
    let mut users = Users::walk(evidence);
    let (duplicate_users, lost) = (users.duplicates.count, users.lost.count);
    let mut judging = RuleContext { evidence, new_units, users: &mut users };
    let findings = Rule::ALL.map(|rule| judging.judge(rule)).into();
    let offered = evidence.offered.unwrap_or(i64::MAX);
    Verdict {
        orders: new_rows as u64,
        oversold: u64::try_from(signed(new_units).saturating_sub(offered)).unwrap_or(0),
        duplicate_users,
        lost,
        findings,
    }
}

/// What several rules use.
struct RuleContext<'a> {
    evidence: &'a Evidence<'a>,
    /// Orders that were not there before the load, and are not cancelled.
    new_units: usize,
    users: &'a mut Users,
}

/// A rule's answer: whether it held, and the figures.
pub(super) type RuleResult = (Option<bool>, String);

const OFFER_UNKNOWN: &str = "the number of units on sale is unknown";

impl RuleContext<'_> {
    fn judge(&mut self, rule: Rule) -> RuleFinding {
        let mut breaches = Breaches::default();
        let mut take = |found: &mut Breaches, what: &str| {
            breaches = std::mem::take(found);
            (Some(breaches.count == 0), format!("{} {what}", breaches.count))
        };
        let (held, detail) = match rule {
            Rule::OneOrderPerUser => {
                take(&mut self.users.duplicates, "users hold more than one order")
            }
            Rule::RefusalsLeftNoRow => {
                take(&mut self.users.after_refusal, "orders after a refusal")
            }
            Rule::NoRowWithoutRequest => {
                let judged = self.evidence.rows_are_all || self.users.phantom.count > 0;
                let answer = take(&mut self.users.phantom, "orders without a request");
                if judged { answer } else { (None, "needs the database".to_owned()) }
            }
            Rule::AlreadyOrderedIsTrue => {
                take(&mut self.users.falsely_ordered, "users got it without an order")
            }
            Rule::AcknowledgedExist => {
                let what = format!("lost of {} acknowledged", self.users.acknowledged);
                take(&mut self.users.lost, &what)
            }
            Rule::IdsAreUnique => take(&mut self.repeated_ids(), "ids of more than one order"),
            Rule::OrdersWithinStock => self.within_stock(&mut breaches),
            Rule::SoldOutIsTrue => self.sold_out(&mut breaches),
            Rule::TokensRise => effects::judge(self.evidence, &mut breaches),
            Rule::OneHolderAtATime => holds::judge(self.evidence, &mut breaches),
            Rule::StockAsOrdered => self.stock_as_ordered(),
            Rule::StockAddsUp => self.stock_adds_up(),
            Rule::AuditAgrees => self.audit_agrees(),
            Rule::ServedAfterFault
            | Rule::AnsweredAfterFault
            | Rule::EachReplicaServes
            | Rule::LocksAreHandedOn
            | Rule::NoFailureInRestart
            | Rule::TicketsEnd
            | Rule::PurchasesEnd
            | Rule::SoldOutStaysSoldOut
            | Rule::SoldWithinWindow => recovery::judge(self.evidence, rule, &mut breaches),
        };
        let broken = breaches.count.max(u64::from(held == Some(false)));
        RuleFinding { rule, held, detail, broken, proofs: breaches.proofs }
    }

    /// Whose acknowledgement came after all units had been acknowledged proves overselling.
    fn within_stock(&self, breaches: &mut Breaches) -> RuleResult {
        let Some(offered) = self.evidence.offered else { return (None, OFFER_UNKNOWN.to_owned()) };
        let beyond = usize::try_from(signed(self.new_units).saturating_sub(offered)).unwrap_or(0);
        if beyond > 0 {
            let mut sold: Vec<&Record> = self.with(Outcome::Bought).collect();
            sold.sort_unstable_by_key(|record| (record.end_ns, record.n));
            let last = sold.split_off(sold.len() - beyond.min(sold.len()));
            for record in last {
                let why = || format!("an order beyond the {offered} units");
                breaches.add(self.evidence, why, || [record]);
            }
        }
        breaches.count = beyond as u64;
        (Some(beyond == 0), format!("{} orders, {offered} units", self.new_units))
    }

    fn stock_as_ordered(&self) -> RuleResult {
        let (Some(offered), Some(granted)) = (self.evidence.offered, self.evidence.granted) else {
            return (None, "needs the database".to_owned());
        };
        let detail = format!("{granted} units granted, {offered} ordered");
        // What was sold before the load was granted as well, and not there to be sold.
        let units = self.evidence.rows.iter().filter(|row| !row.cancelled).count();
        let earlier = units - self.new_units;
        (Some(granted.saturating_sub(signed(earlier)) == offered), detail)
    }

    fn stock_adds_up(&self) -> RuleResult {
        let (Some(offered), Some(left)) = (self.evidence.offered, self.evidence.left) else {
            return (None, format!("{OFFER_UNKNOWN}, or are left"));
        };
        let detail = format!("{left} left + {} orders, {offered} before", self.new_units);
        (Some(left.saturating_add(signed(self.new_units)) == offered), detail)
    }

    /// A "sold out" needs as many orders as units, or requests that may have become some, sent
    /// before the answer came. What a replica knows of the stock may be a second old: units that
    /// were added count from the requests on that were sent a second later. Which units count as
    /// taken: see [`crate::claims`].
    fn sold_out(&mut self, breaches: &mut Breaches) -> RuleResult {
        let told = self.with(Outcome::SoldOut).count();
        if told == 0 {
            return (Some(true), "no client got it".to_owned());
        }
        let Some(offered) = self.evidence.offered else { return (None, OFFER_UNKNOWN.to_owned()) };
        let offered = usize::try_from(offered).unwrap_or(0);
        self.users.claims.sort();
        let claims = &self.users.claims;
        let unknown_to = |record: &Record| self.evidence.added_too_late_for(record.start_ns);
        let known = |record: &Record| offered.saturating_sub(unknown_to(record));
        let is_false = |record: &&Record| claims.taken(record) < known(record);
        let mut falsely: Vec<_> = self.with(Outcome::SoldOut).filter(is_false).collect();
        falsely.sort_unstable_by_key(|record| (record.end_ns, record.n));
        for record in falsely.iter().take(MAX_PROOFS) {
            let why = || {
                let (at, taken) = (seconds(record.end_ns), claims.taken(record));
                let known = known(record);
                format!("at {at} only {taken} of {known} units were sold or being asked for")
            };
            breaches.add(self.evidence, why, || [*record]);
        }
        breaches.count = falsely.len() as u64;
        let detail = format!(
            "{} of {told} answers were false; {} orders asked for, {offered} units",
            falsely.len(),
            claims.len()
        );
        (Some(falsely.is_empty()), detail)
    }

    /// Ids that stand for more than one order.
    ///
    /// Acknowledgements of one id are of two orders unless they repeat one request. That is one
    /// with the same user and idempotency key, or with a ticket of the same user, who has one
    /// ticket at a time. Two rows with one id are two orders.
    fn repeated_ids(&self) -> Breaches {
        let mut breaches = Breaches::default();
        let named = |record: &Record| Some((record.order_id()?, record.n));
        let mut named: Vec<_> = self
            .with(Outcome::Bought)
            .filter_map(|record| named(record).map(|(id, n)| (id, n, record)))
            .collect();
        named.sort_unstable_by_key(|(id, n, _)| (*id, *n));
        let mut found = HashSet::new();
        for same in named.chunk_by(|a, b| a.0 == b.0) {
            let (id, _, first) = same[0];
            let repeats = |other: &Record| {
                let by_ticket = other.admitted && first.admitted;
                other.user == first.user && (other.key == first.key || by_ticket)
            };
            let elsewhere = self.evidence.elsewhere.contains(&id);
            if elsewhere || same.iter().any(|(_, _, other)| !repeats(other)) {
                found.insert(id);
                let also = if elsewhere { ", also for another voucher" } else { "" };
                let why = || format!("order {id} was acknowledged {} times{also}", same.len());
                breaches.add(self.evidence, why, || same.iter().map(|(_, _, record)| *record));
            }
        }
        let mut rows: Vec<&OrderRow> = self.evidence.rows.iter().collect();
        rows.sort_unstable_by_key(|row| row.id);
        for same in rows.chunk_by(|a, b| a.id == b.id).filter(|same| same.len() > 1) {
            let id = same[0].id;
            if found.insert(id) {
                let why = || format!("{} orders exist with the id {id}", same.len());
                let records = self.evidence.records.iter();
                let named = records.filter(|record| record.order_id() == Some(id));
                breaches.add(self.evidence, why, || named);
            }
        }
        breaches
    }

    fn audit_agrees(&self) -> RuleResult {
        let differences = match self.evidence.audit {
            AuditCheck::Absent => return (None, "no audit was read".to_owned()),
            AuditCheck::Equal { said, own } => said.differences(own),
            AuditCheck::Moved { before, after } => {
                let mut found = Vec::new();
                let moved = after.orders - before.orders;
                if moved != signed(self.new_units) {
                    found.push(format!("orders: audit +{moved}, clients see {}", self.new_units));
                }
                let stock = [
                    ("before", before, self.evidence.offered),
                    ("after", after, self.evidence.left),
                ];
                found.extend(stock.into_iter().filter_map(|(when, audit, told)| {
                    let (said, told) = (audit.stock_left, told?);
                    let text = format!("stock_left {when}: audit {said}, the public {told}");
                    (said != told).then_some(text)
                }));
                if !after.consistent {
                    found.push("the audit itself calls the voucher inconsistent".to_owned());
                }
                found
            }
        };
        let detail =
            if differences.is_empty() { "agrees".to_owned() } else { differences.join("; ") };
        (Some(differences.is_empty()), detail)
    }

    fn with(&self, outcome: Outcome) -> impl Iterator<Item = &Record> {
        self.evidence.records.iter().filter(move |record| record.outcome == outcome)
    }
}
