use loadtest_judge::holds::HoldOverlaps;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::Load;
use loadtest_lab::cell_plan::{CellPlan, CellRequest, Setup};
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::fixtures::{axes, cell, figures, frozen, story, verdict_of};
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Scenario;
use loadtest_load::stats::Figures;

use super::*;
use crate::html::grid::Grid;
use crate::html::language_tests::shown;
use crate::html::tests::{full, page};
use crate::tests::{matrix_report, report};

#[test]
fn holds_of_one_lock_at_once_stand_on_the_page_of_their_cell() {
    let mut cells = story();
    assert!(!page(cells.clone()).contains("holds of one lock"));
    let (longest_ms, resolution_ms) = (1.5, 2.0);
    let overlaps = HoldOverlaps { holds: 9, at_once: 3, longest_ms, certain: 2, resolution_ms };
    cells[0].overlaps = Some(overlaps);
    let html = page(cells);
    let words = "2 of 9 holds for certain, and perhaps 1 more, ";
    assert!(html.contains(words), "{html}");
    // Beside others it would have a column of single words.
    assert!(html.contains("<div class=\"long\"><dt>holds of one lock at once</dt>"), "{html}");
    assert!(html.contains("<div><dt>oversold</dt>"), "{html}");
}

#[test]
fn the_figure_at_a_lock_in_which_something_happens_is_explained_whatever_it_is() {
    let html = page(matrix_report().cells);
    assert!(html.contains("redisson × 3"), "{html}");
    let (_, below) = html.split_once("class=\"grids\"").expect("the matrix");
    let (hint, _) = below.split_once("When things go wrong").expect("what goes wrong");
    let words = hint.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Below, the number after × says how many replicas"), "{words}");
    assert!(!words.contains("× 2"), "{words}");
}

#[test]
fn new_and_missing_cells_are_two_sentences_and_one_cell_is_singular() {
    let earlier = serde_json::to_string(&report(story()[..2].to_vec())).expect("JSON");
    let mut now = report(story()[1..3].to_vec());
    now.compare_with(&serde_json::from_str(&earlier).expect("a baseline"));
    let html = shown(&now);
    let words = html.split_whitespace().collect::<Vec<_>>().join(" ");
    let new = "New: redisson per voucher, guards off, replicas 3. Gone: local per user";
    assert!(words.contains(new), "{words}");
    assert!(words.contains("<p>1 cell came out as before;"), "{words}");
    let text = now.text(crate::table::TableFormat::FILE);
    assert!(text.contains("0 changed, 1 cell as before."), "{text}");
    let one = report(story()[..1].to_vec());
    assert_eq!(Page::of(&one).count, "1 cell, 1 of them as predicted");
}

#[test]
fn each_cell_shows_its_flags_and_its_load_and_the_default_load_where_it_had_that() {
    let trial = frozen(Scenario::FrozenFenced, 0).trial();
    let wanted = CellRequest { trial, default_load: &Load::DEFAULT, seed: 9 };
    let CellPlan { flags, load, .. } = CellPlan::of(&wanted);
    let staged = Setup { flags, load };
    let fenced = |setup| CellReport { setup, ..frozen(Scenario::FrozenFenced, 0) };
    let html = page(vec![fenced(Some(staged.clone()))]);
    for words in [
        "seckill serve --lab --lock redisson --lock-scope voucher --guards off --work-ms 10",
        "--lease-ms 1000 --fenced",
        "<dt>lease</dt><dd>1000 ms</dd>",
        "<dt>wait for the lock</dt><dd>1000 ms, the service&#x27;s own</dd>",
        "<dt>fenced</dt><dd>yes</dd>",
        "<dt>mode</dt><dd>direct</dd>",
        "<dt>users, at most</dt><dd>2500</dd>",
        "<dt>extra work under the lock</dt><dd>10 ms</dd>",
    ] {
        assert!(html.contains(words), "{words} in {html}");
    }
    assert!(!html.contains("The usual load"), "no cell had it");
    assert!(!page(vec![fenced(None)]).contains("The usual load"), "nor is one to have it");
    assert!(page(story()).contains("The usual load"));
    let json = serde_json::to_value(report(vec![fenced(Some(staged))])).expect("JSON");
    let setup = &json["cells"][0]["setup"];
    assert_eq!(
        (setup["load"]["work_ms"].as_u64(), &setup["flags"][0]),
        (Some(10), &"--lab".into())
    );
}

#[test]
fn a_contradicted_prediction_is_named_in_its_square_and_its_section_is_open() {
    let guarded = axes(Lock::None, Scope::User, Guards::On, 3);
    let words = |cell: CellReport| {
        let grid = Grid::of(&[cell]);
        grid.groups[0].rows[0].squares[0].as_ref().expect("a square").words.clone()
    };
    assert_eq!(words(cell(guarded, 3, 0)), "surprise: oversells; predicted: holds");
    let unguarded = axes(Lock::None, Scope::User, Guards::Off, 3);
    assert_eq!(words(cell(unguarded, 0, 0)), "surprise: holds; predicted: oversells, duplicates");
    let mut lost = verdict_of(0, 0);
    for finding in &mut lost.findings {
        if finding.rule == Rule::AcknowledgedExist {
            finding.held = Some(false);
        }
    }
    let lost = CellReport::of(CellSpec::plain(guarded), 100, figures(), lost);
    assert_eq!(words(lost), "surprise: rule broken: every acknowledged order exists");
    let mut cells = story();
    cells.extend((4..20).map(|replicas| {
        let guarded = axes(Lock::None, Scope::User, Guards::On, replicas);
        CellReport { valid: true, ..cell(guarded, 3, 0) }
    }));
    let html = page(cells);
    assert_eq!(html.matches("<details class=\"cell\" open>").count(), 8, "not all of many");
    assert_eq!(html.matches("<details class=\"cell\">").count(), 4 + 8);
}

#[test]
fn a_round_says_which_figures_are_of_the_main_load_and_which_of_all() {
    let html = page(vec![full(story()[0].axes)]);
    let words = html.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = |what: &str| words.find(what).unwrap_or_else(|| panic!("{what} in {words}"));
    let whole = at("<h4>Before, during and after the fault</h4>");
    let main = at("<h4>The main load only</h4>");
    assert!(whole < at("<dt>orders</dt>") && at("<dt>orders</dt>") < main);
    assert!(main < at("<dt>orders per second</dt>") && main < at("<dt>in flight</dt>"));
    let main = "<span class=\"part\">the main load only</span></h4>";
    let whole = "<span class=\"part\">before, during and after</span></h4>";
    for part in ["Latency in milliseconds", "Status and code", "The generator itself"] {
        assert!(words.contains(&format!("{part} {main}")), "{part} in {words}");
    }
    for part in ["Orders per replica", "The locks, as 0 replicas measured", "The rules"] {
        assert!(words.contains(&format!("{part} {whole}")), "{part} in {words}");
    }
    let plain = page(story());
    assert!(!plain.contains("main load only"), "it is the only one");
    assert!(plain.contains("<dt>in flight</dt><dd>95 on average</dd>"), "{plain}");
    let paced = Figures { in_flight_mean: 0.0, in_flight_peak: 6, ..figures() };
    let paced = CellReport { load: Some(paced), ..story().swap_remove(0) };
    assert!(page(vec![paced]).contains("<dt>in flight</dt><dd>at most 6</dd>"));
}

#[test]
fn the_whole_answer_stands_above_the_matrix() {
    let html = page(story());
    let (above, below) = html.split_once("id=\"matrix\"").expect("the matrix");
    let way_out = "No lock per user keeps to the stock; a distributed lock per voucher does";
    assert!(above.contains(way_out), "{above}");
    assert!(below.contains("<p class=\"more\">Neither lock per user kept to the stock"), "{below}");
}

#[test]
fn where_there_is_one_lock_the_page_does_not_ask_which() {
    let asked = |cells: &[CellReport]| Page::of(&report(cells.to_vec())).question.to_string();
    assert!(asked(&story()).contains("Which lock keeps to the stock"), "{}", asked(&story()));
    let redisson = asked(&story()[1..3]);
    assert!(redisson.ends_with("Does redisson keep to the stock, and sell twice to no user?"));
    assert!(asked(&story()[3..]).ends_with("Is the stock kept to, and does no user buy twice?"));
}

#[test]
fn rules_that_were_expected_to_break_are_distinguished_from_others() {
    let mut verdict = verdict_of(310, 55);
    for finding in &mut verdict.findings {
        if finding.rule == Rule::AcknowledgedExist {
            finding.held = Some(false);
        }
    }
    let section = |verdict| {
        let cell = CellReport::of(CellSpec::plain(story()[0].axes), 100, figures(), verdict);
        cell::Section::of(&cell, &report(story()))
    };
    let rules = section(verdict).rules;
    let held = |rule: Rule| {
        let line = rules.iter().find(|line| line.rule == rule.words()).expect("it is judged");
        (line.broken, line.held.to_string())
    };
    assert_eq!(held(Rule::OneOrderPerUser), (true, "broken, as predicted".to_owned()));
    assert_eq!(held(Rule::AcknowledgedExist), (true, "broken".to_owned()));
}
