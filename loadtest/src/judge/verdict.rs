//! The rules of a sale, judged on plain data: what clients were told, what the judge saw, what the
//! service says.
//!
//! Nothing here does I/O. A rule that cannot be judged with what is known is `None`, which is never
//! counted as held.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::judge::evidence::{AuditCheck, Evidence, OrderRow, duplicate_users, signed};
use crate::load::outcome::Outcome;

/// What must hold after every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// No more orders than units.
    OrdersWithinStock,
    /// One order per user and voucher.
    OneOrderPerUser,
    /// As many units were put on sale as were ordered.
    StockAsOrdered,
    /// Stock left + orders = initial stock.
    StockAddsUp,
    /// Every acknowledged order exists.
    AcknowledgedExist,
    /// Every definite refusal left no row.
    RefusalsLeftNoRow,
    /// No row without a request.
    NoRowWithoutRequest,
    /// No false "sold out".
    SoldOutIsTrue,
    /// No false "already ordered".
    AlreadyOrderedIsTrue,
    /// No two acknowledgements name the same order.
    IdsAreUnique,
    /// The service's audit says what the judge sees.
    AuditAgrees,
}

impl Rule {
    /// All rules, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::OrdersWithinStock,
        Self::OneOrderPerUser,
        Self::StockAsOrdered,
        Self::StockAddsUp,
        Self::AcknowledgedExist,
        Self::RefusalsLeftNoRow,
        Self::NoRowWithoutRequest,
        Self::SoldOutIsTrue,
        Self::AlreadyOrderedIsTrue,
        Self::IdsAreUnique,
        Self::AuditAgrees,
    ];

    /// The rule in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::OrdersWithinStock => "no more orders than units",
            Self::OneOrderPerUser => "no user bought twice",
            Self::StockAsOrdered => "as many units on sale as were ordered",
            Self::StockAddsUp => "stock left + orders = initial stock",
            Self::AcknowledgedExist => "every acknowledged order exists",
            Self::RefusalsLeftNoRow => "no refused request left an order",
            Self::NoRowWithoutRequest => "no order without a request",
            Self::SoldOutIsTrue => "nobody was told \"sold out\" too early",
            Self::AlreadyOrderedIsTrue => "nobody was told \"already ordered\" without an order",
            Self::IdsAreUnique => "order ids are unique",
            Self::AuditAgrees => "the service's audit agrees with the judge",
        }
    }
}

/// One rule, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Whether it held; `None` if it could not be judged.
    pub held: Option<bool>,
    /// The figures behind it, or why it could not be judged.
    pub detail: String,
}

/// The verdict on one load.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Orders that came into being during the load, as the judge saw them.
    pub orders: u64,
    /// How many of them are beyond the stock; 0 if the stock is not known.
    pub oversold: u64,
    /// Users who hold more than one order.
    pub duplicate_users: u64,
    /// Acknowledged orders that do not exist.
    pub lost: u64,
    /// Every rule once, in the order of [`Rule::ALL`].
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// The rules among `demanded` that did not hold; one that could not be judged did not hold.
    pub fn broken<'a>(&'a self, demanded: &'a [Rule]) -> impl Iterator<Item = &'a Finding> {
        self.findings
            .iter()
            .filter(|finding| demanded.contains(&finding.rule) && finding.held != Some(true))
    }

    /// The finding on one rule.
    pub fn finding(&self, rule: Rule) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule == rule)
    }

    /// The verdict where nothing could be seen: no rule is judged.
    pub fn unjudged(why: &str) -> Self {
        let finding = |rule| Finding { rule, held: None, detail: why.to_owned() };
        let findings = Rule::ALL.map(finding).into();
        Self { orders: 0, oversold: 0, duplicate_users: 0, lost: 0, findings }
    }
}

/// Judges every rule.
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let facts = Facts::of(evidence);
    let findings = Rule::ALL
        .map(|rule| {
            let (held, detail) = facts.judge(rule);
            Finding { rule, held, detail }
        })
        .into();
    let offered = evidence.offered.unwrap_or(i64::MAX);
    Verdict {
        orders: facts.new_rows as u64,
        oversold: u64::try_from(signed(facts.new_rows) - offered).unwrap_or(0),
        duplicate_users: facts.duplicate_users as u64,
        lost: facts.lost as u64,
        findings,
    }
}

/// What is counted once and used by several rules.
struct Facts<'a> {
    evidence: &'a Evidence<'a>,
    /// Rows that were not there before the load.
    new_rows: usize,
    duplicate_users: usize,
    /// Acknowledged orders without a row, those without an id included.
    lost: usize,
    acknowledged: usize,
    /// Ids that more than one acknowledgement names.
    repeated_ids: usize,
    /// Rows beyond a user's acknowledged and unknown requests, but not beyond the requests.
    after_refusal: usize,
    /// Rows beyond a user's requests, or of users without any.
    phantom: usize,
}

/// One user's requests, counted.
#[derive(Default)]
struct Asked {
    acknowledged: HashSet<u64>,
    unknown: usize,
    refused: usize,
}

impl<'a> Facts<'a> {
    fn of(evidence: &'a Evidence<'a>) -> Self {
        let mut asked: HashMap<u64, Asked> = HashMap::new();
        let existing: HashSet<OrderRow> = evidence.rows.iter().copied().collect();
        let mut acknowledged_ids = HashMap::<u64, usize>::new();
        let (mut acknowledged, mut lost) = (0, 0);
        for record in evidence.records {
            let Some(&user_id) = evidence.users.get(record.user as usize) else { continue };
            let user = asked.entry(user_id).or_default();
            match record.outcome {
                Outcome::Bought => {
                    acknowledged += 1;
                    let Some(id) = record.order_id else {
                        lost += 1;
                        continue;
                    };
                    *acknowledged_ids.entry(id).or_default() += 1;
                    user.acknowledged.insert(id);
                    lost += usize::from(!existing.contains(&OrderRow { id, user_id }));
                }
                Outcome::Unknown => user.unknown += 1,
                Outcome::SoldOut | Outcome::AlreadyOrdered | Outcome::Refused => user.refused += 1,
            }
        }
        let (after_refusal, phantom) = unexplained(evidence, &asked);
        Self {
            evidence,
            new_rows: new_rows(evidence).count(),
            duplicate_users: duplicate_users(evidence.rows),
            lost,
            acknowledged,
            repeated_ids: acknowledged_ids.values().filter(|times| **times > 1).count(),
            after_refusal,
            phantom,
        }
    }

    fn judge(&self, rule: Rule) -> (Option<bool>, String) {
        let e = self.evidence;
        match rule {
            Rule::OrdersWithinStock => match e.offered {
                Some(offered) => (
                    Some(signed(self.new_rows) <= offered),
                    format!("{} orders, {offered} units", self.new_rows),
                ),
                None => (None, "nobody told how many units there were".to_owned()),
            },
            Rule::OneOrderPerUser => zero(self.duplicate_users, "users hold more than one order"),
            Rule::StockAsOrdered => match (e.offered, e.granted) {
                (Some(offered), Some(granted)) => (
                    Some(granted == offered),
                    format!("{granted} units granted, {offered} ordered"),
                ),
                _ => (None, "needs the database".to_owned()),
            },
            Rule::StockAddsUp => match (e.offered, e.left) {
                (Some(offered), Some(left)) => (
                    Some(left + signed(self.new_rows) == offered),
                    format!("{left} left + {} orders, {offered} before", self.new_rows),
                ),
                _ => (None, "nobody told how many units there were, or are left".to_owned()),
            },
            Rule::AcknowledgedExist => (
                Some(self.lost == 0),
                format!("{} acknowledged, {} of them lost", self.acknowledged, self.lost),
            ),
            Rule::RefusalsLeftNoRow => zero(self.after_refusal, "orders after a refusal"),
            Rule::NoRowWithoutRequest if e.rows_are_all || self.phantom > 0 => {
                zero(self.phantom, "orders that nobody asked for")
            }
            Rule::NoRowWithoutRequest => (None, "needs the database".to_owned()),
            Rule::SoldOutIsTrue => self.sold_out_is_true(),
            Rule::AlreadyOrderedIsTrue => self.already_ordered_is_true(),
            Rule::IdsAreUnique => zero(self.repeated_ids, "ids acknowledged more than once"),
            Rule::AuditAgrees => self.audit_agrees(),
        }
    }

    /// The first "sold out" must come after enough requests were on their way to sell everything.
    fn sold_out_is_true(&self) -> (Option<bool>, String) {
        let records = self.evidence.records;
        let told = records.iter().filter(|record| record.outcome == Outcome::SoldOut);
        let Some(first_ns) = told.map(|record| record.end_ns).min() else {
            return (Some(true), "nobody was told so".to_owned());
        };
        let Some(offered) = self.evidence.offered else {
            return (None, "nobody told how many units there were".to_owned());
        };
        let could_have_sold = records
            .iter()
            .filter(|record| record.start_ns < first_ns)
            .filter(|record| matches!(record.outcome, Outcome::Bought | Outcome::Unknown))
            .count();
        let enough = signed(could_have_sold) >= offered && signed(self.new_rows) >= offered;
        let detail = format!(
            "{} orders in the end, {could_have_sold} possible before the first answer, {offered} \
             units",
            self.new_rows
        );
        (Some(enough), detail)
    }

    fn already_ordered_is_true(&self) -> (Option<bool>, String) {
        let e = self.evidence;
        let holders: HashSet<u64> = e.rows.iter().map(|row| row.user_id).collect();
        let told: BTreeSet<u32> = e
            .records
            .iter()
            .filter(|record| record.outcome == Outcome::AlreadyOrdered)
            .map(|record| record.user)
            .collect();
        let falsely = told
            .iter()
            .filter_map(|user| e.users.get(*user as usize))
            .filter(|user_id| !holders.contains(user_id))
            .count();
        zero(falsely, "users told so without an order")
    }

    fn audit_agrees(&self) -> (Option<bool>, String) {
        let differences = match self.evidence.audit {
            AuditCheck::Absent => return (None, "no audit was read".to_owned()),
            AuditCheck::Equal { said, own } => said.differences(own),
            AuditCheck::Moved { before, after } => {
                let mut found = Vec::new();
                let moved = after.orders - before.orders;
                if moved != signed(self.new_rows) {
                    found.push(format!("orders: audit +{moved}, clients see {}", self.new_rows));
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
}

fn zero(count: usize, what: &str) -> (Option<bool>, String) {
    (Some(count == 0), format!("{count} {what}"))
}

fn new_rows<'a>(evidence: &'a Evidence<'a>) -> impl Iterator<Item = &'a OrderRow> {
    evidence.rows.iter().filter(|row| !evidence.earlier.contains(&row.id))
}

/// New rows that neither an acknowledgement nor an unknown outcome of their user explains: those
/// that a refused request of that user may have left, and those beyond all its requests.
fn unexplained(evidence: &Evidence<'_>, asked: &HashMap<u64, Asked>) -> (usize, usize) {
    let mut unclaimed = HashMap::<u64, usize>::new();
    for row in new_rows(evidence) {
        let claimed =
            asked.get(&row.user_id).is_some_and(|user| user.acknowledged.contains(&row.id));
        if !claimed {
            *unclaimed.entry(row.user_id).or_default() += 1;
        }
    }
    let (mut after_refusal, mut phantom) = (0, 0);
    for (user_id, rows) in unclaimed {
        let (unknown, refused) =
            asked.get(&user_id).map_or((0, 0), |user| (user.unknown, user.refused));
        let excess = rows.saturating_sub(unknown);
        after_refusal += excess.min(refused);
        phantom += excess.saturating_sub(refused);
    }
    (after_refusal, phantom)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
