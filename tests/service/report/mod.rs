//! The pages that a comparison and a matrix write, in a browser. They show what was measured, every
//! square opens its cell, and nothing is asked for from outside.

pub(crate) mod browser;

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::comparison::{TURN, loadtest};
use crate::fleet::SECKILL;
use browser::{Browser, Screen};

/// A report of two cells.
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

/// The report of a comparison of which one cell sells twice to one user.
async fn comparison() -> &'static Report {
    static REPORT: OnceCell<Report> = OnceCell::const_new();
    let flags = ["--locks", "local,redisson", "--guards", "off", "--replicas", "3"];
    REPORT.get_or_init(|| run("compare", flags)).await
}

/// The report of a matrix of which one cell has a fault.
async fn matrix() -> &'static Report {
    static REPORT: OnceCell<Report> = OnceCell::const_new();
    let flags = ["--locks", "redisson", "--guards", "on", "--faults", "none,freeze"];
    REPORT.get_or_init(|| run("matrix", flags)).await
}

/// Makes a report, for the first test that asks. Whether it is green is not asked here.
async fn run(name: &'static str, flags: [&'static str; 6]) -> Report {
    let _turn = TURN.lock().await;
    let run = move || {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(loadtest());
        command.arg(name).args(flags).args(["--scopes", "user", "--seckill", SECKILL]);
        let output = command.arg("--report-dir").arg(folder.path()).output();
        let printed = output.map(|output| [output.stdout, output.stderr]).expect("loadtest runs");
        let printed = printed.map(|text| String::from_utf8_lossy(&text).into_owned()).join("\n");
        let file = if name == "compare" { "comparison.json" } else { "matrix.json" };
        let json = std::fs::read(folder.path().join(file)).expect(&printed);
        let report = Report { folder, json: serde_json::from_slice(&json).expect("JSON") };
        assert_eq!(report.cells().len(), 2, "{printed}");
        assert!(report.cells().iter().all(|cell| cell["load"].is_object()), "{printed}");
        let mut faults =
            report.cells().iter().filter_map(|cell| cell["round"]["faults"].as_array());
        assert!(faults.all(|faults| faults.len() == 1), "a fault did not come: {printed}");
        report
    };
    tokio::task::spawn_blocking(run).await.expect("a report")
}

/// The cell that a square stands for.
fn id(cell: &Value) -> String {
    let word = |name: &str| cell[name].as_str().expect("a word").to_owned();
    let fault = cell["fault"].as_str().map_or(String::new(), |fault| format!("-{fault}"));
    let place = format!("{}-{}-{}", word("lock"), word("scope"), word("guards"));
    format!("{place}-{}{fault}", cell["replicas"])
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

/// Whether a stretch of the course is shaded: several points in a row, on most of five lines across
/// it, are reddish and nearly transparent, which no curve is. (One of them may lie on the grid.)
/// How long the stretch is depends on how long the load took.
const IS_SHADED: &str = "const canvas = document.querySelector('details[open] .course canvas'); \
    const { width, height } = canvas; \
    const all = canvas.getContext('2d').getImageData(0, 0, width, height).data; \
    const isShaded = (part) => { const from = Math.round(height * part) * width * 4; \
    let row = 0, longest = 0; \
    for (let at = from; at < from + width * 4; at += 4) { \
    const [red, green, , alpha] = all.slice(at, at + 4); \
    row = alpha > 0 && alpha < 100 && red > green + 60 ? row + 1 : 0; \
    longest = Math.max(longest, row); } \
    return longest >= 5; }; \
    return [.13, .22, .31, .4, .49].filter(isShaded).length >= 3";

async fn assert_shows_what_was_measured(report: &Report) {
    let browser = Browser::start().await;
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
        browser.open(&report.url()).await;
    }
    assert_quiet(&browser).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_square_shows_what_was_measured_and_opens_its_cell_without_a_request() {
    assert_shows_what_was_measured(comparison().await).await;
    assert_shows_what_was_measured(matrix().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_shown_with_its_witness_and_its_time_is_shaded_in_the_course_of_the_load() {
    let (report, browser) = (matrix().await, Browser::start().await);
    for cell in report.cells() {
        // Another query makes it another page, with nothing open but this cell.
        browser.open(&format!("{}?{1}#{1}", report.url(), id(cell))).await;
        browser.wait_until("return document.querySelectorAll('canvas').length === 2").await;
        let is_fault = cell["round"].is_object();
        assert_eq!(browser.run(IS_SHADED).await, is_fault, "{}", id(cell));
        let lines = browser.run("return document.querySelector('details[open]').innerText").await;
        let lines = lines.as_str().expect("text");
        // Only a round has loads that close it.
        assert_eq!(lines.contains("From the dotted line on"), is_fault, "{lines}");
        let told = [&cell["round"]["plan"], &cell["round"]["faults"][0]["witness"]];
        for words in told.iter().filter_map(|words| words.as_str()) {
            assert!(is_fault && lines.contains(words), "{words} in\n{lines}");
        }
    }
    assert_eq!(report.cells().iter().filter(|cell| cell["round"].is_object()).count(), 1);
    assert_quiet(&browser).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_user_that_bought_twice_are_drawn_with_their_orders() {
    let (report, browser) = (comparison().await, Browser::start().await);
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

/// Of each time line that is drawn, whether two of the holds in it stand above one another.
const HOLDS_OVERLAP: &str = "return [...document.querySelectorAll('details[open] .timeline')]\
    .map((line) => { \
    const holds = [...line.querySelectorAll('.bar.held')].map((it) => it.getBoundingClientRect()); \
    return holds.some((one, at) => holds.slice(at + 1) \
    .some((other) => one.left < other.right && other.left < one.right)); })";

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_holds_of_a_local_lock_are_visible_in_the_time_line() {
    let (report, browser) = (comparison().await, Browser::start().await);
    let local = report.cells().iter().find(|cell| cell["lock"] == "local").expect("it ran");
    browser.open(&format!("{}#{}", report.url(), id(local))).await;
    let overlap = browser.run(HOLDS_OVERLAP).await;
    assert!(overlap.as_array().expect("time lines").contains(&true.into()), "{overlap}");
    let lines = browser.run("return document.querySelector('details[open]').innerText").await;
    assert!(lines.as_str().expect("text").contains("held one lock at once for"), "{lines}");
    assert_quiet(&browser).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_scripts_a_square_opens_its_cell_as_well() {
    let (report, browser) = (comparison().await, Browser::start().await);
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
    let browser = Browser::start().await;
    let (phone, desktop) = (Screen { width: 390, dark: true }, Screen { width: 1280, dark: true });
    let (comparison, matrix) = (comparison().await, matrix().await);
    let looks = [(comparison, phone), (comparison, desktop), (matrix, phone), (matrix, desktop)];
    for (report, screen) in looks {
        browser.look(screen).await;
        browser.open(&report.url()).await;
        browser.wait_until("return document.querySelector('.tools button') !== null").await;
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
    let empty = "return [...document.querySelectorAll('thead :is(th, td)')] \
                 .filter((it) => !it.textContent.trim()).length";
    assert_eq!(browser.run(empty).await, 0, "and none is empty");
    let dark = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.run(dark).await, "rgb(20, 17, 13)");
    assert_quiet(&browser).await;
}
