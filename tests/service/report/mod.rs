//! The page that a comparison writes, in a browser: what it shows is what was measured, every
//! square opens its cell, and nothing is asked for from outside.

mod browser;

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::comparison::{TURN, loadtest};
use crate::fleet::SECKILL;
use browser::{Browser, Screen};

/// A report of two cells, one of which sells twice to one user.
struct Report {
    folder: TempDir,
    json: Value,
}

impl Report {
    fn url(&self) -> String {
        format!("file://{}", self.folder.path().join("index.html").display())
    }

    fn cells(&self) -> &[Value] {
        self.json["cells"].as_array().expect("cells")
    }
}

/// The report, made by the first test that asks. Whether it is green is not asked here.
async fn report() -> &'static Report {
    static REPORT: OnceCell<Report> = OnceCell::const_new();
    REPORT
        .get_or_init(|| async {
            let _turn = TURN.lock().await;
            tokio::task::spawn_blocking(compare).await.expect("a comparison")
        })
        .await
}

fn compare() -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(loadtest());
    command.args(["compare", "--locks", "local,redisson", "--scopes", "user", "--guards", "off"]);
    command.args(["--replicas", "3", "--seckill", SECKILL, "--report-dir"]).arg(folder.path());
    let output = command.output().expect("loadtest runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = std::fs::read(folder.path().join("comparison.json")).expect(&printed);
    let report = Report { folder, json: serde_json::from_slice(&json).expect("JSON") };
    assert_eq!(report.cells().len(), 2, "{printed}");
    assert!(report.cells().iter().all(|cell| cell["load"].is_object()), "{printed}");
    report
}

/// The cell that a square stands for.
fn id(cell: &Value) -> String {
    let word = |name: &str| cell[name].as_str().expect("a word").to_owned();
    format!("{}-{}-{}-{}", word("lock"), word("scope"), word("guards"), cell["replicas"])
}

/// As the page writes milliseconds.
fn milliseconds(value: &Value) -> String {
    let ms = value.as_f64().expect("a number");
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

async fn assert_quiet(browser: &Browser) {
    let logged = browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
    let requested = browser.requested().await;
    let is_own = |url: &String| url.starts_with("file://") && url.contains("/index.html");
    let foreign: Vec<_> =
        requested.iter().filter(|url| !is_own(url) && !url.starts_with("data:")).collect();
    assert!(foreign.is_empty(), "the page asked for {foreign:?}");
    assert!(requested.iter().any(is_own), "what is asked for is seen: {requested:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_square_shows_what_was_measured_and_opens_its_cell_without_asking_anybody() {
    let (report, browser) = (report().await, Browser::start().await);
    browser.open(&report.url()).await;
    let squares = browser.find(".square a").await;
    assert_eq!(squares.len(), report.cells().len());
    for cell in report.cells() {
        let id = id(cell);
        let square = format!("document.querySelector('.square a[href=\"#{id}\"]')");
        let figure = |name: &str| format!("return {square}.querySelector('.{name}').textContent");
        let rate = format!("{:.0}", cell["orders_per_s"].as_f64().expect("a rate"));
        assert_eq!(browser.run(&figure("rate")).await, rate, "{id}");
        assert_eq!(browser.run(&figure("p99")).await, milliseconds(&cell["p99_ms"]), "{id}");

        let link = browser.find(&format!(".square a[href=\"#{id}\"]")).await;
        browser.click(&link[0]).await;
        browser
            .wait_until(&format!("return document.getElementById('{id}').closest('details').open"))
            .await;
        // Both curves are there, and something is drawn on them.
        browser
            .wait_until(&format!(
                "const drawn = [...document.querySelectorAll('#{id} canvas')].filter((canvas) => \
                 canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data\
                 .some((value) => value > 0)); return drawn.length === 2"
            ))
            .await;
    }
    assert_quiet(&browser).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_user_who_bought_twice_are_drawn_with_their_orders() {
    let (report, browser) = (report().await, Browser::start().await);
    let local = report.cells().iter().find(|cell| cell["lock"] == "local").expect("it ran");
    assert!(local["duplicate_users"].as_u64() > Some(0), "{local}");
    let findings = local["verdict"]["findings"].as_array().expect("findings");
    let twice = findings.iter().find(|finding| finding["rule"] == "one_order_per_user");
    let proof = &twice.expect("it is judged")["proofs"][0];
    browser.open(&format!("{}#{}", report.url(), id(local))).await;
    let lines = browser.run("return document.querySelector('details[open]').innerText").await;
    let lines = lines.as_str().expect("text");
    for request in proof["requests"].as_array().expect("requests") {
        let (user, order) = (request["user"].as_str(), request["order"].as_str());
        let line = format!(
            "user {} at {}: {} order {}",
            user.expect("a user"),
            request["replica"].as_str().expect("a replica"),
            request["answer"].as_str().expect("an answer"),
            order.expect("an order")
        );
        assert!(lines.contains(&line), "{line} in\n{lines}");
    }
    assert_quiet(&browser).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_scripts_a_square_opens_its_cell_as_well() {
    let (report, browser) = (report().await, Browser::start().await);
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true})).await;
    browser.open(&report.url()).await;
    assert!(browser.find(".tools").await.is_empty(), "scripts are off");
    assert!(browser.find("details[open]").await.is_empty());
    let square = browser.find(".square a").await;
    browser.click(&square[0]).await;
    assert_eq!(browser.find("details[open]").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_phone_and_in_the_dark_nothing_sticks_out_and_headings_are_in_order() {
    let (report, browser) = (report().await, Browser::start().await);
    for screen in [Screen { width: 390, dark: true }, Screen { width: 1280, dark: true }] {
        browser.look(screen).await;
        browser.open(&report.url()).await;
        let all = browser.find(".tools button").await;
        browser.click(&all[0]).await;
        browser.wait_until("return document.querySelectorAll('canvas').length === 4").await;
        let beyond = "const page = document.documentElement; \
                      return page.scrollWidth - page.clientWidth";
        assert_eq!(browser.run(beyond).await, 0, "at {} pixels", screen.width);
    }
    let levels = browser
        .run("return [...document.querySelectorAll('h1,h2,h3,h4')].map((it) => +it.tagName[1])")
        .await;
    let levels: Vec<u64> = serde_json::from_value(levels).expect("numbers");
    assert_eq!(levels[0], 1);
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{levels:?}");
    let nameless = "return [...document.querySelectorAll('th')].filter((it) => !it.scope).length";
    assert_eq!(browser.run(nameless).await, 0, "every header says what it heads");
    let dark = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.run(dark).await, "rgb(20, 17, 13)");
    assert_quiet(&browser).await;
}
