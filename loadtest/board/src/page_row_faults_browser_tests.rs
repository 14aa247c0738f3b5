//! The faults at the name of each replica, in a browser.

use loadtest_lab::faults::FaultAction;

use super::browser::Screen;
use super::lane_tests::begun;
use super::*;

/// Keys of `WebDriver`.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
/// The button of the second replica.
const SECOND: &str = "#lane-left .row-name:nth-of-type(2)";
const OPEN_MENUS: &str = "document.querySelectorAll('.row-menu:popover-open').length";
/// The action, or else the name, of the button that has the focus.
const FOCUS: &str = "return document.activeElement.dataset.action \
    ?? document.activeElement.getAttribute('aria-label')";

impl OpenPage {
    /// Presses a key on the element that has the focus.
    async fn type_key(&self, key: &str) {
        let focused = self.browser.find(":focus").await;
        let path = format!("/element/{}/value", focused[0]);
        self.browser.command(&path, json!({"text": key})).await;
    }

    async fn fault_of_left_lane(&mut self) -> (FaultAction, usize) {
        let fault = tokio::time::timeout(DEADLINE, self.board.requests.faults[0].recv()).await;
        let FaultRequest { action, replica, reply } = fault.expect("in time").expect("a fault");
        reply.send(Ok("seen".to_owned())).expect("the page waits");
        self.shows("document.querySelector('#lane-left .answer').textContent === 'seen'").await;
        (action, replica)
    }
}

/// Notes where each name is written in the left lane.
const RECORD_NAMES: &str = "window.names = {}; \
    const write = CanvasRenderingContext2D.prototype.fillText; \
    CanvasRenderingContext2D.prototype.fillText = function note(text, x, y) { \
      if (this.canvas.closest('#lane-left')) window.names[text] = [x, y]; \
      write.call(this, text, x, y); }";
/// How far each button begins above the name of its row, and whether the name is inside of it.
const DISTANCES: &str = "const canvas = document.querySelector('#lane-left canvas'); \
    const at = canvas.getBoundingClientRect(); \
    return [...document.querySelectorAll('#lane-left .row-name')].map((it) => { \
      const { top, left, right, bottom } = it.getBoundingClientRect(); \
      const [x, y] = window.names[it.textContent]; \
      const [nameX, nameY] = [at.left + canvas.clientLeft + x, at.top + canvas.clientTop + y]; \
      const isInside = left < nameX && nameX < right && nameY < bottom; \
      return [it.textContent, Math.round(nameY - top), isInside]; })";

#[tokio::test(flavor = "multi_thread")]
async fn each_replica_has_a_button_over_its_name_in_its_row() {
    let page = begun(&RaceSetup::default()).await;
    page.browser.run(RECORD_NAMES).await;
    page.shows("window.names.r3").await;
    let expected = json!([["r1", 3, true], ["r2", 3, true], ["r3", 3, true]]);
    assert_eq!(page.browser.run(DISTANCES).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_killed_from_its_row_with_the_keyboard_alone() {
    let mut page = begun(&RaceSetup::default()).await;
    page.browser.run(&format!("document.querySelector('{SECOND}').focus()")).await;
    assert_eq!(page.browser.run(FOCUS).await, "Faults of replica r2");
    page.type_key(ENTER).await;
    page.shows(&format!("{OPEN_MENUS} === 1")).await;
    page.type_key(ESCAPE).await;
    page.shows(&format!("{OPEN_MENUS} === 0")).await;
    assert_eq!(page.browser.run(FOCUS).await, "Faults of replica r2", "where it came from");
    page.type_key(ENTER).await;
    page.shows(&format!("{OPEN_MENUS} === 1")).await;
    for action in ["freeze", "thaw", "kill"] {
        page.type_key(TAB).await;
        assert_eq!(page.browser.run(FOCUS).await, action);
    }
    page.type_key(ENTER).await;
    assert_eq!(page.fault_of_left_lane().await, (FaultAction::Kill, 1));
    page.shows(&format!("{OPEN_MENUS} === 0")).await;
    assert_eq!(page.browser.run(FOCUS).await, "Faults of replica r2");
    page.click("#language").await;
    let named = format!("document.querySelector('{SECOND}').getAttribute('aria-label')");
    page.shows(&format!("{named} === '副本 r2 的故障'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_breaks_the_link_of_its_own_replica_whatever_is_chosen_below() {
    let mut page = begun(&RaceSetup::default()).await;
    let others = "return document.querySelectorAll('.row-menu [data-action$=-zookeeper]').length";
    assert_eq!(page.browser.run(others).await, 0, "the lanes have no link to ZooKeeper");
    page.click("#lane-left .row-name:nth-of-type(3)").await;
    let button = "#lane-left .row-menu:popover-open [data-action=half-open-database]";
    assert_eq!(page.text(button).await, "Half-open database");
    page.click(button).await;
    let half_open = FaultAction::named("half-open-database").expect("a fault");
    assert_eq!(page.fault_of_left_lane().await, (half_open, 2));
}

/// What the open menu lacks on that screen: what is beside it, and buttons that are too small.
const CUT_OFF: &str = "const menu = document.querySelector('.row-menu:popover-open'); \
    const { left, right } = menu.getBoundingClientRect(); \
    const all = [...menu.querySelectorAll('button'), document.querySelector('.row-name')]; \
    const small = all.filter((it) => { \
      const { width, height } = it.getBoundingClientRect(); return width < 24 || height < 24; }); \
    const wide = document.documentElement.scrollWidth; \
    return [left >= 0 && right <= innerWidth, wide, small.length]";

#[tokio::test(flavor = "multi_thread")]
async fn the_faults_of_a_row_fit_on_a_phone_and_close_with_the_race() {
    let page = begun(&RaceSetup::default()).await;
    page.browser.look(Screen { width: 390, dark: true }).await;
    // Out of the bar of the time, which stays at the end of the screen.
    let to_the_middle = "document.querySelector('#lane-right .row-name')\
        .scrollIntoView({ block: 'center' })";
    page.browser.run(to_the_middle).await;
    page.click("#lane-right .row-name").await;
    page.shows(&format!("{OPEN_MENUS} === 1")).await;
    assert_eq!(page.browser.run(CUT_OFF).await, json!([true, 390, 0]));
    page.push(&[json!(["s", 2, 900_000, "done", ""])]);
    page.shows(&format!("{OPEN_MENUS} === 0")).await;
    page.shows("document.querySelectorAll('.row-name:enabled').length === 0").await;
    let seen = "return [...document.querySelectorAll('.row-name')].filter((it) => \
                it.checkVisibility({ visibilityProperty: true })).length";
    assert_eq!(page.browser.run(seen).await, 0, "the bars of the race are not covered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_offers_no_fault_in_a_row() {
    let mut page = OpenPage::open("#challenge=4").await;
    let _race = page.begin().await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows("document.getElementById('state').textContent === 'The race is running.'").await;
    page.shows("document.querySelectorAll('.row-name').length > 0").await;
    let enabled = page.browser.find(".row-name:enabled, .row-menu button:enabled").await;
    assert!(enabled.is_empty(), "{} buttons can be pressed", enabled.len());
}
