//! What a service owes to requests after a fault: an answer within a bound.
//!
//! Safety says nothing of a service that hangs. The bounds are generous, for busy machines: they
//! distinguish a slow service from one that never answers. Every length is counted without the time
//! in which the generator itself stood still ([`Stalls`]).
//!
//! The header of a history names the rules that its run demands ([`DEMANDS`]). What only the
//! laboratory can see is in the history as marks.
//!
//! [`DEMANDS`]: loadtest_load::history::DEMANDS

use std::collections::BTreeSet;

use loadtest_load::client::HUNG_UP;
use loadtest_load::history::Mark;
use loadtest_load::history::record::{NO_END, Record, has_failed};
use loadtest_load::outcome::TICKET_PENDING;

use crate::evidence::Evidence;
use crate::hand_off;
use crate::proof::Breaches;
use crate::rules::RuleResult;
use crate::stalls::Stalls;
use crate::verdict::Rule;

/// A request that is sent later than this after a fault comes to a deployment that has recovered.
const SETTLED_NS: u64 = 1_000_000_000;
/// How long its answer may take, and how long after the first request that follows the fault the
/// first answer may come.
const MAX_ANSWER_NS: u64 = 5_000_000_000;
/// For how long after a stall a request may fail for it: a probe of a server may have failed then,
/// and is repeated after a second and a half.
const AFTER_STALL_NS: u64 = 2_000_000_000;
/// How long a ticket may take to end: one that Redis has lost ends after 10 s.
const MAX_TICKET_NS: u64 = 15_000_000_000;

/// The sort of marks that record what the laboratory saw of a rule: `name` is the rule, `phase` is
/// [`KEPT`] or [`BROKEN`], `detail` the figures.
pub const SEEN: &str = "seen";
/// The phase of a mark whose rule was kept.
pub const KEPT: &str = "kept";
/// The phase of a mark whose rule was broken.
pub const BROKEN: &str = "broken";

/// Judges one of these rules; `None` where the run does not demand it.
pub(super) fn judge(evidence: &Evidence<'_>, rule: Rule, breaches: &mut Breaches) -> RuleResult {
    if !evidence.terms.demands.contains(&rule) {
        return (None, "the run does not demand it".to_owned());
    }
    let round = Round { evidence, healed_ns: evidence.terms.healed_ns };
    match rule {
        Rule::ServedAfterFault => round.served(),
        Rule::AnsweredAfterFault => round.answered(breaches),
        Rule::LocksAreHandedOn => hand_off::judge(evidence, breaches),
        Rule::NoFailureInRestart => round.failures(breaches),
        Rule::TicketsEnd => round.tickets(breaches),
        Rule::SoldOutStaysSoldOut => round.sold_out(),
        _ => round.seen(rule),
    }
}

/// A run with a fault.
struct Round<'a> {
    evidence: &'a Evidence<'a>,
    /// When the fault had healed, if that is in the history.
    healed_ns: Option<u64>,
}

impl Round<'_> {
    fn stalls(&self) -> &Stalls {
        &self.evidence.terms.stalls
    }

    /// How long a request took, without the generator's own stalls.
    fn took_ns(&self, record: &Record) -> u64 {
        self.stalls().elapsed(record.start_ns, record.end_ns)
    }

    /// Whether the generator stood still then, or shortly before. Perhaps the whole machine did: a
    /// replica gives up a server that does not answer for half a second.
    fn met_a_stall(&self, record: &Record) -> bool {
        self.stalls().met(record.start_ns.saturating_sub(AFTER_STALL_NS), record.end_ns)
    }

    fn code(&self, record: &Record) -> &str {
        self.evidence.names.code(record)
    }

    /// Counts from the first request after the fault: the service cannot answer before it is asked.
    fn served(&self) -> RuleResult {
        let Some(healed_ns) = self.healed_ns else { return no_fault() };
        let records = || self.evidence.records.iter();
        let decides = |record: &&Record| record.outcome.decides() && record.end_ns != NO_END;
        if !records().filter(decides).any(|record| record.end_ns < healed_ns) {
            return (Some(true), "nothing was served before the fault either".to_owned());
        }
        let after = || records().filter(|record| record.start_ns >= healed_ns);
        let Some(asked_ns) = after().map(|record| record.start_ns).min() else {
            return (Some(true), "no request was sent after the fault".to_owned());
        };
        let Some(served_ns) = after().filter(decides).map(|record| record.end_ns).min() else {
            return (Some(false), "no request that was sent after the fault was served".to_owned());
        };
        let took_ns = self.stalls().elapsed(asked_ns, served_ns);
        let detail =
            format!("the first answer came {} ms after the first request", millis(took_ns));
        (Some(took_ns <= MAX_ANSWER_NS), detail)
    }

    /// A ticket has a deadline of its own, and a client that hangs up waits for nothing.
    fn answered(&self, breaches: &mut Breaches) -> RuleResult {
        let Some(healed_ns) = self.healed_ns else { return no_fault() };
        let settled_ns = healed_ns.saturating_add(SETTLED_NS);
        let hangs = |record: &Record| {
            record.start_ns >= settled_ns && !record.admitted && self.code(record) != HUNG_UP
        };
        let asked: Vec<&Record> =
            self.evidence.records.iter().filter(|record| hangs(record)).collect();
        for record in &asked {
            let took_ns = self.took_ns(record);
            if took_ns > MAX_ANSWER_NS {
                let why = || format!("request {} took {}", record.n, length(record, took_ns));
                breaches.add(self.evidence, why, || [*record]);
            }
        }
        let longest = asked.iter().max_by_key(|record| self.took_ns(record));
        let longest = longest.map(|record| length(record, self.took_ns(record)));
        let longest = longest.unwrap_or_else(|| "0 ms".to_owned());
        let detail = format!(
            "{} of {} requests sent a second after the fault or later took more than 5 s; \
             the longest {longest}",
            breaches.count,
            asked.len()
        );
        (Some(breaches.count == 0), detail)
    }

    fn failures(&self, breaches: &mut Breaches) -> RuleResult {
        let mut codes = BTreeSet::new();
        for record in self.evidence.records {
            if has_failed(record, self.evidence.names) && !self.met_a_stall(record) {
                codes.insert(self.code(record));
                let why = || format!("request {} failed: {}", record.n, self.code(record));
                breaches.add(self.evidence, why, || [record]);
            }
        }
        let with = codes.into_iter().collect::<Vec<_>>().join(", ");
        let all = self.evidence.records.len();
        let detail = format!("{} of {all} requests failed", breaches.count);
        let detail = if with.is_empty() { detail } else { format!("{detail}: {with}") };
        (Some(breaches.count == 0), detail)
    }

    fn tickets(&self, breaches: &mut Breaches) -> RuleResult {
        let records = self.evidence.records.iter();
        let pending = |record: &&Record| {
            self.code(record).ends_with(TICKET_PENDING) && self.took_ns(record) > MAX_TICKET_NS
        };
        for record in records.clone().filter(pending) {
            let why = || format!("the ticket of request {} had not ended", record.n);
            breaches.add(self.evidence, why, || [record]);
        }
        let all = records.filter(|record| record.admitted).count();
        let within = MAX_TICKET_NS / 1_000_000_000;
        let count = breaches.count;
        (Some(count == 0), format!("{count} of {all} tickets had not ended after {within} s"))
    }

    /// What the laboratory saw sold out must have nothing left at the end.
    fn sold_out(&self) -> RuleResult {
        if self.seen(Rule::SoldOutStaysSoldOut).0.is_none() {
            return (Some(true), "it was not sold out".to_owned());
        }
        match self.evidence.left {
            Some(0) => (Some(true), "0 units left".to_owned()),
            Some(left) => (Some(false), format!("{left} units left though all had been sold")),
            None => (None, "what is left was not read".to_owned()),
        }
    }

    /// What the laboratory saw of a rule itself.
    fn seen(&self, rule: Rule) -> RuleResult {
        let name = rule.name();
        let is_of_rule = |mark: &&Mark<'_>| mark.what == SEEN && mark.name == name;
        let marks: Vec<_> = self.evidence.marks.iter().filter(is_of_rule).collect();
        let broken = marks.iter().find(|mark| mark.phase == BROKEN);
        match (broken, marks.last()) {
            (Some(mark), _) => (Some(false), mark.detail.to_string()),
            (None, Some(mark)) => (Some(true), mark.detail.to_string()),
            (None, None) => (None, "the laboratory did not come so far".to_owned()),
        }
    }
}

fn no_fault() -> RuleResult {
    (None, "no fault has healed".to_owned())
}

fn millis(ns: u64) -> u64 {
    ns / 1_000_000
}

fn length(record: &Record, took_ns: u64) -> String {
    if record.end_ns == NO_END { "for ever".to_owned() } else { format!("{} ms", millis(took_ns)) }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
