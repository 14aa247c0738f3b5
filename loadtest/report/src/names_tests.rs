use std::path::Path;

use loadtest_judge::setting::Guards as G;
use loadtest_lab::cell_axes::PurchaseMode;
use loadtest_lab::faults::{FaultKind, Schedule};
use loadtest_lab::fixtures::{frozen, story};
use loadtest_lab::injected_bugs::BUG_CASES;
use loadtest_lab::ladder::RUNGS;
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::{Case, Family as F, Scenario as S, expectation};
use loadtest_lab::presets::Preset;

use super::*;
use crate::text::{TRANSLATIONS, translation};

/// Every text that the judge and the laboratory name without figures in it.
fn fixed() -> Vec<String> {
    let rules = Rule::ALL.map(Rule::words).map(str::to_owned);
    let mut all: Vec<String> = rules.into();
    let (mut scenarios, mut becauses) = (Vec::new(), Vec::new());
    for scenario in [
        S::ShortWork,
        S::LongWorkIgnored,
        S::LongWorkStopped,
        S::LongWorkKept,
        S::Inside,
        S::FrozenUnfenced,
        S::FrozenFenced,
    ] {
        scenarios.push(scenario.description());
        for family in [F::None, F::Local, F::Lease, F::RenewedLease, F::Session, F::Transaction] {
            for (scope, guards, replicas) in [
                (Scope::User, G::Off, 1),
                (Scope::User, G::Off, 3),
                (Scope::Voucher, G::Off, 1),
                (Scope::Voucher, G::Off, 3),
                (Scope::User, G::On, 3),
            ] {
                let case = Case { family, scope, guards, replicas, scenario };
                becauses.extend(expectation(case).map(|(_, because)| because));
            }
        }
    }
    let rungs = RUNGS.iter().flat_map(|rung| [rung.because, rung.repair]);
    let bugs = BUG_CASES.iter().map(|row| row.breaks);
    let of_bugs = BUG_CASES.iter().filter_map(|row| row.trial.fault);
    let of_rungs = RUNGS.iter().filter_map(|rung| rung.broken.trial.fault);
    let faults = FaultKind::known().chain(of_bugs).chain(of_rungs).map(FaultKind::description);
    let others = scenarios.into_iter().chain(becauses).chain(rungs).chain(bugs).chain(faults);
    all.extend(others.map(str::to_owned));
    all
}

#[test]
fn rules_faults_scenarios_predictions_rungs_and_bugs_have_a_translation() {
    for text in fixed() {
        let found = translation(&text);
        assert!(found.is_some_and(|(english, _)| english == text), "{text:?} has none");
    }
}

/// The sources of a folder, each string in one line.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source");
            let mut parts = source.split("\\\n");
            text += parts.next().unwrap_or_default();
            parts.for_each(|part| text += part.trim_start());
        }
    }
    text.replace("\\\"", "\"")
}

#[test]
fn every_translation_is_of_a_text_that_a_source_writes() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["judge", "lab", "load", "measure", "board", "../distlock"].map(|name| {
        let folder = packages.join(name).join("src");
        sources(&folder)
    });
    let sources = sources.concat();
    let table: std::collections::BTreeMap<String, String> =
        serde_json::from_str(TRANSLATIONS).expect("a table");
    for english in table.keys() {
        let between = english.split('{').map(|part| part.split_once('}').map_or(part, |it| it.1));
        let parts = between.flat_map(|part| part.split([';', ',', ':'])).map(str::trim);
        for part in parts.filter(|part| part.len() > 3) {
            assert!(sources.contains(part), "nothing writes {part:?} of {english:?}");
        }
    }
}

#[test]
fn a_rule_is_called_the_same_in_chinese_as_on_the_race_board() {
    let board = include_str!("../../board/src/page/strings.json");
    let board: serde_json::Value = serde_json::from_str(board).expect("texts by language and key");
    let report: serde_json::Value = serde_json::from_str(TRANSLATIONS).expect("a table");
    for rule in Rule::ALL {
        assert_eq!(report[rule.words()], board["zh"][format!("rule_{}", rule.name())]);
    }
}

#[test]
fn cells_are_named_as_the_laboratory_names_them() {
    for spec in Preset::Smoke.trials().0.into_iter().chain(BUG_CASES.map(|row| row.trial)) {
        assert_eq!(cell(spec).to_string(), spec.to_string());
    }
    let mut rung = story().swap_remove(0);
    rung.rung = Some("jvm-lock".to_owned());
    for report in [rung, frozen(S::FrozenFenced, 0)] {
        assert_eq!(title(&report).to_string(), report.title());
    }
}

#[test]
fn predictions_and_outcomes_are_called_as_everywhere() {
    let duplicates = Prediction { duplicates: true, ..Prediction::HOLDS };
    let (oversells, breaks) = (Prediction::OVERSELLS, Prediction::BREAKS);
    for one in [Prediction::HOLDS, duplicates, oversells, breaks, Prediction::LOSES] {
        assert_eq!(prediction(one).to_string(), one.words());
    }
    for one in Outcome::ALL {
        assert_eq!(outcome(one).to_string(), one.name().replace('_', " "));
    }
}

#[test]
fn a_plan_that_its_schedule_explains_has_a_key_and_any_other_is_english() {
    let mut round = frozen(S::FrozenUnfenced, 1).round.expect("a round");
    round.schedule = Schedule::of(7, "a cell", 2).for_lock(Lock::Redisson, PurchaseMode::Direct);
    for fault in [FaultKind::FreezeReplica, FaultKind::TwoAtOnce, FaultKind::HangUp] {
        round.faults[0].name = fault;
        round.plan = round.schedule.words(Some(fault));
        let text = plan(&round);
        assert!(matches!(text, Text::Key(..)), "{text:?}");
        assert_eq!(text.to_string(), round.plan);
    }
    round.plan = round.schedule.words_of_frozen_holder();
    assert!(matches!(plan(&round), Text::Key(..)), "{}", round.plan);
    round.plan = "something else".to_owned();
    assert_eq!(plan(&round), Text::english("something else"));
}

#[test]
fn the_time_until_throughput_was_back_is_named_as_in_the_terminal() {
    let mut round = frozen(S::FrozenUnfenced, 1).round.expect("a round");
    for (back_after_ms, before_per_s) in [(Some(230), 9.0), (None, 9.0), (None, 0.0)] {
        (round.back_after_ms, round.before_per_s) = (back_after_ms, before_per_s);
        assert_eq!(back(&round).to_string(), round.back());
    }
}

#[test]
fn the_reason_of_a_cell_with_a_fault_is_what_the_fault_does_and_why_it_holds() {
    let queued = BUG_CASES.iter().find(|row| row.bug.name() == "lost-compensation");
    let trial = queued.expect("the bug").trial;
    let spec = CellSpec { fault: Some(FaultKind::HangUp), ..trial };
    let because = spec.expectation().expect("a prediction").because;
    let report = CellReport { fault: spec.fault, because, ..story().swap_remove(0) };
    let text = super::because(&report);
    assert_eq!(text.to_string(), report.because);
    assert!(matches!(text, Text::Joined("semicolon", ref parts) if parts.len() == 2), "{text:?}");
}

#[test]
fn the_reason_is_shown_where_holds_are_not_known() {
    let told = |at_once, certain| {
        let resolution_ms = 2.0;
        let counts = HoldOverlaps { holds: 9, at_once, longest_ms: 1.5, certain, resolution_ms };
        overlaps(&counts).to_string().contains(". When a lock was held is known only by when")
    };
    assert!(told(3, 0) && told(3, 2));
    assert!(!told(0, 0) && !told(3, 3));
}
