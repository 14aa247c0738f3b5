use std::collections::HashSet;

use loadtest_load::history::FAULT;
use loadtest_load::history::record::Names;
use loadtest_load::outcome::Outcome;

use super::*;
use crate::evidence::AuditCheck;
use crate::stalls::STALL;
use crate::terms::Terms;

const SECOND: u64 = 1_000_000_000;
const HEALED: u64 = 10 * SECOND;

fn names() -> Names {
    let codes = ["201", "timed_out", "hung_up", "202 ticket_pending", "503 overloaded"];
    Names { codes: codes.map(str::to_owned).into(), ..Names::default() }
}

/// Sent and ended at these milliseconds after the fault's end.
fn record(outcome: Outcome, code: u8, [start_ms, end_ms]: [i64; 2]) -> Record {
    let ns = |ms: i64| HEALED.saturating_add_signed(ms * 1_000_000);
    Record { start_ns: ns(start_ms), end_ns: ns(end_ms), code, ..Record::that_ended(outcome) }
}

fn mark(what: &'static str, [t, length]: [u64; 2]) -> Mark<'static> {
    let detail = length.to_string().into();
    Mark { t, what: what.into(), name: "freeze".into(), phase: "healed".into(), detail }
}

/// What the rule comes to of these requests, and how often it was broken.
fn judged(rule: Rule, records: &[Record], more: &[Mark<'static>]) -> (Option<bool>, String, u64) {
    let healed = mark(FAULT, [HEALED, 0]);
    let marks: Vec<_> = std::iter::once(healed).chain(more.iter().cloned()).collect();
    let terms =
        Terms::of(&[(loadtest_load::history::DEMANDS.to_owned(), rule.name())].into(), &marks);
    let (names, none) = (names(), HashSet::new());
    let evidence = Evidence {
        records,
        names: &names,
        rows: &[],
        rows_are_all: true,
        earlier: &none,
        elsewhere: &none,
        offered: Some(9),
        grants: &[],
        granted: None,
        left: Some(2),
        effects: &[],
        audit: AuditCheck::Absent,
        terms: &terms.expect("terms"),
        marks: &marks,
    };
    let mut breaches = Breaches::default();
    let (held, detail) = judge(&evidence, rule, &mut breaches);
    (held, detail, breaches.count)
}

fn held(rule: Rule, records: &[Record]) -> Option<bool> {
    judged(rule, records, &[]).0
}

#[test]
fn a_rule_that_the_run_does_not_demand_is_not_judged() {
    let terms = Terms::default();
    assert!(terms.demands.is_empty());
    let unknown = [(loadtest_load::history::DEMANDS.to_owned(), "served_never".to_owned())].into();
    let error = Terms::of(&unknown, &[]).expect_err("unknown");
    assert_eq!(error, "the rule served_never is unknown");
}

#[test]
fn a_request_to_a_healed_deployment_that_takes_longer_than_five_seconds_hangs() {
    let rule = Rule::AnsweredAfterFault;
    let timed_out = |times| record(Outcome::Unknown, 1, times);
    assert_eq!(held(rule, &[]), Some(true));
    assert_eq!(held(rule, &[timed_out([1000, 6000])]), Some(true), "just in time");
    assert_eq!(held(rule, &[timed_out([999, 9000])]), Some(true), "it was not settled");
    let late = [timed_out([1000, 6001]), record(Outcome::Bought, 0, [2000, 9500])];
    let (held_late, detail, count) = judged(rule, &late, &[]);
    assert_eq!((held_late, count), (Some(false), 2));
    assert!(detail.ends_with("the longest 7500 ms"), "{detail}");
    let without_end = Record { end_ns: NO_END, ..timed_out([1000, 1000]) };
    let (_, detail, count) = judged(rule, &[without_end], &[]);
    assert!(count == 1 && detail.ends_with("for ever"), "{detail}");
}

#[test]
fn a_generator_that_stood_still_does_not_make_a_service_hang() {
    let late = [record(Outcome::Bought, 0, [2000, 9500])];
    for (rule, stalled_ms, expected) in
        [(Rule::AnsweredAfterFault, 2499, false), (Rule::AnsweredAfterFault, 2500, true)]
    {
        let end = HEALED + 9400 * 1_000_000;
        let stall = mark(STALL, [end, stalled_ms * 1_000_000]);
        assert_eq!(judged(rule, &late, &[stall]).0, Some(expected), "{rule:?} {stalled_ms}");
    }
    let before = record(Outcome::Bought, 0, [-50, -40]);
    let served = [before, record(Outcome::Bought, 0, [0, 5001])];
    assert_eq!(judged(Rule::ServedAfterFault, &served, &[]).0, Some(false));
    let stall = mark(STALL, [HEALED + SECOND, SECOND]);
    assert_eq!(judged(Rule::ServedAfterFault, &served, &[stall]).0, Some(true));
}

#[test]
fn tickets_and_clients_that_hang_up_do_not_hang() {
    let ticket = Record { admitted: true, ..record(Outcome::Bought, 0, [1000, 9000]) };
    let gone = record(Outcome::Unknown, 2, [1000, 9000]);
    assert_eq!(held(Rule::AnsweredAfterFault, &[ticket, gone]), Some(true));
}

#[test]
fn a_deployment_that_serves_no_request_sent_after_the_fault_has_not_recovered() {
    let before = record(Outcome::Bought, 0, [-50, -40]);
    let of = |more: Record| held(Rule::ServedAfterFault, &[before, more]);
    let served = |times| record(Outcome::Bought, 0, times);
    assert_eq!(of(served([0, 5000])), Some(true));
    assert_eq!(of(served([0, 5001])), Some(false), "too late");
    assert_eq!(of(served([3000, 8000])), Some(true), "it was not asked before");
    assert_eq!(of(served([-1, 100])), Some(true), "nothing was asked after the fault");
    let waited = [before, served([-1, 100]), record(Outcome::Unknown, 1, [0, 9000])];
    assert_eq!(held(Rule::ServedAfterFault, &waited), Some(false), "that was sent before");
    assert_eq!(of(record(Outcome::Refused, 4, [0, 100])), Some(false), "that serves no request");
    assert_eq!(held(Rule::ServedAfterFault, &[served([1, 6000])]), Some(true), "never served");
}

#[test]
fn a_failure_in_a_rolling_restart_is_named_with_its_code() {
    let fine = [record(Outcome::SoldOut, 0, [0, 1]), record(Outcome::Unknown, 2, [0, 1])];
    assert_eq!(held(Rule::NoFailureInRestart, &fine), Some(true));
    let failed = [record(Outcome::Refused, 4, [0, 1])];
    let (broken, detail, count) = judged(Rule::NoFailureInRestart, &failed, &[]);
    let told = "1 of 1 requests failed: 503 overloaded";
    assert_eq!((broken, detail.as_str(), count), (Some(false), told, 1));
}

#[test]
fn a_request_that_meets_a_stall_fails_for_it_and_not_for_a_restart() {
    let failed = |ms| [record(Outcome::Refused, 4, [ms, ms + 500])];
    // From 1000 to 1600 ms.
    let stall = [mark(STALL, [HEALED + 1_600_000_000, 600_000_000])];
    for (sent_ms, holds) in [(499, false), (500, true), (1500, true), (3600, true), (3601, false)] {
        let (held, ..) = judged(Rule::NoFailureInRestart, &failed(sent_ms), &stall);
        assert_eq!(held, Some(holds), "{sent_ms}");
    }
}

#[test]
fn a_ticket_that_has_not_ended_after_fifteen_seconds_never_ends() {
    let pending = |ms| record(Outcome::Unknown, 3, [0, ms]);
    assert_eq!(held(Rule::TicketsEnd, &[pending(15_000)]), Some(true));
    assert_eq!(held(Rule::TicketsEnd, &[pending(15_001)]), Some(false));
    assert_eq!(held(Rule::TicketsEnd, &[record(Outcome::Unknown, 1, [0, 20_000])]), Some(true));
}

#[test]
fn what_only_the_laboratory_sees_is_judged_by_its_marks() {
    let saw = |rule: Rule, phase: &'static str| Mark {
        t: HEALED,
        what: SEEN.into(),
        name: rule.name().into(),
        phase: phase.into(),
        detail: "9 buyers".into(),
    };
    let rule = Rule::EachReplicaServes;
    assert_eq!(held(rule, &[]), None, "it did not come so far");
    let other = saw(Rule::PurchasesEnd, KEPT);
    assert_eq!(judged(rule, &[], &[other]).0, None);
    let kept = judged(rule, &[], &[saw(rule, KEPT)]);
    assert_eq!((kept.0, kept.1.as_str()), (Some(true), "9 buyers"));
    assert_eq!(judged(rule, &[], &[saw(rule, BROKEN), saw(rule, KEPT)]).0, Some(false));
    let rule = Rule::SoldWithinWindow;
    assert_eq!(judged(rule, &[], &[saw(rule, BROKEN)]).0, Some(false));
    assert_eq!(judged(rule, &[], &[saw(rule, KEPT)]).0, Some(true));
    let rule = Rule::SoldOutStaysSoldOut;
    assert_eq!(judged(rule, &[], &[]).0, Some(true), "it was not sold out");
    assert_eq!(judged(rule, &[], &[saw(rule, KEPT)]).0, Some(false), "two units are left");
}
