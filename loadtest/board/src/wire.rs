//! Events of a race as JSON arrays, and the tap that makes them of a lane's history.
//!
//! The first member is the sort, the second the lane, the third the time in microseconds since the
//! race began:
//!
//! - `["i", lane, t, n, user]`: request `n` of the user with that index leaves;
//! - `["o" | "f" | "u", lane, t, n, replica, text, from, until, lost, wait, token, highest]`: it
//!   ends with an order, a refusal, or unknown. `text` is the order's id or the code. The next four
//!   are there if a lock was held, at the earliest `wait` after the request left. `lost` is 0, or
//!   the time at which the lock's validity ended before its release; 1 if that is not known. The
//!   last two are there if the holder showed a fencing token: a higher one than its own refused it;
//! - `["l", lane, t, left, user]`: the milliseconds that the lock's lease has left in the lane's
//!   Redis, or one of `free`, `no_expiry`, `silent`, `none` and `not_recorded`. The user is there
//!   if each has a lock;
//! - `["m", lane, t, name, phase, detail]`: a fault begins, is witnessed, fails, or is healed;
//! - `["r", lane, 0, process, state]`: the lane got new servers, because that process did not run;
//! - `["s", lane, t, state, detail]`: a state of the lane; lane 2 is the race;
//! - `["v", lane, t, verdict]`: the judge's verdict;
//! - `["c", 2, t, number, result]`: what became of the challenge.
//!
//! A detail is what the laboratory says: see [`lab_text`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::faults::ProcessState;
use loadtest_lab::key_lease::KeyLease;
use loadtest_lab::predict::Family;
use loadtest_load::history::{Completion, Event, EventObserver, FAULT};
use serde_json::{Value, json};

use crate::event_log::{EventLog, Priority};
use crate::lab_text::lab_text;
use crate::lease_sampler::LeaseState;
use crate::rung_race::RungVerdict;

/// Proofs of a broken rule that a page gets.
const MAX_PROOFS: usize = 5;
/// Most characters of a code, and of the name of a replica, in an event.
const MAX_TEXT: usize = 64;
/// The lane of what concerns both.
pub(crate) const BOTH: usize = 2;

/// Writes the events of one lane to the log.
#[derive(Debug, Clone)]
pub(crate) struct LaneTap {
    lane: usize,
    /// The race's begin on the clock of the lane's history.
    race_start_ns: u64,
    users: Arc<HashMap<u64, usize>>,
    /// Requests whose begin is in the log and whose end is not, with the ids of their users: the
    /// connections bound them.
    open: Arc<Mutex<BTreeMap<u32, u64>>>,
    log: Arc<EventLog>,
}

impl LaneTap {
    /// A tap on a lane whose race begins then by the clock of its history; its users have their
    /// indexes.
    pub(crate) fn new(
        lane: usize,
        race_start_ns: u64,
        users: impl Iterator<Item = u64>,
        log: Arc<EventLog>,
    ) -> Self {
        let users = users.zip(1..).collect();
        Self { lane, race_start_ns, users: Arc::new(users), open: Arc::default(), log }
    }

    /// The observer for the lane's recorder.
    pub(crate) fn observer(self) -> EventObserver {
        EventObserver::new(move |event| match event {
            Event::Invoke(invoke) => {
                let user = self.users.get(&invoke.u).copied().unwrap_or(0);
                let text =
                    format!("[\"i\",{},{},{},{user}]", self.lane, self.at(invoke.t), invoke.n);
                if self.log.push(text, Priority::Begin) {
                    self.open().insert(invoke.n, invoke.u);
                }
            }
            Event::Ok(end) => self.push_end("o", end),
            Event::Fail(end) => self.push_end("f", end),
            Event::Unknown(end) => self.push_end("u", end),
            Event::Mark(mark) if mark.what == FAULT => {
                let at = self.at(mark.t);
                let detail = lab_text(&mark.detail);
                let text = json!(["m", self.lane, at, mark.name, mark.phase, detail]);
                self.log.push(text.to_string(), Priority::Fault);
            }
            _ => {}
        })
    }

    /// The user of the oldest request without an end: id and index.
    pub(crate) fn oldest_user(&self) -> Option<(u64, usize)> {
        let id = *self.open().first_key_value()?.1;
        Some((id, self.users.get(&id).copied().unwrap_or(0)))
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u32, u64>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the end of a request, unless its begin was left out.
    fn push_end(&self, sort: &str, end: &Completion<'_>) {
        if self.open().remove(&end.n).is_some() {
            self.log.push(self.end(sort, end), Priority::End);
        }
    }

    /// Microseconds since the race began.
    fn at(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.race_start_ns) / 1000
    }

    fn end(&self, sort: &str, end: &Completion<'_>) -> String {
        let text = match end.o.filter(|_| sort == "o") {
            Some(order) => json!(order.to_string()),
            None => short(end.c.as_deref()),
        };
        let (lane, t, replica) = (self.lane, self.at(end.t), short(end.r.as_deref()));
        let hold = end.h.map_or(String::new(), |[from, until]| {
            let (from, until) = (self.at(from), self.at(until));
            let lost = end.d.map_or(1, |invalid_from| self.at(invalid_from).max(2));
            let lost = if end.l { lost } else { 0 };
            let fence =
                end.f.map_or(String::new(), |[token, highest]| format!(",{token},{highest}"));
            format!(",{from},{until},{lost},{}{fence}", end.w / 1000)
        });
        format!("[\"{sort}\",{lane},{t},{},{replica},{text}{hold}]", end.n)
    }
}

/// The begin of a text that a server has sent.
fn short(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| json!(text.chars().take(MAX_TEXT).collect::<String>()))
}

/// A process for which the lane got new servers before the race.
pub(crate) fn replaced(lane: usize, process: &str, state: ProcessState) -> String {
    json!(["r", lane, 0, process, state.name()]).to_string()
}

/// A state of a lane or of the race.
pub(crate) fn state(lane: usize, began: Instant, (state, detail): (&str, &str)) -> String {
    json!(["s", lane, micros(began), state, lab_text(detail)]).to_string()
}

/// What is known of a lease.
pub(crate) fn lease(
    lane: usize,
    began: Instant,
    (lease, user): (LeaseState, Option<usize>),
) -> String {
    let left = match lease {
        LeaseState::Known(KeyLease::Left(left)) => json!(left),
        LeaseState::Known(KeyLease::Free) => json!("free"),
        LeaseState::Known(KeyLease::NoExpiry) => json!("no_expiry"),
        LeaseState::Silent => json!("silent"),
        LeaseState::None => json!("none"),
        LeaseState::NotRecorded => json!("not_recorded"),
    };
    let t = micros(began);
    user.map_or_else(|| json!(["l", lane, t, left]), |user| json!(["l", lane, t, left, user]))
        .to_string()
}

/// The judge's verdict on a lane, and the milliseconds of processor time of an order, if known. If
/// the lane is one of a rung, it has what the rung says of it.
pub(crate) fn verdict(
    lane: usize,
    began: Instant,
    (report, cpu_ms): (&CellReport, Option<f64>),
    rung: Option<&RungVerdict>,
) -> String {
    let findings = report.verdict.iter().flat_map(|verdict| &verdict.findings);
    let findings: Vec<Value> = findings
        .filter_map(|finding| {
            let held = finding.held?;
            let numbers = |proof: &loadtest_judge::proof::Proof| {
                proof.requests.iter().map(|request| request.n).collect::<Vec<_>>()
            };
            let proofs: Vec<_> = finding.proofs.iter().take(MAX_PROOFS).map(numbers).collect();
            let (rule, broken, detail) = (finding.rule, finding.broken, lab_text(&finding.detail));
            Some(json!({
                "rule": rule, "held": held, "broken": broken, "detail": detail, "proofs": proofs,
            }))
        })
        .collect();
    let invalid: Vec<Value> = report.invalid_because.iter().map(|why| lab_text(why)).collect();
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
        "cpu_ms": cpu_ms,
        "predicted": report.predicted,
        "why": why(report),
        "invalid_because": invalid,
        "findings": findings,
        "rung": rung,
    });
    json!(["v", lane, micros(began), verdict]).to_string()
}

/// What became of a challenge.
pub(crate) fn challenge(began: Instant, number: u64, result: &str) -> String {
    json!(["c", BOTH, micros(began), number, result]).to_string()
}

/// What the lock of the cell can do: the page has its text.
fn why(report: &CellReport) -> &'static str {
    let CellAxes { lock, scope, guards, .. } = report.axes;
    match (guards, lock.family(), scope) {
        (Guards::On, ..) => "guarded",
        (_, Family::None, _) => "none",
        (_, Family::Local, Scope::User) => "local_user",
        (_, Family::Local, Scope::Voucher) => "local_voucher",
        (_, _, Scope::User) => "user",
        (_, _, Scope::Voucher) => "voucher",
    }
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_log::LogPosition;

    fn tap() -> LaneTap {
        let log = Arc::new(EventLog::default());
        log.begin("{}".to_owned());
        let (users, open) = (Arc::default(), Arc::default());
        LaneTap { lane: 1, race_start_ns: 1_000_000, users, open, log }
    }

    #[test]
    fn the_end_of_a_request_whose_begin_was_left_out_is_left_out_too() {
        let tap = tap();
        tap.open().insert(7, 1);
        for n in [6, 7, 7] {
            tap.push_end("f", &Completion { t: 5_000_000, n, ..Completion::default() });
        }
        let all = tap.log.read(LogPosition::default(), usize::MAX).expect("a race");
        assert_eq!(all.events, r#"[["f",1,4000,7,null,null]]"#);
    }

    #[test]
    fn an_end_has_its_hold_only_if_a_lock_was_held() {
        let tap = tap();
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
        let known = Completion { d: Some(2_500_000), ..held.clone() };
        assert_eq!(tap.end("o", &known), r#"["o",1,4000,7,"r2","12",1000,2000,1500,0]"#);
        let fenced = Completion { f: Some([7, 8]), ..held.clone() };
        assert_eq!(tap.end("o", &fenced), r#"["o",1,4000,7,"r2","12",1000,2000,1,0,7,8]"#);
        let refused = Completion { c: Some("sold_out".into()), ..held };
        assert!(tap.end("f", &refused).contains(r#""sold_out""#), "a refusal tells its code");
    }
}
