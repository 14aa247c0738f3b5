//! In a browser: the page in its two languages.

use std::collections::BTreeSet;

use loadtest_judge::holds::HoldOverlaps;
use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::verdict::Rule;
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::{CellAxes, InjectedBug};
use loadtest_lab::fixtures::{matrix, story};
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Scenario;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::browser_tests::browser::{Browser, Screen};
use super::browser_tests::written;
use super::tests::full;
use crate::Report;
use crate::tests::report;

/// Names, units and commands that a Chinese text has as they are.
const NAMES: [&str; 17] = [
    "COMMIT",
    "DEL",
    "direct",
    "HAProxy",
    "innodb_flush_log_at_trx_commit",
    "JavaScript",
    "JSON",
    "JVM",
    "Linux",
    "loadtest",
    "MiB",
    "ms",
    "Redis",
    "seckill",
    "SETNX",
    "UTC",
    "ZooKeeper",
];

/// A witness of several clauses, one of which has another one in it.
const WITNESS: &str = "a release arrived after 900 ms; a COMMIT was on the way for 12 ms, and \
    another purchase wrote meanwhile";

/// As many different texts as there are in one report.
fn all_kinds() -> Report {
    let mut cells = matrix().cells;
    let unlocked = CellAxes { lock: Lock::None, ..story()[0].axes };
    cells.push(full(CellAxes { replicas: 5, ..story()[0].axes }));
    cells.push(full(CellAxes { scope: Scope::Voucher, replicas: 4, ..unlocked }));
    let resolution_ms = 2.0;
    cells[0].overlaps =
        Some(HoldOverlaps { holds: 9, at_once: 3, longest_ms: 1.5, certain: 2, resolution_ms });
    let failed = CellAxes { replicas: 6, guards: Guards::On, ..unlocked };
    cells.push(CellReport {
        invalid_because: vec!["10 requests are fewer than 2000".to_owned()],
        valid: false,
        axes: failed,
        ..cells[0].clone()
    });
    let round = cells.iter_mut().find_map(|cell| cell.round.as_mut()).expect("a fault");
    WITNESS.clone_into(&mut round.faults[0].witness);
    let surprise = &mut cells[2];
    (surprise.as_predicted, surprise.broken_rules) = (false, vec![Rule::AcknowledgedExist]);
    let mut all = report(cells);
    all.load.injected_bug = Some(InjectedBug::LyingAudit);
    let mut earlier = serde_json::to_value(&all).expect("JSON");
    earlier["cells"][0]["orders_per_s"] = 31.24.into();
    earlier["cells"][1]["as_predicted"] = false.into();
    earlier["cells"][2]["replicas"] = 7.into();
    all.compare_with(&serde_json::from_value(earlier).expect("a baseline"));
    all
}

/// The page of that report, and a browser that shows it and whose reader prefers that language.
async fn opened(report: Report, preferred: &str) -> (TempDir, String, Browser) {
    let (folder, url) = written(report);
    let browser = Browser::start().await;
    prefer(&browser, preferred).await;
    open(&browser, &url).await;
    (folder, url, browser)
}

/// Opens the page, and waits until its language is chosen.
async fn open(browser: &Browser, url: &str) {
    browser.open(url).await;
    browser.wait_until("return document.getElementById('language').lang !== ''").await;
}

async fn prefer(browser: &Browser, languages: &str) {
    let agent = json!({"userAgent": "a test", "acceptLanguage": languages});
    browser.devtools("Emulation.setUserAgentOverride", agent).await;
}

async fn switch(browser: &Browser) {
    let button = browser.find("#language").await;
    browser.click(&button[0]).await;
}

/// Opens every cell, and waits for its curves.
async fn open_all(browser: &Browser) {
    let open = "document.querySelectorAll('details').forEach((it) => { it.open = true; })";
    browser.run(open).await;
    let drawn = "return [...document.querySelectorAll('.plot')].every((it) => it.firstChild)";
    browser.wait_until(drawn).await;
}

/// What a reader of the page gets: all that is shown, and what is told of it.
const TOLD: &str = "const told = [document.title, document.documentElement.lang]; \
    told.push(...document.body.innerText.split('\\n')); \
    for (const name of ['aria-label', 'title']) \
    for (const it of document.querySelectorAll(`[${name}]`)) told.push(it.getAttribute(name)); \
    return told";

#[tokio::test(flavor = "multi_thread")]
async fn the_script_writes_the_same_english_as_the_page_has_without_it() {
    let (_folder, _, browser) = opened(all_kinds(), "en-GB").await;
    open_all(&browser).await;
    let told = async || match browser.run(TOLD).await {
        Value::Array(lines) => lines,
        other => panic!("{other}"),
    };
    let english = told().await;
    switch(&browser).await;
    assert_eq!(told().await[1], "zh");
    switch(&browser).await;
    let again = told().await;
    for (before, after) in english.iter().zip(&again) {
        assert_eq!(before, after);
    }
    assert_eq!(english.len(), again.len());
    let logged = browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
}

/// Every text of the page outside of commands and of what says that it is English.
const CHINESE: &str = "const texts = []; \
    const skip = 'pre, code, script, style, [lang=en], noscript'; \
    const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT); \
    while (walk.nextNode()) { const it = walk.currentNode; \
    if (!it.parentElement.closest(skip)) texts.push(it.data); } \
    for (const name of ['aria-label', 'title']) \
    for (const it of document.querySelectorAll(`[${name}]`)) texts.push(it.getAttribute(name)); \
    return texts";

/// Latin words of two letters or more; a name may have signs in it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c));
    let has_word = |name: &&str| {
        name.as_bytes().windows(2).any(|pair| pair.iter().all(u8::is_ascii_alphabetic))
    };
    names.filter(has_word)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_chinese_only_names_are_latin_besides_what_is_marked_as_english() {
    let report = all_kinds();
    let mut names: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let mut add = |text: &str| names.extend(words(text).map(str::to_owned));
    let json = serde_json::to_value(&report).expect("JSON");
    for cell in json["cells"].as_array().expect("cells") {
        for name in ["lock", "fault", "scenario", "rung"] {
            add(cell[name].as_str().unwrap_or_default());
        }
        cell["load"]["codes"].as_object().into_iter().flatten().for_each(|(code, _)| add(code));
    }
    for name in [Scenario::FrozenFenced.name(), Scenario::FrozenUnfenced.name()] {
        add(name);
    }
    for name in ["release-before-commit", "lying-audit", "already_ordered"] {
        add(name);
    }
    add(&json["machine"].to_string());
    add(&json["versions"].to_string());
    report.versions.builds().iter().for_each(|build| add(build));
    let (_folder, _, browser) = opened(report, "zh-CN,zh,en").await;
    let texts = browser.run(CHINESE).await;
    let texts = texts.as_array().expect("texts");
    assert!(texts.len() > 500, "{}", texts.len());
    let mut english = BTreeSet::new();
    for text in texts.iter().filter_map(Value::as_str) {
        let unknown = words(text).filter(|word| !names.contains(*word));
        english.extend(unknown.map(|word| format!("{word} in {}", text.trim())));
    }
    assert!(english.is_empty(), "{english:#?}");
    let witness = "一次释放在 900 ms 之后才到达；一次 COMMIT 在途 12 ms，其间另一个购买写入了";
    let has_witness = format!("return document.body.textContent.includes('{witness}')");
    assert_eq!(browser.run(&has_witness).await, true, "it is no English that is marked");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_language_is_the_browsers_until_one_is_chosen_which_is_remembered() {
    let (_folder, url, browser) = opened(report(story()), "fr-FR,zh-CN,en").await;
    let shown = "return [document.documentElement.lang, document.querySelector('h2').innerText, \
                 document.getElementById('language').innerText, \
                 document.getElementById('language').lang]";
    let chinese = json!(["zh", "矩阵", "English", "en"]);
    assert_eq!(browser.run(shown).await, chinese, "the first language that it has");
    switch(&browser).await;
    let english = json!(["en", "The matrix", "中文", "zh"]);
    assert_eq!(browser.run(shown).await, english);
    open(&browser, &format!("{url}?again")).await;
    assert_eq!(browser.run(shown).await, english, "although the browser prefers Chinese");
    prefer(&browser, "de-DE").await;
    browser.run("localStorage.clear()").await;
    open(&browser, &url).await;
    assert_eq!(browser.run(shown).await, english, "where it has none of them");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_chinese_nothing_is_wider_than_a_phone_and_curves_are_labelled_in_it() {
    let (_folder, url, browser) = opened(all_kinds(), "zh-CN").await;
    for (width, dark) in [(390, false), (320, true), (1280, true)] {
        browser.look(Screen { width, dark }).await;
        browser.open(&url).await;
        open_all(&browser).await;
        let beyond = "const page = document.documentElement; \
                      return page.scrollWidth - page.clientWidth";
        assert_eq!(browser.run(beyond).await, 0, "at {width} pixels");
    }
    let labels = "return [...document.querySelectorAll('.course .u-label')].slice(0, 3) \
                  .map((it) => it.textContent)";
    assert_eq!(browser.run(labels).await, json!(["时间", "已下单", "买到"]));
    switch(&browser).await;
    assert_eq!(browser.run(labels).await, json!(["time", "already ordered", "bought"]));
}
