//! Holds that end otherwise than by a release, as the other side sees it.

use std::time::Duration;

use conformance::clock::between;
use conformance::eventually;
use conformance::protocol::{Cause, Failure, LockRequest, Outcome};
use testbed::Stopwatch;

use crate::Check;
use crate::nodes::{children, remove};
use crate::scene::{LONG_WAIT, RENEWED, SLACK, Scene, Side};

pub(crate) const OF_BOTH: &[Check] = &[
    (
        "a_side_that_dies_is_followed_when_its_lease_ends_and_not_before",
        a_side_that_dies_is_followed_when_its_lease_ends_and_not_before,
    ),
    (
        "a_lock_that_is_renewed_keeps_the_other_side_out_beyond_its_lease",
        a_lock_that_is_renewed_keeps_the_other_side_out_beyond_its_lease,
    ),
];
pub(crate) const OF_REDISSON: &[Check] = &[
    (
        "a_lease_that_ends_admits_the_other_side_and_its_holder_frees_nothing",
        a_lease_that_ends_admits_the_other_side_and_its_holder_frees_nothing,
    ),
    (
        "a_lock_that_is_freed_by_force_is_taken_by_the_other_side_at_once",
        a_lock_that_is_freed_by_force_is_taken_by_the_other_side_at_once,
    ),
];
pub(crate) const OF_CURATOR: &[Check] =
    &[("a_removed_node_admits_the_other_side", a_removed_node_admits_the_other_side)];

/// The lease was renewed a third of it ago at the most, or what a busy machine makes of that.
const LEFT_AT_LEAST: Duration = Duration::from_secs(1);
/// A waiter that is not woken looks again after a second.
const WOKEN_WITHIN: Duration = Duration::from_millis(500);

fn a_side_that_dies_is_followed_when_its_lease_ends_and_not_before(scene: &Scene) {
    let others = scene.more();
    for (holder, (_, waiter)) in others.iter().zip(scene.both_ways()) {
        let want = scene.want_fresh();
        holder.contender.insist(&want);
        let waiting = waiter.contender.lock_later(&want.clone().waiting(LONG_WAIT));
        eventually("the waiter waits", || scene.waiters(&want.name) == 1);
        let killed_ns = holder.contender.kill();
        let got = waiting.wait().expect("the lease has ended");
        let took = between(killed_ns, got.acquired_ns);
        println!("{holder} dies: {waiter} enters after {took:?}, of a lease of {RENEWED:?}");
        assert!(took > LEFT_AT_LEAST && took < RENEWED + SLACK, "{holder} to {waiter}: {took:?}");
        waiter.contender.release(got.handle).expect("it is held");
    }
}

fn a_lock_that_is_renewed_keeps_the_other_side_out_beyond_its_lease(scene: &Scene) {
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        let held = holder.contender.insist(&want);
        let longer = RENEWED + LEFT_AT_LEAST;
        let refused = other.contender.lock(&want.clone().waiting(longer)).map_err(code);
        assert_eq!(refused.expect_err("it is held"), "timed_out", "{other}");
        let released = holder.contender.release(held.handle);
        assert_eq!(released, Ok(Outcome::Released), "{holder}");
    }
}

fn a_lease_that_ends_admits_the_other_side_and_its_holder_frees_nothing(scene: &Scene) {
    let lease = Duration::from_secs(1);
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        let short = LockRequest {
            lease_ms: u64::try_from(lease.as_millis()).expect("a second"),
            ..want.clone().unrenewed()
        };
        let held = holder.contender.insist(&short);
        let got = other.contender.lock(&want.clone().waiting(LONG_WAIT)).expect("it has ended");
        let took = between(held.acquired_ns, got.acquired_ns);
        // The holder heard of it after the server had begun the lease.
        assert!(took > lease / 2 && took < lease + SLACK, "{holder} to {other}: {took:?}");
        assert_not_the_holders(holder.contender.release(held.handle));
        assert!(other.contender.inspect(&want.name).expect("a lock").is_locked);
        assert_eq!(other.contender.release(got.handle), Ok(Outcome::Released), "{other}");
    }
}

fn a_lock_that_is_freed_by_force_is_taken_by_the_other_side_at_once(scene: &Scene) {
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        for freer in [holder, other] {
            free_by_force(scene, &want, (holder, other), freer);
        }
    }
}

/// The other one is woken: it would look again after a second only.
fn free_by_force(scene: &Scene, want: &LockRequest, (holder, other): (&Side, &Side), freer: &Side) {
    let held = holder.contender.insist(want);
    let waiting = other.contender.lock_later(&want.clone().waiting(LONG_WAIT));
    eventually("the waiter waits", || scene.waiters(&want.name) == 1);
    let ready = Stopwatch::start();
    assert_eq!(freer.contender.force_unlock(&want.name), Ok(true), "{freer}");
    let got = waiting.wait().expect("it is free");
    let took = ready.elapsed();
    assert!(took < WOKEN_WITHIN, "{freer} frees, {other} enters after {took:?}");
    if holder.name == scene.ours.name {
        assert_eq!(holder.contender.lost(held.handle, LONG_WAIT).cause, Cause::Taken);
    }
    assert_not_the_holders(holder.contender.release(held.handle));
    assert_eq!(other.contender.release(got.handle), Ok(Outcome::Released), "{other}");
    assert_eq!(freer.contender.force_unlock(&want.name), Ok(false), "{freer}");
}

fn a_removed_node_admits_the_other_side(scene: &Scene) {
    for (holder, waiter) in scene.both_ways() {
        let want = scene.want_fresh();
        let held = holder.contender.insist(&want);
        let waiting = waiter.contender.lock_later(&want.clone().waiting(LONG_WAIT));
        eventually("the waiter waits", || scene.waiters(&want.name) == 1);
        let ready = Stopwatch::start();
        remove(&format!("{}/{}", want.name, children(&want.name)[0]));
        let got = waiting.wait().expect("it is first");
        let took = ready.elapsed();
        assert!(took < WOKEN_WITHIN, "a node is removed, {waiter} enters after {took:?}");
        if holder.name == scene.ours.name {
            assert_eq!(holder.contender.lost(held.handle, LONG_WAIT).cause, Cause::Taken);
        }
        waiter.contender.release(got.handle).expect("it is held");
    }
}

/// This library tells whose it is, the others that it is not the caller's.
fn assert_not_the_holders(released: Result<Outcome, Failure>) {
    match released.map_err(code) {
        Ok(Outcome::HeldByOther) => {}
        Err(code) if ["not_owner", "lost"].contains(&&code[..]) => {}
        other => panic!("{other:?}"),
    }
}

fn code(failure: Failure) -> String {
    failure.code
}
