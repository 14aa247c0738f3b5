//! The page in a browser, on a board without lanes: the test writes the events of the race.

use std::time::{Duration, Instant};

use browser::Browser;
use serde_json::{Value, json};

use crate::board_error::{BoardError, ErrorCode};
use crate::event_log::Priority;
use crate::lane::FaultRequest;
use crate::race::RaceRequest;
use crate::setup::RaceSetup;
use crate::test_board::{DEADLINE, TestBoard};

#[path = "../../../tests/service/report/browser.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod browser;

#[path = "page_bet_browser_tests.rs"]
mod bet_tests;
#[path = "page_cost_browser_tests.rs"]
mod cost_tests;
#[path = "page_figures_browser_tests.rs"]
mod figures;
#[path = "page_lab_text_browser_tests.rs"]
mod lab_text_tests;
#[path = "page_lane_browser_tests.rs"]
mod lane_tests;
#[path = "page_lease_browser_tests.rs"]
mod lease_tests;
#[path = "page_locks_browser_tests.rs"]
mod locks_tests;
#[path = "page_motion_browser_tests.rs"]
mod motion_tests;
#[path = "page_picture_browser_tests.rs"]
mod picture_tests;
#[path = "page_row_faults_browser_tests.rs"]
mod row_faults_tests;
#[path = "page_rung_browser_tests.rs"]
mod rung_tests;
#[path = "page_server_holds_browser_tests.rs"]
mod server_holds_tests;
#[path = "page_state_browser_tests.rs"]
mod state_tests;

/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(30);

/// An open page and its board.
struct OpenPage {
    board: TestBoard,
    browser: Browser,
}

impl OpenPage {
    async fn open(hash: &str) -> Self {
        let (board, browser) = (TestBoard::start().await, Browser::start().await);
        browser.open(&format!("{}{hash}", board.state.url())).await;
        Self { board, browser }
    }

    /// Begins the race that the page asks for.
    async fn begin(&mut self) -> RaceRequest {
        let race = tokio::time::timeout(DEADLINE, self.board.requests.races.recv()).await;
        let race = race.expect("in time").expect("a race");
        self.board.logs.begin(race.setup.to_json());
        self.push(&[json!(["s", 2, 0, "preparing", ""])]);
        self.shows("!document.querySelector('#lane-left .bets button').disabled").await;
        race
    }

    fn push(&self, events: &[Value]) {
        for event in events {
            self.board.log.push(event.to_string(), Priority::Race);
        }
    }

    /// Waits until the expression is true.
    async fn shows(&self, expression: &str) {
        let begun = Instant::now();
        while self.browser.run(&format!("return Boolean({expression})")).await != json!(true) {
            assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {expression}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn text(&self, selector: &str) -> String {
        let body = format!("return document.querySelector('{selector}').textContent");
        self.browser.run(&body).await.as_str().expect("a text").to_owned()
    }

    async fn click(&self, selector: &str) {
        let found = self.browser.find(selector).await;
        assert!(!found.is_empty(), "nothing is {selector}");
        self.browser.click(&found[0]).await;
    }

    /// Presses a fault of the left lane, which the board refuses; what the page says.
    async fn refused_freeze(&mut self) -> String {
        self.click("#lane-left .faults [data-t=fault_freeze]").await;
        let fault = tokio::time::timeout(DEADLINE, self.board.requests.faults[0].recv()).await;
        let FaultRequest { reply, .. } = fault.expect("in time").expect("a fault");
        let error = BoardError::new(ErrorCode::FaultNotAllowed, "r1 is frozen: it cannot freeze");
        let error = error.with("replica", "r1").with("state", "frozen").with("action", "freeze");
        reply.send(Err(error)).expect("the page waits");
        self.shows("document.querySelector('#lane-left .answer').textContent.includes('r1')").await;
        self.text("#lane-left .answer").await
    }

    async fn has_free_streams(&self, count: usize) {
        let begun = Instant::now();
        while self.board.state.free_streams() != count {
            assert!(begun.elapsed() < DEADLINE, "{} are free", self.board.state.free_streams());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn press_key(&self, selector: &str, key: &str) {
        let event = format!("new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }})");
        let body = format!("document.querySelector('{selector}').dispatchEvent({event})");
        self.browser.run(&body).await;
    }

    /// Ends the race, and waits until the page shows its end.
    async fn end(&self, verdicts: [Value; 2]) {
        for (lane, verdict) in verdicts.into_iter().enumerate() {
            self.push(&[json!(["v", lane, 900_000, verdict])]);
        }
        self.push(&[json!(["s", 2, 900_000, "done", ""])]);
        for lane in ["left", "right"] {
            let verdict = format!("document.querySelector('#lane-{lane} .verdict:not([hidden])')");
            self.shows(&verdict).await;
        }
    }
}

/// Another tab comes before the page, or goes.
fn set_hidden(hidden: bool) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{ configurable: true, value: {hidden} }}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    )
}

/// Waits until the page has drawn what it knows.
const NEXT_PICTURE: &str =
    "return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))";

/// Collects what the line of the state says.
const COLLECT_STATES: &str = "const state = document.getElementById('state'); window.states = []; \
    new MutationObserver(() => window.states.push(state.textContent)) \
    .observe(state, { childList: true, characterData: true, subtree: true })";

fn verdict(orders: u64, duplicates: u64, why: &str) -> Value {
    json!({
        "orders": orders, "stock": 300, "oversold": 0, "duplicates": duplicates, "why": why,
        "orders_per_s": 24.26, "p99_ms": 8.04, "cpu_ms": null,
        "invalid_because": ["6 requests are fewer than 2000"], "findings": [],
    })
}

/// User 1 of the left lane buys twice, by two replicas at once; the right lane sells once.
fn purchases() -> [Value; 6] {
    [
        json!(["i", 0, 100_000, 1, 1]),
        json!(["i", 0, 100_000, 2, 1]),
        json!(["i", 1, 100_000, 1, 1]),
        json!(["o", 0, 140_000, 1, "r1", "11", 110_000, 130_000, 0, 5000]),
        json!(["o", 0, 150_000, 2, "r2", "12", 112_000, 135_000, 0, 5000]),
        json!(["o", 1, 150_000, 1, "r1", "13", 110_000, 130_000, 0, 5000]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_errors_and_verdicts_are_shown_in_the_language_of_the_reader() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.push(&[json!(["r", 0, 0, "r2", "frozen"]), json!(["s", 2, 0, "running", ""])]);
    page.push(&purchases());
    let mark = |t: u64, name: &str, phase: &str| json!(["m", 0, t, name, phase, "in English"]);
    page.push(&[
        mark(200_000, "cut-redis r3", "begin"),
        mark(300_000, "restart r2", "failed"),
        mark(400_000, "heal-redis r3", "healed"),
        mark(500_000, "restart r1", "begin"),
        mark(600_000, "restart r1", "healed"),
    ]);
    let glyphs = "[...document.querySelectorAll('#ticks .glyph')].map((it) => it.textContent)";
    page.shows(&format!("{glyphs}.join('') === '!✓↻'")).await;
    let answer = page.refused_freeze().await;
    assert_eq!(answer, "Freeze is not possible: r1 is frozen.");

    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    assert_eq!(page.text("#lane-right .invalid summary").await, "Not a real load (1)");
    assert_eq!(page.text("#lane-left .invalid li").await, "6 requests are fewer than 2000");
    page.shows("document.getElementById('live').textContent.includes('Right: 1 orders')").await;
    let said = page.text("#live").await;
    for words in ["Left: first second order of a user at 0.150 s", "Left: 2 orders"] {
        assert!(said.contains(words), "{words}: {said}");
    }

    page.click("#language").await;
    let log = "document.querySelector('#lane-left .log').textContent";
    for words in ["重启 r2：失败", "恢复 Redis r3：已完成", "竞赛开始前 r2 已冻结"]
    {
        page.shows(&format!("{log}.includes('{words}')")).await;
    }
    let answer = page.text("#lane-left .answer").await;
    assert_eq!(answer, "不能执行“冻结”：r1 已冻结。", "as the rest of the page");
    let foreign = "document.querySelectorAll('#lane-left .log [lang=en]').length";
    assert_eq!(page.browser.run(&format!("return {foreign}")).await, 5, "marks are English");
    page.browser.run("document.querySelector('[name=users]').value = '5000'").await;
    page.click("#start").await;
    let told = "document.getElementById('problem').textContent === \
                '用户数必须是 10 到 1000 之间的整数。'";
    page.shows(told).await;
    page.click("#language").await;
    let problem = page.text("#problem").await;
    assert_eq!(problem, "Users must be a whole number from 10 to 1000.");
    let logged = page.browser.logged().await;
    assert!(logged.iter().all(|line| line.contains("409") || line.contains("400")), "{logged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_the_state_forbids_is_refused_in_chinese() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.click("#language").await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows("!document.querySelector('#lane-left .faults button').disabled").await;
    assert_eq!(page.refused_freeze().await, "不能执行“冻结”：r1 已冻结。");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_character_work_only_where_the_lanes_or_the_time_have_the_focus() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.push(&purchases());
    page.push(&[json!(["i", 0, 800_000, 3, 2]), json!(["u", 0, 890_000, 3, null, null])]);
    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    let clock = "document.getElementById('clock').textContent";
    let shows = |time| format!("{clock}.startsWith('{time} s')");
    page.shows(&shows("0.890")).await;
    for elsewhere in ["body", "#form [name=seed]", "#lane-left .log", "#lane-left .commands ol"] {
        page.press_key(elsewhere, "v").await;
    }
    // One step back from the end, and not from the first violation.
    page.press_key("#lanes", ",").await;
    page.shows(&shows("0.800")).await;
    for stage in ["#lanes", "#scrubber", "#lane-left .faults button"] {
        page.press_key(stage, "v").await;
        page.shows(&shows("0.150")).await;
        page.press_key(stage, "l").await;
        page.shows(&shows("0.890")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_says_that_the_board_is_full_and_a_hidden_page_takes_no_place() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    assert_eq!(page.board.state.free_streams(), 15, "the page reads");
    page.browser.run(&set_hidden(true)).await;
    page.has_free_streams(16).await;
    let mut readers = Vec::new();
    let events = format!("{}/events?token={}", page.board.origin, page.board.token);
    for _ in 0..16 {
        readers.push(page.board.client.get(&events).send().await.expect("an answer"));
    }
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.browser.run(COLLECT_STATES).await;
    page.browser.run(&set_hidden(false)).await;
    let full = "document.getElementById('state').textContent.startsWith('The board is full: 16')";
    page.shows(full).await;
    drop(readers);
    let running = "document.getElementById('state').textContent === 'The race is running.'";
    page.shows(running).await;
    let states = page.browser.run("return window.states").await.to_string();
    assert_eq!(states.matches("The board is full").count(), 1, "{states}");
    assert!(!states.contains("The board does not answer"), "{states}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_its_own_race_and_fills_the_form_while_another_runs() {
    let cells = "left=none,voucher,off,2&right=redlock,user,on,1";
    let link = format!("#seed=5&users=60&stock=10&{cells}");
    let mut page = OpenPage::open(&link).await;
    let RaceRequest { setup, turn } = page.begin().await;
    let asked = (setup.seed, setup.users, setup.stock, setup.lanes.map(|lane| lane.axes.replicas));
    assert_eq!(asked, (5, 60, 10, [2, 1]));
    let other = link.replace("seed=5", "seed=6");
    page.browser.run(&format!("location.hash = '{other}'")).await;
    page.shows("document.getElementById('problem').textContent.startsWith('A race is running.')")
        .await;
    page.shows("document.querySelector('[name=seed]').value === '6'").await;
    assert!(page.board.requests.races.try_recv().is_err(), "one race at a time");
    page.push(&[json!(["s", 2, 0, "failed", "planned"])]);
    drop(turn);
    page.shows("!document.getElementById('start').disabled").await;
    page.click("#start").await;
    let RaceRequest { setup, turn } = page.begin().await;
    assert_eq!(setup, RaceSetup { seed: 6, ..setup.clone() });
    page.shows("location.hash.startsWith('#seed=6&')").await;
    // The same link again shows the race that has run.
    drop(turn);
    page.browser.command("/refresh", json!({})).await;
    page.shows("document.querySelector('[name=seed]').value === '6'").await;
    let answered = "performance.getEntriesByName(new URL('race', location).href)\
                    .some((it) => it.responseEnd > 0)";
    page.shows(answered).await;
    assert!(page.board.requests.races.try_recv().is_err(), "what can be replayed stays");
}
