//! The buttons of faults, on real servers.

use std::process::Command;

use loadtest_judge::setting::Guards;
use loadtest_lab::cluster::{Cluster, ServerPrograms};
use loadtest_lab::deployment::DeploymentSpec;
use loadtest_lab::faults::{ActionContext, FaultAction, ProcessState};
use loadtest_lab::lock::{ExtraServers, Lock};
use serde_json::json;

use super::ONE_AT_A_TIME;
use super::browser::Browser;
use super::page::{Fault, Page};
use super::process::{BoardProcess, DEADLINE, children_of, program, runs_all_scenarios};

/// The cells of a race with faults.
const CELLS: &str = "left=local,user,off,3&right=redisson,user,off,3";

/// Beside other tests a browser may need seconds for each button, and a race lasts 40 s.
const MAX_RACES: u32 = 3;

/// The cells of a race with a lock in `ZooKeeper`.
const WITH_ZOOKEEPER: &str = "left=zookeeper,user,off,3&right=redisson,user,off,3";

/// A few in each race.
const RACES: [(&str, &[Fault]); 6] = [
    (
        CELLS,
        &[
            ("left", "half-open-redis", "and 0 bytes of answers"),
            ("left", "heal-redis", "accepted"),
            ("left", "delay-redis", "parcels took 60ms and more there"),
        ],
    ),
    (
        CELLS,
        &[
            ("left", "freeze-redis", "Redis is in state T"),
            ("left", "thaw-redis", "Redis is in state"),
            ("left", "jump-clock", "its clock is"),
            ("left", "restore-clock", "its clock is"),
        ],
    ),
    (
        CELLS,
        &[
            ("left", "lose-commit", "closed instead of an answer"),
            ("right", "fail-over-redis", "the replica is master now"),
            // Nothing can happen to a Redis that a failover has left dead.
            ("right", "freeze-redis", "Freeze Redis is not possible: Redis is down."),
        ],
    ),
    (
        CELLS,
        &[
            ("left", "half-open-database", "and 0 bytes of answers"),
            ("left", "heal-database", "accepted"),
            ("left", "cut-database", "connections cut"),
            ("left", "heal-database", "accepted"),
            ("left", "delay-database", "parcels took 60ms and more there"),
        ],
    ),
    (
        CELLS,
        &[
            ("right", "freeze-holder", "with its COMMIT on the way"),
            ("right", "flush-redis-at-commit", "a COMMIT was on the way"),
            ("right", "stand-still-past-lease", "was in state T"),
        ],
    ),
    (
        WITH_ZOOKEEPER,
        &[
            ("left", "half-open-zookeeper", "and 0 bytes of answers"),
            ("left", "heal-zookeeper", "accepted"),
            ("left", "cut-zookeeper", "connections cut"),
            ("left", "heal-zookeeper", "accepted"),
            ("left", "delay-zookeeper", "parcels took 60ms and more there"),
        ],
    ),
];

/// Faults of a replica, in one race. In the right lane some may take a lock from its holder.
const FREEZE: [Fault; 2] =
    [("left", "freeze", "r1 is in state T"), ("left", "thaw", "r1 is in state")];

/// More faults of replicas, for the long form.
const OF_REPLICAS: [Fault; 5] = [
    ("left", "flush-redis", "FLUSHALL removed"),
    ("left", "kill", "has ended"),
    ("left", "restart", "r1 was process"),
    ("left", "cut-redis", "connections cut"),
    ("left", "heal-redis", "accepted"),
];

/// At the end a replica is started again whose link is cut. The log of the left lane is full of
/// second orders, so the right one has a fault, too.
const LEFT_TO_THE_END: [Fault; 3] = [
    ("left", "cut-redis", "connections cut"),
    ("left", "kill", "has ended"),
    ("right", "heal-redis", "accepted"),
];

/// Asks for a second freeze of one replica, as another page may.
const FROZEN_AGAIN: &str = "return (async () => { \
    const token = new URLSearchParams(location.search).get('token'); \
    const answer = await fetch('fault', { method: 'POST', \
    headers: { 'content-type': 'application/json', 'x-board-token': token }, \
    body: JSON.stringify({ lane: 'left', action: 'freeze', replica: 1 }) }); \
    return [answer.status, (await answer.json()).code]; })()";

/// Races that last for longer: each button of the faults does what it says.
pub(super) async fn faults_are_injected(page: &Page) {
    start_race(page, CELLS, 3).await;
    inject_in_one_race(page, CELLS, 3, &FREEZE).await;
    // Beside other tests a race has time for a few.
    if runs_all_scenarios() {
        inject_in_one_race(page, CELLS, 30, &OF_REPLICAS).await;
    }
    inject_in_one_race(page, CELLS, 300, &LEFT_TO_THE_END).await;
    page.shows("document.querySelector('#lane-right .log .fault')", DEADLINE).await;
    page.has_both_verdicts().await;
    let log = "document.querySelector('#lane-left .log').textContent";
    for healed in ["Heal Redis r1: done", "Restart r1: done"] {
        page.shows(&format!("{log}.includes('{healed}')"), DEADLINE).await;
    }
    let marks = "[...document.querySelectorAll('#ticks .glyph')].map((it) => it.textContent)";
    page.shows(&format!("['↻', '✓'].every((it) => {marks}.includes(it))"), DEADLINE).await;
}

async fn start_race(page: &Page, cells: &str, seed: u32) {
    let race = format!("location.hash = 'seed={seed}&users=1000&stock=1000&{cells}'");
    page.browser.run(&race).await;
    page.shows("!document.querySelector('#lane-left .faults button').disabled", DEADLINE).await;
}

/// Presses the buttons one after the other. If the race ends before, all are pressed in another.
async fn inject_in_one_race(page: &Page, cells: &str, seed: u32, faults: &[Fault]) {
    for another in 1..=MAX_RACES {
        if inject_all(page, faults).await {
            return;
        }
        page.has_both_verdicts().await;
        start_race(page, cells, seed + another).await;
    }
    panic!("{MAX_RACES} races were too short for {faults:?}");
}

/// False if the race was over before the last.
async fn inject_all(page: &Page, faults: &[Fault]) -> bool {
    for &fault in faults {
        if !page.inject(fault).await || fault == FREEZE[0] && !is_frozen_once(page).await {
            return false;
        }
    }
    true
}

/// A second freeze of that replica is refused. False if the race was over.
async fn is_frozen_once(page: &Page) -> bool {
    let answer = page.browser.run(FROZEN_AGAIN).await;
    let is_racing = answer != json!([409, "no_race_running"]);
    assert!(!is_racing || answer == json!([409, "fault_not_allowed"]), "{answer}");
    is_racing
}

/// With `BOARD_SCENARIOS=all` all races, else the first.
#[tokio::test(flavor = "multi_thread")]
async fn faults_of_servers_and_links_are_seen() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let board = tokio::task::spawn_blocking(BoardProcess::start).await.expect("a board");
    let page = Page { browser: Browser::start().await };
    page.browser.open(&board.url).await;
    page.has_both_verdicts().await;
    let races = if runs_all_scenarios() { &RACES[..] } else { &RACES[..1] };
    for ((cells, faults), seed) in races.iter().zip((10..).step_by(10)) {
        start_race(&page, cells, seed).await;
        if seed == 10 {
            commands_have_their_lines(&page).await;
            locks_name_their_replicas(&page).await;
        }
        inject_in_one_race(&page, cells, seed, faults).await;
        page.has_both_verdicts().await;
    }
    drop(page);
    board.interrupt().await;
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

/// The inspector's panel of the right lane shows which replica holds which lock.
async fn locks_name_their_replicas(page: &Page) {
    page.browser.run("document.querySelector('#lane-right .locks').open = true").await;
    let held = "/lock:order:[0-9]+.*r[123] · process [0-9]+ on /s.test(\
                document.querySelector('#lane-right .locks tbody').textContent)";
    page.shows(held, DEADLINE).await;
    page.browser.run("document.querySelector('#lane-right .locks').open = false").await;
}

/// The board did not freeze that replica, so it cannot know before the next race.
pub(super) async fn a_frozen_replica_is_named(page: &Page, board: u32) {
    signal_a_replica(board, "STOP");
    page.browser.run(&format!("location.hash = 'seed=4&users=30&stock=30&{CELLS}'")).await;
    let named = "r2 was frozen before the race, so this lane got new servers";
    let log = "document.querySelector('#lane-left .log').textContent";
    page.shows(&format!("{log}.includes('{named}')"), DEADLINE).await;
    page.has_both_verdicts().await;
}

/// The board did not kill that replica: what then comes is no verdict on its lock.
pub(super) async fn a_replica_that_dies_by_itself_fails_its_race(page: &Page, board: u32) {
    page.browser.run(&format!("location.hash = 'seed=6&users=100&stock=100&{CELLS}'")).await;
    page.shows("location.hash.startsWith('#seed=6&')", DEADLINE).await;
    page.shows("!document.querySelector('#lane-left .faults button').disabled", DEADLINE).await;
    signal_a_replica(board, "KILL");
    let failed = "document.getElementById('state').textContent === \
                  'The race failed: replica r2 died.'";
    page.shows(failed, DEADLINE).await;
    let log = "document.querySelector('#lane-left .log').textContent";
    page.shows(&format!("{log}.includes('r2 died by itself')"), DEADLINE).await;
    page.shows("document.querySelector('#lane-left .verdict').hidden", DEADLINE).await;
}

/// Sends a signal to the second replica of the left lane.
fn signal_a_replica(board: u32, signal: &str) {
    let replica = children_of(board).find(|(_, line)| {
        ["--lock local", "--replica-id r2"].iter().all(|flag| line.contains(flag))
    });
    let (pid, _) = replica.expect("a replica of the left lane");
    let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill(1)");
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_asks_for_a_running_main_redis_whatever_the_lock_lives_on() {
    let needs = ExtraServers::IndependentRedis;
    let cluster =
        Cluster::start(ServerPrograms::INSTALLED, program(), &[needs]).await.expect("the servers");
    let spec = DeploymentSpec {
        flags: ["--lab", "--lock", "redlock"].map(str::to_owned).to_vec(),
        needs,
        requirements: FaultAction::requirements(),
        ..DeploymentSpec::default()
    };
    let deployment = cluster.deploy(spec).await.expect("a deployment");
    let actions = ActionContext {
        deployment: &deployment,
        lock: Lock::Redlock,
        guards: Guards::Off,
        fenced: false,
    };
    let state = |action| actions.target(action, 0).map(|(_, state)| state);
    actions.carry_out(FaultAction::FreezeRedis, 0).await.expect("the first server is frozen");
    assert_eq!(state(FaultAction::ThawRedis), Some(ProcessState::Frozen));
    assert_eq!(state(FaultAction::FailOverRedis), Some(ProcessState::Running));
    actions.carry_out(FaultAction::ThawRedis, 0).await.expect("it goes on");
    deployment.main_redis().freeze().expect("frozen");
    assert_eq!(state(FaultAction::FailOverRedis), Some(ProcessState::Frozen));
    deployment.main_redis().thaw().expect("thawed");
}
