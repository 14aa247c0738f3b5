//! The page in Chinese and English.

use serde_json::json;

use super::Visit;

/// Latin words that are visible on the page, but for names, what the seller wrote and
/// announcements that contain it.
const LATIN_WORDS: &str = "\
    const names = ['.brand', '#language', '.chip', '[data-part=title]', \
      '[data-part=description]', '#hear']; \
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); \
    const found = []; \
    while (walker.nextNode()) { \
      const it = walker.currentNode.parentElement; \
      if (it.closest(names.join()) || !it.checkVisibility()) continue; \
      const text = walker.currentNode.textContent.replace('（replica）', ''); \
      found.push(...(text.match(/[A-Za-z]{3,}[^，。]*/g) ?? [])); \
    } \
    return found;";

impl Visit {
    pub(super) async fn assert_chinese(&self) {
        assert_eq!(self.browser.run(LATIN_WORDS).await, json!([]), "not in Chinese");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_speaks_the_language_that_is_chosen_and_remembers_it() {
    let visit = Visit::without_order(&["--unpaid-timeout-s", "600"]).await;
    let buy = format!("#buy-{}", visit.voucher);
    visit.wait_for_text(&buy, "Buy for").await;
    assert_eq!(visit.text("#language").await, "中文");
    visit.click("#language").await;
    visit.wait_for_text(&buy, "抢购").await;
    visit.assert_chinese().await;
    visit.browser.run("location.reload(); return 1").await;
    visit.wait_for_text(&buy, "抢购").await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "抢到了").await;
    visit.click("[data-route=orders]").await;
    visit.wait_for_text(".order-status", "待支付").await;
    visit.assert_chinese().await;
    visit.click("[data-part=cancel]").await;
    visit.wait_for_text("#sure", "不能再买").await;
    visit.click("#sure [value=yes]").await;
    visit.wait_for_text(".order-status", "已取消").await;
    visit.click("#language").await;
    visit.wait_for_text(".order-status", "Cancelled").await;
    assert_eq!(visit.browser.run("return document.documentElement.lang").await, "en-GB");
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_service_is_shown_in_chinese_by_its_code() {
    let visit = Visit::without_order(&[]).await;
    visit.click("#language").await;
    visit.click("#account").await;
    visit.wait_for_text("#account", "登录").await;
    visit.click("#account").await;
    visit.wait_for("#phone").await;
    visit.fill("#phone", "+1 390-000-0016").await;
    visit.click("#phone-form [type=submit]").await;
    visit.wait_for_text("#phone-error", "请求体不符合要求").await;
    visit.wait_for_text("#phone-error", "phone").await;
}
