//! The buttons of faults, on real servers.

use std::process::Command;

use serde_json::json;

use super::page::Page;
use super::process::{DEADLINE, children_of};

/// Asks for a second freeze of one replica, as another page may.
const FROZEN_AGAIN: &str = "return (async () => { \
    const token = new URLSearchParams(location.search).get('token'); \
    const answer = await fetch('fault', { method: 'POST', \
    headers: { 'content-type': 'application/json', 'x-board-token': token }, \
    body: JSON.stringify({ lane: 'left', action: 'freeze', replica: 1 }) }); \
    return [answer.status, (await answer.json()).code]; })()";

/// A race that lasts for longer: each button of the faults does what it says.
pub(super) async fn faults_are_injected(page: &Page) {
    let cells = "left=local,user,off,3&right=redisson,user,off,3";
    let race = format!("location.hash = 'seed=3&users=900&stock=900&{cells}'");
    page.browser.run(&race).await;
    let ready = "!document.querySelector('#lane-left .faults button').disabled";
    page.shows(ready, DEADLINE).await;
    // In the right lane some of these may take a lock from its holder.
    page.inject(("left", "freeze"), "r1 is in state T").await;
    let answer = page.browser.run(FROZEN_AGAIN).await;
    assert_eq!(answer, json!([409, "fault_not_allowed"]));
    for (fault, seen) in [
        ("thaw", "r1 is in state"),
        ("flush-redis", "FLUSHALL removed"),
        ("kill", "has ended"),
        ("restart", "r1 was process"),
        ("cut-redis", "connections cut"),
        ("heal-redis", "accepted"),
        // At the end a replica is started again whose link is cut.
        ("cut-redis", "connections cut"),
        ("kill", "has ended"),
    ] {
        page.inject(("left", fault), seen).await;
    }
    // The log of the left lane is full of second orders.
    page.inject(("right", "heal-redis"), "accepted").await;
    page.shows("document.querySelector('#lane-right .log .fault')", DEADLINE).await;
    page.has_both_verdicts().await;
    let log = "document.querySelector('#lane-left .log').textContent";
    for healed in ["Heal Redis r1: done", "Restart r1: done"] {
        page.shows(&format!("{log}.includes('{healed}')"), DEADLINE).await;
    }
    let marks = "[...document.querySelectorAll('#ticks .glyph')].map((it) => it.textContent)";
    page.shows(&format!("['↻', '✓'].every((it) => {marks}.includes(it))"), DEADLINE).await;
}

/// Another race, with the faults of Redis and of links, and one of a COMMIT.
pub(super) async fn servers_and_links_fail(page: &Page) {
    let cells = "left=local,user,off,3&right=redisson,user,off,3";
    page.browser.run(&format!("location.hash = 'seed=9&users=900&stock=900&{cells}'")).await;
    page.shows("!document.querySelector('#lane-left .faults button').disabled", DEADLINE).await;
    for (fault, seen) in [
        ("lose-commit", "closed instead of an answer"),
        ("freeze-redis", "Redis is in state T"),
        ("thaw-redis", "Redis is in state"),
        ("jump-clock", "its clock is"),
        ("restore-clock", "its clock is"),
        ("half-open-redis", "and 0 bytes of answers"),
        ("heal-redis", "accepted"),
        ("delay-redis", "parcels took 60ms and more there"),
    ] {
        page.inject(("left", fault), seen).await;
    }
    commands_have_their_lines(page).await;
    // Nothing can happen to a Redis that a failover has left dead.
    page.inject(("right", "fail-over-redis"), "the replica is master now").await;
    page.inject(("right", "freeze-redis"), "Freeze Redis is not possible: Redis is down.").await;
    page.has_both_verdicts().await;
    let log = "document.querySelector('#lane-left .log').textContent";
    page.shows(&format!("{log}.includes('Heal Redis r1: done')"), DEADLINE).await;
}

/// The panel of the right lane shows what passes, with the lines that send it.
async fn commands_have_their_lines(page: &Page) {
    let closed = "document.querySelector('#lane-right .commands ol').children.length === 0";
    page.shows(closed, DEADLINE).await;
    page.browser.run("document.querySelector('#lane-right .commands').open = true").await;
    let shown = "document.querySelector('#lane-right .commands ol').textContent";
    for words in [
        "EVALSHA redisson_acquire.lua 2 lock:order:",
        "PUBLISH redisson_lock__channel:",
        "lua/lock/redisson_release.lua:",
        "COMMITsrc/store/session.rs:",
    ] {
        page.shows(&format!("{shown}.includes('{words}')"), DEADLINE).await;
    }
    page.browser.run("document.querySelector('#lane-right .commands').open = false").await;
}

/// The board did not freeze that replica, so it cannot know before the next race.
pub(super) async fn a_frozen_replica_is_named(page: &Page, board: u32) {
    let replica = children_of(board).find(|(_, line)| {
        ["--lock local", "--replica-id r2"].iter().all(|flag| line.contains(flag))
    });
    let (pid, _) = replica.expect("a replica of the left lane");
    let sent = Command::new("kill").args(["-s", "STOP", &pid]).status().expect("kill(1)");
    assert!(sent.success());
    let cells = "left=local,user,off,3&right=redisson,user,off,3";
    page.browser.run(&format!("location.hash = 'seed=4&users=30&stock=30&{cells}'")).await;
    let named = "r2 was frozen before the race, so this lane got new servers";
    let log = "document.querySelector('#lane-left .log').textContent";
    page.shows(&format!("{log}.includes('{named}')"), DEADLINE).await;
    page.has_both_verdicts().await;
}
