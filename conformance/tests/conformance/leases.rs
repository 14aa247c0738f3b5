//! How a hold ends although its holder does not want it to, and how it does not.

use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::fresh_name;
use conformance::protocol::{Cause, LockRequest, Outcome, Setup};
use distlock::{Guarantees, OwnerCheck};
use testbed::Direction;

use crate::arena::{
    Applicability, Arena, Check, LONG, SHORT, SLACK, Subject, assert_busy, assert_free, at_once,
    await_busy, eventually, has_lease, of_ending, of_renewed, of_servers, patiently,
};

/// How long a hold may last in a check, far from every lease.
const MAX_HOLD: Duration = Duration::from_millis(200);
/// Between two looks of a holder at its lock.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "a_killed_holder_is_taken_over",
        asked: of_servers,
        run: a_killed_holder_is_taken_over,
    },
    Check {
        name: "validity_of_a_frozen_holder_ends_before_the_next_one_enters",
        asked: of_ending,
        run: a_frozen_holder_does_not_believe,
    },
    Check {
        name: "validity_of_a_holder_that_is_cut_off_ends_before_the_next_one_enters",
        asked: of_ending,
        run: a_holder_that_is_cut_off_does_not_believe,
    },
    Check { name: "an_unrenewed_lease_ends_by_itself", asked: with_lease, run: a_lease_ends },
    Check {
        name: "a_neighbour_in_the_process_enters_when_the_lease_ends",
        asked: with_lease,
        run: a_neighbour_enters,
    },
    Check {
        name: "a_renewed_hold_outlives_three_leases",
        asked: of_renewed,
        run: a_renewed_hold_stays,
    },
    Check {
        name: "a_hold_that_has_lasted_as_long_as_it_may_is_freed_under_its_guard",
        asked: |subject| {
            Applicability::of_those_that(
                frees_its_own(&subject.promise),
                "might free another owner's lock",
            )
        },
        run: a_hold_is_freed,
    },
    Check {
        name: "a_hold_that_has_lasted_as_long_as_it_may_leaves_the_lock_to_its_lease",
        asked: |subject| match subject.promise.owner_checked {
            OwnerCheck::No | OwnerCheck::Racy => Applicability::Yes,
            OwnerCheck::Atomic | OwnerCheck::Yes => Applicability::No("frees the lock at once"),
            OwnerCheck::NotApplicable => Applicability::No("holds nothing"),
        },
        run: a_hold_is_left,
    },
    Check {
        name: "an_entry_that_has_lasted_as_long_as_it_may_leaves_the_outer_hold",
        asked: |subject| {
            Applicability::of_those_that(subject.promise.reentrant.is_yes(), "is not reentrant")
        },
        run: an_entry_ends,
    },
];

fn with_lease(subject: &Subject) -> Applicability {
    Applicability::of_those_that(has_lease(&subject.promise), "has no lease")
}

fn frees_its_own(promise: &Guarantees) -> bool {
    matches!(promise.owner_checked, OwnerCheck::Atomic | OwnerCheck::Yes)
}

fn a_killed_holder_is_taken_over(arena: &Arena) {
    let [holder, next] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    holder.insist(&LockRequest::new(&name, SHORT));
    let waiting = next.lock_later(&patiently(&name));
    await_busy(&next, 0);
    let killed_ns = holder.kill();
    let held = waiting.wait().expect("its holder is dead");
    let took = between(killed_ns, held.acquired_ns);
    assert!(took <= SHORT + SLACK, "{took:?} after the death of a holder with {SHORT:?}");
}

fn a_frozen_holder_does_not_believe(arena: &Arena) {
    let [holder, next] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, SHORT));
    let waiting = next.lock_later(&patiently(&name));
    await_busy(&next, 0);
    let frozen_ns = holder.freeze();
    let then = waiting.wait().expect("the lease is not renewed");
    let took = between(frozen_ns, then.acquired_ns);
    holder.thaw();
    let lost = holder.lost(held.handle, LONG);
    let valid_until_ns = lost.valid_until_ns.expect("an end");
    assert!(valid_until_ns <= then.acquired_ns, "two believed in it: {lost:?} {then:?}");
    assert!(took <= SHORT + SLACK, "{took:?} after the holder was frozen, with {SHORT:?}");
    // It can do no more harm where release asks for the owner.
    let outcome = holder.release(held.handle);
    if arena.promise.owner_checked == OwnerCheck::Atomic {
        assert_ne!(outcome, Ok(Outcome::Released));
        assert_busy(&holder, &name);
    }
}

/// Nothing arrives any more in either direction, and no side is told. What it believes is what its
/// looks say, with an effect after each: none that was begun when another had the lock still found
/// it held. An order of instants on one clock: a busy machine may make all of them late, and the
/// effect after a look, and changes nothing of it.
fn a_holder_that_is_cut_off_does_not_believe(arena: &Arena) {
    let (ways, addresses) = arena.ways();
    let way_round = Setup { addresses, ..arena.setup() };
    let [holder, next] = [arena.contender_as(&way_round), arena.contender()];
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, SHORT));
    holder.watch(held.handle, &arena.servers.fresh_path("effects"), POLL_INTERVAL);
    let waiting = next.lock_later(&patiently(&name));
    await_busy(&next, 0);
    for way in &ways {
        way.set_swallowing(Direction::Both, true);
    }
    let then = waiting.wait().expect("the lease is not renewed");
    let lost = holder.lost(held.handle, LONG);
    assert_eq!(lost.cause, Cause::Expired, "{lost:?}");
    let valid_until_ns = lost.valid_until_ns.expect("an end");
    assert!(valid_until_ns <= then.acquired_ns, "two believed in it: {lost:?} {then:?}");
    let watched = holder.watched(held.handle, LONG);
    assert!(watched.effects > 0, "{watched:?}");
    assert!(watched.valid_ns < then.acquired_ns, "it went on: {watched:?} {then:?}");
}

fn a_lease_ends(arena: &Arena) {
    let [holder, next] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, SHORT).unrenewed());
    let then = next.lock(&patiently(&name)).expect("the lease ends");
    let lost = holder.lost(held.handle, LONG);
    assert!(lost.valid_until_ns.expect("an end") <= then.acquired_ns, "{lost:?} {then:?}");
    let took = between(held.acquired_ns, then.acquired_ns);
    assert!(took <= SHORT + SLACK, "{took:?} for {SHORT:?}");
    assert!(!next.is_lost(then.handle));
}

/// The queue in the process waits for the server's answer, not for a holder that hangs.
fn a_neighbour_enters(arena: &Arena) {
    let (process, name) = (arena.contender(), fresh_name());
    let held = process.insist(&LockRequest::new(&name, SHORT).unrenewed());
    let then = process.lock(&patiently(&name)).expect("the lease ends");
    assert!(held.valid_until_ns.expect("an end") <= then.acquired_ns);
    assert!(between(held.acquired_ns, then.acquired_ns) <= SHORT + SLACK);
    assert!(process.is_lost(held.handle) && !process.is_lost(then.handle));
}

fn a_renewed_hold_stays(arena: &Arena) {
    let (setup, lease) = arena.setup_that_lasts();
    let [holder, other] = [(); 2].map(|()| arena.contender_as(&setup));
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, lease));
    let waiting = other.lock_later(&LockRequest::new(&name, lease).waiting(lease * 3));
    let failure = waiting.wait().expect_err("it is held");
    assert_eq!(failure.code, "timed_out", "{failure:?}");
    eventually("three leases are over", || between(held.acquired_ns, now_ns()) > lease * 10 / 3);
    assert!(!holder.is_lost(held.handle) && !holder.has_told_of_loss(held.handle));
    assert_eq!(holder.release(held.handle), Ok(Outcome::Released));
    assert_free(&other, &name);
}

/// The lease is far too long to be what frees it.
fn a_hold_is_freed(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let want = at_once(&name).held_at_most(MAX_HOLD);
    let held = pair.holder.lock(&want).expect("the lock is free");
    let then = pair.rival().lock(&patiently(&name)).expect("it comes free");
    let lost = pair.holder.lost(held.handle, LONG);
    let valid_until_ns = lost.valid_until_ns.expect("an end");
    assert!(valid_until_ns <= then.acquired_ns, "two believed in it: {lost:?} {then:?}");
    let took = between(valid_until_ns, then.acquired_ns);
    assert!(took <= SLACK, "{took:?} after it should have been freed");
    // The guard is of no use any more, and does no harm.
    assert_eq!(pair.holder.release(held.handle), Ok(Outcome::Gone));
    assert!(!pair.rival().is_lost(then.handle));
    assert_busy(&pair.holder, &name);
    assert_eq!(pair.rival().release(then.handle), Ok(Outcome::Released));
}

fn a_hold_is_left(arena: &Arena) {
    let [holder, next] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, SHORT).held_at_most(MAX_HOLD));
    let lost = holder.lost(held.handle, LONG);
    let then = next.lock(&patiently(&name)).expect("the lease ends");
    let took = between(held.asked_ns, then.acquired_ns);
    assert!(took >= SHORT * 9 / 10, "it was freed after {took:?}: {lost:?}");
    assert!(took <= SHORT + SLACK, "{took:?} for {SHORT:?}");
}

fn an_entry_ends(arena: &Arena) {
    let [holder, other] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    let outer = holder.lock(&at_once(&name)).expect("the lock is free");
    let again = at_once(&name).again_as(&outer.owner).held_at_most(MAX_HOLD);
    let inner = holder.lock(&again).expect("its owner may enter");
    let lost = holder.lost(inner.handle, LONG);
    assert!(!holder.is_lost(outer.handle));
    assert_busy(&other, &name);
    assert_eq!(holder.release(outer.handle), Ok(Outcome::Released));
    // Its end and the news of it come at the same moment, in any order.
    let then = other.lock(&patiently(&name)).expect("the entry ends by itself");
    let took = between(lost.valid_until_ns.expect("an end"), then.acquired_ns);
    assert!(took <= SLACK, "{took:?} after it should have ended");
    assert_eq!(holder.release(inner.handle), Ok(Outcome::Gone));
    assert_eq!(other.release(then.handle), Ok(Outcome::Released));
}
