//! How long a caller waits.

use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::fresh_name;

use crate::arena::{
    Arena, Check, LONG, SLACK, assert_busy, at_once, await_busy, of_locks, patiently,
};

/// Shorter than any pause between two polls for a release without a message.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "a_contender_without_a_wait_is_refused_at_once",
        asked: of_locks,
        run: no_wait_is_no_wait,
    },
    Check { name: "a_wait_ends_when_it_is_over", asked: of_locks, run: a_wait_ends },
    Check {
        name: "a_waiter_gets_the_lock_when_its_holder_releases",
        asked: of_locks,
        run: a_waiter_gets_it,
    },
    Check {
        name: "a_hand_off_is_measured_once_and_only_after_a_wait",
        asked: of_locks,
        run: a_hand_off_is_measured,
    },
];

fn no_wait_is_no_wait(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    let refusals = [(); 5].map(|()| {
        let before = now_ns();
        assert_busy(pair.rival(), &name);
        between(before, now_ns())
    });
    // A busy machine may hold up some of them.
    assert!(refusals.iter().any(|took| *took < PROMPT_WITHIN), "{refusals:?}");
    pair.holder.release(held.handle).expect("a release");
}

fn a_wait_ends(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    let wait = Duration::from_millis(400);
    // Two at the same time: one waits for its turn in the process, where there is such a turn.
    let waiting = [(); 2].map(|()| pair.rival().lock_later(&at_once(&name).waiting(wait)));
    let before = now_ns();
    for waiting in waiting {
        let failure = waiting.wait().expect_err("it is held for long");
        assert_eq!(failure.code, "timed_out", "{failure:?}");
    }
    let waited = between(before, now_ns());
    assert!(waited > wait / 2 && waited < wait + SLACK, "{waited:?}");
    assert!(!pair.holder.is_lost(held.handle));
    pair.holder.release(held.handle).expect("a release");
}

fn a_waiter_gets_it(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    let busy = pair.rival().busy();
    let waiting = pair.rival().lock_later(&patiently(&name));
    await_busy(pair.rival(), busy);
    let before = now_ns();
    pair.holder.release(held.handle).expect("a release");
    let next = waiting.wait().expect("it is free");
    assert!(next.acquired_ns > before, "it had it while it was held");
    let hand_off = between(before, next.acquired_ns);
    assert!(hand_off < LONG / 2, "it waited for the lease: {hand_off:?}");
    pair.rival().release(next.handle).expect("a release");
}

fn a_hand_off_is_measured(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    for hand_offs in 1..=3 {
        let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
        let busy = pair.rival().busy();
        let waiting = pair.rival().lock_later(&patiently(&name));
        await_busy(pair.rival(), busy);
        pair.holder.release(held.handle).expect("a release");
        let next = waiting.wait().expect("it is free");
        assert_eq!(pair.rival().hand_offs(), hand_offs);
        pair.rival().release(next.handle).expect("a release");
    }
}
