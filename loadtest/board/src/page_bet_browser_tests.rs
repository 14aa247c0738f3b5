//! What the page says of a bet in a browser: which requests and faults it names.

use super::lane_tests::begun;
use super::*;
use crate::challenge::Challenge;

#[tokio::test(flavor = "multi_thread")]
async fn an_oversell_under_one_lock_names_the_request_whose_validity_time_ended() {
    let lanes = [Challenge::of(5).expect("a challenge").given; 2];
    let page = begun(&RaceSetup { lanes, stock: 1, ..RaceSetup::default() }).await;
    page.click("#lane-left .bets [data-t=bet_holds]").await;
    page.shows("document.querySelector('#lane-left .bets [aria-pressed=true]')").await;
    page.push(&[
        json!(["i", 0, 100_000, 1, 1]),
        json!(["i", 0, 110_000, 2, 2]),
        json!(["o", 0, 500_000, 1, "r1", "11", 150_000, 490_000, 1, 5000]),
        json!(["o", 0, 600_000, 2, "r2", "12", 520_000, 590_000, 0, 5000]),
    ]);
    let mut oversold = verdict(2, 0, "voucher");
    oversold["oversold"] = json!(1);
    page.end([oversold, verdict(0, 0, "voucher")]).await;
    page.shows("document.querySelector('#lane-left .placed b')").await;
    let expected = "✗ Your bet “holds” on the whole race was wrong. Oversold: 1. Users who bought \
                    twice: 0. The validity time of the lock of request 1 (r1) ended before its \
                    release.";
    assert_eq!(page.text("#lane-left .placed").await, expected);
    page.click("#language").await;
    let ends = "document.querySelector('#lane-left .placed').textContent\
                .endsWith('请求 1（r1）的锁在释放之前有效时间已结束。')";
    page.shows(ends).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violation_that_no_report_explains_is_said_to_be_unexplained() {
    let page = begun(&RaceSetup::default()).await;
    page.click("#lane-left .bets [data-t=bet_oversells]").await;
    page.shows("document.querySelector('#lane-left .bets [aria-pressed=true]')").await;
    let mut oversold = verdict(301, 0, "voucher");
    oversold["oversold"] = json!(1);
    page.end([oversold, verdict(0, 0, "voucher")]).await;
    page.shows("document.querySelector('#lane-left .placed b')").await;
    let placed = page.text("#lane-left .placed").await;
    assert!(placed.ends_with("What the replicas report does not show how it came."), "{placed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_was_not_seen_to_happen_is_none_that_the_lock_withstood() {
    let page = begun(&RaceSetup::default()).await;
    for lane in ["left", "right"] {
        page.click(&format!("#lane-{lane} .bets [data-t=bet_holds]")).await;
    }
    page.shows("document.querySelector('#lane-right .bets [aria-pressed=true]')").await;
    let mark = |lane: u64, phase: &str| json!(["m", lane, 200_000, "lose-commit r1", phase, ""]);
    page.push(&[mark(0, "begin"), mark(0, "failed"), mark(1, "begin"), mark(1, "witness")]);
    page.end([verdict(0, 0, "user"), verdict(0, 0, "user")]).await;
    page.shows("document.querySelectorAll('.placed b').length === 2").await;
    let failed = page.text("#lane-left .placed").await;
    assert!(!failed.contains("Faults in that time"), "{failed}");
    let seen = page.text("#lane-right .placed").await;
    assert!(seen.contains("Faults in that time: 1. They broke neither promise."), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_takes_no_bet_after_its_verdict() {
    let page = begun(&RaceSetup::default()).await;
    for lane in ["left", "right"] {
        page.click(&format!("#lane-{lane} .bets [data-t=bet_duplicates]")).await;
    }
    page.push(&purchases());
    page.push(&[json!(["v", 0, 160_000, verdict(2, 1, "local_user")])]);
    // The other lane goes on.
    page.push(&[json!(["i", 1, 800_000, 2, 2])]);
    page.shows("document.querySelector('#lane-left .placed b')").await;
    let before = page.text("#lane-left .placed").await;
    let press = "document.querySelectorAll('.bets [data-t=bet_oversells]')\
                 .forEach((it) => it.click())";
    page.browser.run(press).await;
    page.shows("document.querySelector('#lane-right [data-t=bet_oversells][aria-pressed=true]')")
        .await;
    page.browser.run(NEXT_PICTURE).await;
    assert_eq!(page.text("#lane-left .placed").await, before);
}
