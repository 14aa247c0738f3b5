//! Events of a race as JSON arrays, and the tap that makes them of a lane's history.
//!
//! The first member is the sort, the second the lane, the third the time in microseconds since the
//! race began:
//!
//! - `["i", lane, t, n, user]`: request `n` of the user with that index leaves;
//! - `["o" | "f" | "u", lane, t, n, replica, text, from, until, lost, wait]`: it ends with an
//!   order, a refusal, or unknown. `text` is the order's id or the code. The last four are there if
//!   a lock was held, at the earliest `wait` after the request left;
//! - `["m", lane, t, name, phase, detail]`: a fault begins, is witnessed, or is healed;
//! - `["s", lane, t, state, detail]`: a state of the lane; lane 2 is the race;
//! - `["v", lane, t, verdict]`: the judge's verdict.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use loadtest_lab::cell::CellReport;
use loadtest_load::history::{Completion, Event, EventObserver, Recorder};
use serde_json::{Value, json};

use crate::event_log::{EventLog, Priority};

/// Proofs of a broken rule that a page gets.
const MAX_PROOFS: usize = 5;
/// The lane of what concerns both.
pub(crate) const BOTH: usize = 2;

/// Writes the events of one lane to the log.
#[derive(Debug, Clone)]
pub(crate) struct LaneTap {
    lane: usize,
    /// The race's begin on the clock of the lane's history.
    zero_ns: u64,
    users: Arc<HashMap<u64, usize>>,
    log: Arc<EventLog>,
}

impl LaneTap {
    /// A tap on a lane whose race begins at `zero`; its users have their indexes.
    pub(crate) fn new(
        lane: usize,
        (recorder, zero): (&Recorder, Instant),
        users: impl Iterator<Item = u64>,
        log: Arc<EventLog>,
    ) -> Self {
        let users = users.zip(1..).collect();
        Self { lane, zero_ns: recorder.since(zero), users: Arc::new(users), log }
    }

    /// The observer for the lane's recorder.
    pub(crate) fn observer(self) -> EventObserver {
        EventObserver::new(move |event| {
            let (text, priority) = match event {
                Event::Invoke(invoke) => {
                    let user = self.users.get(&invoke.u).copied().unwrap_or(0);
                    let text =
                        format!("[\"i\",{},{},{},{user}]", self.lane, self.at(invoke.t), invoke.n);
                    (text, Priority::Request)
                }
                Event::Ok(end) => (self.end("o", end), Priority::Request),
                Event::Fail(end) => (self.end("f", end), Priority::Request),
                Event::Unknown(end) => (self.end("u", end), Priority::Request),
                Event::Mark(mark) => {
                    let at = self.at(mark.t);
                    let text = json!(["m", self.lane, at, mark.name, mark.phase, mark.detail]);
                    (text.to_string(), Priority::Race)
                }
                _ => return,
            };
            self.log.push(text, priority);
        })
    }

    /// Microseconds since the race began.
    fn at(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.zero_ns) / 1000
    }

    fn end(&self, sort: &str, end: &Completion<'_>) -> String {
        let text = match end.o.filter(|_| sort == "o") {
            Some(order) => json!(order.to_string()),
            None => end.c.as_ref().map_or(Value::Null, |code| json!(code)),
        };
        let (lane, t, replica) = (self.lane, self.at(end.t), json!(end.r));
        let hold = end.h.map_or(String::new(), |[from, until]| {
            let (from, until, lost) = (self.at(from), self.at(until), u8::from(end.l));
            format!(",{from},{until},{lost},{}", end.w / 1000)
        });
        format!("[\"{sort}\",{lane},{t},{},{replica},{text}{hold}]", end.n)
    }
}

/// A state of a lane or of the race.
pub(crate) fn state(lane: usize, began: Instant, (state, detail): (&str, &str)) -> String {
    json!(["s", lane, micros(began), state, detail]).to_string()
}

/// The judge's verdict on a lane.
pub(crate) fn verdict(lane: usize, began: Instant, report: &CellReport) -> String {
    let findings = report.verdict.iter().flat_map(|verdict| &verdict.findings);
    let findings: Vec<Value> = findings
        .filter_map(|finding| {
            let held = finding.held?;
            let numbers = |proof: &loadtest_judge::proof::Proof| {
                proof.requests.iter().map(|request| request.n).collect::<Vec<_>>()
            };
            let proofs: Vec<_> = finding.proofs.iter().take(MAX_PROOFS).map(numbers).collect();
            let (rule, broken, detail) = (finding.rule, finding.broken, &finding.detail);
            Some(json!({
                "rule": rule, "held": held, "broken": broken, "detail": detail, "proofs": proofs,
            }))
        })
        .collect();
    let verdict = json!({
        "orders": report.orders,
        "stock": report.stock,
        "oversold": report.oversold,
        "duplicates": report.duplicate_users,
        "lost": report.lost,
        "requests": report.requests,
        "orders_per_s": report.orders_per_s,
        "p50_ms": report.p50_ms,
        "p99_ms": report.p99_ms,
        "predicted": report.predicted,
        "because": report.because,
        "findings": findings,
    });
    json!(["v", lane, micros(began), verdict]).to_string()
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_its_hold_only_if_a_lock_was_held() {
        let tap =
            LaneTap { lane: 1, zero_ns: 1_000_000, users: Arc::default(), log: Arc::default() };
        let end = Completion { t: 5_000_000, n: 7, ..Completion::default() };
        assert_eq!(tap.end("u", &end), r#"["u",1,4000,7,null,null]"#);
        let held = Completion {
            o: Some(12),
            r: Some("r2".into()),
            h: Some([2_000_000, 3_000_000]),
            l: true,
            ..end
        };
        assert_eq!(tap.end("o", &held), r#"["o",1,4000,7,"r2","12",1000,2000,1,0]"#);
        let refused = Completion { c: Some("sold_out".into()), ..held };
        assert!(tap.end("f", &refused).contains(r#""sold_out""#), "a refusal tells its code");
    }
}
