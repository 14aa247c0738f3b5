//! The judgement on a recorded history, for a person.

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
