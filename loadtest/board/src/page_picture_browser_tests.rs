//! What the canvases show, and what they are drawn from.

use super::lane_tests::begun;
use super::*;

/// The scripts that know a race. They need no page.
const MODEL: &str = concat!(
    include_str!("page/cost.js"),
    include_str!("page/server_holds.js"),
    include_str!("page/model.js"),
);

/// Remembers the lowest edge that is drawn.
const RECORD_EDGES: &str = "window.lowest = 0; \
    for (const name of ['fillRect', 'strokeRect']) { \
      const draw = CanvasRenderingContext2D.prototype[name]; \
      CanvasRenderingContext2D.prototype[name] = function edge(x, y, width, height) { \
        window.lowest = Math.max(window.lowest, y + height); \
        draw.call(this, x, y, width, height); }; }";

/// What the body gives, which finds a new `lane`.
pub(super) async fn run_on_model(body: &str) -> Value {
    let lane = "const lane = new LaneModel({ scope: 'user', replicas: 2 }, { stock: 10 });";
    Browser::start().await.run(&format!("{MODEL}\n{lane}\n{body}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_long_is_in_the_picture() {
    let body = "lane.add(['i', 0, 0, 1, 1]); lane.add(['i', 0, 100000, 2, 2]); \
                lane.add(['f', 0, 100000, 1, 'r1', null]); \
                return lane.underWayAt(3.6e6).map((it) => it.n)";
    assert_eq!(run_on_model(body).await, json!([2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_not_set_shades_nothing_after_its_failure() {
    let body = "lane.add(['m', 0, 100, 'jump-clock', 'begin', '']); \
                lane.add(['m', 0, 200, 'jump-clock', 'failed', 'no clock']); \
                return lane.spans.map((it) => it.to)";
    assert_eq!(run_on_model(body).await, json!([200]));
}

/// How many pixels of the left lane have the colour of an order.
const GREEN_PIXELS: &str = "const it = document.querySelector('#lane-left canvas'); \
    const { data } = it.getContext('2d').getImageData(0, 0, it.width, it.height); \
    let count = 0; \
    for (let at = 0; at < data.length; at += 4) { \
      if (data[at] === 16 && data[at + 1] === 99 && data[at + 2] === 74) count += 1; } \
    return count";

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_has_the_same_bars_whether_it_is_reached_from_before_or_from_after() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&purchases());
    page.push(&[
        json!(["i", 0, 160_000, 3, 2]),
        json!(["o", 0, 230_000, 3, "r1", "14", 180_000, 225_000, 0, 5000]),
    ]);
    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    let clock = "document.getElementById('clock').textContent.startsWith";
    page.shows(&format!("{clock}('0.230 s')")).await;
    let mut bars = Vec::new();
    for (key, time) in [("l", "0.230 s"), (",", "0.160 s"), (",", "0.150 s"), (".", "0.160 s")] {
        page.press_key("#lanes", key).await;
        page.shows(&format!("{clock}('{time}')")).await;
        page.browser.run(NEXT_PICTURE).await;
        bars.push(page.browser.run(GREEN_PIXELS).await.as_u64().expect("a number"));
    }
    assert!(bars[0] > bars[1] && bars[1] > 0, "the last bar has not begun there: {bars:?}");
    assert_eq!(bars[1], bars[3], "{bars:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_were_never_answered_are_drawn_within_the_canvas() {
    let page = begun(&RaceSetup::default()).await;
    page.browser.run(RECORD_EDGES).await;
    for n in 1..=16 {
        page.push(&[json!(["i", 0, 100_000, n, n])]);
    }
    for n in 1..=16 {
        page.push(&[json!(["u", 0, 500_000, n, null, null])]);
    }
    page.end([verdict(0, 0, "local_user"), verdict(0, 0, "user")]).await;
    page.shows("document.getElementById('clock').textContent.startsWith('0.500 s')").await;
    page.browser.run(NEXT_PICTURE).await;
    let height = "document.querySelector('#lane-left canvas').clientHeight";
    let beyond = page.browser.run(&format!("return window.lowest - {height}")).await;
    assert_eq!(beyond, json!(0), "pixels below the canvas");
}

/// Remembers what is drawn as text, and the picture that is saved with its name.
const RECORD_PICTURE: &str = "window.texts = []; \
    const write = CanvasRenderingContext2D.prototype.fillText; \
    CanvasRenderingContext2D.prototype.fillText = function note(text, x, y) { \
      if (!this.canvas.isConnected) window.texts.push(text); \
      write.call(this, text, x, y); }; \
    const address = URL.createObjectURL; \
    URL.createObjectURL = (blob) => { window.picture = blob; return address.call(URL, blob); }; \
    addEventListener('click', ({ target }) => { window.saved = target.download; }, true); \
    const click = HTMLAnchorElement.prototype.click; \
    HTMLAnchorElement.prototype.click = function save() { \
      window.saved = this.download; click.call(this); };";

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_the_moment_has_the_bars_and_the_verdicts_in_the_language_of_the_page() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&purchases());
    let mut left = verdict(2, 1, "local_user");
    left["cpu_ms"] = json!(3.512);
    left["findings"] = json!([
        { "rule": "one_order_per_user", "held": false, "broken": 1, "detail": "", "proofs": [] },
    ]);
    page.end([left, verdict(1, 0, "user")]).await;
    let cost = page.text("#lane-left .cost").await;
    let known = "24 orders/s. 99 % of the requests were answered within 8.0 ms. \
                 Processor time of the replicas: 3.5 ms for each order.";
    assert_eq!(cost, known);
    let unknown = "24 orders/s. 99 % of the requests were answered within 8.0 ms.";
    assert_eq!(page.text("#lane-right .cost").await, unknown);
    page.browser.run(NEXT_PICTURE).await;
    page.browser.run(RECORD_PICTURE).await;
    page.click("#picture").await;
    page.shows("window.saved").await;
    assert_eq!(page.browser.run("return window.saved").await, json!("race-0.150s.png"));
    let texts = page.browser.run("return window.texts.join(' ')").await.to_string();
    for words in [
        "Race board · Seed 1 · 0.150 s / 0.150 s",
        "Left: local",
        "Second orders of a user: 1",
        "2 orders of 300 units. Oversold: 0. Users who bought twice: 1.",
        "3.5 ms for each order.",
        "✗ no user bought twice",
        "Right: redisson",
    ] {
        assert!(texts.contains(words), "{words}: {texts}");
    }
    let size = "return createImageBitmap(window.picture).then((it) => [it.width, it.height])";
    let size = page.browser.run(size).await;
    let canvas = "const { clientWidth, clientHeight } = document.querySelector('canvas'); \
                  return [2 * clientWidth + 48, clientHeight]";
    let canvas = page.browser.run(canvas).await;
    assert_eq!(size[0], canvas[0], "both lanes beside each other");
    assert!(size[1].as_u64() > canvas[1].as_u64(), "bars and texts: {size}");
    page.click("#language").await;
    page.browser.run("window.texts = []; window.saved = ''").await;
    page.click("#picture").await;
    page.shows("window.saved").await;
    let texts = page.browser.run("return window.texts.join('')").await.to_string();
    assert!(texts.contains("库存 300，订单 2。超卖：0。重复下单的用户：1。"), "{texts}");
}
