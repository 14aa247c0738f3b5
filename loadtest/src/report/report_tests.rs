use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::judge::verdict::{Finding, Rule, Verdict};
use crate::lab::faults::{FaultKind, Schedule};
use crate::lab::lock::Lock;
use crate::lab::machine::{Builds, Profiles};
use crate::lab::place::Place;
use crate::lab::planting::{Attempt, Planted};
use crate::lab::plants::Found;
use crate::lab::predict::{Circumstance, Guards, Prediction, Scope};
use crate::lab::presets::Preset;
use crate::lab::round::{Round, Strike};
use crate::lab::trial::Trial;
use crate::load::stats::{Figures, Latency, Share};
use crate::report::conclusion::{conclusion, of_matrix};
use crate::report::table::verdict;

/// Figures of a load that is valid with up to three replicas.
pub(crate) fn figures() -> Figures {
    let share = || Share { answers: 700, share: 1.0 / 3.0 };
    Figures {
        requests: 2100,
        users: 700,
        elapsed_s: 1.0,
        requests_per_s: 2100.0,
        orders_per_s: 312.4,
        all: Latency { count: 2100, p50_ms: 12.34, p99_ms: 56.78, ..Latency::default() },
        outcomes: BTreeMap::new(),
        codes: BTreeMap::new(),
        replicas: ["r1", "r2", "r3"].map(|name| (name.to_owned(), share())).into(),
        in_flight_mean: 95.0,
        in_flight_peak: 96,
        simultaneous_min: 3,
        ..Figures::default()
    }
}

/// A verdict with these figures in which every rule holds that they do not contradict.
pub(crate) fn verdict_of(oversold: u64, duplicate_users: u64) -> Verdict {
    let finding = |rule| {
        let held = match rule {
            Rule::OrdersWithinStock => oversold == 0,
            Rule::OneOrderPerUser => duplicate_users == 0,
            Rule::StockAddsUp => oversold + duplicate_users == 0,
            _ => true,
        };
        Finding { held: Some(held), ..Finding::unjudged(rule, "figures") }
    };
    let findings = Rule::ALL.map(finding).into();
    Verdict { orders: 100 + oversold, oversold, duplicate_users, lost: 0, findings }
}

pub(crate) fn place(lock: Lock, scope: Scope, guards: Guards, replicas: u16) -> Place {
    Place { lock, scope, guards, replicas }
}

pub(crate) fn cell(place: Place, oversold: u64, duplicate_users: u64) -> CellReport {
    CellReport::of(Trial::plain(place), 100, figures(), verdict_of(oversold, duplicate_users))
}

/// The pair per user, the distributed lock per voucher, and one guarded cell, all as predicted.
pub(crate) fn story() -> Vec<CellReport> {
    vec![
        cell(place(Lock::Local, Scope::User, Guards::Off, 3), 310, 55),
        cell(place(Lock::Redisson, Scope::User, Guards::Off, 3), 290, 0),
        cell(place(Lock::Redisson, Scope::Voucher, Guards::Off, 3), 0, 0),
        cell(place(Lock::None, Scope::User, Guards::On, 3), 0, 0),
    ]
}

pub(crate) fn report(cells: Vec<CellReport>) -> Report {
    Report {
        ok: cells.iter().all(CellReport::ok),
        conclusion: conclusion(&cells),
        cells,
        not_applicable: Vec::new(),
        selection: None,
        changes: None,
        planted: None,
        load: Load::USUAL,
        chosen: Vec::new(),
        settings: Settings {
            innodb_flush_log_at_trx_commit: 1,
            redis_appendonly: "no".to_owned(),
            ..Settings::default()
        },
        versions: Versions {
            loadtest: "0.1.0",
            builds: Builds { loadtest: "10ad".repeat(16), seckill: "5ec0".repeat(16) },
            profiles: Profiles { loadtest: "demo", seckill: "release".to_owned() },
            database: "10.11".to_owned(),
            redis: "7.0".to_owned(),
            haproxy: "2.6".to_owned(),
            zookeeper: None,
        },
        machine: Machine::read(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        took_s: 3.0,
    }
}

/// These bugs, each caught at once with every seed, and clean without.
pub(crate) fn planted(names: &[&'static str], seeds: u64) -> Plants {
    let attempt = |seed| Attempt {
        seed,
        rounds: 1,
        caught_by: vec![format!("{}: 2 did", Rule::OneOrderPerUser.words())],
        missed: Vec::new(),
        clean: true,
        without: Found::default(),
    };
    let bug = |name: &&'static str| Planted {
        name,
        breaks: "the lock is freed too early",
        shown_by: "redisson per user".to_owned(),
        seeds,
        attempts: (1..=seeds).map(attempt).collect(),
    };
    Plants::of(names.iter().map(bug).collect(), seeds)
}

/// A holder frozen past its lock, and what was seen of it.
pub(crate) fn frozen(circumstance: Circumstance, oversold: u64) -> CellReport {
    let place = place(Lock::Redisson, Scope::Voucher, Guards::Off, 3);
    let trial = Trial { place, circumstance, fault: Some(FaultKind::FreezeReplica) };
    let report = CellReport::of(trial, 100, figures(), verdict_of(oversold, 0));
    let schedule = Schedule::of(9, "a cell", 3);
    let strike = Strike {
        name: FaultKind::FreezeReplica,
        begin_ns: 1_500_000_000,
        end_ns: 2_500_000_000,
        witness: "r2 was in state T".to_owned(),
    };
    let round = Round {
        plan: schedule.words(trial.fault),
        schedule,
        faults: vec![strike],
        closing_ns: 4_000_000_000,
        in_flight: 17,
        requests: [120, 31, 400],
        ok_after: 60,
        before_per_s: 49.0,
        back_after_ms: Some(230),
        failed_requests: 2,
        served_after: 6,
    };
    CellReport { seed: 9, tries: 3, ..report.with_round(round) }
}

/// The story, one cell that a fault befalls in its place, and two frozen holders.
pub(crate) fn matrix_report() -> Report {
    let mut cells = story();
    let killed = Trial { fault: Some(FaultKind::FreezeReplica), ..cells[3].trial() };
    cells.push(CellReport::of(killed, 100, figures(), verdict_of(0, 0)));
    cells.push(frozen(Circumstance::FrozenUnfenced, 1));
    cells.push(frozen(Circumstance::FrozenFenced, 0));
    let selection = Selection {
        summary: matrix::summary(&cells),
        not_generated: Vec::new(),
        resumed: 0,
        seed: 7,
        preset: None,
        sample: None,
    };
    Report { conclusion: of_matrix(&cells), selection: Some(selection), ..report(cells) }
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
    let text = table(&story(), Of::Comparison, Look::FILE);
    assert!(!text.contains('\x1b'), "no colours unless asked for");
    for words in ["oversells, duplicates", "holds", "312", "12.3", "56.8", "as predicted"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert!(
        table(&story(), Of::Comparison, Look::Plain { colours: true, width: None })
            .contains('\x1b')
    );
    assert_eq!(text.lines().count(), 2 + story().len() + 2, "three groups are set apart:\n{text}");
    let narrow = table(&story(), Of::Comparison, Look::Plain { colours: false, width: Some(132) });
    assert_eq!(narrow.lines().count(), text.lines().count() + 1, "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 132), "{narrow}");
    let markdown = table(&story(), Of::Comparison, Look::Markdown);
    assert_eq!(markdown.lines().count(), 2 + story().len(), "{markdown}");
    assert!(markdown.lines().all(|line| line.starts_with('|')), "{markdown}");
}

#[test]
fn each_way_to_fail_is_red_and_has_its_own_word() {
    let guarded = place(Lock::None, Scope::User, Guards::On, 3);
    let broke = cell(guarded, 3, 0);
    assert_eq!(verdict(&broke).0, "BROKEN");
    let not_shown = cell(place(Lock::None, Scope::User, Guards::Off, 3), 100, 0);
    assert_eq!(verdict(&not_shown).0, "NOT SHOWN");
    let mut lying = verdict_of(0, 0);
    for finding in &mut lying.findings {
        if finding.rule == Rule::AuditAgrees {
            finding.held = Some(false);
        }
    }
    let lying = CellReport::of(Trial::plain(guarded), 100, figures(), lying);
    assert_eq!(
        (verdict(&lying).0, &lying.broken_rules[..]),
        ("RULE BROKEN", &[Rule::AuditAgrees][..])
    );
    let idle = CellReport::of(
        Trial::plain(guarded),
        100,
        Figures { requests: 10, ..figures() },
        verdict_of(0, 0),
    );
    assert_eq!(verdict(&idle).0, "INVALID");
    let dead = CellReport::failed(
        Trial::plain(guarded),
        100,
        "replica r1 died".to_owned(),
        Duration::ZERO,
    );
    assert_eq!(verdict(&dead).0, "INVALID");
    for wrong in [broke, not_shown, lying, idle, dead] {
        assert!(!wrong.ok());
        let place = wrong.place.to_string();
        let report = report(vec![wrong]);
        assert!(!report.ok);
        let text = report.text(Look::FILE);
        assert!(text.contains(&format!("✗ {place}: ")), "the reason is printed:\n{text}");
    }
}

#[test]
fn what_a_cell_is_predicted_to_break_is_not_demanded_but_all_else_is() {
    use crate::lab::cell::demanded;
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
fn a_lost_order_fails_even_a_cell_that_is_to_break() {
    let unguarded = place(Lock::None, Scope::User, Guards::Off, 3);
    let mut verdict = verdict_of(100, 50);
    verdict.lost = 1;
    for finding in &mut verdict.findings {
        if finding.rule == Rule::AcknowledgedExist {
            finding.held = Some(false);
        }
    }
    let cell = CellReport::of(Trial::plain(unguarded), 100, figures(), verdict);
    assert!(cell.observed == cell.predicted && !cell.as_predicted);
}

#[test]
fn a_cell_that_an_earlier_run_wrote_is_the_same_cell_again() {
    let cells = [matrix_report().cells, vec![crate::report::html::tests::full(story()[0].place)]];
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
fn a_smoke_run_that_takes_longer_than_five_minutes_says_so_and_no_other_run_does() {
    let text = |preset, took_s| {
        let mut report = Report { took_s, ..matrix_report() };
        report.selection.as_mut().expect("a matrix").preset = preset;
        report.text(Look::FILE)
    };
    let late = "!!! TOO SLOW: the smoke run took 301 s, and may take 300 s";
    assert!(text(Some(Preset::Smoke), 301.0).contains(late));
    assert!(!text(Some(Preset::Smoke), 299.0).contains("TOO SLOW"));
    assert!(!text(Some(Preset::Full), 9000.0).contains("TOO SLOW"));
}

#[test]
fn a_matrix_is_printed_with_its_legend_and_conclusion_as_a_comparison_is() {
    for report in [report(story()), matrix_report()] {
        let text = report.text(Look::FILE).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("oversold: orders beyond the stock. duplicates: users"), "{text}");
        assert!(text.contains(&report.conclusion.to_string()), "{text}");
    }
    let told = |report: Report, width| {
        let text = report.text(Look::Plain { colours: false, width });
        (text.contains("p50 ms"), text.contains("p50, p99: of all"), text.contains("p99: of all"))
    };
    assert_eq!(told(report(story()), None), (true, true, true));
    assert_eq!(told(report(story()), Some(80)), (false, false, true), "it has no such column");
    assert_eq!(told(matrix_report(), None), (false, false, true), "it has no such column");
    let narrow = Look::Plain { colours: false, width: Some(80) };
    let text = matrix_report().text(narrow);
    let prose = text.split_once("oversold: ").expect("the legend").1;
    let (prose, _) = prose.split_once("\n\nUnsafe").expect("its end");
    assert!(prose.lines().all(|line| line.chars().count() <= 80), "{prose}");
}
