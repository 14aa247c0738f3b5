use loadtest_judge::setting::{Guards, Scope};

use super::*;
use crate::cell_axes::CellAxes;
use crate::lock::Lock;

fn round() -> Round {
    let schedule = Schedule::of(1, "a cell", 2);
    let witness = "seen".to_owned();
    let name = FaultKind::FreezeReplica;
    Round {
        plan: schedule.words(Some(name)),
        schedule,
        faults: vec![FaultRecord { name, begin_ns: 1, end_ns: 2, witness }],
        closing_ns: 3,
        in_flight: 1,
        requests: [30, 100, 70],
        ok_after: 1,
        before_per_s: 100.0,
        back_after_ms: None,
        failed_requests: 0,
        served_after: 2,
        during: PurchasesDuringFault::default(),
    }
}

#[test]
fn a_round_with_load_witness_and_healing_is_valid_though_it_recovered_slowly() {
    assert_eq!(round().why_invalid(), Vec::<String>::new());
}

#[test]
fn a_round_without_its_least_load_or_its_witness_shows_nothing() {
    let one_reason = |round: Round, word: &str| {
        let reasons = round.why_invalid();
        assert!(reasons.len() == 1 && reasons[0].contains(word), "{word}: {reasons:?}");
    };
    one_reason(Round { requests: [30, 100, 69], ..round() }, "199 requests");
    one_reason(Round { requests: [29, 101, 70], ..round() }, "before the fault");
    one_reason(Round { in_flight: 0, ..round() }, "in flight");
    one_reason(Round { ok_after: 0, ..round() }, "bought after");
    one_reason(Round { faults: Vec::new(), ..round() }, "no witness");
}

#[test]
fn a_round_whose_units_were_all_sold_before_its_fault_was_over_is_spoiled_and_invalid() {
    let axes =
        CellAxes { lock: Lock::Redisson, scope: Scope::User, guards: Guards::On, replicas: 2 };
    let blank = CellReport::failed(CellSpec::plain(axes), 100, String::new(), Duration::ZERO);
    let spoiled = |orders, ok_after| {
        let report = CellReport { orders, ..blank.clone() };
        let report = report.with_round(Round { ok_after, ..round() });
        assert!(!report.valid);
        report.spoiled
    };
    assert!(spoiled(100, 0));
    assert!(!spoiled(99, 0), "nobody could buy although something was left");
    assert!(!spoiled(100, 1));
}

#[test]
fn a_recovery_time_is_reported_only_if_there_was_throughput_before() {
    assert_eq!(Round { back_after_ms: Some(70), ..round() }.back(), "after 70 ms");
    assert_eq!(round().back(), "not within 5 s");
    assert_eq!(Round { before_per_s: 0.0, ..round() }.back(), "not measured");
}
