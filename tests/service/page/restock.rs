//! A sold-out voucher whose page says when a unit is available again; in a hidden tab the title is
//! all that its user sees.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{DEAF, Visit};

/// A hidden tab asks every 17.25 s at least, and an answer may be a second old.
const SAID_WITHIN: Duration = Duration::from_secs(40);

/// Hides the page or shows it, as a change of tabs does.
fn hide(hidden: bool) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
         document.dispatchEvent(new Event('visibilitychange')); return 1"
    )
}

impl Visit {
    /// One whose page waits for a unit, its buying button and the order of user 71 that has the
    /// last unit.
    async fn of_a_sold_out_buyer() -> (Self, String, String) {
        let visit = Self::without_order(&[]).await;
        let buy = format!("#buy-{}", visit.voucher);
        visit.wait_for_text(&buy, "Buy for").await;
        visit.browser.run(DEAF).await;
        let order = visit.service.order(&visit.voucher, 71).await;
        visit.click(&buy).await;
        visit.wait_for_text(".slip", "it says for 15 minutes if a unit comes back").await;
        (visit, buy, order)
    }

    async fn wait_for_title(&self, words: &str) {
        let begins = format!("return document.title.startsWith('{words}')");
        let begun = Instant::now();
        while self.browser.run(&begins).await != true {
            assert!(begun.elapsed() < SAID_WITHIN, "the title never begins with {words}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_title_of_a_hidden_tab_says_that_a_unit_is_available_until_it_is_seen_or_sold() {
    let (visit, _, order) = Visit::of_a_sold_out_buyer().await;
    visit.browser.run(&hide(true)).await;
    visit.service.cancel(&order, 71).await.expect(200);
    visit.wait_for_title("Available again: ").await;
    let order = visit.service.order(&visit.voucher, 72).await;
    visit.wait_for_title("Vouchers").await;
    visit.click("#language").await;
    visit.service.cancel(&order, 72).await.expect(200);
    visit.wait_for_title("又有券了：").await;
    visit.browser.run(&hide(false)).await;
    visit.wait_for_title("代金券").await;
    visit.wait_for_text(".slip", "又有券了。").await;
    assert_eq!(visit.service.add_up(&visit.voucher).await, (0, 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sold_out_buyer_is_notified_when_a_unit_is_available_again_and_when_it_is_sold() {
    let (visit, buy, order) = Visit::of_a_sold_out_buyer().await;
    visit.wait_for_text(&buy, "Sold out").await;
    visit.service.cancel(&order, 71).await.expect(200);
    visit.wait_for_text(".slip", "A unit is available again.").await;
    visit.wait_for_text("#hear", "A unit is available again.").await;
    visit.wait_for_text(&buy, "Buy for").await;
    let order = visit.service.order(&visit.voucher, 72).await;
    visit.wait_for_text(".slip", "Sold out again.").await;
    visit.wait_for_text(&buy, "Sold out").await;
    visit.service.cancel(&order, 72).await.expect(200);
    visit.click("#language").await;
    visit.wait_for_text(".slip", "又有券了。").await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "抢到了").await;
    assert_eq!(visit.service.add_up(&visit.voucher).await, (1, 2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_of_a_sold_out_voucher_asks_to_be_notified_when_a_unit_is_available_again() {
    let visit = Visit::without_order(&[]).await;
    let buy = format!("#buy-{}", visit.voucher);
    let order = visit.service.order(&visit.voucher, 71).await;
    visit.browser.run("location.reload(); return 1").await;
    visit.wait_for_text(&buy, "Notify me").await;
    visit.click("#language").await;
    visit.wait_for_text(&buy, "有券时提醒我").await;
    visit.assert_chinese().await;
    visit.click("#language").await;
    visit.browser.run(DEAF).await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "it says for 15 minutes if a unit comes back").await;
    visit.wait_for_text("#hear", "Waiting for a unit.").await;
    visit.wait_for_text(&buy, "Sold out").await;
    visit.service.cancel(&order, 71).await.expect(200);
    visit.wait_for_text(".slip", "A unit is available again.").await;
    visit.wait_for_text(&buy, "Buy for").await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "It is yours.").await;
    assert_eq!(visit.service.add_up(&visit.voucher).await, (1, 1, 0));
    visit.assert_quiet().await;
}
