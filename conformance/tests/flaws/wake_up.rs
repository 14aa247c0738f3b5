//! Waiting without a message. Witness and measure: how often the server was asked, counted by the
//! proxy of the waiter.

use std::thread::sleep;
use std::time::{Duration, Instant};

use conformance::fresh_name;
use conformance::protocol::{LockRequest, Outcome};
use distlock::LockKind;
use testbed::Command;

use crate::scene::{LONG, WAIT_TIMEOUT, enter, eventually, release, start, start_by_proxy};

/// The number of times that a fast waiter asks.
const FAST_POLLS: u64 = 40;
/// For so long it may take. A waiter that looks once a second does not come to half of it.
const POLLED_WITHIN: Duration = Duration::from_secs(15);
/// One who is told looks after this time without a message.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval where the server takes a waiter that does not look for dead.
const QUEUED_LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// For how long the lock is held, and how often one who waits for it asks before it is free.
struct HoldCondition {
    at_least: Duration,
    until_asked: u64,
}

/// How often one who waits for a lock asks for it until it gets it, and for how long it waited.
fn looks(kind: LockKind, look: &str, held_for: &HoldCondition) -> (u64, Duration) {
    let (holder, (waiter, proxy), name) = (start(kind), start_by_proxy(kind), fresh_name());
    let held = enter(&holder, &name);
    let looks = proxy.watch(Command::redis(look).containing(name.as_str()));
    let want = LockRequest::new(&name, LONG).waiting(WAIT_TIMEOUT);
    let (began, waits) = (Instant::now(), waiter.lock_later(&want));
    eventually("it has asked", || looks.matched() > 0);
    sleep(held_for.at_least);
    while looks.matched() < held_for.until_asked && began.elapsed() < POLLED_WITHIN {
        sleep(Duration::from_millis(1));
    }
    assert_eq!(release(&holder, &held), Outcome::Released);
    waits.wait().expect("the lock is free");
    (looks.matched(), began.elapsed())
}

/// How often one who is told looks, at most: twice around the subscription, after the message, and
/// once in that interval. A message that is lost costs no more.
fn of_one_who_is_told(waited: Duration, interval: Duration) -> u64 {
    4 + u64::try_from(waited.as_millis() / interval.as_millis()).expect("a short wait")
}

#[test]
fn a_waiter_without_messages_polls() {
    for (kind, look) in [
        (LockKind::SetnxExpire, "SETNX"),
        (LockKind::SetNx, "SET"),
        (LockKind::OwnerCheck, "SET"),
        (LockKind::LuaRelease, "SET"),
        (LockKind::GetsetTimestamp, "SETNX"),
        (LockKind::Reentrant, "EVALSHA"),
    ] {
        let held = HoldCondition { at_least: Duration::ZERO, until_asked: FAST_POLLS };
        let (looks, waited) = looks(kind, look, &held);
        let told = of_one_who_is_told(waited, LOOK_INTERVAL);
        assert!(looks > told, "{kind}: {looks} looks in {waited:?}");
    }
}

#[test]
fn a_waiter_with_messages_asks_when_one_arrives() {
    for (kind, interval) in [
        (LockKind::Redisson, LOOK_INTERVAL),
        (LockKind::Fair, QUEUED_LOOK_INTERVAL),
        (LockKind::ReadWrite, QUEUED_LOOK_INTERVAL),
    ] {
        let held = HoldCondition { at_least: Duration::from_secs(1), until_asked: 1 };
        let (looks, waited) = looks(kind, "EVALSHA", &held);
        let told = of_one_who_is_told(waited, interval);
        assert!(looks <= told, "{kind}: {looks} looks in {waited:?}");
    }
}
