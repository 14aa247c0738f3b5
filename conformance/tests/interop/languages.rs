//! Five languages on one lock: Rust, Java (the real Redisson), Python, Go and Node.

use std::env;
use std::time::{Duration, Instant};

use conformance::counter::number_in;
use conformance::protocol::{Contest, LockRequest, Outcome};
use conformance::{Contender, Peer, Servers};
use distlock::LockKind;

use crate::Check;
use crate::contention::{judge_sections, judge_shares};
use crate::scene::{LONG_WAIT, RENEWED, Scene, Side, another_of_ours, setup};
use crate::waking::hand_over;

pub(crate) const CHECKS: &[Check] = &[
    (
        "five_languages_on_one_lock_lose_no_increment_while_holders_are_killed_and_paused",
        five_languages_on_one_lock_lose_no_increment_while_holders_are_killed_and_paused,
    ),
    (
        "a_release_of_each_language_wakes_a_waiter_of_each_other_one",
        a_release_of_each_language_wakes_a_waiter_of_each_other_one,
    ),
];

const PEERS: [Peer; 4] = [Peer::Redisson4, Peer::Python, Peer::Go, Peer::Node];
/// How often the lock is taken, unless the environment says otherwise.
const ACQUISITIONS: u64 = 100_000;
/// In each process.
const TASKS: u32 = 2;
const LIMIT: Duration = Duration::from_mins(30);
/// The lease of a holder that is killed or paused.
const LEASE: Duration = Duration::from_secs(1);
/// How long a process of the contest is paused: far less than its lease.
const PAUSE: Duration = Duration::from_millis(400);
/// For each holder and waiter.
const HAND_OFFS: usize = 20;

/// A process of each language, whose leases of Redisson are that long.
fn each_language(lease: Duration) -> Vec<Side> {
    let redisson = setup(LockKind::Redisson.as_str());
    let start = |peer| Contender::start_peer(Servers::shared(), peer, &redisson, lease);
    let theirs = PEERS.map(|peer| Side { name: peer.name(), contender: start(peer) });
    let ours = Side { name: "distlock", contender: another_of_ours(LockKind::Redisson) };
    [ours].into_iter().chain(theirs).collect()
}

/// The processes of the contest are paused for less than their lease. Others take the same lock
/// meanwhile: each is paused beyond its lease while it holds, and then killed while it holds.
fn five_languages_on_one_lock_lose_no_increment_while_holders_are_killed_and_paused(scene: &Scene) {
    let (sides, victims) = (each_language(RENEWED), each_language(LEASE));
    let sides: Vec<&Side> = sides.iter().collect();
    let rounds = acquisitions().div_ceil(sides.len() as u64 * u64::from(TASKS));
    let all = rounds * sides.len() as u64 * u64::from(TASKS);
    let want = scene.want_fresh();
    let counter = Servers::shared().fresh_path("counter");
    let contest = Contest::new(want.clone().waiting(LONG_WAIT), TASKS, rounds, &counter);

    let begun = Instant::now();
    let pending: Vec<_> =
        sides.iter().map(|side| side.contender.contend(contest.clone(), LIMIT)).collect();
    let mut effects = 0;
    for ((side, victim), turn) in sides.iter().zip(&victims).zip(0..) {
        // Spread over the first half of the contest, so that it lasts longer than they do.
        await_count(&contest, all * turn / (2 * victims.len() as u64));
        let want = LockRequest::new(&want.name, LEASE).waiting(LONG_WAIT);
        pause_beyond_the_lease(victim, &want, &contest);
        pause_within_the_lease(side);
        effects += kill(victim, &want, &contest);
    }
    let brought: Vec<_> =
        pending.into_iter().map(|pending| pending.wait().expect("a contest")).collect();
    let took = begun.elapsed().as_secs_f64();

    println!("five languages: {all} acquisitions and {effects} of killed holders in {took:.1} s");
    judge_sections(&sides, &brought, all);
    assert_eq!(number_in(&counter), all + effects, "increments were lost");
    judge_shares(&sides, &[brought]);
}

/// Waits until the contest has counted so far.
fn await_count(contest: &Contest, count: u64) {
    let deadline = Instant::now() + LIMIT;
    while number_in(&contest.counter) < count {
        assert!(Instant::now() < deadline, "the contest stands still before {count}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The contest continues when the lease has ended, and the late holder changes nothing.
fn pause_beyond_the_lease(victim: &Side, want: &LockRequest, contest: &Contest) {
    let held = victim.contender.lock(want).expect("its turn comes");
    victim.contender.freeze();
    // What was counted before it stood still is its own or older.
    await_count(contest, number_in(&contest.counter) + 1);
    victim.contender.thaw();
    if has_lost_signal(victim) {
        assert_eq!(victim.contender.effect(held.handle, &contest.counter), Ok(false), "{victim}");
    }
    assert_ne!(victim.contender.release(held.handle), Ok(Outcome::Released), "{victim}");
}

fn pause_within_the_lease(side: &Side) {
    side.contender.freeze();
    std::thread::sleep(PAUSE);
    side.contender.thaw();
}

/// How often the holder has counted before it is killed. The contest continues.
fn kill(victim: &Side, want: &LockRequest, contest: &Contest) -> u64 {
    let held = victim.contender.lock(want).expect("its turn comes");
    let has_counted = has_lost_signal(victim)
        && victim.contender.effect(held.handle, &contest.counter).expect("an answer");
    victim.contender.kill();
    await_count(contest, number_in(&contest.counter) + 1);
    u64::from(has_counted)
}

/// Redisson does not say that a lock is lost, and its contender has no command that asks for it.
fn has_lost_signal(side: &Side) -> bool {
    side.name != Peer::Redisson4.name()
}

fn a_release_of_each_language_wakes_a_waiter_of_each_other_one(scene: &Scene) {
    let sides = each_language(RENEWED);
    for (number, holder) in sides.iter().enumerate() {
        let others = sides.iter().enumerate().filter(|(other, _)| *other != number);
        others.for_each(|(_, waiter)| hand_over(scene, holder, waiter, HAND_OFFS));
    }
}

fn acquisitions() -> u64 {
    match env::var("INTEROP_LANGUAGES") {
        Ok(told) => told.parse().unwrap_or_else(|error| panic!("INTEROP_LANGUAGES: {error}")),
        Err(_) => ACQUISITIONS,
    }
}
