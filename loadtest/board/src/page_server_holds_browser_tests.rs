//! Holds that no answer reports, as the lease on the server shows them, in a browser.

use super::lane_tests::begun;
use super::lease_tests::scrub;
use super::picture_tests::run_on_model;
use super::*;

/// User 7 sends three requests, and has the lock from 150 ms to 600 ms, as its server says.
const THREE_REQUESTS: &str = "[1, 2, 3].forEach((n) => lane.add(['i', 0, 100000, n, 7])); \
    for (let at = 150000; at <= 600000; at += 50000) lane.add(['l', 0, at, 900, 7]); \
    const holds = () => [...lane.serverHolds.holds].map(([{ n }, { from, until }]) => \
      [n, from, until]);";
/// Answers to two of the requests: one gave up, one got the lock after the lease had ended.
const TWO_ANSWERS: &str = "lane.add(['f', 0, 1100000, 3, 'r3', 'lock_busy']); \
    lane.add(['o', 0, 1300000, 2, 'r2', '11', 1200000, 1290000, 0, 1090000]);";

async fn holds_after(events: &str) -> Value {
    run_on_model(&format!("{THREE_REQUESTS} {events} return holds()")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_holds_the_lock_once_no_other_request_of_its_user_can() {
    assert_eq!(holds_after("").await, json!([]), "each of the three may hold it");
    let frozen = holds_after(TWO_ANSWERS).await;
    assert_eq!(frozen, json!([[1, 150_000, 600_000]]));
    // The connection ends with the process; the lock lives on.
    let killed = format!("lane.add(['u', 0, 300000, 1, null, null]); {TWO_ANSWERS}");
    assert_eq!(holds_after(&killed).await, frozen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_an_answer_reports_is_none_that_only_the_server_shows() {
    let reported = "lane.add(['f', 0, 1900000, 1, 'r1', 'lock_lost', 140000, 1800000, 1, 20000]);";
    assert_eq!(holds_after(&format!("{TWO_ANSWERS} {reported}")).await, json!([]));
    // A reading is answered a little later than the hold ended.
    let late = "lane.add(['f', 0, 900000, 2, 'r2', 'sold_out', 120000, 580000, 0, 20000]); \
                lane.add(['f', 0, 950000, 3, 'r3', 'lock_busy']);";
    assert_eq!(holds_after(late).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_of_a_lock_that_all_share_names_no_request() {
    let body = "lane.add(['i', 0, 100000, 1, 7]); \
                lane.add(['l', 0, 150000, 900]); lane.add(['l', 0, 200000, 850]); \
                return lane.serverHolds.holds.size";
    assert_eq!(run_on_model(body).await, json!(0));
}

/// From when until when the row without answers has the colour of a lease, in milliseconds: the
/// shown time is at 86 % of a window of 600 ms.
const HELD_TIMES: &str = "const it = document.querySelector('#lane-left canvas'); \
    const { data } = it.getContext('2d').getImageData(0, it.height - 40, it.width, 40); \
    const shown = parseFloat(document.getElementById('clock').textContent) * 1000; \
    const found = []; \
    for (let at = 0; at < data.length; at += 4) { \
      if (data[at] === 10 && data[at + 1] === 122 && data[at + 2] === 128) { \
        found.push(Math.round(shown + (((at / 4) % it.width) / it.width - 0.86) * 600)); } } \
    return found.length ? [Math.min(...found), Math.max(...found)] : []";

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_an_answer_has_a_bar_from_the_first_reading_to_the_last() {
    let page = begun(&RaceSetup::default()).await;
    page.push(&[json!(["i", 0, 100_000, 1, 7])]);
    for at in 3..=8_u64 {
        page.push(&[json!(["l", 0, at * 50_000, 1000 - at * 50, 7])]);
    }
    page.push(&[json!(["l", 0, 450_000, "free", 7])]);
    page.push(&[json!(["i", 0, 1_100_000, 2, 8]), json!(["u", 0, 1_200_000, 2, null, null])]);
    page.shows("Number(document.getElementById('scrubber').max) === 1200").await;
    let moments: [(u64, &[f64]); 5] = [
        (140, &[]),
        (300, &[150.0, 300.0]),
        (400, &[150.0, 400.0]),
        (500, &[150.0, 400.0]),
        (1200, &[]),
    ];
    for (shown, held) in moments {
        scrub(&page.browser, shown).await;
        let found = page.browser.run(HELD_TIMES).await;
        let found: Vec<f64> = serde_json::from_value(found).expect("times");
        let is_near = |(ms, expected): (&f64, &f64)| (ms - expected).abs() < 6.0;
        let is_drawn = found.len() == held.len() && found.iter().zip(held).all(is_near);
        assert!(is_drawn, "at {shown} ms: {found:?}, not {held:?}");
    }
    let key = "document.querySelector('#help .key.hold').nextElementSibling.textContent";
    page.shows(&format!("{key}.startsWith('holds it, by the lease on the server')")).await;
    page.click("#language").await;
    page.shows(&format!("{key}.startsWith('持有锁，由服务器上的租约得知')")).await;
}
