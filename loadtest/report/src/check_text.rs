//! The judgement on a recorded history, for a person.

use loadtest_judge::check::Judgement;
use loadtest_load::history::Mark;

use crate::run_text::{conditions, findings, good};

/// All that is printed after a check.
pub fn text(judgement: &Judgement) -> String {
    let mut parts = Vec::new();
    if let (Some(target), Some(began_at)) = (&judgement.target, &judgement.began_at) {
        parts.push(format!(
            "{} requests on {target} at {began_at}, {} of them with unknown outcomes; {} lines \
             judged in {:.1} s",
            judgement.requests, judgement.unknown, judgement.events, judgement.took_s
        ));
    }
    if !judgement.conditions.is_empty() {
        parts.push(conditions(&judgement.conditions));
    }
    if !judgement.marks.is_empty() {
        let marks = judgement.marks.iter().map(|mark| format!("  {}", happened(mark)));
        parts.push(format!("What happened meanwhile:\n{}", marks.collect::<Vec<_>>().join("\n")));
    }
    for judged in &judgement.vouchers {
        let units = judged.offered.map_or("unknown".to_owned(), |units| units.to_string());
        let head = format!("voucher {}, {units} units", judged.voucher);
        parts.push(format!("{head}\n{}", findings(&judged.verdict, &judged.demanded)));
    }
    parts.push(if judgement.ok {
        good(&judgement.vouchers)
    } else {
        format!("Verdict: BAD.\n  {}", judgement.failed_because.join("\n  "))
    });
    parts.join("\n\n")
}

/// A mark in words.
fn happened(mark: &Mark<'_>) -> String {
    let Mark { t, what, name, phase, detail } = mark;
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{:>7} ms  {what} {name}, {phase}{detail}", t / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use loadtest_judge::check::VoucherJudgement;
    use loadtest_judge::verdict::{Rule, RuleFinding};
    use loadtest_lab::fixtures::verdict_of;

    use super::*;

    #[test]
    fn a_good_history_ends_with_how_many_rules_were_demanded_and_how_many_were_not_judged() {
        let mut verdict = verdict_of(0, 0);
        let mut demanded: Vec<Rule> = Rule::ALL.into();
        for rule in [Rule::TokensRise, Rule::AuditAgrees] {
            demanded.retain(|one| *one != rule);
            verdict.findings.retain(|finding| finding.rule != rule);
            verdict.findings.push(RuleFinding::unjudged(rule, "nobody told"));
        }
        let (voucher, offered) = ("7".to_owned(), Some(100));
        let judged = VoucherJudgement { voucher, offered, demanded, verdict };
        let check = loadtest_judge::check::Check {
            file: Path::new("a.jsonl").to_owned(),
            database: None,
            deadline: std::time::Duration::from_secs(1),
        };
        let bare = check.failed("nothing was read".to_owned());
        assert!(text(&bare).ends_with("Verdict: BAD.\n  nothing was read"), "{}", text(&bare));
        let judgement = Judgement { ok: true, vouchers: vec![judged], ..bare };
        let count = Rule::ALL.len() - 2;
        let last = format!("Verdict: good. All {count} demanded rules held. Not judged: 2.");
        assert!(text(&judgement).ends_with(&last), "{}", text(&judgement));
    }
}
