//! The race board on real servers, in a real browser: a local lock sells twice to a user, and the
//! distributed one beside it does not. Nothing is left running afterwards.

use serde_json::Value;
use tokio::sync::Mutex;

use self::browser::{Browser, Screen};
use self::faults::{
    a_frozen_replica_is_named, a_replica_that_dies_by_itself_fails_its_race, faults_are_injected,
};
use self::page::Page;
use self::process::{BoardProcess, DEADLINE};

#[path = "../../../tests/service/report/browser.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod browser;
mod challenges;
mod faults;
mod ladder;
mod lease;
mod page;
mod process;

/// Races of two tests at once would leave none of them enough processor time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn the_local_lock_sells_twice_on_the_screen_and_the_distributed_one_never() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let second = tokio::task::spawn_blocking(BoardProcess::start).await.expect("another board");
    assert_ne!(address(&board.url), address(&second.url), "two boards at once");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&board.url).await;
    page.breaks_by_itself().await;
    page.has_both_verdicts().await;
    page.tells_how_it_ended().await;
    let [sold, second_orders] =
        [page.numbers("#lane-left .sold").await, page.numbers("#lane-left .second").await];
    assert!(sold[0] > sold[1] && second_orders[0] > 0, "{sold:?} {second_orders:?}");
    assert_eq!(page.numbers("#lane-right .second").await, [0]);
    assert_eq!(page.text("#lane-right .first dd").await, "–");
    times_can_be_chosen(&page).await;
    let saved = page.browser.run(SAVED).await;
    faults_are_injected(&page).await;
    a_frozen_replica_is_named(&page, board.child.id()).await;
    a_replica_that_dies_by_itself_fails_its_race(&page, board.child.id()).await;
    let logged = page.browser.logged().await;
    assert!(logged.iter().all(|line| line.contains("409")), "the page logged {logged:?}");
    replays_offline(&page, saved.as_str().expect("a page")).await;
    the_address_and_the_form_choose_cells(&page, &second.url).await;
    drop(page);
    second.interrupt().await;
    board.interrupt().await;
}

fn address(url: &str) -> &str {
    url.split_once('?').map_or(url, |(address, _)| address)
}

/// The saved page, as the link gives it.
const SAVED: &str = "return (async () => { \
    const answer = await fetch(document.getElementById('save').href); \
    return await answer.text(); })()";

/// Jump, step, back, and the counters that belong to the moment.
async fn times_can_be_chosen(page: &Page) {
    let clock = async || page.text("#clock").await;
    page.click("#jump").await;
    let first = page.text("#lane-left .first dd").await;
    let at_first = format!("document.getElementById('clock').innerText.startsWith('{first}')");
    page.shows(&at_first, DEADLINE).await;
    page.shows("document.querySelector('#lane-left .second dd').innerText === '1'", DEADLINE).await;
    let before = clock().await;
    page.click("#back").await;
    page.shows("document.querySelector('#lane-left .second dd').innerText === '0'", DEADLINE).await;
    page.shows("document.querySelector('#lane-left .verdict').hidden", DEADLINE).await;
    page.click("#step").await;
    let back = format!("document.getElementById('clock').innerText === '{before}'");
    page.shows(&back, DEADLINE).await;
    let address: Value = page.browser.run("return location.hash").await;
    let address = address.as_str().expect("text");
    assert!(address.contains("seed=1&") && address.contains("left=local,user,off,3"), "{address}");
}

/// What the address asks for is raced; the form refuses what is beyond a limit and names both, and
/// then races other cells.
async fn the_address_and_the_form_choose_cells(page: &Page, url: &str) {
    let browser = &page.browser;
    browser.look(Screen { width: 1280, dark: false }).await;
    let cells = "left=none,voucher,off,2&right=lua-release,voucher,off,2";
    browser.open(&format!("{url}#seed=5&users=60&stock=10&{cells}")).await;
    // The language that was chosen for the saved page is that of another origin.
    page.has_both_verdicts().await;
    assert!(page.text("#lane-left h2").await.ends_with(": none"));
    let left = page.text("#lane-left .outcome").await;
    assert!(!left.contains("Oversold: 0."), "{left}");
    let right = page.text("#lane-right .outcome").await;
    assert_eq!(right, "10 orders of 10 units. Oversold: 0. Users who bought twice: 0.");
    assert!(browser.find("#lane-right .broken li").await.is_empty(), "all rules hold");
    let may_start = "!document.getElementById('start').disabled";
    page.shows(may_start, DEADLINE).await;
    browser.run(&enter("[name=users]", "5000")).await;
    page.click("#start").await;
    let told = "document.getElementById('problem').textContent === \
                'Users must be a whole number from 10 to 1000.'";
    page.shows(told, DEADLINE).await;
    page.shows("document.activeElement.name === 'users'", DEADLINE).await;
    browser.run(&enter("[name=users]", "30")).await;
    browser.run(&enter("[data-lane=right] [name=lock]", "redlock")).await;
    page.click("#start").await;
    page.shows("location.hash.includes('right=redlock,voucher,off,2')", DEADLINE).await;
    page.has_both_verdicts().await;
    let right = page.text("#lane-right .outcome").await;
    assert!(right.contains("Oversold: 0. Users who bought twice: 0."), "{right}");
}

fn enter(selector: &str, value: &str) -> String {
    format!("document.querySelector('#form {selector}').value = '{value}'")
}

/// The saved file shows the same end without a server, in both languages and on a phone.
async fn replays_offline(page: &Page, saved: &str) {
    assert!(saved.len() <= 1_500_000, "{} bytes", saved.len());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("race.html");
    std::fs::write(&file, saved).expect("written");
    let browser = &page.browser;
    browser.requested().await;
    browser.look(Screen { width: 390, dark: true }).await;
    browser.open(&format!("file://{}", file.display())).await;
    page.shows("document.querySelector('#lane-left .counters .second.bad')", DEADLINE).await;
    browser.run(TO_THE_END).await;
    page.has_both_verdicts().await;
    page.tells_how_it_ended().await;
    let wide = browser.run("return document.documentElement.scrollWidth").await;
    assert_eq!(wide, 390, "nothing is cut off on a phone");
    page.click("#language").await;
    assert_eq!(browser.run("return document.documentElement.lang").await, "zh");
    let outcome = page.text("#lane-right .outcome").await;
    assert!(outcome.contains("超卖：0"), "{outcome}");
    let asked = browser.requested().await;
    assert!(
        asked.iter().all(|url| url.starts_with("file:") || url.starts_with("data:")),
        "{asked:?}"
    );
    let logged = browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
}

/// Drags the scrubber to its end.
const TO_THE_END: &str = "const it = document.getElementById('scrubber'); it.value = it.max; \
    it.dispatchEvent(new Event('input'));";
