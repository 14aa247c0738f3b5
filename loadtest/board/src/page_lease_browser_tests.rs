//! The strip of the lease, and the end of a validity time, in a browser.

use loadtest_judge::setting::Scope;

use super::lane_tests::begun;
use super::*;

/// How many pixels of the left lane have the colour of a lease.
const LEASE_PIXELS: &str = "const it = document.querySelector('#lane-left canvas'); \
    const { data } = it.getContext('2d').getImageData(0, 0, it.width, it.height); \
    let count = 0; \
    for (let at = 0; at < data.length; at += 4) { \
      if (data[at] === 10 && data[at + 1] === 122 && data[at + 2] === 128) count += 1; } \
    return count";
/// Empty until the lane is drawn.
const LABEL: &str =
    "(document.querySelector('#lane-left canvas').getAttribute('aria-label') ?? '')";

/// Shows that moment, as a person does with the scrubber.
pub(super) async fn scrub(browser: &Browser, ms: u64) {
    let scrub = format!(
        "const it = document.getElementById('scrubber'); it.value = '{ms}'; \
         it.dispatchEvent(new Event('input'))"
    );
    browser.run(&scrub).await;
    browser.run(NEXT_PICTURE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_runs_down_until_the_next_answer_and_is_named_at_each_moment() {
    let mut setup = RaceSetup::default();
    setup.lanes[0].axes.scope = Scope::Voucher;
    let page = begun(&setup).await;
    page.shows(&format!("{LABEL}.endsWith('Lease on the server: not read yet.')")).await;
    page.push(&[
        json!(["l", 0, 0, "free"]),
        json!(["l", 1, 0, "none"]),
        json!(["i", 0, 100_000, 1, 1]),
        json!(["l", 0, 200_000, 1000]),
        json!(["l", 0, 250_000, 950]),
        json!(["l", 0, 1_600_000, "silent"]),
        json!(["l", 0, 1_700_000, "no_expiry"]),
        json!(["l", 0, 1_780_000, "not_recorded"]),
        json!(["o", 0, 1_800_000, 1, "r1", "11", 110_000, 1_790_000, 0, 5000]),
    ]);
    page.end([verdict(1, 0, "voucher"), verdict(0, 0, "user")]).await;
    let mut pixels = Vec::new();
    for (ms, told) in [
        (150, "the lock is free"),
        (240, "1.0 s left"),
        (660, "0.5 s left"),
        (1300, "the lock is free"),
        (1650, "no answer"),
        (1750, "the key has no expiry"),
        (1790, "not recorded"),
    ] {
        scrub(&page.browser, ms).await;
        page.shows(&format!("{LABEL}.endsWith('Lease on the server: {told}.')")).await;
        pixels.push(page.browser.run(LEASE_PIXELS).await.as_u64().expect("a number"));
    }
    assert!(pixels[0] == 0 && pixels[2] > pixels[1] && pixels[5] > 0, "{pixels:?}");
    page.click("#language").await;
    page.shows(&format!("{LABEL}.endsWith('服务器上的租约：未记录。')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_names_its_user_if_each_has_a_lock() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&[json!(["l", 0, 100_000, 820, 7])]);
    page.push(&purchases());
    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    page.shows(&format!("{LABEL}.endsWith('Lease on the server, user 7: 0.8 s left.')")).await;
    page.click("#language").await;
    page.shows(&format!("{LABEL}.endsWith('服务器上的租约，用户 7：剩余 0.8 s。')")).await;
}

/// Where the left lane has red pixels, as times in milliseconds: the shown time is at
/// 86 % of a window of 600 ms.
const RED_TIMES: &str = "const it = document.querySelector('#lane-left canvas'); \
    const { data } = it.getContext('2d').getImageData(0, 0, it.width, 60); \
    const shown = parseFloat(document.getElementById('clock').textContent) * 1000; \
    const found = new Set(); \
    for (let at = 0; at < data.length; at += 4) { \
      const x = (at / 4) % it.width; \
      if (data[at] > 150 && data[at + 1] < 160 && data[at + 2] < 150) { \
        found.add(Math.round(shown + (x / it.width - 0.86) * 600)); } } \
    return [...found].sort((a, b) => a - b)";

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_is_marked_where_its_validity_ended_or_else_at_its_release() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&[
        json!(["i", 0, 100_000, 1, 1]),
        json!(["u", 0, 500_000, 1, "r1", null, 150_000, 490_000, 300_000, 5000]),
        json!(["i", 0, 1_100_000, 2, 2]),
        json!(["u", 0, 1_500_000, 2, "r1", null, 1_150_000, 1_490_000, 1, 5000]),
    ]);
    page.end([verdict(1, 0, "user"), verdict(0, 0, "user")]).await;
    for (shown, marked) in [(510, 300.0), (1510, 1490.0)] {
        scrub(&page.browser, shown).await;
        let found = page.browser.run(RED_TIMES).await;
        let found: Vec<f64> = serde_json::from_value(found).expect("times");
        assert!(!found.is_empty(), "nothing is marked at {marked}");
        assert!(found.iter().all(|ms| (ms - marked).abs() < 12.0), "{marked}: {found:?}");
    }
}

/// Counts the names that the picture of the left lane gets.
const COUNT_NAMES: &str = "window.names = []; \
    const canvas = document.querySelector('#lane-left canvas'); \
    new MutationObserver(() => window.names.push(canvas.getAttribute('aria-label'))) \
      .observe(canvas, { attributeFilter: ['aria-label'] }); \
    const it = document.getElementById('scrubber'); it.value = '0'; \
    it.dispatchEvent(new Event('input')); \
    document.getElementById('clock').textContent = ''; \
    document.getElementById('play').click(); window.began = performance.now()";

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_plays_gets_another_name_every_2_s_and_at_once_with_news() {
    let page = begun(&RaceSetup::default()).await;
    for at in 0..60_u64 {
        let left = 900 - at * 10;
        page.push(&[json!(["l", 0, at * 50_000, left, 7])]);
    }
    page.push(&[json!(["i", 0, 100_000, 1, 1]), json!(["i", 0, 100_000, 2, 1])]);
    page.push(&[
        json!(["o", 0, 1_000_000, 1, "r1", "11", 110_000, 130_000, 0, 5000]),
        json!(["o", 0, 1_100_000, 2, "r2", "12", 112_000, 135_000, 0, 5000]),
        json!(["i", 0, 2_000_000, 3, 2]),
        json!(["u", 0, 2_900_000, 3, "r2", null]),
    ]);
    page.shows("Number(document.getElementById('scrubber').max) === 2900").await;
    page.browser.run(COUNT_NAMES).await;
    page.shows("document.getElementById('clock').textContent.startsWith('2.900')").await;
    let told = page.browser.run("return [window.names, performance.now() - window.began]").await;
    let names = told[0].as_array().expect("names").clone();
    let passed = told[1].as_f64().expect("a time");
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
    let most = (passed / 2000.0) as usize + 3;
    assert!(names.len() <= most, "{} names in {passed} ms: {names:?}", names.len());
    let second = |name: &Value| name.as_str().is_some_and(|it| it.contains("second orders 1"));
    assert!(names.iter().any(second), "{names:?}");
}
