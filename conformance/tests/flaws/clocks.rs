//! A lock whose end each client reads from its own clock. Witnesses: the clock of a process is set
//! from outside and the time that it writes shows that; the counts of the proxy.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conformance::protocol::LockRequest;
use conformance::{Contender, fresh_name, setup};
use distlock::LockKind;
use testbed::{Action, Command, Direction, Times};

use crate::scene::{
    LONG, SHORT, assert_both_hold, assert_kept_out, enter, enter_briefly, enter_later, eventually,
    lease_left_ms, servers, start, start_by_proxy,
};

/// How far a fast clock is ahead: more than any lease.
const HOUR_MS: i64 = 3_600_000;

fn start_with_a_fast_clock(kind: LockKind) -> Contender {
    Contender::start_with_clock(servers(), &setup(servers(), kind), HOUR_MS)
}

fn value(name: &str) -> String {
    servers().redis().command(&["GET", name]).expect("an answer").trim().to_owned()
}

/// When a lock of `getset-timestamp` ends, by the clock of the process that wrote it.
fn ends(name: &str) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(value(name).parse().expect("a time in ms"))
}

#[test]
fn a_process_whose_clock_is_fast_takes_the_lock_of_a_living_holder() {
    let kind = LockKind::GetsetTimestamp;
    let (holder, thief) = (start(kind), start_with_a_fast_clock(kind));
    let name = fresh_name();
    let held = enter(&holder, &name);
    assert!(ends(&name) <= SystemTime::now() + LONG);
    let stolen = enter(&thief, &name);
    assert!(ends(&name) > SystemTime::now() + LONG * 2, "its clock is not fast");
    assert_both_hold((&holder, &held), (&thief, &stolen));
}

#[test]
fn a_process_whose_clock_is_fast_takes_nothing_from_a_lease_that_the_server_counts() {
    for kind in [LockKind::SetNx, LockKind::LuaRelease, LockKind::Reentrant] {
        let (holder, other) = (start(kind), start_with_a_fast_clock(kind));
        let name = fresh_name();
        let held = enter(&holder, &name);
        assert_kept_out(&other, &name);
        assert!(!holder.is_lost(held.handle), "{kind}");
    }
}

#[test]
fn a_loser_overwrites_the_deadline_of_the_winner_and_a_third_holder_enters() {
    let kind = LockKind::GetsetTimestamp;
    let ((loser, proxy), winner, third) = (start_by_proxy(kind), start(kind), start(kind));
    let (name, _) = enter_briefly(&winner);
    eventually("the lock has ended", || SystemTime::now() > ends(&name));

    // Both see that; what the loser saw reaches it only when the winner has the lock.
    let seen = proxy.arm(Command::redis("GET"), Action::HoldAnswer, Times::Next(1));
    let losing = loser.lock_later(&LockRequest::new(&name, SHORT));
    eventually("the loser has looked", || seen.fired() == 1);
    let won = enter_later(&winner, &name);
    let believed = ends(&name);
    seen.release();
    let lost = losing.wait().expect_err("the winner has it");
    assert_eq!(lost.code, "timed_out", "{}", lost.message);
    assert!(ends(&name) < believed, "the winner's deadline is what it was");

    let intruders = enter_later(&third, &name);
    assert_both_hold((&winner, &won), (&third, &intruders));
}

#[test]
fn a_loser_of_a_race_for_one_key_changes_nothing() {
    for kind in [LockKind::SetNx, LockKind::LuaRelease] {
        let ((loser, proxy), winner, third) = (start_by_proxy(kind), start(kind), start(kind));
        let (name, _) = enter_briefly(&winner);
        eventually("the lock has ended", || lease_left_ms(servers().redis(), &name) == -2);

        proxy.hold(Direction::ToServer);
        let sets = proxy.watch(Command::redis("SET"));
        let losing = loser.lock_later(&LockRequest::new(&name, SHORT));
        eventually("the loser has asked", || sets.matched() == 1);
        let won = enter(&winner, &name);
        let owner = value(&name);
        proxy.release(Direction::ToServer);
        let lost = losing.wait().expect_err("the winner has it");
        assert_eq!(lost.code, "timed_out", "{}", lost.message);
        assert_eq!(value(&name), owner, "{kind}");
        let short = i64::try_from(SHORT.as_millis()).expect("a short time");
        assert!(lease_left_ms(servers().redis(), &name) > short, "{kind}");
        assert_kept_out(&third, &name);
        assert!(!winner.is_lost(won.handle), "{kind}");
    }
}
