//! The judgement on a recorded history, for a person.

use crate::history::Mark;
use crate::judge::check::Judgement;
use crate::report::run_text::{conditions, findings};

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
        "Verdict: good. All demanded rules held.".to_owned()
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
