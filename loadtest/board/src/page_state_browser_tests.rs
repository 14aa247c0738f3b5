//! What the page says where no race runs before it.

use super::lane_tests::begun;
use super::*;

const STATE: &str = "document.getElementById('state').textContent";

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_no_board_knows_is_refused_in_words_and_leaves_a_form_to_start_with() {
    let page = OpenPage::open("#rung=nosuch").await;
    page.shows(&format!("{STATE}.startsWith('No race was started: ')")).await;
    page.shows(&format!("{STATE}.includes('nosuch') || {STATE}.includes('no-lock')")).await;
    page.shows("document.querySelector('[name=users]').value > 0").await;
    let unnamed = "[...document.querySelectorAll('button')].filter((it) => !it.textContent.trim() \
                   || /[a-z]_[a-z]/.test(it.textContent))";
    page.shows(&format!("{unnamed}.length === 0")).await;
    page.click("#language").await;
    page.shows(&format!("{STATE}.startsWith('没有开始竞赛：')")).await;
    page.click("#start").await;
    let mut page = page;
    page.begin().await;
    page.shows(&format!("{STATE}.startsWith('正在启动副本')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_that_was_saved_before_its_end_does_not_run_for_ever() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&purchases());
    let (origin, token) = (&page.board.origin, &page.board.token);
    let saved = page.board.client.get(format!("{origin}/save?token={token}")).send().await;
    let saved = saved.expect("an answer").text().await.expect("a page");
    let file = tempfile::NamedTempFile::with_suffix(".html").expect("a file");
    std::fs::write(file.path(), saved).expect("written");
    page.browser.open(&format!("file://{}", file.path().display())).await;
    page.shows(&format!("{STATE} === 'The race was saved before its end.'")).await;
}
