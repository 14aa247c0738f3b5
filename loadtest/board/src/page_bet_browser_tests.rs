//! Bets in a browser: what they are about, how they are decided, and what the page names then.

use super::lane_tests::begun;
use super::*;
use crate::challenge::Challenge;

#[tokio::test(flavor = "multi_thread")]
async fn a_bet_is_decided_at_the_verdict_with_what_was_seen() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.click("#lane-left .bets [data-t=bet_duplicates]").await;
    page.click("#lane-right .bets [data-t=bet_holds]").await;
    page.shows("document.querySelector('#lane-right .bets [aria-pressed=true]')").await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.push(&purchases());
    page.push(&[json!(["m", 1, 160_000, "freeze r1", "begin", ""])]);
    page.shows("document.getElementById('clock').textContent.endsWith('/ 0.160 s')").await;
    page.click("#lane-right .bets [data-t=bet_oversells]").await;
    page.shows("document.querySelectorAll('#lane-right .placed li').length === 2").await;
    page.end([verdict(2, 1, "local_user"), verdict(1, 0, "user")]).await;
    page.shows("document.querySelectorAll('#lane-right .placed b').length === 2").await;
    let left = page.text("#lane-left .placed").await;
    let why = "Requests 1 (r1) and 2 (r2) of user 1 held the lock at the same time. The lock keeps \
               two requests of one user apart only within a replica, and two users nowhere.";
    assert!(left.starts_with("✓ Your bet “duplicates” on the whole race was right."), "{left}");
    assert!(left.ends_with(why), "{left}");
    let right = page.text("#lane-right .placed").await;
    assert!(right.starts_with("✓ Your bet “holds” on the whole race was right."), "{right}");
    let after = "✗ Your bet “oversells” on what follows 0.160 s was wrong. \
                 Acknowledged orders beyond the stock: 0.";
    assert!(right.contains(after), "{right}");
    let said = "document.getElementById('live').textContent.includes('Left: Your bet “dup')";
    page.shows(said).await;
    page.click("#language").await;
    let placed = "document.querySelector('#lane-left .placed').textContent";
    page.shows(&format!("{placed}.includes('预测正确')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bet_that_an_order_of_an_unknown_time_may_decide_is_undecided() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.push(&purchases());
    page.push(&[json!(["m", 1, 160_000, "freeze r1", "begin", ""])]);
    page.shows("document.getElementById('clock').textContent.endsWith('/ 0.160 s')").await;
    page.click("#lane-left .bets [data-t=bet_holds]").await;
    page.click("#lane-right .bets [data-t=bet_duplicates]").await;
    page.shows("document.querySelector('#lane-right .bets [aria-pressed=true]')").await;
    page.push(&[json!(["i", 1, 170_000, 2, 1]), json!(["u", 1, 890_000, 2, null, null])]);
    page.end([verdict(2, 1, "local_user"), verdict(2, 1, "user")]).await;
    page.shows("document.querySelector('#lane-right .placed b')").await;
    // All orders of the left lane were acknowledged before the bet.
    let left = page.text("#lane-left .placed").await;
    assert!(left.starts_with("✓ Your bet “holds” on what follows 0.160 s was right."), "{left}");
    let right = page.text("#lane-right .placed").await;
    let undecided = "? Your bet “duplicates” on what follows 0.160 s is undecided.";
    assert!(right.starts_with(undecided), "{right}");
    let unsure = "The database has 2 orders; the times of 1 of them are known.";
    assert!(right.contains(unsure), "{right}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bet_of_a_refused_start_is_on_no_race() {
    let mut page = OpenPage::open("").await;
    let first = page.begin().await;
    page.push(&[json!(["s", 2, 0, "failed", "planned"])]);
    drop(first.turn);
    page.shows("!document.getElementById('start').disabled").await;
    let bet = "document.querySelector('[data-lane=left] .bet').value = 'holds'; \
               document.querySelector('[name=users]').value = '5000'";
    page.browser.run(bet).await;
    page.click("#start").await;
    page.shows("document.getElementById('problem').textContent.startsWith('Users must')").await;
    // Another page starts a race.
    page.board.log.begin(RaceSetup { seed: 7, ..RaceSetup::default() }.to_json());
    page.push(&[json!(["s", 2, 0, "preparing", ""])]);
    page.shows("location.hash.startsWith('#seed=7&')").await;
    page.browser.run(NEXT_PICTURE).await;
    assert_eq!(page.text("#lane-left .placed").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bet_of_the_form_is_on_the_race_that_it_starts() {
    let mut page = OpenPage::open("").await;
    let first = page.begin().await;
    page.push(&[json!(["s", 2, 0, "failed", "planned"])]);
    drop(first.turn);
    page.shows("!document.getElementById('start').disabled").await;
    page.browser.run("document.querySelector('[data-lane=right] .bet').value = 'holds'").await;
    page.click("#start").await;
    let _race = page.begin().await;
    page.shows("document.querySelector('#lane-right .bets [data-t=bet_holds][aria-pressed=true]')")
        .await;
    assert_eq!(page.text("#lane-left .placed").await, "");
}

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
