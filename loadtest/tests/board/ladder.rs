//! The rungs of the ladder that the board shows: the lock of the left lane breaks and its repair in
//! the right lane withstands. With `BOARD_SCENARIOS=all` all of them, else one.

use loadtest_lab::ladder::RUNGS;

use super::ONE_AT_A_TIME;
use super::browser::Browser;
use super::page::Page;
use super::process::{BoardProcess, DEADLINE, runs_all_scenarios};

/// The rung of the short form.
const SHORT: &str = "no-lock";
/// The buttons that rungs need, with what is seen then.
const FAULTS: [(&str, &str, &str); 2] = [
    ("set-nx", "stand-still-past-lease", "with the lock; when it went on"),
    ("redisson", "flush-redis-at-commit", "FLUSHALL removed"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_each_rung_on_the_board_breaks_and_its_repair_withstands() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&format!("{}#seed=2&users=10&stock=10", board.url)).await;
    page.has_both_verdicts().await;
    let rungs = RUNGS.iter().filter(|rung| rung.on_board.is_some());
    for rung in rungs.filter(|rung| runs_all_scenarios() || rung.slug == SHORT) {
        let slug = rung.slug;
        page.shows("!document.getElementById('start').disabled", DEADLINE).await;
        let link = "[...document.querySelectorAll('#ladder a')]";
        page.browser.run(&format!("{link}.find((it) => it.innerText === '{slug}').click()")).await;
        let running = "!document.querySelector('#lane-left .faults button').disabled";
        page.shows(running, DEADLINE).await;
        if let Some((_, fault, seen)) = FAULTS.iter().find(|(of, ..)| *of == slug) {
            // By the second user purchases wait for the lock.
            page.shows("document.querySelector('#lane-right .sold dd').innerText[0] > 0", DEADLINE)
                .await;
            let [left, right] = ["left", "right"].map(|lane| page.inject((lane, fault, seen)));
            let both = tokio::join!(left, right);
            assert_eq!(both, (true, true), "{slug}: the race was over before {fault}");
        }
        page.has_both_verdicts().await;
        let left = page.browser.find("#lane-left .broken li").await;
        assert!(!left.is_empty(), "{slug}: {}", page.text("#lane-left .verdict").await);
        let right = page.browser.find("#lane-right .broken li").await;
        assert!(right.is_empty(), "{slug}: {}", page.text("#lane-right .verdict").await);
    }
    drop(page);
    board.interrupt().await;
}
