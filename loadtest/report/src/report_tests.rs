use std::time::Duration;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::fixtures;
use loadtest_lab::fixtures::{axes, cell, comparison_of, figures, story, verdict_of};
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Prediction;
use loadtest_lab::presets::Preset;
use loadtest_load::stats::Figures;
use loadtest_measure::files::check_writable;

use super::*;
use crate::table::verdict;

pub(crate) fn report(cells: Vec<CellReport>) -> Report {
    Report::of(comparison_of(cells))
}

pub(crate) fn matrix_report() -> Report {
    Report::of(fixtures::matrix())
}

#[test]
fn the_json_has_the_promised_members_with_the_promised_types() {
    let json = serde_json::to_value(report(story())).expect("serializes");
    assert_eq!(json["ok"], true);
    for member in ["versions", "machine", "settings"] {
        assert!(json[member].is_object(), "{member}");
    }
    let cell = &json["cells"][0];
    assert_eq!(cell["lock"], "local");
    assert_eq!(cell["scope"], "user");
    assert_eq!(cell["guards"], "off");
    for (member, value) in [
        ("replicas", 3),
        ("requests", 2100),
        ("stock", 100),
        ("orders", 410),
        ("oversold", 310),
        ("duplicate_users", 55),
        ("lost", 0),
    ] {
        assert_eq!(cell[member].as_u64(), Some(value), "{member}");
    }
    for member in ["predicted", "observed"] {
        assert_eq!(cell[member]["oversells"], true, "{member}");
        assert_eq!(cell[member]["duplicates"], true, "{member}");
    }
    assert_eq!(cell["as_predicted"], true);
    assert_eq!(cell["valid"], true);
    for member in ["orders_per_s", "p50_ms", "p99_ms"] {
        assert!(cell[member].is_f64(), "{member}");
    }
    assert_eq!(json["cells"][1]["lock"], "redisson");
    assert_eq!(json["cells"][3]["guards"], "on");
}

#[test]
fn the_table_has_one_line_a_cell_and_says_what_each_shows() {
    let text = table(&story(), TableSubject::Comparison, TableFormat::FILE);
    assert!(!text.contains('\x1b'), "no colours unless asked for");
    for words in ["oversells, duplicates", "holds", "312", "12.3", "56.8", "as predicted"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(
        table(
            &story(),
            TableSubject::Comparison,
            TableFormat::Plain { colours: true, width: None }
        )
        .contains('\x1b')
    );
    assert_eq!(text.lines().count(), 2 + story().len() + 2, "three groups are set apart:\n{text}");
    let narrow = table(
        &story(),
        TableSubject::Comparison,
        TableFormat::Plain { colours: false, width: Some(132) },
    );
    assert_eq!(narrow.lines().count(), text.lines().count() + 1, "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 132), "{narrow}");
    let markdown = table(&story(), TableSubject::Comparison, TableFormat::Markdown);
    assert_eq!(markdown.lines().count(), 2 + story().len(), "{markdown}");
    assert!(markdown.lines().all(|line| line.starts_with('|')), "{markdown}");
}

#[test]
fn each_way_to_fail_is_red_and_has_its_own_word() {
    let guarded = axes(Lock::None, Scope::User, Guards::On, 3);
    let broke = cell(guarded, 3, 0);
    assert_eq!(verdict(&broke).0, "BROKEN");
    let not_shown = cell(axes(Lock::None, Scope::User, Guards::Off, 3), 100, 0);
    assert_eq!(verdict(&not_shown).0, "NOT SHOWN");
    let mut lying = verdict_of(0, 0);
    for finding in &mut lying.findings {
        if finding.rule == Rule::AuditAgrees {
            finding.held = Some(false);
        }
    }
    let lying = CellReport::of(CellSpec::plain(guarded), 100, figures(), lying);
    assert_eq!(
        (verdict(&lying).0, &lying.broken_rules[..]),
        ("RULE BROKEN", &[Rule::AuditAgrees][..])
    );
    let idle = CellReport::of(
        CellSpec::plain(guarded),
        100,
        Figures { requests: 10, ..figures() },
        verdict_of(0, 0),
    );
    assert_eq!(verdict(&idle).0, "INVALID");
    let dead = CellReport::failed(
        CellSpec::plain(guarded),
        100,
        "replica r1 died".to_owned(),
        Duration::ZERO,
    );
    assert_eq!(verdict(&dead).0, "INVALID");
    for wrong in [broke, not_shown, lying, idle, dead] {
        assert!(!wrong.ok());
        let axes = wrong.axes.to_string();
        let report = report(vec![wrong]);
        assert!(!report.ok);
        let text = report.text(TableFormat::FILE);
        assert!(text.contains(&format!("✗ {axes}: ")), "the reason is printed:\n{text}");
    }
}

#[test]
fn what_a_cell_is_predicted_to_break_is_not_demanded_but_all_else_is() {
    use loadtest_lab::cell::demanded;
    let mut verdict = verdict_of(100, 0);
    assert_eq!(demanded(Prediction::HOLDS, &verdict), Rule::ALL);
    let left = demanded(Prediction::BREAKS, &verdict);
    for rule in [Rule::OrdersWithinStock, Rule::OneOrderPerUser, Rule::StockAddsUp] {
        assert!(!left.contains(&rule), "{rule:?}");
    }
    assert_eq!(left.len(), Rule::ALL.len() - 3);
    assert!(demanded(Prediction::OVERSELLS, &verdict).contains(&Rule::OneOrderPerUser));
    let not_judged = [Rule::OneHolderAtATime, Rule::AuditAgrees];
    verdict.findings.iter_mut().for_each(|finding| {
        finding.held = finding.held.filter(|_| !not_judged.contains(&finding.rule));
    });
    let left = demanded(Prediction::HOLDS, &verdict);
    assert!(!left.contains(&Rule::OneHolderAtATime), "only some runs have such a lock");
    assert!(left.contains(&Rule::AuditAgrees), "it has to be judged");
}

#[test]
fn a_lost_order_fails_even_a_cell_that_is_predicted_to_break() {
    let unguarded = axes(Lock::None, Scope::User, Guards::Off, 3);
    let mut verdict = verdict_of(100, 50);
    verdict.lost = 1;
    for finding in &mut verdict.findings {
        if finding.rule == Rule::AcknowledgedExist {
            finding.held = Some(false);
        }
    }
    let cell = CellReport::of(CellSpec::plain(unguarded), 100, figures(), verdict);
    assert!(cell.observed == cell.predicted && !cell.as_predicted);
}

#[test]
fn a_cell_that_an_earlier_run_wrote_is_the_same_cell_again() {
    let cells = [matrix_report().cells, vec![crate::html::tests::full(story()[0].axes)]];
    for cell in cells.concat() {
        let written = serde_json::to_string(&cell).expect("JSON");
        let read: CellReport = serde_json::from_str(&written).expect("it reads what it writes");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), written);
    }
}

#[test]
fn reports_are_written_into_folders_that_are_made_and_refused_where_they_cannot_be() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inner = folder.path().join("a/b");
    report(story()).write_folder(&inner).expect("written");
    for name in
        ["index.html", "comparison.json", "comparison.csv", "comparison.txt", "comparison.md"]
    {
        assert!(inner.join(name).is_file(), "{name}");
    }
    matrix_report().write_folder(&folder.path().join("m")).expect("written");
    for name in ["index.html", "matrix.json", "matrix.csv", "matrix.txt", "matrix.md"] {
        assert!(folder.path().join("m").join(name).is_file(), "{name}");
    }
    let new = folder.path().join("c/new.json");
    check_writable(&new).expect("can be written");
    assert!(!new.exists(), "a check leaves nothing behind");
    let error = check_writable(folder.path()).expect_err("a folder is no file");
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn a_smoke_run_that_takes_longer_than_it_may_says_so_and_no_other_run_does() {
    let text = |preset, took_s| {
        let mut report = Report { took_s, ..matrix_report() };
        report.selection.as_mut().expect("a matrix").preset = preset;
        report.text(TableFormat::FILE)
    };
    let late = "!!! TOO SLOW: the smoke run took 301 s, and may take 300 s";
    assert!(text(Some(Preset::Smoke), 301.0).contains(late));
    assert!(!text(Some(Preset::Smoke), 299.0).contains("TOO SLOW"));
    let late = "!!! TOO SLOW: the smoke run of topologies took 481 s, and may take 480 s";
    assert!(text(Some(Preset::SmokeTopologies), 481.0).contains(late));
    assert!(!text(Some(Preset::SmokeTopologies), 479.0).contains("TOO SLOW"));
    assert!(!text(Some(Preset::Full), 9000.0).contains("TOO SLOW"));
}

#[test]
fn a_matrix_is_printed_with_its_legend_and_conclusion_as_a_comparison_is() {
    for report in [report(story()), matrix_report()] {
        let text = report.text(TableFormat::FILE).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("oversold: orders beyond the stock. duplicates: users"), "{text}");
        assert!(text.contains(&report.conclusion.to_string()), "{text}");
    }
    let told = |report: Report, width| {
        let text = report.text(TableFormat::Plain { colours: false, width });
        (text.contains("p50 ms"), text.contains("p50, p99: of all"), text.contains("p99: of all"))
    };
    assert_eq!(told(report(story()), None), (true, true, true));
    assert_eq!(told(report(story()), Some(80)), (false, false, true), "it has no such column");
    assert_eq!(told(matrix_report(), None), (false, false, true), "it has no such column");
    let narrow = TableFormat::Plain { colours: false, width: Some(80) };
    let text = matrix_report().text(narrow);
    let prose = text.split_once("oversold: ").expect("the legend").1;
    let (prose, _) = prose.split_once("\n\nUnsafe").expect("its end");
    assert!(prose.lines().all(|line| line.chars().count() <= 80), "{prose}");
}
