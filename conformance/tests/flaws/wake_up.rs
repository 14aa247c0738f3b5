//! Waiting without a message. Witness and measure: how often the server was asked, counted by the
//! proxy of the waiter.

use std::thread::sleep;
use std::time::{Duration, Instant};

use conformance::fresh_name;
use conformance::protocol::{Outcome, Want};
use distlock::LockKind;
use testbed::Command;

use crate::scene::{LONG, PATIENCE, enter, eventually, release, start, start_by_proxy};

/// So often it asks.
const OFTEN: u64 = 40;

/// How often one who waits for a lock asks for it until it gets it, and for how long it waited. The
/// lock is held until so many times and so much time are over.
fn looks(kind: LockKind, look: &str, at_least: u64, held_for: Duration) -> (u64, Duration) {
    let (holder, (waiter, proxy), name) = (start(kind), start_by_proxy(kind), fresh_name());
    let held = enter(&holder, &name);
    let looks = proxy.watch(Command::redis(look).containing(name.as_str()));
    let want = Want::new(&name, LONG).waiting(PATIENCE);
    let (began, waits) = (Instant::now(), waiter.lock_later(&want));
    sleep(held_for);
    eventually("it has asked so often", || looks.matched() >= at_least);
    assert_eq!(release(&holder, &held), Outcome::Released);
    waits.wait().expect("the lock is free");
    (looks.matched(), began.elapsed())
}

#[test]
fn a_waiter_who_is_told_nothing_asks_again_and_again() {
    for (kind, look) in [
        (LockKind::SetnxExpire, "SETNX"),
        (LockKind::SetNx, "SET"),
        (LockKind::OwnerCheck, "SET"),
        (LockKind::LuaRelease, "SET"),
        (LockKind::GetsetTimestamp, "SETNX"),
        (LockKind::Reentrant, "EVALSHA"),
    ] {
        let (looks, waited) = looks(kind, look, OFTEN, Duration::ZERO);
        assert!(looks > 4 + waited.as_secs(), "{kind}: {looks} looks in {waited:?}");
    }
}

#[test]
fn a_waiter_who_is_told_asks_when_it_is_told() {
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (looks, waited) = looks(kind, "EVALSHA", 1, Duration::from_secs(1));
        // Besides the two around the subscription and the one after the message it looks once a
        // second, so that a message that is lost costs no more.
        assert!(looks <= 4 + waited.as_secs(), "{kind}: {looks} looks in {waited:?}");
    }
}
