//! A holder that is late frees the lock of its successor. Witnesses: the holder stood still (the
//! testbed waits until the kernel says so of each thread), or the count of the proxy.

use std::time::Duration;

use conformance::protocol::{AcquiredLock, LockRequest, Outcome, Setup};
use conformance::variant::Variant;
use conformance::{Contender, fresh_name, setup};
use distlock::LockKind;
use testbed::{Action, Command, Direction, Times};

use crate::scene::{
    LONG, assert_both_hold, assert_kept_out, briefly, changed, enter, enter_briefly, enter_later,
    eventually, release, servers, start, start_by_proxy,
};

/// The lease of a holder whose release is paused. The first command of it is carried out in time,
/// also by a process that stands still for a moment.
const PAUSED_LEASE: Duration = Duration::from_secs(4);

/// A holder that keeps the lock for long after a late release of another.
struct LateRelease {
    contenders: [Contender; 3],
    name: String,
    successors: AcquiredLock,
    lates: AcquiredLock,
    /// What the late one was told.
    outcome: Outcome,
}

impl LateRelease {
    /// The first is frozen until its lease is over and the second has the lock; then it releases.
    fn after_a_freeze(setup: &Setup) -> Self {
        let contenders = [(); 3].map(|()| Contender::start_as(servers(), setup));
        let [first, second, _] = &contenders;
        let (name, lates) = enter_briefly(first);
        first.freeze();
        let successors = enter_later(second, &name);
        first.thaw();
        let outcome = release(first, &lates);
        Self { contenders, name, successors, lates, outcome }
    }

    /// Asserts that the successor's lock was freed: a third enters beside the second.
    fn assert_a_third_enters(&self) -> AcquiredLock {
        let [_, second, third] = &self.contenders;
        assert_eq!(self.outcome, Outcome::Released, "it believes so");
        let intruders = enter(third, &self.name);
        assert_both_hold((second, &self.successors), (third, &intruders));
        intruders
    }

    /// Asserts that the flaw repeats: the second frees the third's lock, and the first enters
    /// beside the third.
    fn assert_three_follow_one_another(&self) {
        let [first, second, third] = &self.contenders;
        let intruders = self.assert_a_third_enters();
        assert_eq!(release(second, &self.successors), Outcome::Released, "it believes so");
        let next = enter(first, &self.name);
        assert_both_hold((third, &intruders), (first, &next));
    }

    fn assert_the_successor_is_alone(&self) {
        let [_, second, third] = &self.contenders;
        assert_eq!(self.outcome, Outcome::HeldByOther);
        assert_kept_out(third, &self.name);
        assert!(!second.is_lost(self.successors.handle));
        assert_eq!(release(second, &self.successors), Outcome::Released);
    }
}

#[test]
fn after_a_freeze_a_bare_del_frees_the_successor_and_three_holders_follow_one_another() {
    for kind in [LockKind::SetnxExpire, LockKind::SetNx] {
        LateRelease::after_a_freeze(&setup(servers(), kind)).assert_three_follow_one_another();
    }
}

#[test]
fn after_a_freeze_a_release_that_checks_the_owner_leaves_the_successor_alone() {
    for kind in [LockKind::OwnerCheck, LockKind::LuaRelease, LockKind::Reentrant] {
        LateRelease::after_a_freeze(&setup(servers(), kind)).assert_the_successor_is_alone();
    }
}

#[test]
fn owners_that_are_numbers_of_the_process_are_equal_in_two_replicas() {
    let numbered = changed(LockKind::OwnerCheck, |setup| setup.variant = Variant::ProcessNumbers);
    let late = LateRelease::after_a_freeze(&numbered);
    assert_eq!(late.lates.owner, late.successors.owner);
    late.assert_three_follow_one_another();
}

#[test]
fn owners_that_are_random_are_never_equal() {
    let late = LateRelease::after_a_freeze(&setup(servers(), LockKind::OwnerCheck));
    assert_ne!(late.lates.owner, late.successors.owner);
    late.assert_the_successor_is_alone();
}

/// The first command of a release is answered only when the lease is over and another has the
/// lock.
fn paused_after_its_first_command(kind: LockKind, first_command: Command) -> LateRelease {
    let ((first, proxy), second, third) = (start_by_proxy(kind), start(kind), start(kind));
    let name = fresh_name();
    let lates = first.insist(&LockRequest::new(&name, PAUSED_LEASE).unrenewed());
    let paused = proxy.arm(first_command, Action::HoldAnswer, Times::Next(1));
    let releasing = first.release_later(lates.handle);
    eventually("the release is under way", || paused.fired() == 1);
    let successors = enter_later(&second, &name);
    paused.release();
    let outcome = releasing.wait().expect("an answer");
    LateRelease { contenders: [first, second, third], name, successors, lates, outcome }
}

#[test]
fn a_pause_between_get_and_del_frees_the_successor() {
    let late = paused_after_its_first_command(LockKind::OwnerCheck, Command::redis("GET"));
    late.assert_a_third_enters();
}

#[test]
fn a_release_that_is_one_script_has_no_pause_in_it() {
    // Its first command is all of it: it has been carried out in time, whatever it is told when.
    // A script, or the command for it where the server has that.
    let release = Command::redis("").when(|parts| {
        [&b"EVALSHA"[..], b"DELIFEQ"].iter().any(|name| parts[0].eq_ignore_ascii_case(name))
    });
    let LateRelease { contenders, name, successors, outcome, .. } =
        paused_after_its_first_command(LockKind::LuaRelease, release);
    let [_, second, third] = &contenders;
    assert_eq!(outcome, Outcome::Released);
    assert_kept_out(third, &name);
    assert!(!second.is_lost(successors.handle));
}

#[test]
fn a_release_that_is_one_script_is_late_as_a_whole_and_finds_out() {
    let kind = LockKind::LuaRelease;
    let ((first, proxy), second, third) = (start_by_proxy(kind), start(kind), start(kind));
    let name = fresh_name();
    let lates = first.insist(&briefly(&name));
    proxy.hold(Direction::ToServer);
    let releasing = first.release_later(lates.handle);
    let successors =
        second.lock(&LockRequest::new(&name, LONG).waiting(LONG)).expect("after the lease");
    proxy.release(Direction::ToServer);
    assert_eq!(releasing.wait().expect("an answer"), Outcome::HeldByOther);
    assert_kept_out(&third, &name);
    assert!(!second.is_lost(successors.handle));
}
