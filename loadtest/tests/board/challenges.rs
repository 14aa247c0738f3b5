//! Each challenge in a browser: what it begins with fails, and its solution sells exactly the
//! stock. With `BOARD_SCENARIOS=all` that is shown of all. Else one is played, whose solution may
//! be too slow beside other tests to sell all.

use loadtest_board::challenge::{CHALLENGES, Challenge};
use loadtest_board::setup::LaneSetup;

use super::ONE_AT_A_TIME;
use super::browser::Browser;
use super::page::Page;
use super::process::{BoardProcess, runs_all_scenarios};

/// The challenge of the short form: a fenced holder comes too late.
const SHORT: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_challenge_begins_with_fails_and_its_solution_sells_exactly_the_stock() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let page = Page { browser: Browser::start().await };
    let chosen: Vec<_> =
        CHALLENGES.iter().filter(|it| runs_all_scenarios() || it.number == SHORT).collect();
    page.browser.open(&format!("{}{}", board.url, fragment(chosen[0]))).await;
    for challenge in chosen {
        page.solves(challenge).await;
    }
    drop(page);
    board.interrupt().await;
}

/// The address of the challenge's solution.
pub(super) fn fragment(Challenge { number, solution, .. }: &Challenge) -> String {
    let LaneSetup { axes, fenced, .. } = solution;
    let (lock, scope, guards) = (axes.lock.name(), axes.scope.name(), axes.guards.name());
    let more = if *fenced { ",fenced" } else { "" };
    format!("#challenge={number}&right={lock},{scope},{guards},{}{more}", axes.replicas)
}
