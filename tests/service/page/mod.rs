//! The page's orders in a browser: paid, cancelled and timed out, by mouse and by keyboard, in the
//! dark and on a phone; and purchases that wait in the queue.

mod language;
mod login;
mod queued;
mod restock;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;

use crate::report::browser::{Browser, Screen};
use crate::support::{Service, token};

/// The keys of a keyboard, as `WebDriver` names them.
const TAB: &str = "\u{e004}";
const SHIFT: &str = "\u{e008}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// Keeps the page from hearing by itself what has changed.
const DEAF: &str = "const real = window.fetch; \
    window.fetch = (path, how) => path === '/api/vouchers' ? new Promise(() => {}) \
      : real(path, how); \
    return 1";

/// A user who is logged in on the page, with an order of that voucher.
struct Visit {
    service: Service,
    browser: Browser,
    voucher: String,
    user: u64,
    /// Empty before there is one.
    order: String,
}

impl Visit {
    async fn begin(flags: &[&str]) -> Self {
        let mut visit = Self::without_order(flags).await;
        visit.order = visit.service.order(&visit.voucher, visit.user).await;
        visit.browser.open(&format!("{}/#/orders", visit.service.url)).await;
        // The fragment alone loads nothing anew.
        visit.browser.run("location.reload(); return 1").await;
        visit.wait_for(".order").await;
        visit
    }

    /// Logged in, and before the vouchers.
    async fn without_order(flags: &[&str]) -> Self {
        let service = Service::start(flags).await;
        let voucher = service.voucher(1).await;
        let caller = crate::caller::Caller::new(&service.url);
        let phone = json!({"phone": "13800000001"});
        let body = (Method::POST, "/api/login/codes");
        let sent = caller.send(caller.raw(body, phone.to_string())).await.expect(202);
        let challenge = &sent["challenge"];
        let login = json!({"phone": "13800000001", "challenge": challenge, "code": sent["code"]});
        let body = (Method::POST, "/api/login");
        let session = caller.send(caller.raw(body, login.to_string())).await.expect(200);
        let token = session["token"].as_str().expect("a token").to_owned();
        let user = session["user"]["id"].as_str().expect("an id").parse().expect("a number");
        let browser = Browser::start().await;
        browser.open(&service.url).await;
        let keep = format!(
            "sessionStorage.setItem('seckill.session', JSON.stringify({{token: '{token}', \
             user: {{id: '{user}', phone: '+86****0001', role: 'buyer'}}}}));"
        );
        browser.run(&keep).await;
        browser.run("location.reload(); return 1").await;
        let visit = Self { service, browser, voucher, user, order: String::new() };
        visit.wait_for(".ticket").await;
        visit
    }

    async fn wait_for(&self, selector: &str) {
        let seen = format!(
            "const it = document.querySelector('{selector}'); \
             return !!it && it.checkVisibility();"
        );
        self.browser.wait_until(&seen).await;
    }

    async fn click(&self, selector: &str) {
        self.wait_for(selector).await;
        let found = self.browser.find(selector).await;
        self.browser.click(&found[0]).await;
    }

    async fn text(&self, selector: &str) -> String {
        let text = format!("return document.querySelector('{selector}').innerText");
        self.browser.run(&text).await.as_str().expect("text").to_owned()
    }

    async fn wait_for_text(&self, selector: &str, text: &str) {
        // Nothing may be there while the page draws anew.
        let has =
            format!("return !!document.querySelector('{selector}')?.innerText.includes('{text}')");
        self.browser.wait_until(&has).await;
    }

    /// Presses keys one after the other; what SHIFT begins, the next key ends.
    async fn press(&self, keys: &[&str]) {
        for key in keys {
            let mut actions = Vec::new();
            let held: Vec<String> = key.chars().map(String::from).collect();
            actions.extend(held.iter().map(|one| json!({"type": "keyDown", "value": one})));
            actions.extend(held.iter().rev().map(|one| json!({"type": "keyUp", "value": one})));
            let input = json!([{"type": "key", "id": "keys", "actions": actions}]);
            self.browser.command("/actions", json!({"actions": input})).await;
        }
    }

    /// What has the focus.
    async fn focus(&self) -> String {
        let part = "const it = document.activeElement; return it.dataset.part ?? it.value ?? it.id";
        self.browser.run(part).await.as_str().expect("a part").to_owned()
    }

    async fn status(&self) -> String {
        let order = self.service.look(&self.order, self.user).await;
        order["status"].as_str().expect("a status").to_owned()
    }

    async fn assert_quiet(&self) {
        let logged = self.browser.logged().await;
        let is_favicon = |line: &String| line.contains("favicon");
        let logged: Vec<_> = logged.iter().filter(|line| !is_favicon(line)).collect();
        assert!(logged.is_empty(), "the page logged {logged:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_paid_on_the_page_and_its_ticket_shows_it() {
    let visit = Visit::begin(&["--unpaid-timeout-s", "600"]).await;
    visit.wait_for_text(".order-status", "Not paid yet").await;
    let left = visit.text(".order-left").await;
    assert!(left.contains("09:") || left.contains("10:00"), "{left}");
    visit.click("[data-part=pay]").await;
    visit.wait_for_text(".order-status", "Paid").await;
    visit.wait_for_text(".order-note", "it is yours for good").await;
    assert_eq!(visit.status().await, "paid");
    assert!(!visit.text(".order").await.contains("Cancel order"), "it can still be cancelled");
    visit.click("[data-route=vouchers]").await;
    visit.wait_for(".ticket[data-state=bought]").await;
    visit.wait_for_text(".ticket", "See your order").await;
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_cancelled_by_keyboard_after_a_question_and_the_focus_is_never_lost() {
    let visit = Visit::begin(&[]).await;
    assert!(!visit.text(".order").await.contains("Pay within"), "there is no time-out");
    visit.browser.run("document.querySelector('[data-part=id]').focus(); return 1").await;
    visit.press(&[TAB, TAB]).await;
    assert_eq!(visit.focus().await, "cancel");
    // The question is answered with no, and with Escape.
    visit.press(&[ENTER]).await;
    visit.wait_for("#sure").await;
    assert_eq!(visit.focus().await, "no", "the harmless answer comes first");
    visit.press(&[ENTER]).await;
    visit.browser.wait_until("return !document.querySelector('#sure').open").await;
    visit.press(&[ENTER]).await;
    visit.wait_for("#sure").await;
    visit.press(&[ESCAPE]).await;
    visit.browser.wait_until("return !document.querySelector('#sure').open").await;
    assert_eq!((visit.focus().await.as_str(), visit.status().await.as_str()), ("cancel", "unpaid"));
    visit.press(&[ENTER]).await;
    visit.wait_for("#sure").await;
    visit.press(&[TAB, ENTER]).await;
    visit.wait_for_text(".order-status", "Cancelled").await;
    visit.wait_for_text(".order-note", "You cannot buy this voucher again").await;
    assert_eq!(visit.focus().await, "title", "the focus went away with the button");
    assert_eq!(visit.status().await, "cancelled");
    assert_eq!(visit.service.add_up(&visit.voucher).await, (0, 1, 1));
    visit.press(&[&[SHIFT, TAB].concat()]).await;
    visit.click("[data-route=vouchers]").await;
    visit.wait_for(".ticket[data-state=cancelled]").await;
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_not_paid_in_time_says_so_by_itself() {
    let visit = Visit::begin(&["--unpaid-timeout-s", "3"]).await;
    visit.wait_for_text(".order-status", "Cancelled").await;
    visit.wait_for_text(".order-state", "not paid in time").await;
    assert_eq!(visit.status().await, "cancelled");
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_settled_by_another_request_is_shown_as_it_is() {
    let visit = Visit::begin(&[]).await;
    visit.service.cancel(&visit.order, visit.user).await.expect(200);
    visit.click("[data-part=pay]").await;
    visit.wait_for_text(".order-note", "Too late to pay").await;
    visit.wait_for_text(".order-status", "Cancelled").await;
    // The refusal is an answer of status 409, which a browser logs.
    let page = visit.service.get("/api/orders", &token(visit.user, Role::Buyer)).await;
    assert_eq!(page.expect(200)["orders"][0]["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_buyer_sees_why_and_when_to_retry() {
    let visit = Visit::without_order(&["--limit-orders-user", "1"]).await;
    let other = visit.service.voucher(1).await;
    visit.service.buy(&other, visit.user).await.expect(201);
    visit.click(&format!("#buy-{}", visit.voucher)).await;
    visit.wait_for_text(".slip", "Not so often.").await;
    visit.wait_for_text(".slip", "Nothing was bought. Try again in").await;
}

/// Keeps all texts that an element has from then on.
const KEEP_TEXTS: &str = "window.texts = []; const it = document.querySelector(BUTTON); \
    new MutationObserver(() => window.texts.push(it.innerText)) \
      .observe(it, { childList: true, characterData: true, subtree: true }); \
    return 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_price_that_changes_under_the_finger_is_shown_and_the_button_waits() {
    let visit = Visit::without_order(&[]).await;
    let buy = format!("#buy-{}", visit.voucher);
    visit.wait_for_text(&buy, "Buy for ¥80").await;
    visit.browser.run(&KEEP_TEXTS.replace("BUTTON", &format!("'{buy}'"))).await;
    visit.service.set_price(&visit.voucher, 9000).await;
    visit.wait_for_text(".slip", "The price has changed.").await;
    visit.wait_for_text(".slip", "It is ¥90 now.").await;
    visit.wait_for_text("#hear", "It is ¥90 now.").await;
    visit.wait_for_text(&buy, "Buy for ¥90").await;
    let texts = visit.browser.run("return window.texts").await;
    let texts: Vec<String> = serde_json::from_value(texts).expect("texts");
    let place = |text: &str| texts.iter().position(|it| it == text);
    let (waits, buys) = (place("Wait"), place("Buy for ¥90"));
    assert!(waits.is_some() && waits < buys, "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_price_is_shown_and_asked_for_before_anything_is_sold() {
    let visit = Visit::without_order(&[]).await;
    let buy = format!("#buy-{}", visit.voucher);
    visit.wait_for_text(&buy, "Buy for ¥80").await;
    visit.browser.run(DEAF).await;
    visit.service.set_price(&visit.voucher, 9000).await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "The price has changed.").await;
    visit.wait_for_text(".slip", "It is ¥90 now. Nothing was bought").await;
    visit.wait_for_text("#hear", "The price has changed.").await;
    visit.wait_for_text(&buy, "Buy for ¥90").await;
    visit.wait_for_text("[data-part=price]", "90").await;
    assert_eq!(visit.service.add_up(&visit.voucher).await, (0, 0, 1));
    visit.service.set_price(&visit.voucher, 7000).await;
    visit.click("#language").await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "价格变了。").await;
    visit.wait_for_text(&buy, "¥70").await;
    visit.click(&buy).await;
    visit.wait_for_text(".slip", "抢到了").await;
    let page = visit.service.get("/api/orders", &token(visit.user, Role::Buyer)).await;
    assert_eq!(page.expect(200)["orders"][0]["price_cents"], 7000);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_fit_on_a_phone_and_are_legible_in_the_dark() {
    let visit = Visit::begin(&["--unpaid-timeout-s", "600"]).await;
    for (width, dark) in [(1280, false), (1280, true), (360, false), (360, true), (320, true)] {
        visit.browser.look(Screen { width, dark }).await;
        let fits = "return document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(visit.browser.run(fits).await, true, "{width}: it scrolls sideways");
        for part in ["pay", "cancel", "status", "digits"] {
            let contrast = visit.browser.run(&contrast_of(part)).await;
            let contrast = contrast.as_f64().expect("a number");
            assert!(contrast >= 4.5, "{part}, dark {dark}: a contrast of {contrast:.2}");
        }
        let tall = "return ['pay', 'cancel'].every((part) => document.querySelector(\
             `.order [data-part=${part}]`).getBoundingClientRect().height >= 44)";
        assert_eq!(visit.browser.run(tall).await, true, "{width}: too small for a finger");
    }
    visit.assert_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_of_any_length_fits_in_one_line_on_its_ticket() {
    let visit = Visit::without_order(&[]).await;
    let mut dear = crate::support::voucher_body(1);
    dear["price_cents"] = json!(9_999_999_999_u64);
    dear["face_value_cents"] = json!(9_999_999_999_u64);
    let admin = token(1, Role::Admin);
    let voucher = visit.service.post("/api/admin/vouchers", &admin, dear).await.expect(201);
    let id = voucher["voucher"]["id"].as_str().expect("an id");
    let path = format!("/api/admin/vouchers/{id}/on-sale");
    visit.service.post(&path, &admin, json!({})).await.expect(200);
    visit.browser.run("location.reload(); return 1").await;
    visit.wait_for(&format!("#buy-{id}")).await;
    for width in [1200, 900, 740, 360] {
        visit.browser.look(Screen { width, dark: false }).await;
        let seen = format!(
            "const ticket = document.querySelector('#buy-{id}').closest('.ticket'); \
             return ['[data-part=price]', '.worth strong'].map((part) => {{ \
               const price = ticket.querySelector(part); \
               const words = document.createRange(); words.selectNodeContents(price); \
               const box = price.parentElement.getBoundingClientRect(); \
               return [price.innerText, words.getClientRects().length, \
                 words.getBoundingClientRect().right <= box.right]; }})"
        );
        let seen = visit.browser.run(&seen).await;
        let one = json!(["¥99,999,999.99", 1, true]);
        assert_eq!(seen, json!([one, one]), "{width}");
    }
}

/// The contrast of a part's text to what is behind it (WCAG 2), as a function's body.
fn contrast_of(part: &str) -> String {
    format!(
        "const light = (colour) => {{ \
           const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {{ \
             const part = value / 255; \
             return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; }}); \
           return 0.2126 * r + 0.7152 * g + 0.0722 * b; }}; \
         const node = document.querySelector('.order [data-part={part}]'); \
         let behind = node; \
         const clear = (one) => /rgba\\(.*, 0\\)|transparent/\
           .test(getComputedStyle(one).backgroundColor); \
         while (clear(behind)) behind = behind.parentElement; \
         const [a, b] = [light(getComputedStyle(node).color), \
           light(getComputedStyle(behind).backgroundColor)].sort((x, y) => y - x); \
         return (a + 0.05) / (b + 0.05);"
    )
}
