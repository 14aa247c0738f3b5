//! The rules of a sale and the verdict on it: plain data. [`crate::rules`] judges them.

use serde::{Deserialize, Serialize};

use crate::proof::Proof;
pub use crate::rules::judge;
use crate::terms::Terms;

/// What must hold after every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// No id is that of two orders.
    IdsAreUnique,
    /// No effect under a lower fencing token after one under a higher.
    TokensRise,
    /// No two hold a lock at once that lets one in at a time.
    OneHolderAtATime,
    /// Requests that come after a fault are served within 5 s.
    ServedAfterFault,
    /// No request that comes a second after a fault takes more than 5 s.
    AnsweredAfterFault,
    /// Each replica serves after a fault.
    EachReplicaServes,
    /// A lock that is free is handed on within 3 s, also if messages are lost.
    LocksAreHandedOn,
    /// No request fails while replicas are restarted in turn.
    NoFailureInRestart,
    /// Every ticket ends.
    TicketsEnd,
    /// Every purchase that was begun ends, also if its client has disconnected.
    PurchasesEnd,
    /// Of what was sold out nothing is left.
    SoldOutStaysSoldOut,
    /// Nothing is sold before its sale begins, or after it has ended.
    SoldWithinWindow,
    /// The service's audit says what the judge sees.
    AuditAgrees,
}

impl Rule {
    /// All rules, in the order of reports.
    pub const ALL: [Self; 22] = [
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
        Self::TokensRise,
        Self::OneHolderAtATime,
        Self::ServedAfterFault,
        Self::AnsweredAfterFault,
        Self::EachReplicaServes,
        Self::LocksAreHandedOn,
        Self::NoFailureInRestart,
        Self::TicketsEnd,
        Self::PurchasesEnd,
        Self::SoldOutStaysSoldOut,
        Self::SoldWithinWindow,
        Self::AuditAgrees,
    ];

    /// What can be demanded only of some runs, which say so themselves.
    pub fn is_of_some_runs(self) -> bool {
        self == Self::TokensRise || self == Self::OneHolderAtATime || self.is_of_faults()
    }

    /// What a service owes after a fault.
    pub fn is_of_faults(self) -> bool {
        matches!(
            self,
            Self::ServedAfterFault
                | Self::AnsweredAfterFault
                | Self::EachReplicaServes
                | Self::LocksAreHandedOn
                | Self::NoFailureInRestart
                | Self::TicketsEnd
                | Self::PurchasesEnd
                | Self::SoldOutStaysSoldOut
                | Self::SoldWithinWindow
        )
    }

    /// The rule's name in JSON and in histories.
    pub fn name(self) -> String {
        let name = serde_json::to_value(self).ok();
        name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The rule of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

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
            Self::SoldOutIsTrue => "\"sold out\" was never answered too early",
            Self::AlreadyOrderedIsTrue => "\"already ordered\" was answered only with an order",
            Self::IdsAreUnique => "order ids are unique",
            Self::TokensRise => "no effect under a lower token after a higher one",
            Self::OneHolderAtATime => "one at a time holds a lock",
            Self::ServedAfterFault => "requests are served soon after the fault",
            Self::AnsweredAfterFault => "no request hangs after the fault",
            Self::EachReplicaServes => "each replica serves after the fault",
            Self::LocksAreHandedOn => "a free lock is handed on in time",
            Self::NoFailureInRestart => "no request fails in a rolling restart",
            Self::TicketsEnd => "every ticket ends",
            Self::PurchasesEnd => "every purchase that was begun ends",
            Self::SoldOutStaysSoldOut => "nothing is left of what was sold out",
            Self::SoldWithinWindow => "nothing is sold outside of its sale's time",
            Self::AuditAgrees => "the service's audit agrees with the judge",
        }
    }
}

/// One rule, judged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RuleFinding {
    /// Which rule.
    pub rule: Rule,
    /// Whether it held; `None` if it could not be judged.
    pub held: Option<bool>,
    /// The figures behind it, or why it could not be judged.
    pub detail: String,
    /// How often it was broken, where that can be counted.
    pub broken: u64,
    /// Some of the requests that prove it, at most [`crate::proof::MAX_PROOFS`].
    pub proofs: Vec<Proof>,
}

impl RuleFinding {
    /// Whether the rule concerns its run: one on faults does so where it is demanded.
    pub fn concerns_run(&self, demanded: &[Rule]) -> bool {
        self.held.is_some() || demanded.contains(&self.rule) || !self.rule.is_of_faults()
    }

    /// A rule that nothing could be said about.
    pub fn unjudged(rule: Rule, why: &str) -> Self {
        Self { rule, held: None, detail: why.to_owned(), broken: 0, proofs: Vec::new() }
    }
}

/// The verdict on one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    pub findings: Vec<RuleFinding>,
}

impl Verdict {
    /// Whether the rule was judged.
    pub fn is_judged(&self, rule: Rule) -> bool {
        self.finding(rule).is_some_and(|finding| finding.held.is_some())
    }

    /// Whether there were fenced holders.
    pub fn fenced(&self) -> bool {
        self.is_judged(Rule::TokensRise)
    }

    /// The rules that must be judged and hold: all that can be with what the judge was given, and
    /// those that the run's terms demand. Tokens are judged as well where there are some.
    pub fn demanded(&self, rows_are_all: bool, audited: bool, terms: &Terms) -> Vec<Rule> {
        let wanted = |rule: &Rule| match rule {
            // Only the database shows what stock was ordered, and rows of strangers.
            Rule::StockAsOrdered | Rule::NoRowWithoutRequest => rows_are_all,
            Rule::AuditAgrees => audited || terms.demands.contains(rule),
            Rule::TokensRise => terms.fenced || self.fenced(),
            Rule::OneHolderAtATime => terms.one_holder_per.is_some(),
            rule if rule.is_of_faults() => terms.demands.contains(rule),
            _ => true,
        };
        Rule::ALL.into_iter().filter(wanted).collect()
    }

    /// The rules among `demanded` that did not hold; one that could not be judged did not hold.
    pub fn broken<'a>(&'a self, demanded: &'a [Rule]) -> impl Iterator<Item = &'a RuleFinding> {
        self.findings
            .iter()
            .filter(|finding| demanded.contains(&finding.rule) && finding.held != Some(true))
    }

    /// The finding on one rule.
    pub fn finding(&self, rule: Rule) -> Option<&RuleFinding> {
        self.findings.iter().find(|finding| finding.rule == rule)
    }

    /// The verdict where nothing could be seen: no rule is judged.
    pub fn unjudged(why: &str) -> Self {
        let findings = Rule::ALL.map(|rule| RuleFinding::unjudged(rule, why)).into();
        Self { orders: 0, oversold: 0, duplicate_users: 0, lost: 0, findings }
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
