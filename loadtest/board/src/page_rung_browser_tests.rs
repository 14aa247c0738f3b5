//! The race of a rung in a browser: a lock may break without an oversell or a duplicate.

use super::*;

/// A race of that rung, which another page has started.
async fn begun_rung(slug: &str) -> OpenPage {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    let setup = RaceSetup::parse(&json!({"rung": slug})).expect("a rung");
    page.board.logs.begin(setup.to_json());
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows("!document.getElementById('rung').hidden").await;
    page
}

/// A verdict without an oversell and a duplicate, with what the rung says of the lane.
fn rung_verdict(outcome: &str) -> Value {
    let mut told = verdict(1, 0, "guarded");
    told["rung"] = json!({"outcome": outcome, "evidence": []});
    told
}

/// Places these bets on these lanes, in this order.
async fn bet(page: &OpenPage, bets: &[(&str, &str)]) {
    for (lane, outcome) in bets {
        page.click(&format!("#lane-{lane} .bets [data-t=bet_{outcome}]")).await;
        let pressed = format!(
            "document.querySelector('#lane-{lane} [data-t=bet_{outcome}][aria-pressed=true]')"
        );
        page.shows(&pressed).await;
    }
}

/// The rows of the bets of a lane.
async fn placed(page: &OpenPage, lane: &str) -> Vec<String> {
    let body = format!(
        "return [...document.querySelectorAll('#lane-{lane} .placed li')]\
         .map((it) => it.textContent)"
    );
    serde_json::from_value(page.browser.run(&body).await).expect("texts")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bet_on_a_rung_is_decided_by_its_outcome_and_the_button_leads_to_its_fault() {
    let page = begun_rung("setnx").await;
    assert_eq!(page.text("#start").await, "Start: Kill at work");
    page.shows("document.getElementById('jump').disabled").await;
    bet(&page, &[("left", "holds"), ("right", "holds")]).await;
    let mark = |t: u64, phase: &str| json!(["m", 0, t, "kill-at-work r1", phase, ""]);
    page.push(&purchases()[2..4]);
    page.push(&[mark(400_000, "begin"), mark(600_000, "witness")]);
    page.push(&[json!(["i", 0, 700_000, 9, 9]), json!(["u", 0, 890_000, 9, null, null])]);
    let button = "document.getElementById('jump')";
    page.shows(&format!("!{button}.disabled && {button}.textContent === 'The fault'")).await;
    // After the fault it is a bet of its own, and on the whole race too.
    bet(&page, &[("left", "breaks"), ("left", "oversells")]).await;
    page.end([rung_verdict("broke"), rung_verdict("withstood")]).await;
    page.click("#jump").await;
    page.shows("document.getElementById('clock').textContent.startsWith('0.400 s')").await;
    page.click("#latest").await;
    page.shows("document.querySelector('#lane-left .placed b')").await;
    let left = placed(&page, "left").await;
    let expected = [
        "✗ Your bet “holds” on the whole race was wrong. It broke, as the rung says.",
        "✗ Your bet “oversells” on the whole race was wrong. Oversold: 0. Users who",
    ];
    assert_eq!(left.len(), expected.len(), "{left:?}");
    for (row, begin) in left.iter().zip(expected) {
        assert!(row.starts_with(begin) && !row.contains("neither promise"), "{row}");
    }
    let right = placed(&page, "right").await;
    let held = "✓ Your bet “holds” on the whole race was right. It withstood, as the rung says.";
    assert!(right.len() == 1 && right[0].starts_with(held), "{right:?}");
    page.click("#language").await;
    assert_eq!(page.text("#start").await, "开始：在持锁工作时杀死");
    page.shows(&format!("{button}.textContent === '故障时刻'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rung_without_a_moment_of_its_fault_leads_to_the_refusal_that_shows_its_breach() {
    let page = begun_rung("mysql-row").await;
    assert_eq!(page.text("#start").await, "Start: More buyers than connections");
    bet(&page, &[("left", "breaks"), ("right", "breaks")]).await;
    let refused = |n: u64, t: u64, code: &str| {
        page.push(&[json!(["i", 0, 100_000, n, n]), json!(["f", 0, t, n, "r1", code])]);
    };
    refused(1, 300_000, "overloaded");
    refused(2, 200_000, "overloaded");
    refused(3, 150_000, "already_ordered");
    refused(4, 890_000, "sold_out");
    page.end([rung_verdict("broke"), rung_verdict("missed")]).await;
    page.shows("document.getElementById('jump').textContent === 'First refusal'").await;
    page.click("#jump").await;
    page.shows("document.getElementById('clock').textContent.startsWith('0.200 s')").await;
    page.click("#latest").await;
    page.shows("document.querySelectorAll('.placed b').length === 2").await;
    let left = "✓ Your bet “breaks” on the whole race was right. It broke, as the rung says.";
    assert!(page.text("#lane-left .placed").await.starts_with(left));
    let right = "? Your bet “breaks” on the whole race is undecided. Not shown: the fault";
    assert!(page.text("#lane-right .placed").await.starts_with(right));
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_the_ladder_no_bet_and_no_button_is_that_of_a_rung() {
    let page = begun_rung("setnx").await;
    let offers = "[...document.querySelectorAll('.bets [data-t=bet_breaks], .bet [value=breaks]')]\
                  .filter((it) => !it.hidden).length";
    page.shows(&format!("{offers} === 4")).await;
    page.browser.run("document.querySelector('[data-lane=left] .bet').value = 'breaks'").await;
    page.push(&[json!(["s", 2, 0, "failed", "planned"])]);
    page.board.logs.begin(RaceSetup::default().to_json());
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows(&format!("{offers} === 0")).await;
    page.shows("document.querySelector('[data-lane=left] .bet').value === ''").await;
    assert_eq!(page.text("#start").await, "Start the race");
    page.push(&[json!(["m", 0, 400_000, "kill r1", "begin", ""])]);
    page.shows("document.getElementById('clock').textContent.endsWith('/ 0.400 s')").await;
    page.shows("document.getElementById('jump').disabled").await;
}
