//! Logging in on the page: a phone number as people write it, then the code that the page fills in.

use super::Visit;

impl Visit {
    pub(super) async fn fill(&self, selector: &str, text: &str) {
        let fill = format!("document.querySelector('{selector}').value = '{text}'; return 1");
        self.browser.run(&fill).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_number_is_reported_and_a_valid_one_logs_in_with_its_code() {
    let visit = Visit::without_order(&[]).await;
    visit.click("#account").await;
    visit.wait_for_text("#account", "Log in").await;
    visit.click("#account").await;
    visit.wait_for("#phone").await;
    visit.fill("#phone", "+1 390-000-0016").await;
    visit.click("#phone-form [type=submit]").await;
    visit.wait_for_text("#phone-error", "not a valid phone number").await;
    // What a refusal of the service leaves in the log of the browser.
    visit.browser.logged().await;
    visit.fill("#phone", "+86 (139) 0000-0016").await;
    visit.click("#phone-form [type=submit]").await;
    visit.wait_for("#code-dev").await;
    visit.fill("#code", "wrong!").await;
    visit.click("#code-form [type=submit]").await;
    visit.wait_for_text("#code-error", "6 digits").await;
    visit.click("#code-back").await;
    visit.click("#phone-form [type=submit]").await;
    visit.wait_for("#code-dev").await;
    visit.click("#code-form [type=submit]").await;
    visit.wait_for_text("#account", "Log out").await;
    visit.wait_for_text("#who", "+86****0016").await;
    visit.assert_quiet().await;
}
