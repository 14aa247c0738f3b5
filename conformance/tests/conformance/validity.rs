//! Until when a holder believes. Validity counts from the sending of the answered request, and ends
//! earlier by a margin for the clocks. The holder is told when its server has ended the hold.
//!
//! Each answer of a server is [`DELAY`] late, by a proxy. Whatever is known by now was sent at
//! least that long ago, so a look at the validity bounds it. The bound is the instant after the
//! look, less the delay, plus what a lease is worth. A thread that is taken away between any two of
//! these instants makes the bound wider, never narrower. Only a defect that takes less time than
//! such a thread was away is overlooked.

use std::time::Duration;

use conformance::clock::between;
use conformance::protocol::{AcquiredLock, Cause, LockRequest, Setup, ValidityReport};
use conformance::{Contender, fresh_name};
use distlock::{HoldKind, LockKind};
use testbed::{Direction, Proxy};

use crate::arena::{Arena, Check, LONG, await_busy, eventually, of_ending, of_renewed, patiently};
use crate::removal::removals;

/// How late every answer is: less than the 500 ms for which `redlock` waits for one.
const DELAY: Duration = Duration::from_millis(200);
/// A lease whose margin is long: 602 ms.
const LEASE: Duration = Duration::from_mins(1);
/// A lease that is renewed in a check, and whose margin is still longer than a look takes: 92 ms.
const RENEWED: Duration = Duration::from_secs(9);
/// A lease of which two thirds are longer than a busy machine stands still.
const ENDED: Duration = Duration::from_secs(12);
/// How often etcd looks for leases that have ended: its holders have that much less.
const ETCD_CHECKS: Duration = Duration::from_millis(500);
/// An instant of a process is known to the others with that error.
const CLOCK_NS: u64 = 1_000;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "a_late_answer_to_an_acquisition_shortens_validity_by_its_delay",
        asked: of_ending,
        run: an_acquisition_is_answered_late,
    },
    Check {
        name: "a_late_answer_to_a_renewal_shortens_validity_by_its_delay",
        asked: of_renewed,
        run: renewals_are_answered_late,
    },
    Check {
        name: "a_hold_that_its_server_has_ended_is_lost_by_a_renewal_and_not_by_its_time",
        asked: of_renewed,
        run: the_server_ends_a_hold,
    },
];

/// A process with ways of its own to its servers, all of which know a hold for that long.
fn by_ways(arena: &Arena, lease: Duration) -> (Vec<Proxy>, Contender) {
    let (ways, mut addresses) = arena.ways();
    // For those whose lease is their session's.
    addresses.set_ttl(lease);
    let setup = Setup { addresses, ..arena.setup() };
    (ways, arena.contender_as(&setup))
}

fn make_late(ways: &[Proxy], by: Duration) {
    for way in ways {
        way.set_latency(Direction::ToClient, by, Duration::ZERO);
    }
}

/// What a lease is worth to its holder, from the sending on, in each kind that the lock lives as.
/// Three fifths of a session of `zookeeper` are believed in. The lease of `etcd` lasts for the
/// whole seconds of its TTL less half a second.
fn worths_ns(arena: &Arena, lease: Duration) -> impl Iterator<Item = u64> {
    arena.lives_as().into_iter().map(move |kind| {
        let believed = match kind {
            LockKind::Zookeeper => lease / 5 * 3,
            LockKind::Etcd => Duration::from_secs(lease.saturating_sub(ETCD_CHECKS).as_secs()),
            _ => lease,
        };
        let believed_ns = u64::try_from(believed.as_nanos()).expect("a minute");
        believed_ns - believed_ns / 100 - 2_000_000
    })
}

fn delay_ns() -> u64 {
    u64::try_from(DELAY.as_nanos()).expect("a moment")
}

/// A look at the validity of a hold of which nothing is known that was sent less than [`DELAY`]
/// ago.
fn look(
    (arena, holder): (&Arena, &Contender),
    held: &AcquiredLock,
    lease: Duration,
) -> ValidityReport {
    let worth_ns = worths_ns(arena, lease).max().expect("a kind");
    let believed = holder.validity(held.handle);
    let until_ns = believed.until_ns.expect("an end");
    let latest_ns = believed.looked_ns - delay_ns() + worth_ns + CLOCK_NS;
    let too_long = between(latest_ns, until_ns);
    assert!(until_ns <= latest_ns, "believed in for {too_long:?} too long: {believed:?} {held:?}");
    believed
}

/// Checks the validity right after an acquisition, whose first request was sent after it was asked
/// for.
fn look_at_first((arena, holder): (&Arena, &Contender), held: &AcquiredLock) {
    let believed = look((arena, holder), held, LEASE);
    let worth_ns = worths_ns(arena, LEASE).min().expect("a kind");
    let earliest_ns = held.asked_ns + worth_ns - CLOCK_NS;
    let until_ns = believed.until_ns.expect("an end");
    let too_short = between(until_ns, earliest_ns);
    assert!(until_ns >= earliest_ns, "believed in for {too_short:?} too short: {held:?}");
}

/// At once, and after a wait. A composite of which no member may be missing is as late as each of
/// them, so of its ways one at a time is.
fn an_acquisition_is_answered_late(arena: &Arena) {
    let (ways, holder) = by_ways(arena, LEASE);
    let mut setup = arena.setup();
    setup.addresses.set_ttl(LEASE);
    let other = arena.contender_as(&setup);
    let at_a_time = if arena.promise.hold == HoldKind::WeakestMember { 1 } else { ways.len() };
    for late in ways.chunks(at_a_time) {
        make_late(late, DELAY);
        let at_once = holder.insist(&LockRequest::new(&fresh_name(), LEASE));
        look_at_first((arena, &holder), &at_once);

        let name = fresh_name();
        let others = other.lock(&patiently(&name)).expect("the lock is free");
        let before = holder.busy();
        let waiting = holder.lock_later(&LockRequest::new(&name, LEASE).waiting(LONG));
        await_busy(&holder, before);
        // If it was lost meanwhile, it is free as well.
        let _outcome = other.release(others.handle);
        let waited = waiting.wait().expect("it is free");
        look_at_first((arena, &holder), &waited);
        make_late(late, Duration::ZERO);
    }
}

fn renewals_are_answered_late(arena: &Arena) {
    let (ways, holder) = by_ways(arena, RENEWED);
    make_late(&ways, DELAY);
    let held = holder.insist(&LockRequest::new(&fresh_name(), RENEWED));
    let mut until_ns = look((arena, &holder), &held, RENEWED).until_ns;
    // The second one follows a renewal that was answered late.
    for _ in 0..2 {
        eventually("it is renewed", || {
            let before_ns = until_ns;
            until_ns = look((arena, &holder), &held, RENEWED).until_ns;
            until_ns > before_ns
        });
    }
    assert!(!holder.is_lost(held.handle));
}

fn the_server_ends_a_hold(arena: &Arena) {
    let (_ways, holder) = by_ways(arena, ENDED);
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, ENDED));
    for kind in arena.lives_as() {
        let (how, remove) = removals(kind)[0];
        println!("{kind}: {how}");
        remove(kind, std::slice::from_ref(&name));
    }
    let lost = holder.lost(held.handle, LONG);
    assert_eq!(lost.cause, Cause::Taken, "it was told by its clock: {lost:?}");
}
