//! A lock in the memory of a process, and none at all. Witness: the other process, which holds the
//! lock of the same name at the same time.

use conformance::fresh_name;
use distlock::LockKind;

use crate::scene::{assert_both_hold, assert_kept_out, enter, start};

#[test]
fn a_lock_in_the_process_does_not_exclude_another_replica() {
    let (one, other, name) = (start(LockKind::Local), start(LockKind::Local), fresh_name());
    let held = enter(&one, &name);
    assert_kept_out(&one, &name);
    let others = enter(&other, &name);
    assert_both_hold((&one, &held), (&other, &others));
}

#[test]
fn no_lock_excludes_no_contender() {
    let (one, other, name) = (start(LockKind::None), start(LockKind::None), fresh_name());
    let held = enter(&one, &name);
    let (again, others) = (enter(&one, &name), enter(&other, &name));
    assert_both_hold((&one, &held), (&one, &again));
    assert_both_hold((&one, &held), (&other, &others));
}

#[test]
fn a_lock_on_a_server_keeps_other_replicas_out() {
    for kind in [LockKind::SetNx, LockKind::LuaRelease] {
        let (one, other, name) = (start(kind), start(kind), fresh_name());
        let held = enter(&one, &name);
        assert_kept_out(&one, &name);
        assert_kept_out(&other, &name);
        assert!(!one.is_lost(held.handle));
    }
}
