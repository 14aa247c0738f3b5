//! Faults of links, the fence, challenges and commands in a browser.

use loadtest_lab::faults::FaultAction;

use super::*;
use crate::challenge::Challenge;

/// Chooses an option as a person does.
fn choose(selector: &str, value: &str) -> String {
    format!(
        "const it = document.querySelector('{selector}'); it.value = '{value}'; \
         it.dispatchEvent(new Event('change', {{ bubbles: true }}))"
    )
}

/// A race with that setup, which the test begins as the board would.
pub(super) async fn begun(setup: &RaceSetup) -> OpenPage {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.board.logs.begin(setup.to_json());
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows("!document.querySelector('#lane-left .faults button').disabled").await;
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_of_a_link_names_the_chosen_link_and_breaks_it() {
    let mut page = begun(&RaceSetup::default()).await;
    let zookeeper = "document.querySelector('#lane-left .links [value=zookeeper]').hidden";
    page.shows(zookeeper).await;
    page.browser.run(&choose("#lane-left .links", "database")).await;
    page.browser.run(&choose("#lane-left .replicas", "2")).await;
    let button = "#lane-left .faults [data-t=fault_half-open-database]";
    assert_eq!(page.text(button).await, "Half-open database");
    page.click(button).await;
    let fault = tokio::time::timeout(DEADLINE, page.board.requests.faults[0].recv()).await;
    let FaultRequest { action, replica, reply } = fault.expect("in time").expect("a fault");
    assert_eq!((Some(action), replica), (FaultAction::named("half-open-database"), 1));
    reply.send(Ok("seen".to_owned())).expect("the page waits");
    page.shows("document.querySelector('#lane-left .answer').textContent === 'seen'").await;
    page.click("#language").await;
    assert_eq!(page.text(button).await, "半开数据库");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_older_than_the_time_shown_counts_at_once_and_at_its_own_time() {
    let page = begun(&RaceSetup::default()).await;
    let order = |t: u64, n: u64| {
        page.push(&[
            json!(["i", 0, t - 50_000, n, n]),
            json!(["o", 0, t, n, "r1", n.to_string(), t - 40_000, t - 10_000, 0, 5000]),
        ]);
    };
    let sold = |count: u64| {
        format!("document.querySelector('#lane-left .sold dd').textContent === '{count} / 300'")
    };
    order(2_000_000, 1);
    page.browser.run("document.getElementById('latest').click()").await;
    page.shows(&sold(1)).await;
    order(1_000_000, 2);
    page.shows(&sold(2)).await;
    assert_eq!(page.text("#clock").await, "2.000 s / 2.000 s");
    let earlier = "const it = document.getElementById('scrubber'); it.value = '1500'; \
                   it.dispatchEvent(new Event('input'))";
    page.browser.run(earlier).await;
    page.shows(&sold(1)).await;
}

/// A race with tokens in the left lane, under one lock for the voucher.
fn fenced_setup() -> RaceSetup {
    let lanes = Challenge::of(5).expect("a challenge").solution;
    RaceSetup { lanes: [lanes; 2], ..RaceSetup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_shows_the_last_token_accepted_and_which_it_refused() {
    let page = begun(&fenced_setup()).await;
    let none = "document.querySelector('#lane-left .fence .accepted').textContent === \
                'no token was shown yet.'";
    page.shows(none).await;
    page.push(&[
        json!(["i", 0, 100_000, 1, 4]),
        json!(["i", 0, 110_000, 2, 5]),
        json!(["o", 0, 190_000, 2, "r2", "12", 150_000, 180_000, 0, 5000, 8, 8]),
        json!(["f", 0, 200_000, 1, "r1", "lock_lost", 110_000, 195_000, 1, 5000, 7, 8]),
        json!(["i", 0, 300_000, 3, 6]),
        json!(["u", 0, 900_000, 3, null, null]),
    ]);
    let refused = "7 refused after 8: request 1 of user 4, by r1";
    let stale = "document.querySelector('#lane-left .fence .stale').textContent";
    page.shows(&format!("{stale} === '{refused}'")).await;
    let accepted = page.text("#lane-left .fence .accepted").await;
    assert_eq!(accepted, "token 8 is the last one accepted, for the voucher.");
    assert!(page.text("#lane-left .log").await.contains(refused));
    page.click("#language").await;
    page.shows(&format!("{stale}.startsWith('令牌 7 在 8 之后被拒绝')")).await;
    let hidden = begun(&RaceSetup::default()).await;
    hidden.shows("document.querySelector('#lane-left .fence').hidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_has_an_address_and_only_what_it_allows_can_be_changed() {
    let mut page = OpenPage::open("#challenge=3").await;
    let RaceRequest { setup, turn } = page.begin().await;
    let challenge = setup.challenge.expect("a challenge");
    assert_eq!((challenge.number, setup.lanes), (3, [challenge.given; 2]));
    page.shows("document.querySelector('#challenge h2').textContent === 'Challenge 3'").await;
    page.push(&[json!(["v", 1, 900_000, verdict(101, 0, "voucher")])]);
    page.push(&[json!(["c", 2, 900_000, 3, "broken"]), json!(["s", 2, 900_000, "done", ""])]);
    let outcome = "document.querySelector('#challenge .outcome').textContent";
    page.shows(&format!("{outcome}.startsWith('Not solved: a rule')")).await;
    drop(turn);
    page.shows("!document.getElementById('start').disabled").await;
    let open = "[...document.querySelectorAll('#form [name]:enabled')].map((it) => it.name)";
    assert_eq!(page.browser.run(&format!("return {open}")).await, json!(["lock"]));
    page.browser.run(&choose("[data-lane=right] [name=lock]", "redlock")).await;
    page.click("#start").await;
    let RaceRequest { setup, turn } = page.begin().await;
    assert_eq!(setup.lanes, [challenge.given, challenge.solution]);
    page.shows("location.hash === '#challenge=3&right=redlock,voucher,off,2'").await;
    page.push(&[json!(["v", 1, 900_000, verdict(100, 0, "voucher")])]);
    page.push(&[json!(["c", 2, 900_000, 3, "solved"]), json!(["s", 2, 900_000, "done", ""])]);
    page.shows(&format!("{outcome}.startsWith('Solved:')")).await;
    page.click("#language").await;
    page.shows(&format!("{outcome}.startsWith('完成：')")).await;
    drop(turn);
    page.click("#challenge a").await;
    let RaceRequest { setup, .. } = page.begin().await;
    assert_eq!(setup, RaceSetup::default());
    page.shows("document.getElementById('challenge').hidden").await;
    page.shows("!document.querySelector('[data-lane=left] [name=lock]').disabled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rung_has_an_address_and_the_page_shows_its_command_and_what_it_says_of_each_lane() {
    let mut page = OpenPage::open("#rung=setnx").await;
    let RaceRequest { setup, turn } = page.begin().await;
    assert_eq!((setup.rung, setup.seed), (Some("setnx"), 1));
    page.shows("document.querySelector('#rung h2').textContent === 'Rung 3: setnx'").await;
    assert_eq!(page.text("#rung code").await, "loadtest learn setnx");
    let fault = "Fault of both lanes: a replica is killed while it holds the lock";
    assert_eq!(page.text("#rung .fault").await, fault);
    let cell = page.text("#lane-left .cell").await;
    assert!(cell.ends_with("injected bug setnx-without-expire"), "{cell}");
    let said = |outcome: &str| {
        let mut verdict = verdict(9, 0, "guarded");
        verdict["rung"] = json!({"outcome": outcome, "evidence": ["fault kill-at-work: seen"]});
        verdict
    };
    page.end([said("broke"), said("wrong")]).await;
    let outcome = "document.querySelector('#lane-left .rung-outcome').textContent";
    page.shows(&format!("{outcome} === 'It broke, as the rung says.'")).await;
    assert_eq!(page.text("#lane-left .evidence").await, "fault kill-at-work: seen");
    let wrong = page.text("#lane-right .rung-outcome.bad").await;
    assert!(wrong.starts_with("Not as the rung says."), "{wrong}");
    page.click("#language").await;
    page.shows(&format!("{outcome}.startsWith('它失效了')")).await;
    drop(turn);
    page.shows("!document.getElementById('start').disabled").await;
    let open = "[...document.querySelectorAll('#form [name]:enabled')].map((it) => it.name)";
    assert_eq!(page.browser.run(&format!("return {open}")).await, json!(["seed"]));
    page.click("#rung .next").await;
    let RaceRequest { setup, .. } = page.begin().await;
    assert_eq!(setup.rung, Some("setnx-expire"));
    page.shows("location.hash === '#rung=setnx-expire&seed=1'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_with_an_unknown_rung_is_refused_in_the_words_of_the_reader() {
    let page = OpenPage::open("#rung=spinlock").await;
    let problem = "document.getElementById('problem').textContent";
    page.shows(&format!("{problem}.startsWith('Rung must be one of no-lock, jvm-lock,')")).await;
    page.click("#language").await;
    page.shows(&format!("{problem}.startsWith('阶梯必须是其中之一：no-lock')")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_a_seed_leaves_nothing_of_the_rung_that_runs_in_the_form() {
    let mut page = OpenPage::open("#rung=setnx").await;
    let RaceRequest { turn, .. } = page.begin().await;
    page.shows("document.getElementById('start').disabled").await;
    page.browser.run("location.hash = '#seed=6'").await;
    page.shows("document.querySelector('[name=seed]').value === '6'").await;
    page.shows("document.getElementById('rung').hidden").await;
    page.push(&[json!(["s", 2, 0, "failed", "planned"])]);
    drop(turn);
    page.shows("!document.getElementById('start').disabled").await;
    page.click("#start").await;
    let RaceRequest { setup, .. } = page.begin().await;
    assert_eq!(setup, RaceSetup { seed: 6, ..RaceSetup::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_challenge_is_not_shown_under_another_one() {
    let mut page = OpenPage::open("#challenge=3").await;
    let _race = page.begin().await;
    page.browser.run("location.hash = '#challenge=5'").await;
    page.shows("document.querySelector('#challenge h2').textContent === 'Challenge 5'").await;
    page.push(&[json!(["c", 2, 900_000, 3, "solved"])]);
    page.end([verdict(101, 0, "voucher"), verdict(100, 0, "voucher")]).await;
    page.browser.run(NEXT_PICTURE).await;
    assert_eq!(page.text("#challenge .outcome").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_challenge_disables_the_buttons_of_faults_and_says_why() {
    let mut page = OpenPage::open("#challenge=4").await;
    let _race = page.begin().await;
    page.push(&[json!(["s", 2, 0, "running", ""])]);
    page.shows("document.getElementById('state').textContent === 'The race is running.'").await;
    let enabled = page.browser.find("#lanes .faults button:enabled").await;
    assert!(enabled.is_empty(), "{} buttons can be pressed", enabled.len());
    let why = "A challenge or a rung has its own fault; buttons add none.";
    assert_eq!(page.text("#lane-left .of-challenge:not([hidden])").await, why);
    let other = begun(&RaceSetup::default()).await;
    other.shows("document.querySelector('#lane-right .of-challenge').hidden").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_open_panel_of_commands_shows_none_of_the_last_race() {
    let page = begun(&RaceSetup::default()).await;
    page.board.logs.commands[0].push_text("the first");
    page.browser.run("document.querySelector('#lane-left .commands').open = true").await;
    let shown = "document.querySelector('#lane-left .commands ol').textContent";
    page.shows(&format!("{shown}.includes('the first')")).await;
    page.board.logs.begin(RaceSetup { seed: 7, ..RaceSetup::default() }.to_json());
    page.shows("location.hash.startsWith('#seed=7&')").await;
    page.board.logs.commands[0].push_text("the second");
    page.shows(&format!("{shown}.includes('the second')")).await;
    let rows = page.browser.find("#lane-left .commands li").await;
    assert_eq!(rows.len(), 1, "{}", page.text("#lane-left .commands ol").await);
    let count = page.text("#lane-left .commands .count").await;
    assert_eq!(count, "Shown: 1. Passed besides: 0.");
}

/// Holds back the next answer about commands until it is released.
pub(super) const HOLD_ANSWER: &str = "const ask = window.fetch; \
    window.fetch = async (...sent) => { \
      const answer = await ask(...sent); \
      window.fetch = ask; \
      await new Promise((go) => { window.release = go; }); \
      return answer; };";

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_about_the_last_race_adds_no_command() {
    let page = begun(&RaceSetup::default()).await;
    page.board.logs.commands[0].push_text("the first");
    page.browser.run(HOLD_ANSWER).await;
    page.browser.run("document.querySelector('#lane-left .commands').open = true").await;
    page.shows("window.release").await;
    page.board.logs.begin(RaceSetup { seed: 7, ..RaceSetup::default() }.to_json());
    page.shows("location.hash.startsWith('#seed=7&')").await;
    page.board.logs.commands[0].push_text("the second");
    page.browser.run("window.release()").await;
    let shown = "document.querySelector('#lane-left .commands ol').textContent";
    page.shows(&format!("{shown}.includes('the second')")).await;
    assert!(!page.text("#lane-left .commands ol").await.contains("the first"));
}
