//! A holder that dies leaves a lock that can never be taken again. Witnesses: the count of the
//! proxy, and the end of the process.

use conformance::variant::Variant;
use conformance::{Contender, fresh_name};
use distlock::LockKind;
use testbed::{Action, Command, Times};

use crate::scene::{
    SHORT, assert_kept_out_for, briefly, changed, enter_briefly, enter_later, eventually,
    lease_left_ms, release, servers, start, start_by_proxy,
};

/// The holder is killed before it learns that its first command has taken the lock. The name.
fn killed_after_its_first_command(kind: LockKind, takes: &str) -> String {
    let ((holder, proxy), name) = (start_by_proxy(kind), fresh_name());
    let unanswered = proxy.arm(Command::redis(takes), Action::HoldAnswer, Times::Next(1));
    let expires = proxy.watch(Command::redis("PEXPIRE"));
    let asked = holder.lock_later(&briefly(&name));
    eventually("the lock is taken", || unanswered.fired() == 1);
    holder.kill();
    drop(asked);
    assert_eq!(expires.matched(), 0);
    name
}

/// The holder is killed while it holds. The name.
fn killed_holder(holder: &Contender) -> String {
    let (name, _) = enter_briefly(holder);
    holder.kill();
    name
}

fn assert_stays_for_ever(other: &Contender, name: &str) {
    // The server says that it never ends: a longer wait would not help.
    assert_eq!(lease_left_ms(servers().redis(), name), -1);
    assert_kept_out_for(other, name, SHORT * 4);
    assert_eq!(lease_left_ms(servers().redis(), name), -1);
}

fn assert_ends(other: &Contender, name: &str) {
    assert!(lease_left_ms(servers().redis(), name) != -1);
    release(other, &enter_later(other, name));
}

#[test]
fn a_holder_killed_between_setnx_and_expire_leaves_the_lock_for_ever() {
    let name = killed_after_its_first_command(LockKind::SetnxExpire, "SETNX");
    assert_stays_for_ever(&start(LockKind::SetnxExpire), &name);
}

#[test]
fn a_holder_killed_before_it_learns_that_it_holds_is_replaced() {
    let name = killed_after_its_first_command(LockKind::SetNx, "SET");
    assert_ends(&start(LockKind::SetNx), &name);
}

#[test]
fn without_expire_each_killed_holder_leaves_the_lock_for_ever() {
    let start = || {
        let setup = changed(LockKind::SetnxExpire, |setup| setup.variant = Variant::WithoutExpire);
        Contender::start_as(servers(), &setup)
    };
    let name = killed_holder(&start());
    assert_stays_for_ever(&start(), &name);
}

#[test]
fn with_a_lease_a_killed_holder_is_replaced() {
    for kind in [LockKind::SetnxExpire, LockKind::SetNx] {
        let name = killed_holder(&start(kind));
        assert_ends(&start(kind), &name);
    }
}
