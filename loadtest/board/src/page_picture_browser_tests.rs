//! What the canvases show, and what they are drawn from.

use super::lane_tests::begun;
use super::*;

/// The script that knows a race. It needs no page.
const MODEL: &str = include_str!("page/model.js");

/// Remembers the lowest edge that is drawn.
const RECORD_EDGES: &str = "window.lowest = 0; \
    for (const name of ['fillRect', 'strokeRect']) { \
      const draw = CanvasRenderingContext2D.prototype[name]; \
      CanvasRenderingContext2D.prototype[name] = function edge(x, y, width, height) { \
        window.lowest = Math.max(window.lowest, y + height); \
        draw.call(this, x, y, width, height); }; }";

/// What the body gives, which finds a new `lane`.
async fn run_on_model(body: &str) -> Value {
    let lane = "const lane = new LaneModel({ scope: 'user', replicas: 2 }, 10);";
    Browser::start().await.run(&format!("{MODEL}\n{lane}\n{body}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_long_is_in_the_picture() {
    let body = "lane.add(['i', 0, 0, 1, 1]); lane.add(['i', 0, 100000, 2, 2]); \
                lane.add(['f', 0, 100000, 1, 'r1', null]); \
                return lane.between(3e6, 3.6e6).map((it) => it.n)";
    assert_eq!(run_on_model(body).await, json!([2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_not_set_shades_nothing_after_its_failure() {
    let body = "lane.add(['m', 0, 100, 'jump-clock', 'begin', '']); \
                lane.add(['m', 0, 200, 'jump-clock', 'failed', 'no clock']); \
                return lane.spans.map((it) => it.to)";
    assert_eq!(run_on_model(body).await, json!([200]));
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
