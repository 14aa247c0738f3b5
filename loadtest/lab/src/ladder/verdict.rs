//! What a rung's cell came to, held against what the rung says of it.

use loadtest_judge::validity::is_unsold;
use loadtest_judge::verdict::{Rule, RuleFinding};

use super::{Breach, Rung, RungSide};
use crate::cell::{CellReport, demanded};
use crate::predict::Prediction;
use crate::round::is_cut_short;

/// Requests of a proof that are named.
const MAX_REQUESTS: usize = 3;
/// A replica starves if each other one makes more than this multiple of its purchases.
const STARVATION: u64 = 4;

impl Rung {
    /// Holds the report of that side against the rung. The result is in the report: predicted,
    /// whether it came out so, and which rules it should have kept.
    pub(super) fn judge(&self, side: RungSide, mut report: CellReport) -> CellReport {
        report.rung = Some(self.id(side));
        report.because = match side {
            RungSide::Broken => self.because.to_owned(),
            RungSide::Repaired => self.repair.to_owned(),
        };
        let Some(verdict) = &report.verdict else {
            report.as_predicted = false;
            return report;
        };
        if side == RungSide::Broken {
            report.invalid_because.retain(|why| !self.breach.explains(why));
            report.valid = report.invalid_because.is_empty();
        }
        let shown = self.breach.is_shown(&report);
        let broken = |prediction: Prediction| -> Vec<Rule> {
            verdict.broken(&demanded(prediction, verdict)).map(|finding| finding.rule).collect()
        };
        let mut wrong = match side {
            RungSide::Broken => broken(report.observed),
            RungSide::Repaired => broken(self.repaired.prediction()),
        };
        // What depends on time is not promised of a lock that breaks, nor in a line that is longer
        // than its fault.
        if side == RungSide::Broken || self.breach == Breach::Starvation {
            wrong.retain(|rule| !self.breach.is_about(*rule) && !rule.is_of_faults());
        }
        report.as_predicted = wrong.is_empty() && shown == (side == RungSide::Broken);
        if report.as_predicted {
            report.predicted = report.observed;
        } else if side == RungSide::Broken {
            report.predicted = self.breach.prediction();
        }
        report.broken_rules = wrong;
        report
    }

    /// What was seen of that side, with the requests that prove it.
    pub fn evidence(&self, report: &CellReport) -> Vec<String> {
        let mut lines = Vec::new();
        for fault in report.round.iter().flat_map(|round| &round.faults) {
            lines.push(format!("fault {}: {}", fault.name.name(), fault.witness));
        }
        lines.push(format!("{} orders for {} units", report.orders, report.stock));
        if let Some(overlaps) = &report.overlaps {
            lines.push(format!("holds of one lock at once: {}", overlaps.words()));
        }
        match self.breach {
            Breach::Rules(rules) => lines.extend(rules_in_words(report, rules)),
            Breach::NoPurchase | Breach::Starvation if report.round.is_some() => {
                lines.extend(during(report));
            }
            Breach::NoPurchase | Breach::Starvation => {
                let codes = report.load.iter().flat_map(|figures| &figures.codes);
                lines.extend(codes.map(|(code, count)| format!("{count} requests: {code}")));
            }
            Breach::Refusals { code, .. } => {
                let (count, all) = (refusals(report, code), report.requests);
                lines.push(format!("{count} of {all} requests were answered {code}"));
            }
        }
        lines
    }
}

impl RungSide {
    /// Whether another run of this side may show what that one did not: its fault or its load
    /// missed, and nothing speaks against the service.
    pub fn is_worth_retrying(self, report: &CellReport) -> bool {
        let is_wrong = !report.broken_rules.is_empty() || report.died;
        match self {
            Self::Broken => !report.ok() && !is_wrong,
            Self::Repaired => !report.valid && !is_wrong,
        }
    }
}

impl Breach {
    /// Whether the cell broke in this way. Of a cell that never ran nothing is shown.
    pub(super) fn is_shown(self, report: &CellReport) -> bool {
        let during = report.round.as_ref().map(|round| round.during);
        match self {
            Self::Rules(rules) => findings(report, rules).next().is_some(),
            Self::NoPurchase => during.map_or(report.orders, |during| during.all) == 0,
            Self::Starvation => during.is_some_and(|during| {
                let others = u64::from(report.axes.replicas).saturating_sub(1).max(1);
                (during.all - during.by_victim) / others > STARVATION * during.by_victim
            }),
            Self::Refusals { code, percent } => {
                refusals(report, code) * 100 > percent * report.requests
            }
        }
    }

    /// Whether it is no flaw of the load, but the breach itself, that makes a cell invalid.
    fn explains(self, why: &str) -> bool {
        match self {
            // The round of a lock that stays taken is short, and nothing is bought after its fault.
            Self::Rules(_) => self.is_about(Rule::EachReplicaServes) && is_cut_short(why),
            Self::NoPurchase | Self::Refusals { .. } => is_unsold(why),
            Self::Starvation => false,
        }
    }

    fn is_about(self, rule: Rule) -> bool {
        matches!(self, Self::Rules(rules) if rules.contains(&rule))
    }

    /// What the sale breaks by it, at least.
    fn prediction(self) -> Prediction {
        Prediction {
            oversells: self.is_about(Rule::OrdersWithinStock),
            duplicates: self.is_about(Rule::OneOrderPerUser)
                && !self.is_about(Rule::OrdersWithinStock),
            loses: false,
        }
    }
}

/// The findings on these rules that were broken.
fn findings<'a>(
    report: &'a CellReport,
    rules: &'a [Rule],
) -> impl Iterator<Item = &'a RuleFinding> {
    let all = report.verdict.iter().flat_map(|verdict| &verdict.findings);
    all.filter(|finding| rules.contains(&finding.rule) && finding.held == Some(false))
}

fn rules_in_words(report: &CellReport, rules: &[Rule]) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in findings(report, rules) {
        lines.push(format!("broken: {} ({})", finding.rule.words(), finding.detail));
        if let Some(proof) = finding.proofs.iter().find(|proof| !proof.requests.is_empty()) {
            lines.push(format!("  {}", proof.why));
            let requests = proof.requests.iter().take(MAX_REQUESTS);
            lines.extend(requests.map(|request| format!("  {}", request.text())));
        }
    }
    if lines.is_empty() {
        let kept = rules.iter().map(|rule| rule.words()).collect::<Vec<_>>();
        lines.push(format!("held: {}", kept.join("; ")));
    }
    lines
}

fn during(report: &CellReport) -> Option<String> {
    let round = report.round.as_ref()?;
    let (all, by_victim) = (round.during.all, round.during.by_victim);
    let victim = round.schedule.victim_name();
    Some(format!("{all} purchases while the fault lasted, {by_victim} of them by {victim}"))
}

fn refusals(report: &CellReport, code: &str) -> u64 {
    report.load.as_ref().and_then(|figures| figures.codes.get(code)).copied().unwrap_or(0)
}
