//! Rungs of the ladder as races of the board: the lock of the left lane breaks, and its repair in
//! the right lane withstands. `BOARD_SCENARIOS=all` races all of them, else one.

use std::time::Duration;

use loadtest_lab::ladder::{RUNGS, Rung};

use super::ONE_AT_A_TIME;
use super::browser::Browser;
use super::page::Page;
use super::process::{BoardProcess, DEADLINE, runs_all_scenarios};

/// The rung of the short form.
const SHORT: &str = "no-lock";
/// Races of a rung whose fault or load may miss, each with another seed.
const MAX_RACES: u64 = 6;
/// From the start of its servers to both verdicts.
const RACE_TIMEOUT: Duration = Duration::from_mins(4);
/// What the rung says of the lanes.
const AS_SAID: [&str; 2] = ["It broke, as the rung says.", "It withstood, as the rung says."];

#[tokio::test(flavor = "multi_thread")]
async fn the_lock_of_each_rung_on_the_board_breaks_and_its_repair_withstands() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&format!("{}#seed=2&users=10&stock=10", board.url)).await;
    page.has_both_verdicts().await;
    let mut wrong = Vec::new();
    for rung in RUNGS.iter().filter(|rung| runs_all_scenarios() || rung.slug == SHORT) {
        let said = page.races(rung).await;
        println!("{}: {said:?}", rung.slug);
        wrong.extend((said != AS_SAID).then_some((rung.slug, said)));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    drop(page);
    board.interrupt().await;
}

impl Page {
    /// Races the rung until neither lane was missed; what it says of them.
    async fn races(&self, rung: &Rung) -> [String; 2] {
        let may_start = "!document.getElementById('start').disabled";
        let mut said = Default::default();
        for seed in 1..=MAX_RACES {
            self.shows(may_start, DEADLINE).await;
            let address = format!("location.hash = '#rung={}&seed={seed}'", rung.slug);
            self.browser.run(&address).await;
            self.shows("document.getElementById('start').disabled", DEADLINE).await;
            self.shows(may_start, RACE_TIMEOUT).await;
            let state = self.text("#state").await;
            if !state.starts_with("The race is over") {
                println!("{}, seed {seed}: {state}", rung.slug);
                said = [state, String::new()];
                continue;
            }
            self.has_both_verdicts().await;
            let left = self.text("#lane-left .rung-outcome").await;
            said = [left, self.text("#lane-right .rung-outcome").await];
            if !said.iter().any(|one| one.starts_with("Not shown")) {
                break;
            }
        }
        said
    }
}
