//! The same owner enters again. Witness of the answer that is lost: the count of the proxy.

use conformance::protocol::{AcquiredLock, LockRequest, Outcome};
use conformance::{Contender, fresh_name};
use distlock::LockKind;
use testbed::{Action, Command, Times};

use crate::scene::{LONG, assert_kept_out, enter, release, servers, start, start_by_proxy};

/// The owner of a hold asks for the lock once more.
fn enter_again(
    contender: &Contender,
    name: &str,
    outer: &AcquiredLock,
) -> Result<AcquiredLock, conformance::protocol::Failure> {
    contender.lock(&LockRequest::new(name, LONG).again_as(&outer.owner))
}

#[test]
fn an_owner_of_a_plain_key_keeps_itself_out() {
    for kind in [LockKind::SetNx, LockKind::OwnerCheck, LockKind::LuaRelease] {
        let (holder, name) = (start(kind), fresh_name());
        let outer = enter(&holder, &name);
        let refused = enter_again(&holder, &name, &outer).expect_err("it is not reentrant");
        assert_eq!(refused.code, "timed_out", "{kind}: {}", refused.message);
    }
}

#[test]
fn an_owner_of_a_counted_hash_enters_again_and_leaves_as_often() {
    for kind in [LockKind::Reentrant, LockKind::Redisson] {
        let (holder, other, name) = (start(kind), start(kind), fresh_name());
        let outer = enter(&holder, &name);
        let inner = enter_again(&holder, &name, &outer).expect("it is the owner");
        assert_eq!(release(&holder, &inner), Outcome::Released);
        assert_kept_out(&other, &name);
        assert_eq!(release(&holder, &outer), Outcome::Released);
        enter(&other, &name);
    }
}

/// Enters, enters again with an answer that is lost on its way, so that it has to ask twice, and
/// leaves as often as it has entered. The name, and the process that held it.
fn with_a_lost_answer(kind: LockKind) -> (String, Contender) {
    let ((holder, proxy), name) = (start_by_proxy(kind), fresh_name());
    let outer = enter(&holder, &name);
    let lost = proxy.arm(Command::redis("EVALSHA"), Action::CutAnswer, Times::Next(1));
    let asked_again = proxy.watch(Command::redis("EVALSHA"));
    let inner = enter_again(&holder, &name, &outer);
    let inner = inner.or_else(|_| enter_again(&holder, &name, &outer)).expect("it is the owner");
    assert_eq!(lost.fired(), 1);
    assert!(asked_again.matched() >= 2);
    for held in [inner, outer] {
        assert_eq!(release(&holder, &held), Outcome::Released);
    }
    (name, holder)
}

fn holds(name: &str) -> String {
    servers().redis().command(&["HVALS", name]).expect("an answer").trim().to_owned()
}

#[test]
fn an_answer_that_is_lost_on_re_entry_counts_twice_and_the_lock_stays() {
    let (name, _holder) = with_a_lost_answer(LockKind::Reentrant);
    assert_eq!(holds(&name), "1", "a hold without a holder");
    assert_kept_out(&start(LockKind::Reentrant), &name);
}

#[test]
fn an_answer_that_is_lost_on_re_entry_counts_once_with_a_latch() {
    let (name, _holder) = with_a_lost_answer(LockKind::Redisson);
    assert_eq!(holds(&name), "");
    enter(&start(LockKind::Redisson), &name);
}
