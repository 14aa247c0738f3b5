//! The panel of locks in a browser.

use super::browser::Screen;
use super::lane_tests::HOLD_ANSWER;
use super::*;
use crate::lock_rows::ReplicaProcesses;

fn list(state: &str, failures: &Value) -> String {
    let tag = json!({"label": "seckill", "host": "db3", "process": 4711, "asked_at_ms": 1});
    let holder = json!({
        "id": "<b>x</b>", "owner": "<b>x</b>", "tag": tag, "holds": 2, "shares": false,
        "lease": {"kind": "ends", "left_ms": 940}, "token": "7", "place": null, "servers": 1,
    });
    let mut other = holder.clone();
    (other["tag"], other["token"]) = (Value::Null, Value::Null);
    other["lease"] = json!({"kind": "session"});
    let waiters = json!({
        "known": true, "ordered": true, "complete": false,
        "ids": ["5e1d:2@db3/4712/seckill/7", "b"],
        "tags": [{"label": "seckill", "host": "db3", "process": 4712, "asked_at_ms": 7}, null],
    });
    let lock = |name: &str, holder: Value, waiters: Value| {
        json!({
            "name": name, "kinds": ["fair"], "state": state, "reason": null,
            "holders": [holder], "waiters": waiters, "renewal": "yes",
        })
    };
    let locks = [lock("lock:order:7", holder, waiters), lock("n", other, json!({"known": false}))];
    json!({"complete": true, "locks": locks, "unlisted": [], "failures": failures}).to_string()
}

/// How often the page has asked for locks.
const QUESTIONS: &str =
    "performance.getEntriesByType('resource').filter((it) => it.name.includes('/locks?')).length";

#[tokio::test(flavor = "multi_thread")]
async fn the_open_panel_shows_each_lock_with_its_holder_its_lease_and_its_waiters() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    let processes = ReplicaProcesses(vec![4711, 4712]);
    page.board.logs.locks[0].show(&list("held", &json!([])), &processes, 0);
    page.browser.run(NEXT_PICTURE).await;
    assert_eq!(page.browser.run(&format!("return {QUESTIONS}")).await, 0, "it is closed");
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    page.shows("document.querySelectorAll('#lane-left .locks tbody tr').length === 2").await;
    let row = page.text("#lane-left .locks tbody tr").await;
    for words in [
        "lock:order:7",
        "r1 · process 4711 on db3 · asked ",
        "entered 2 times",
        "0.9 s",
        "7",
        "1. r2 · 5e1d:2@db3/4…",
        "2. b",
        "and more",
    ] {
        assert!(row.contains(words), "{words}: {row}");
    }
    let other = page.text("#lane-left .locks tbody tr:last-child").await;
    let said = ["<b>x</b>", "with its session", "none stored", "not known to the server"];
    assert!(said.iter().all(|words| other.contains(words)), "{other}");
    page.click("#language").await;
    let rows = "document.querySelector('#lane-left .locks tbody').textContent";
    page.shows(&format!("{rows}.includes('随会话结束')")).await;
    page.click("#language").await;
    let failures = json!([{"kinds": ["fair"], "exit_code": 69, "reason": "Redis is silent"}]);
    page.board.logs.locks[0].show(&list("held", &failures), &processes, 0);
    let state = "document.querySelector('#lane-left .lock-state').textContent";
    page.shows(&format!(
        "{state} === 'The locks could not be read completely. The inspector tries again.'"
    ))
    .await;
    assert_eq!(page.text("#lane-left .lock-reason").await, "Redis is silent");
    assert_eq!(page.text("#lane-right .lock-state").await, "The inspector is connecting.");
    let logged = page.browser.logged().await;
    assert!(logged.is_empty(), "the page logged {logged:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_holder_has_its_lease_beside_it_and_those_that_are_not_shown_are_counted() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    let mut all: Value = serde_json::from_str(&list("held", &json!([]))).expect("JSON");
    let lock = &mut all["locks"][0];
    lock["holders"] = (0..7).map(|_| lock["holders"][0].clone()).collect();
    lock["holders"][1]["lease"] = json!({"kind": "ends", "left_ms": 2000});
    let lists = &page.board.logs.locks[0];
    lists.show(&all.to_string(), &ReplicaProcesses::default(), 0);
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    let rows = "[...document.querySelectorAll('#lane-left .locks tbody tr')]";
    page.shows(&format!("{rows}.length === 6")).await;
    let leases = format!("return {rows}.map((it) => it.querySelector('.lease').textContent)");
    let leases = page.browser.run(&leases).await;
    assert_eq!(leases, json!(["0.9 s", "2.0 s", "0.9 s", "0.9 s", "0.9 s", "with its session"]));
    let last = page.text("#lane-left .locks tbody tr:nth-child(5) .holder").await;
    assert!(last.ends_with("and 2 more"), "{last}");
    page.browser.look(Screen { width: 390, dark: false }).await;
    let wide = "const { scrollWidth, clientWidth } = \
                document.querySelector('#lane-left .locks .table'); \
                return [document.documentElement.scrollWidth, scrollWidth - clientWidth]";
    assert_eq!(page.browser.run(wide).await, json!([390, 0]), "nothing is cut off on a phone");
}

#[tokio::test(flavor = "multi_thread")]
async fn why_nothing_is_known_of_a_lock_is_said_in_the_language_of_the_page() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    let reason = "the server shows the holder of a row only while another waits";
    let failures = json!([{"kinds": ["mysql-row"], "exit_code": 69, "reason": reason}]);
    let mut all: Value = serde_json::from_str(&list("unknown", &failures)).expect("JSON");
    let lock = &mut all["locks"][0];
    (lock["holders"], lock["reason"]) = (json!([]), json!(reason));
    page.board.logs.locks[0].show(&all.to_string(), &ReplicaProcesses::default(), 0);
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    for said in [reason, "只有在别人等待时，服务器才显示行锁的持有者"] {
        for place in [".lock-reason", ".locks tbody tr:first-child .holder"] {
            let place = format!("document.querySelector('#lane-left {place}').textContent");
            page.shows(&format!("{place}.includes('{said}')")).await;
        }
        page.click("#language").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_about_the_last_race_shows_no_lock() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.board.logs.locks[0].show(&list("held", &json!([])), &ReplicaProcesses::default(), 0);
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    page.shows("document.querySelectorAll('#lane-left .locks tbody tr').length === 2").await;
    page.browser.run(HOLD_ANSWER).await;
    page.shows("window.release").await;
    page.board.logs.begin(RaceSetup { seed: 7, ..RaceSetup::default() }.to_json());
    page.shows("location.hash.startsWith('#seed=7&')").await;
    page.board.logs.locks[0].change();
    page.browser.run(COLLECT_LOCKS).await;
    page.browser.run("window.release()").await;
    let asked = page.browser.run(&format!("return {QUESTIONS}")).await;
    page.shows(&format!("{QUESTIONS} > {asked}")).await;
    assert_eq!(page.browser.run("return window.rows").await, 0);
}

/// Notes the most rows that the panel has.
const COLLECT_LOCKS: &str = "window.rows = 0; \
    const body = document.querySelector('#lane-left .locks tbody'); \
    new MutationObserver(() => { window.rows = Math.max(window.rows, body.children.length); }) \
    .observe(body, { childList: true })";

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_page_asks_for_no_locks() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    page.shows(&format!("{QUESTIONS} > 0")).await;
    page.browser.run(&set_hidden(true)).await;
    page.browser.run("window.asked = performance.now()").await;
    // The panel asks once a second.
    page.shows("performance.now() - window.asked > 3000").await;
    let late = "performance.getEntriesByType('resource').filter((it) => \
                it.name.includes('/locks?') && it.startTime > window.asked + 100).length";
    assert_eq!(page.browser.run(&format!("return {late}")).await, 0);
    page.browser.run(&set_hidden(false)).await;
    page.shows(&format!("{late} > 0")).await;
}

/// Selects who the holder is, and puts the focus into the table.
const SELECT_HOLDER: &str = "const holder = document.querySelector('#lane-left .holder div'); \
    const text = holder.firstChild; \
    const from = text.data.indexOf('process'); \
    getSelection().setBaseAndExtent(text, from, text, from + 'process 4711 on db3'.length); \
    document.querySelector('#lane-left .locks .table').focus(); \
    window.row = holder.closest('tr')";
const KEPT: &str = "return [getSelection().toString(), document.activeElement.className, \
    window.row === document.querySelector('#lane-left .locks tbody tr')]";

#[tokio::test(flavor = "multi_thread")]
async fn a_new_list_leaves_the_focus_and_what_is_selected() {
    let mut page = OpenPage::open("").await;
    let _race = page.begin().await;
    let mut all: Value = serde_json::from_str(&list("held", &json!([]))).expect("JSON");
    let lists = &page.board.logs.locks[0];
    lists.show(&all.to_string(), &ReplicaProcesses::default(), 0);
    page.browser.run("document.querySelector('#lane-left .locks').open = true").await;
    page.shows("document.querySelectorAll('#lane-left .locks tbody tr').length === 2").await;
    page.browser.run(SELECT_HOLDER).await;
    let kept = json!(["process 4711 on db3", "table", true]);
    assert_eq!(page.browser.run(KEPT).await, kept);
    let lock = &mut all["locks"][0];
    lock["holders"][0]["lease"]["left_ms"] = json!(340);
    lock["holders"][0]["holds"] = json!(3);
    let mut second = lock["holders"][0].clone();
    second["tag"]["process"] = json!(4713);
    lock["holders"].as_array_mut().expect("holders").push(second);
    lists.show(&all.to_string(), &ReplicaProcesses::default(), 0);
    page.shows("document.querySelectorAll('#lane-left .locks tbody tr').length === 3").await;
    let row = page.text("#lane-left .locks tbody tr").await;
    assert!(row.contains("entered 3 times") && row.contains("0.3 s"), "{row}");
    assert_eq!(page.browser.run(KEPT).await, kept);
    let spans = "return document.querySelector('#lane-left .waiters').rowSpan";
    assert_eq!(page.browser.run(spans).await, 2);
    all["locks"] = json!([]);
    lists.show(&all.to_string(), &ReplicaProcesses::default(), 0);
    page.shows("document.querySelectorAll('#lane-left .locks tbody tr').length === 0").await;
    assert_eq!(page.browser.run("return document.activeElement.className").await, "table");
}
