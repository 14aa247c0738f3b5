//! In a browser: pages that no run of a few seconds brings about, and pages on paper.

use browser::Browser;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::fixtures::{axes, cell, injection_results, story};
use loadtest_lab::injection_results::InjectionResults;
use loadtest_lab::lock::Lock;
use serde_json::json;
use tempfile::TempDir;

use super::render;
use super::tests::full;
use crate::Report;
use crate::html::cell::MAX_FULL_CELLS;
use crate::html::page::Page;
use crate::tests::report;

#[path = "../../../../tests/service/report/browser.rs"]
pub(super) mod browser;

/// The page of a report with two injected bugs, of which the second was not caught.
pub(super) fn written(report: Report) -> (TempDir, String) {
    let mut results = injection_results(&["release-before-commit", "lying-audit"], 1);
    results.bugs[1].attempts[0].caught_by.clear();
    let report = Report { injected_bugs: Some(InjectionResults::of(results.bugs, 1)), ..report };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("index.html");
    std::fs::write(&file, render(&Page::of(&report)).expect("a page")).expect("written");
    let url = format!("file://{}", file.display());
    (folder, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bug_that_was_not_caught_is_first_and_red_and_many_cells_are_shown_in_brief() {
    let more = (4..).take(MAX_FULL_CELLS).map(|replicas| {
        let guarded = axes(Lock::Redisson, Scope::User, Guards::On, replicas);
        CellReport { valid: true, ..cell(guarded, 0, 0) }
    });
    let (_folder, url) = written(report(story().into_iter().chain(more).collect()));
    let browser = Browser::start().await;
    browser.open(&url).await;
    let row = "const row = document.querySelector('#injected-bugs tbody tr'); \
               return [row.innerText, getComputedStyle(row.querySelector('th')).color]";
    let row = browser.run(row).await;
    let words = row[0].as_str().expect("text");
    assert!(words.contains("lying-audit") && words.contains("NOT CAUGHT"), "{words}");
    assert_eq!(row[1], "rgb(179, 38, 30)", "it is red");
    let top = browser.run("return document.querySelector('header').innerText").await;
    assert!(top.as_str().expect("text").contains("not caught: lying-audit"), "{top}");

    let square = browser.find(".square a[href='#redisson-user-on-99']").await;
    browser.click(&square[0]).await;
    browser
        .wait_until("return document.getElementById('redisson-user-on-99').offsetHeight > 0")
        .await;
    let told = "return document.getElementById('redisson-user-on-99').innerText";
    let told = browser.run(told).await;
    assert!(told.as_str().expect("text").contains("In brief, since"), "{told}");
    let logged = browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
    let asked = browser.requested().await;
    assert!(
        asked.iter().all(|url| url.starts_with("file:") || url.starts_with("data:")),
        "{asked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn on_paper_every_cell_and_bug_is_shown_in_full_and_there_are_no_controls() {
    let (_folder, url) = written(report(vec![full(story()[0].axes)]));
    let browser = Browser::start().await;
    browser.open(&url).await;
    let shown = "return ['.body', '.timeline .bar.held', '#injected-bugs li', '.tools', \
                 'a[href=\"#matrix\"]:not(.skip)'].map((what) => \
                 [...document.querySelectorAll(what)].every((it) => it.checkVisibility(\
                 {contentVisibilityAuto: true}) && it.getBoundingClientRect().height > 0))";
    let closed = "return document.querySelectorAll('details[open]').length";
    browser.run("document.querySelectorAll('details').forEach((it) => { it.open = false; })").await;
    assert_eq!(browser.run(closed).await, 0, "nothing is open");
    assert_eq!(browser.run(shown).await, json!([false, false, false, true, false]), "on a screen");
    browser.devtools("Emulation.setEmulatedMedia", json!({"media": "print"})).await;
    browser.run("dispatchEvent(new Event('beforeprint'))").await;
    // Shown at the next frame, which on a busy machine is not the next command.
    let on_paper =
        shown.replacen("return ", "return String(", 1) + ") === 'true,true,true,false,false'";
    browser.wait_until(&on_paper).await;
    browser.run("dispatchEvent(new Event('afterprint'))").await;
    assert_eq!(browser.run(closed).await, 0, "as it was before");
}

/// Reads a plot whose main load had 40 answers a second and its closing loads 1,500. It gives the
/// top of the scale, and how the legend is drawn without colours.
const COURSE: &str = "return (async () => { const place = document.createElement('div'); \
    place.style.width = '400px'; document.body.append(place); \
    const answers = {}; \
    for (const one of Object.keys(DASHES)) answers[one] = [20, 4, 20, 750]; \
    const plot = course(place, { series: { step_ms: 500, answers }, faults: [], \
    closing_ns: 1.5e9 }); await new Promise(requestAnimationFrame); \
    const keys = [...place.querySelectorAll('.u-marker')].map((it) => it.style.background \
    .replace(/rgb\\([^)]*\\)|#[0-9a-f]+/g, '')); \
    return [plot.scales.y.max, new Set(keys.slice(-5)).size]; })()";

#[tokio::test(flavor = "multi_thread")]
async fn curves_are_scaled_to_the_main_load_and_distinguished_without_colours() {
    let (_folder, url) = written(report(vec![full(story()[0].axes)]));
    let browser = Browser::start().await;
    browser.open(&url).await;
    let told = browser.run(COURSE).await;
    let top = told[0].as_f64().expect("a number");
    assert!((40.0..50.0).contains(&top), "{told}");
    assert_eq!(told[1], 5, "each outcome has a line of its own: {told}");
}
