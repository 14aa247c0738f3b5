//! The requests that prove that a rule was broken, so that a reader need not believe the verdict.
//!
//! Of each rule at most [`MAX_PROOFS`] cases are kept, the earliest, each with at most
//! [`MAX_REQUESTS`] requests. What the requests of clients cannot prove (a stock that does not add
//! up, an audit that lies) has figures in the verdict, and no proof here.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use crate::judge::evidence::{Evidence, OrderRow, Record};
use crate::judge::verdict::{Rule, Verdict};
use crate::load::drive::History;
use crate::load::outcome::Outcome;

/// Most cases that are kept of one rule.
pub const MAX_PROOFS: usize = 3;
/// Most requests of one case.
pub const MAX_REQUESTS: usize = 12;

/// One case of a broken rule.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    /// Which rule.
    pub rule: Rule,
    /// What happened, in words.
    pub what: String,
    /// The requests that show it, in the order in which they were sent.
    pub requests: Vec<Request>,
    /// Requests that belong here and are left out.
    pub left_out: usize,
}

/// One request of a proof.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// Id of the user who sent it.
    pub user: String,
    /// The replica that answered, if one did.
    pub replica: Option<String>,
    /// What the answer means.
    pub outcome: Outcome,
    /// Status and code of the answer.
    pub code: String,
    /// The order that the answer speaks of.
    pub order: Option<String>,
    /// When it was sent, in nanoseconds since the load began.
    pub sent_ns: u64,
    /// When its answer was complete.
    pub answered_ns: u64,
    /// Whether it is one of those without which nothing would be broken.
    pub decides: bool,
}

/// The proofs of every broken rule that requests can prove.
pub fn proofs(evidence: &Evidence<'_>, history: &History, verdict: &Verdict) -> Vec<Proof> {
    let prover = Prover { evidence, history };
    let broken = verdict.findings.iter().filter(|finding| finding.held == Some(false));
    let mut proofs = Vec::new();
    for finding in broken {
        let mut found = prover.prove(finding.rule);
        found.sort_by_key(|proof| proof.requests.iter().map(|one| one.sent_ns).min());
        found.truncate(MAX_PROOFS);
        proofs.append(&mut found);
    }
    proofs
}

struct Prover<'a> {
    evidence: &'a Evidence<'a>,
    history: &'a History,
}

impl Prover<'_> {
    fn prove(&self, rule: Rule) -> Vec<Proof> {
        match rule {
            Rule::OrdersWithinStock => self.beyond_the_stock().into_iter().collect(),
            Rule::OneOrderPerUser => self.bought_twice(),
            Rule::AcknowledgedExist => self.lost(),
            Rule::SoldOutIsTrue => self.told_too_early().into_iter().collect(),
            Rule::IdsAreUnique => self.same_id(),
            Rule::RefusalsLeftNoRow
            | Rule::AlreadyOrderedIsTrue
            | Rule::StockAsOrdered
            | Rule::StockAddsUp
            | Rule::NoRowWithoutRequest
            | Rule::AuditAgrees => Vec::new(),
        }
    }

    fn bought(&self) -> impl Iterator<Item = &Record> {
        let records = self.evidence.records.iter();
        records.filter(|record| record.outcome == Outcome::Bought)
    }

    /// The first acknowledgement beyond the stock, and the purchases that were under way with it.
    fn beyond_the_stock(&self) -> Option<Proof> {
        let offered = usize::try_from(self.evidence.offered?).ok()?;
        let mut bought: Vec<&Record> = self.bought().collect();
        bought.sort_unstable_by_key(|record| record.end_ns);
        let first = *bought.get(offered)?;
        let overlaps = |one: &&&Record| one.start_ns < first.end_ns && one.end_ns > first.start_ns;
        let mut with_it: Vec<&Record> = bought.iter().filter(overlaps).copied().collect();
        // Those that ended closest to it tell most.
        with_it.sort_unstable_by_key(|one| one.end_ns.abs_diff(first.end_ns));
        let what = format!(
            "acknowledgement {} of an order, for {offered} units; {} other purchases that \
             succeeded were under way at the same time",
            offered + 1,
            with_it.len() - 1
        );
        let decides = |one: &Record| one.order_id == first.order_id;
        Some(self.proof((Rule::OrdersWithinStock, what), with_it, decides))
    }

    fn bought_twice(&self) -> Vec<Proof> {
        let mut orders = HashMap::<u64, usize>::new();
        for row in self.evidence.rows {
            *orders.entry(row.user_id).or_default() += 1;
        }
        let several = |record: &&Record| {
            self.user(record).and_then(|user| orders.get(&user)).is_some_and(|count| *count > 1)
        };
        let mut by_user = BTreeMap::<u32, Vec<&Record>>::new();
        for record in self.evidence.records.iter().filter(several) {
            by_user.entry(record.user).or_default().push(record);
        }
        let proof = |records: Vec<&Record>| {
            let user = records.first().and_then(|record| self.user(record)).unwrap_or_default();
            let count = orders.get(&user).copied().unwrap_or_default();
            let what = format!("user {user} has {count} orders of the same voucher");
            let decides = |one: &Record| one.outcome == Outcome::Bought;
            self.proof((Rule::OneOrderPerUser, what), records, decides)
        };
        by_user.into_values().map(proof).collect()
    }

    fn lost(&self) -> Vec<Proof> {
        let there: HashSet<OrderRow> = self.evidence.rows.iter().copied().collect();
        let gone = |record: &&Record| {
            let row = record.order_id.zip(self.user(record));
            !row.is_some_and(|(id, user_id)| there.contains(&OrderRow { id, user_id }))
        };
        let proof = |record: &Record| {
            let what = "an acknowledged order that does not exist".to_owned();
            self.proof((Rule::AcknowledgedExist, what), vec![record], |_| true)
        };
        self.bought().filter(gone).map(proof).collect()
    }

    fn told_too_early(&self) -> Option<Proof> {
        let records = self.evidence.records.iter();
        let told = records.filter(|record| record.outcome == Outcome::SoldOut);
        let first = told.min_by_key(|record| record.end_ns)?;
        let before = self.bought().filter(|record| record.start_ns < first.end_ns).count();
        let what = format!(
            "the first \"sold out\" of {} units, when {before} purchases that succeeded had begun",
            self.evidence.offered.unwrap_or_default()
        );
        Some(self.proof((Rule::SoldOutIsTrue, what), vec![first], |_| true))
    }

    fn same_id(&self) -> Vec<Proof> {
        let mut by_id = BTreeMap::<u64, Vec<&Record>>::new();
        for record in self.bought() {
            if let Some(id) = record.order_id {
                by_id.entry(id).or_default().push(record);
            }
        }
        let several = by_id.into_iter().filter(|(_, records)| records.len() > 1);
        let proof = |(id, records): (u64, Vec<&Record>)| {
            let what = format!("order {id} was acknowledged {} times", records.len());
            self.proof((Rule::IdsAreUnique, what), records, |_| true)
        };
        several.map(proof).collect()
    }

    fn user(&self, record: &Record) -> Option<u64> {
        self.evidence.users.get(record.user as usize).copied()
    }

    /// The first of these requests, which are in the order of what they tell, by when they began.
    fn proof(
        &self,
        (rule, what): (Rule, String),
        mut records: Vec<&Record>,
        decides: impl Fn(&Record) -> bool,
    ) -> Proof {
        let left_out = records.len().saturating_sub(MAX_REQUESTS);
        records.truncate(MAX_REQUESTS);
        records.sort_unstable_by_key(|record| record.start_ns);
        let name = |names: &[String], index: u8| names.get(usize::from(index)).cloned();
        let request = |record: &&Record| Request {
            user: self.user(record).map_or_else(String::new, |user| user.to_string()),
            replica: record.replica.and_then(|index| name(&self.history.replicas, index)),
            outcome: record.outcome,
            code: name(&self.history.codes, record.code).unwrap_or_default(),
            order: record.order_id.map(|id| id.to_string()),
            sent_ns: record.start_ns,
            answered_ns: record.end_ns,
            decides: decides(record),
        };
        Proof { rule, what, requests: records.iter().map(request).collect(), left_out }
    }
}

#[cfg(test)]
#[path = "proofs_tests.rs"]
mod tests;
