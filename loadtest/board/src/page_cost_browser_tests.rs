//! The cost of orders at the moment that is shown, in a browser.

use super::lane_tests::begun;
use super::lease_tests::scrub;
use super::picture_tests::run_on_model;
use super::*;

/// Moves the window over a race that grows, and finds where its answers are not those between its
/// ends.
const WRONG_WINDOWS: &str = "let seed = 7; \
    const random = (most) => { seed = (seed * 48271) % 2147483647; return seed % most; }; \
    const wrong = []; let head = 0; \
    for (let n = 1; n <= 400; n += 1) { \
      const start = random(8e6); const replica = random(5) ? 'r1' : null; \
      lane.add(['i', 0, start, n, n]); \
      lane.add(['f', 0, start + random(9e5), n, replica, null]); \
      head = n % 9 ? Math.max(0, head + random(8e5) - 4e5) : random(9e6); \
      lane.answers.moveTo(head); \
      const isInside = (it) => it.replica && it.end > head - 2e6 && it.end <= head; \
      const latencies = lane.requests.filter(isInside).map((it) => it.end - it.start); \
      latencies.sort((a, b) => a - b); \
      if (latencies.join() !== lane.answers.latencies.join()) wrong.push([n, head]); \
    } return wrong";

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_moves_has_the_answers_between_its_ends_and_no_others() {
    assert_eq!(run_on_model(WRONG_WINDOWS).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latency_that_99_of_100_answers_keep_is_that_of_the_99th() {
    let body = "for (let n = 1; n <= 100; n += 1) { \
                  lane.add(['i', 0, 1000 * n, n, n]); \
                  lane.add(['f', 0, 2000 * n, n, 'r1', null]); } \
                lane.answers.moveTo(200000); return lane.answers.p99";
    assert_eq!(run_on_model(body).await, json!(99_000));
}

/// What the left lane shows of the last seconds.
const RECENT: &str = "['rate', 'latency'].map((it) => \
    document.querySelector(`#lane-left .${it} dd`).textContent).join(', ')";

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_of_the_last_2_s_belongs_to_the_moment_that_is_shown() {
    let page = begun(&RaceSetup::default()).await;
    page.shows(&format!("{RECENT} === '0.0, –'")).await;
    // An order each 100 ms up to 4 s, of which one took long.
    for n in 1..=40_u64 {
        let took = if n == 30 { 300_000 } else { 50_000 };
        let end = n * 100_000;
        page.push(&[
            json!(["i", 0, end - took, n, n]),
            json!(["o", 0, end, n, "r1", n.to_string(), end - 40_000, end - 10_000, 0, 5000]),
        ]);
    }
    // What was never answered has no latency.
    page.push(&[json!(["i", 0, 100_000, 41, 41]), json!(["u", 0, 3_900_000, 41, null, null])]);
    page.push(&[json!(["i", 0, 100_000, 42, 42]), json!(["u", 0, 6_500_000, 42, null, null])]);
    page.shows("Number(document.getElementById('scrubber').max) === 6500").await;
    for (ms, told) in [
        (500, "10, 50 ms"),
        (4000, "10, 300 ms"),
        (2600, "10, 50 ms"),
        (4000, "10, 300 ms"),
        (5000, "5.0, 50 ms"),
        (6500, "0.0, –"),
        (4000, "10, 300 ms"),
    ] {
        scrub(&page.browser, ms).await;
        let shown = page.browser.run(&format!("return {RECENT}")).await;
        assert_eq!(shown, told, "at {ms} ms");
    }
    // An answer that is older than the moment shown, of a request that bought nothing.
    let late = json!(["f", 0, 3_500_000, 43, "r2", "sold_out", 2_700_000, 3_400_000, 0, 5000]);
    page.push(&[json!(["i", 0, 2_500_000, 43, 43]), late]);
    page.shows(&format!("{RECENT} === '10, 1000 ms'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_of_the_moment_is_named_in_both_languages_and_announced_by_no_region() {
    let page = begun(&RaceSetup::default()).await;
    let names = "return ['rate', 'latency'].map((it) => \
                 document.querySelector(`#lane-left .${it} dt`).textContent)";
    let english = json!(["Orders/s, last 2 s", "p99 latency, last 2 s"]);
    assert_eq!(page.browser.run(names).await, english);
    page.click("#language").await;
    let chinese = json!(["最近 2 s 每秒订单数", "最近 2 s 的 p99 延迟"]);
    assert_eq!(page.browser.run(names).await, chinese);
    let regions = "return [...document.querySelectorAll('.rate, .latency')].filter((it) => \
                   it.closest('[aria-live], [role=status], [role=alert], [role=log]')).length";
    assert_eq!(page.browser.run(regions).await, 0, "it changes in each picture");
}
