//! The lease and the commands of a lock, as its servers have them.

use super::ONE_AT_A_TIME;
use super::SAVED;
use super::browser::Browser;
use super::page::Page;
use super::process::{BoardProcess, DEADLINE};

/// Both lanes have one lock for all.
const RACE: &str =
    "seed=3&users=200&stock=200&left=zookeeper,voucher,off,2&right=fair,voucher,off,2";

/// The lock of the right lane is a row of the database.
const RACE_OF_ROWS: &str =
    "seed=3&users=200&stock=200&left=none,voucher,off,2&right=mysql-table,voucher,off,2";

/// Opens the panel of the left lane and keeps all that it shows from then on: the list itself
/// has only the newest.
const OPEN_PANEL: &str = "const panel = document.querySelector('#lane-left .commands'); \
    window.everShown = ''; \
    new MutationObserver((changes) => changes.forEach(({ addedNodes }) => \
      addedNodes.forEach((row) => { window.everShown += row.textContent; }))) \
      .observe(panel.querySelector('ol'), { childList: true }); \
    panel.open = true";

/// The text of the first source that the panel of the left lane links to, at its line.
const LINKED: &str = "return (async () => { \
    const link = [...document.querySelectorAll('#lane-left .commands a')] \
      .find((it) => it.textContent.includes('contender.rs')); \
    const page = await (await fetch(link.href)).text(); \
    const source = new DOMParser().parseFromString(page, 'text/html'); \
    return [source.querySelector(new URL(link.href).hash).textContent, \
      link.nextElementSibling.textContent]; })()";

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_the_requests_to_zookeeper_are_shown_as_they_pass() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&format!("{}#{RACE}", board.url)).await;
    page.shows("document.querySelector('#lane-left .commands')", DEADLINE).await;
    page.browser.run(OPEN_PANEL).await;
    let label = |lane: &str| {
        format!("(document.querySelector('#lane-{lane} canvas').getAttribute('aria-label') ?? '')")
    };
    page.shows(&format!("{}.includes('none in Redis or the database')", label("left")), DEADLINE)
        .await;
    let leased = format!("/on the server: [01][.][0-9] s left/.test({})", label("right"));
    page.shows(&leased, DEADLINE).await;
    for words in [
        "create -e -s /distlock/lock:voucher:",
        "getData -w /distlock/lock:voucher:",
        "delete /distlock/lock:voucher:",
        "distlock/src/zookeeper/contender.rs:",
    ] {
        page.shows(&format!("window.everShown.includes('{words}')"), DEADLINE).await;
    }
    let linked = page.browser.run(LINKED).await;
    let [at_line, text] = [0, 1].map(|at| linked[at].as_str().expect("a text").trim());
    assert!(!text.is_empty() && at_line.ends_with(text), "{linked}");
    page.browser.run("document.querySelector('#lane-left .commands').open = false").await;
    page.has_both_verdicts().await;
    let saved = page.browser.run(SAVED).await;
    let file = tempfile::NamedTempFile::with_suffix(".html").expect("a file");
    std::fs::write(file.path(), saved.as_str().expect("a page")).expect("written");
    page.browser.open(&format!("file://{}", file.path().display())).await;
    page.shows(&leased, DEADLINE).await;
    page.browser.open(&format!("{}#{RACE_OF_ROWS}", board.url)).await;
    page.shows(&leased, DEADLINE).await;
    drop(page);
    board.interrupt().await;
}
