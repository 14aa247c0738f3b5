use super::*;
use crate::report::tests::{cell, report, story};

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
    let changes = baseline(story()).compare(&story());
    assert_eq!((changes.changed.len(), changes.same), (0, 4));
    assert_eq!(changes.since, "2026-01-01T00:00:00Z");
    assert!(changes.new.is_empty() && changes.gone.is_empty());
}

#[test]
fn a_verdict_that_changed_comes_before_any_figure_and_the_largest_figure_next() {
    let mut now = story();
    now[0] = faster(&now[0], 2.0);
    now[1] = faster(&now[1], 0.1);
    now[2] = faster(&now[2], 1.1);
    now[3] = cell(now[3].place, 5, 0);
    let changes = baseline(story()).compare(&now);
    let places: Vec<Place> = changes.changed.iter().map(|change| change.place).collect();
    assert_eq!(places, [now[3].place, now[1].place, now[0].place]);
    let (was, is) = changes.changed[0].verdict.clone().expect("it changed");
    assert_eq!((was.as_str(), is.as_str()), ("holds, as predicted", "oversells, not as predicted"));
    assert!((changes.changed[1].throughput.expect("both ran") - 0.1).abs() < 1e-9);
    assert_eq!(changes.same, 1, "a tenth more is no change");
}

#[test]
fn figures_of_a_cell_that_was_no_real_load_are_not_compared() {
    let mut before = story();
    before[0] = CellReport { valid: false, ..faster(&before[0], 9.0) };
    let changes = baseline(before).compare(&story());
    let [change] = &changes.changed[..] else { panic!("{changes:?}") };
    assert_eq!((change.throughput, change.p99), (None, None));
    assert_eq!(change.verdict.as_ref().map(|(was, _)| was.as_str()), Some("invalid"));
}

#[test]
fn cells_of_only_one_of_both_runs_are_named() {
    let changes = baseline(story()[1..].to_vec()).compare(&story()[..3]);
    assert_eq!(changes.new, [story()[0].place]);
    assert_eq!(changes.gone, [story()[3].place]);
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
