use std::collections::BTreeMap;

use loadtest_judge::proof::{Proof, ProofRequest};
use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::CellAxes;
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::detail::{Detail, ReplicaWork};
use loadtest_lab::fixtures::{axes, cell, figures, frozen, injection_results, story, verdict_of};
use loadtest_lab::injected_bugs::RoundFindings;
use loadtest_lab::injection_results::InjectionResults;
use loadtest_lab::lock::Lock;
use loadtest_lab::metrics::LockMetrics;
use loadtest_lab::oversell_moment::OversellMoment;
use loadtest_lab::predict::Scenario;
use loadtest_lab::series::{MAX_POINTS, Series};
use loadtest_load::outcome::Outcome;
use loadtest_load::quantiles::Quantile;
use loadtest_load::stats::Figures;
use serde_json::Value;

use super::*;
use crate::html::grid::{CellKind, Grid};
use crate::html::language_tests::shown;
use crate::tests::{matrix_report, report};

/// What must come out of data as what it was.
const EVIL: &str = "stood </script><script>alert(1)</script>";

/// A request as long as they get.
fn asked(n: u32) -> ProofRequest {
    ProofRequest {
        n,
        user: "1844674407370955161".to_owned(),
        replica: Some("r12".to_owned()),
        answer: "409 already_ordered".to_owned(),
        order: Some("9223372036854775807".to_owned()),
        start_ns: 60_000_000_000 + u64::from(n),
        end_ns: Some(61_000_000_000 + u64::from(n)),
        held_ns: Some([60_500_000_000, 60_900_000_000]),
        earliest_hold_ns: None,
        lost: false,
    }
}

/// As much as there can be of everything.
fn detail() -> Detail {
    let steps = usize::try_from(MAX_POINTS).expect("few");
    Detail {
        series: Series {
            step_ms: 5000,
            answers: Outcome::ALL.map(|outcome| (outcome, vec![12_345; steps])).into(),
        },
        replicas: (1..=16)
            .map(|n| ReplicaWork { replica: format!("r{n}"), answers: 700, orders: 100 })
            .collect(),
        oversell_moment: Some(OversellMoment {
            units: 100,
            first: 3,
            requests: (0..12).map(asked).collect(),
            left_out: 99,
        }),
        double_sale: None,
        locks: Some(LockMetrics::default()),
    }
}

/// Figures with as long curves as there can be.
fn curved() -> Figures {
    let curve = vec![Quantile { part: 0.9999, ms: 12_345.678 }; 14];
    Figures { curves: Outcome::ALL.map(|outcome| (outcome, curve.clone())).into(), ..figures() }
}

/// A cell in which every rule of a matrix was broken, with as many proofs as the judge keeps.
pub(crate) fn full(axes: CellAxes) -> CellReport {
    let mut verdict = verdict_of(310, 55);
    for finding in &mut verdict.findings {
        // An injected bug alone has the fault that shows it.
        if finding.rule == Rule::SoldWithinWindow {
            finding.held = None;
            continue;
        }
        finding.held = Some(false);
        let requests = (0..8).map(asked).collect();
        finding.proofs = vec![Proof { why: "user 7 holds 3 orders".to_owned(), requests }; 10];
    }
    let detail = Some(detail());
    let round = frozen(Scenario::FrozenUnfenced, 1).round.map(|mut round| {
        round.faults[0].witness = EVIL.to_owned();
        round
    });
    CellReport { round, detail, ..CellReport::of(CellSpec::plain(axes), 100, curved(), verdict) }
}

pub(crate) fn page(cells: Vec<CellReport>) -> String {
    shown(&report(cells))
}

/// The values of an attribute, anywhere in the page's own markup.
fn values<'a>(html: &'a str, attribute: &str) -> Vec<&'a str> {
    let pattern = format!(" {attribute}=\"");
    let body = html.split_once("</style>").expect("a style").1;
    let body = body.rsplit_once("<script>").expect("a script").0;
    let after = body.match_indices(&pattern).map(|(at, _)| &body[at + pattern.len()..]);
    after.filter_map(|rest| rest.split('"').next()).collect()
}

/// What the script is given.
fn plots(html: &str) -> Value {
    let (_, rest) = html.split_once("id=\"plots\">").expect("data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn the_page_links_to_itself_only_and_loads_nothing() {
    let html = page(story());
    assert!(values(&html, "href").iter().all(|link| link.starts_with('#')), "{html}");
    assert_eq!(values(&html, "src"), Vec::<&str>::new());
    for forbidden in ["@import", "url(", "<link rel=\"stylesheet", "<script src"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn every_link_of_the_matrix_leads_to_a_section() {
    let html = page(story());
    let ids = values(&html, "id");
    let links = values(&html, "href");
    assert!(links.contains(&"#local-user-off-3"), "{links:?}");
    for link in links {
        assert_eq!(ids.iter().filter(|id| **id == &link[1..]).count(), 1, "{link}");
    }
}

#[test]
fn cells_in_one_place_that_differ_in_what_happens_have_squares_and_sections_of_their_own() {
    let report = matrix_report();
    let html = shown(&report);
    let (ids, links) = (values(&html, "id"), values(&html, "href"));
    for id in ["none-user-on-3", "none-user-on-3-freeze", "redisson-voucher-off-3-frozen-fenced"] {
        assert_eq!(ids.iter().filter(|one| **one == id).count(), 1, "{id}");
        assert!(links.contains(&format!("#{id}").as_str()), "{id}");
    }
    let grid = Grid::of(&report.cells);
    let in_table = grid.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.squares);
    assert_eq!(in_table.flatten().count(), 4);
    let rows: Vec<_> = grid.scenarios.iter().flat_map(|group| &group.rows).collect();
    let names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names, ["freeze", "frozen-unfenced", "frozen-fenced"]);
    assert_eq!(rows[1].squares[0].label.as_deref(), Some("redisson × 3"));
}

#[test]
fn a_cell_with_a_fault_shows_what_was_planned_seen_and_measured() {
    let html = shown(&matrix_report());
    for words in [
        "because the lock lapses while its holder stands still",
        "freeze from 1.50 s to 2.50 s: r2 was in state T.",
        "<p class=\"strike\">Planned: freeze once the load is steady, ",
        "<dt>in flight when it hit</dt><dd>17</dd>",
        "120 before, 31 during, 400 after",
        "<dt>throughput back</dt><dd>after 230 ms</dd>",
        "<dt>tries</dt><dd>3</dd>",
        "--scenarios frozen-fenced --faults freeze --seed 9",
    ] {
        assert!(html.contains(words), "{words} in {html}");
    }
}

#[test]
fn injected_bugs_are_shown_if_any_were_and_one_that_was_not_caught_stands_out() {
    let mut report = report(story());
    let html = shown;
    assert!(!html(&report).contains("Injected bugs"));
    let mut results = injection_results(&["release-before-commit", "lying-audit"], 3);
    results.bugs[0].attempts[1].rounds = 4;
    let missed = &mut results.bugs[1].attempts[1];
    missed.caught_by.clear();
    missed.missed.push(RoundFindings {
        invalid: vec!["the fault has no witness".to_owned()],
        ..RoundFindings::default()
    });
    report.injected_bugs = Some(InjectionResults::of(results.bugs, 3));
    let html = html(&report);
    assert!(html.contains("injected 2, caught 1, median rounds 1"), "{html}");
    assert!(html.contains("2 injected bugs, 1 of them caught"), "{html}");
    assert!(html.contains("<td>1, 4, 1</td>"), "{html}");
    assert!(html.contains("<summary>no user bought twice</summary>"), "{html}");
    assert!(html.contains("<li>seed 2: caught in round 4 (no user bought twice: 2 did)"), "{html}");
    let words = html.split_whitespace().collect::<Vec<_>>().join(" ");
    let top = "<strong>Injected and not caught: lying-audit.</strong>";
    assert!(words.contains(top), "it is said at the top: {words}");
    let (_, rows) = words.split_once("<section id=\"injected-bugs\"").expect("the table");
    let (rows, _) = rows.split_once("</section>").expect("its end");
    let row = "<tbody> <tr class=\"uncaught\"> <th scope=\"row\">\
               <span aria-hidden=\"true\">✗</span> lying-audit ";
    assert!(rows.contains(row), "its row is the first: {rows}");
    let why = "seed 2: NOT CAUGHT in 1 rounds; clean without it. In the last round: the fault \
               has no witness</span>";
    assert!(rows.contains(why), "and says why: {rows}");
    assert_eq!(rows.matches("<tr class=\"uncaught\">").count(), 1);
}

#[test]
fn nothing_that_a_server_says_becomes_markup() {
    let evil = "<img src=x onerror=alert(1)>\"'&";
    let mut failed = cell(axes(Lock::None, Scope::User, Guards::Off, 3), 1, 1);
    failed.error = Some(evil.to_owned());
    failed.valid = false;
    let mut answered = figures();
    answered.codes = BTreeMap::from([(evil.to_owned(), 7)]);
    let coded = CellReport::of(CellSpec::plain(failed.axes), 100, answered, verdict_of(1, 1));
    let round = full(failed.axes).round;
    let html = page(vec![failed, CellReport { detail: Some(detail()), round, ..coded }]);
    assert!(!html.contains("<img"), "{html}");
    assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;"), "{html}");
    assert!(!html.contains("<script>alert"), "also not out of the data");
    let given = plots(&html);
    let witness = &given["none-user-off-3"]["faults"][0]["witness"];
    assert_eq!(witness, EVIL, "the data is what it was");
}

#[test]
fn each_kind_of_cell_has_a_mark_and_a_word_of_its_own() {
    let guarded = axes(Lock::None, Scope::User, Guards::On, 3);
    let surprise = cell(guarded, 3, 0);
    let invalid = CellReport { valid: false, ..cell(guarded, 0, 0) };
    let of = |cell: &CellReport| CellKind::of(cell);
    assert_eq!(of(&story()[0]), CellKind::Unsafe);
    assert_eq!(of(&story()[2]), CellKind::Safe);
    assert_eq!(of(&surprise), CellKind::Surprise);
    assert_eq!(of(&invalid), CellKind::Invalid);
    for pair in CellKind::ALL.windows(2) {
        assert_ne!(pair[0].mark(), pair[1].mark());
        assert_ne!(pair[0].words(), pair[1].words());
    }
    let html = page(vec![surprise]);
    assert!(html.contains("square surprise"), "{html}");
    assert!(html.contains("predicted holds, observed oversells"), "the reason is told");
}

#[test]
fn few_locks_stand_side_by_side_and_many_below_each_other() {
    let grid = Grid::of(&story());
    assert_eq!(
        (grid.corner, &grid.columns[..]),
        (Text::of("replicas"), &["local", "redisson", "none"].map(Text::from)[..])
    );
    let groups: Vec<_> = grid.groups.iter().map(|group| group.name.to_string()).collect();
    assert_eq!(groups[0], "without the database's guards, lock per user");
    assert_eq!(groups.len(), 3, "{groups:?}");
    let [row] = &grid.groups[0].rows[..] else { panic!("one row") };
    let squares: Vec<_> = row.squares.iter().flatten().collect();
    assert_eq!(
        (squares[0].rate.as_deref(), squares[0].p99.as_deref()),
        (Some("312"), Some("56.8"))
    );
    assert_eq!(squares[1].words, "oversells");

    let locks = [Lock::Local, Lock::SetNx, Lock::Redisson, Lock::Fair, Lock::Redlock];
    let cells = locks.map(|lock| cell(axes(lock, Scope::User, Guards::Off, 3), 310, 0));
    let grid = Grid::of(&cells);
    assert_eq!(
        (grid.corner, grid.columns[0].to_string()),
        (Text::of("lock"), "lock per user × 3".to_owned())
    );
    assert_eq!(grid.groups[0].rows.len(), locks.len());
}

#[test]
fn a_proof_is_drawn_with_user_replica_answer_order_and_times() {
    let html = page(vec![full(story()[0].axes)]);
    for words in [
        "The requests that prove it",
        "user 1844674407370955161",
        "<b>r12</b>: 409 already_ordered",
        "order 9223372036854775807",
        "60000.0 ms – 61000.0 ms,\nhold 60500.0 ms – 60900.0 ms",
        "class=\"bar held\"",
        "99 more are not drawn",
        "from 1.50 s to 2.50 s: stood",
    ] {
        assert!(html.contains(words), "{words}");
    }
}

#[test]
fn curves_are_those_of_the_table_and_the_course_marks_where_the_closing_loads_begin() {
    let cell = full(story()[0].axes);
    let given = &plots(&page(vec![cell.clone()]))["local-user-off-3"];
    let curves = serde_json::to_value(&cell.load.expect("figures").curves).expect("JSON");
    assert_eq!(given["latency"], curves);
    assert_eq!(given["closing_ns"], 4_000_000_000_u64);
    let plain = CellReport { detail: Some(detail()), ..story().swap_remove(0) };
    let given = &plots(&page(vec![plain]))["local-user-off-3"];
    assert_eq!(given["closing_ns"], Value::Null, "it has but one load");
}

#[test]
fn the_page_names_missing_counts_the_builds_and_the_command_that_judges_again() {
    let html = |started_anew: usize, history: Option<&str>| {
        let locks = Some(LockMetrics { started_anew, ..LockMetrics::default() });
        let detail = Some(Detail { locks, ..detail() });
        let history = history.map(str::to_owned);
        page(vec![CellReport { detail, history, ..story().swap_remove(0) }])
    };
    let (whole, partly) = (html(0, None), html(1, Some("kept/a cell.jsonl.zst")));
    let missing = "One replica was killed or restarted, and counts from the restart on";
    assert!(partly.contains(missing) && !whole.contains(missing), "{partly}");
    let check = "<code>loadtest check &#x27;kept&#x2f;a cell.jsonl.zst&#x27;</code>";
    assert!(partly.contains(check) && !whole.contains("loadtest check"), "{partly}");
    assert!(whole.contains("<dd>0.1.0, demo build 10ad10ad10ad</dd>"), "{whole}");
    assert!(whole.contains("<dd>release build 5ec05ec05ec0</dd>"), "{whole}");
}

#[test]
fn fifty_cells_that_broke_everything_are_less_than_four_megabytes() {
    let cells = (1..=50).map(|n| full(axes(Lock::None, Scope::User, Guards::On, n))).collect();
    let html = render(&Page::of(&report(cells))).expect("a page");
    println!("{} bytes", html.len());
    assert!(html.len() < 4_000_000, "{} bytes", html.len());
    assert_eq!(plots(&html).as_object().expect("one a cell").len(), 50);
}

#[test]
fn an_injected_bug_is_shown_before_the_answer() {
    let mut with_bug = report(story());
    with_bug.load.injected_bug = Some(loadtest_lab::cell_axes::InjectedBug::LyingAudit);
    with_bug.conclusion.injected_bug = "Every replica had it.".into();
    with_bug.conclusion.setting = "All of it on another path.".into();
    let html = shown(&with_bug);
    assert!(html.contains("Every replica had the injected bug lying-audit."), "{html}");
    assert!(html.contains("<p class=\"answer\">With JVM-style local locks"), "{html}");
    assert!(html.contains("<p class=\"question\">All of it on another path. 100 units"), "{html}");
    assert!(!html.contains("Every replica had it."), "{html}");
}

#[test]
fn changes_since_an_earlier_run_are_shown_and_verdicts_are_first() {
    let mut now = report(story());
    let earlier = serde_json::to_string(&now).expect("JSON");
    let mut earlier: Value = serde_json::from_str(&earlier).expect("JSON");
    earlier["cells"][0]["orders_per_s"] = 31.24.into();
    earlier["cells"][2]["as_predicted"] = false.into();
    now.compare_with(&serde_json::from_value(earlier).expect("a baseline"));
    let html = shown(&now);
    let at = |words: &str| html.find(words).unwrap_or_else(|| panic!("{words} in {html}"));
    assert!(at("What changed since 2026-01-01 00:00 UTC") < at("holds, not as predicted"));
    assert!(at("holds, not as predicted") < at("× 10.00"));
    assert!(html.contains("2 cells came out as before"), "{html}");
}

#[test]
fn each_cell_says_whether_the_generator_was_the_bottleneck() {
    let mut busy = figures();
    busy.cost.machine_share = 0.9;
    let cells = vec![
        CellReport::of(CellSpec::plain(story()[0].axes), 100, busy, verdict_of(310, 55)),
        story().swap_remove(1),
    ];
    let html = page(cells);
    assert!(html.contains("the generator took 90 % of the machine"), "{html}");
    assert_eq!(html.matches("It was not the bottleneck.").count(), 1);
    assert_eq!(html.matches("<span class=\"limited\">no verdict on speed</span>").count(), 1);
    assert!(html.contains("<em>No verdict on speed</em>\n(1): other cells"), "{html}");
    assert!(!page(story()).contains("o verdict on speed</"), "where it was not, nothing is said");
    assert!(html.contains("in 1 of 2 cells"), "{html}");
}

#[test]
fn a_page_of_all_cells_stays_small_and_shows_in_full_those_that_matter() {
    let axes = |replicas| axes(Lock::Redisson, Scope::Voucher, Guards::Off, replicas);
    let safe = |replicas| CellReport { detail: Some(detail()), ..cell(axes(replicas), 0, 0) };
    let few = report((1..=3).map(safe).collect());
    assert!(Page::of(&few).cells.iter().all(|section| !section.brief && section.plotted));
    let mut cells: Vec<_> = (1..1500).map(|number| safe(number % 3 + 1)).collect();
    cells.push(full(axes(1)));
    let many = report(cells);
    let page = Page::of(&many);
    let (told, brief): (Vec<_>, Vec<_>) = page.cells.iter().partition(|section| !section.brief);
    assert_eq!((told.len(), brief.len(), page.plots.len()), (1, 1499, 1));
    assert!(told[0].plotted && !told[0].rules.is_empty() && told[0].kind == CellKind::Surprise);
    let size = render(&page).expect("a page").len();
    println!("{size} bytes");
    assert!(size < 6_000_000, "{size} bytes");
}
