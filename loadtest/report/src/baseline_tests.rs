use loadtest_lab::fixtures::{cell, injection_results, story};

use super::*;
use crate::tests::{matrix_report, report};

/// What an earlier run of these cells has written.
fn baseline(cells: Vec<CellReport>) -> Baseline {
    let json = serde_json::to_string(&report(cells)).expect("JSON");
    serde_json::from_str(&json).expect("it reads what it writes")
}

fn faster(cell: &CellReport, times: f64) -> CellReport {
    CellReport { orders_per_s: cell.orders_per_s * times, ..cell.clone() }
}

#[test]
fn a_run_that_is_like_the_earlier_one_has_no_changes() {
    let changes = baseline(story()).compare(&story(), None);
    assert_eq!((changes.changed.len(), changes.same), (0, 4));
    assert_eq!(changes.since, "2026-01-01T00:00:00Z");
    assert!(changes.new.is_empty() && changes.gone.is_empty());
}

#[test]
fn a_report_of_the_former_version_is_read() {
    let json = serde_json::to_string(&report(story())).expect("JSON");
    assert!(json.contains("\"scenario\":"), "{json}");
    let former = json.replace("\"scenario\":", "\"circumstance\":");
    let former: Baseline = serde_json::from_str(&former).expect("the former name is read");
    assert_eq!(former.compare(&story(), None).same, 4);
}

#[test]
fn a_verdict_that_changed_is_listed_before_any_figure_and_the_largest_figure_next() {
    let mut now = story();
    now[0] = faster(&now[0], 2.0);
    now[1] = faster(&now[1], 0.1);
    now[2] = faster(&now[2], 1.1);
    now[3] = cell(now[3].axes, 5, 0);
    let changes = baseline(story()).compare(&now, None);
    let cells: Vec<CellSpec> = changes.changed.iter().map(|change| change.cell).collect();
    assert_eq!(cells, [now[3].trial(), now[1].trial(), now[0].trial()]);
    let (was, is) = changes.changed[0].verdict.clone().expect("it changed");
    assert_eq!(
        (was.to_string().as_str(), is.to_string().as_str()),
        ("holds, as predicted", "oversells, not as predicted")
    );
    assert!((changes.changed[1].throughput.expect("both ran") - 0.1).abs() < 1e-9);
    assert_eq!(changes.same, 1, "a tenth more is no change");
}

#[test]
fn figures_of_a_cell_that_was_no_real_load_are_not_compared() {
    let mut before = story();
    before[0] = CellReport { valid: false, ..faster(&before[0], 9.0) };
    let changes = baseline(before).compare(&story(), None);
    let [change] = &changes.changed[..] else { panic!("{changes:?}") };
    assert_eq!((change.throughput, change.p99), (None, None));
    assert_eq!(change.verdict.as_ref().map(|(was, _)| was.to_string()).as_deref(), Some("invalid"));
}

#[test]
fn figures_without_a_verdict_on_speed_are_not_compared_in_either_run() {
    let faster = |times| story().iter().map(|cell| faster(cell, times)).collect::<Vec<_>>();
    let limit = |cell: &mut CellReport| {
        cell.load.as_mut().expect("figures").cost.machine_share = 0.9;
    };
    let (mut before, mut now) = (story(), faster(4.0));
    limit(&mut before[0]);
    limit(&mut now[1]);
    let changes = baseline(before).compare(&now, None);
    let cells: Vec<CellSpec> = changes.changed.iter().map(|change| change.cell).collect();
    assert_eq!(cells, [now[2].trial(), now[3].trial()], "{changes:?}");
    assert_eq!(changes.same, 2);
}

#[test]
fn cells_of_only_one_of_both_runs_are_named() {
    let changes = baseline(story()[1..].to_vec()).compare(&story()[..3], None);
    assert_eq!(changes.new, [story()[0].trial()]);
    assert_eq!(changes.gone, [story()[3].trial()]);
    let text = changes.text();
    assert!(
        text.contains(": 0 changed, 2 cells as before.\nNew, 1 cell: local per user"),
        "{text}"
    );
    assert!(text.contains("\nNot run any more, 1 cell: none per user, guards on"), "{text}");
}

#[test]
fn a_cell_with_a_fault_is_not_compared_with_its_counterpart_without() {
    let all = matrix_report().cells;
    let (calm, struck) = all.split_at(4);
    let changes = baseline(calm.to_vec()).compare(struck, None);
    assert_eq!((changes.changed.len(), changes.same), (0, 0));
    assert_eq!((changes.new.len(), changes.gone.len()), (3, 4));
    assert_eq!(baseline(all.clone()).compare(&all, None).same, 7, "a matrix reads what it writes");
}

#[test]
fn an_injected_bug_that_is_no_longer_caught_is_reported_on_the_page_and_in_the_text() {
    let mut before = report(story());
    before.injected_bugs = Some(injection_results(&["lying-audit", "release-before-commit"], 3));
    let json = serde_json::to_string(&before).expect("JSON");
    let earlier: Baseline = serde_json::from_str(&json).expect("it reads what it writes");
    let mut now = report(story());
    now.injected_bugs =
        Some(injection_results(&["release-before-commit", "lost-update", "lying-audit"], 3));
    now.compare_with(&earlier);
    assert!(now.changes.as_ref().expect("changes").bugs.is_empty(), "all are caught in both");
    now.injected_bugs.as_mut().expect("bugs").bugs[0].attempts[1].caught_by.clear();
    now.compare_with(&earlier);
    let line = "release-before-commit: caught, clean without it → not caught, clean without it";
    let text = now.text(crate::table::TableFormat::FILE);
    assert!(text.contains(line) && text.contains(": 1 changed, 4 cells as before."), "{text}");
    let html = crate::html::language_tests::shown(&now);
    assert!(html.contains("release-before-commit: caught, clean without it"), "{html}");
    assert_eq!(html.matches("The injected bug").count(), 1);
}

#[test]
fn a_file_that_is_no_report_is_a_usage_error_that_names_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("old.json");
    std::fs::write(&path, "{\"cells\": 7}").expect("written");
    for path in [&path, &folder.path().join("missing.json")] {
        let error = Baseline::read(path).expect_err("no baseline");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(".json"), "{error}");
    }
}
