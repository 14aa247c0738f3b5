//! What is shared besides the plain lock, what is not, and what becomes of those who mix them up.

use conformance::Contender;
use conformance::protocol::Want;
use distlock::LockKind;

use crate::Check;
use crate::scene::{Scene, another_of, another_of_ours, redis_says, want};

pub(crate) const OF_REDISSON: &[Check] = &[
    (
        "a_multi_lock_is_the_plain_locks_that_it_is_made_of",
        a_multi_lock_is_the_plain_locks_that_it_is_made_of,
    ),
    (
        "a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind",
        a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind,
    ),
    (
        "read_write_and_fair_locks_of_the_two_sides_do_not_exclude_each_other",
        read_write_and_fair_locks_of_the_two_sides_do_not_exclude_each_other,
    ),
    (
        "a_key_that_is_no_lock_is_refused_by_both_sides",
        a_key_that_is_no_lock_is_refused_by_both_sides,
    ),
    (
        "a_lock_of_the_dead_that_has_no_lease_is_told_from_a_busy_one_and_freed_by_force",
        a_lock_of_the_dead_that_has_no_lease_is_told_from_a_busy_one_and_freed_by_force,
    ),
];

fn a_multi_lock_is_the_plain_locks_that_it_is_made_of(scene: &Scene) {
    let multi = another_of(scene.peer, "multi");
    let names = [scene.fresh_name(), scene.fresh_name()];
    let both = want(&names.join(","));
    let held = multi.insist(&both);
    for name in &names {
        assert_eq!(refusal(&scene.ours.contender, &want(name)), "timed_out");
    }
    multi.release(held.handle).expect("it is held");
    let one = scene.ours.contender.insist(&want(&names[1]));
    assert_eq!(refusal(&multi, &both), "timed_out");
    let other = scene.ours.contender.insist(&want(&names[0]));
    for held in [one, other] {
        scene.ours.contender.release(held.handle).expect("it is held");
    }
    let held = multi.insist(&both);
    multi.release(held.handle).expect("it is held");
}

/// Its hash has fields that are no owners. Redisson itself would wait for it.
fn a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind(scene: &Scene) {
    for kind in ["write", "read"] {
        let theirs = another_of(scene.peer, kind);
        let want = scene.want_fresh();
        let held = theirs.insist(&want);
        assert_eq!(refusal(&scene.ours.contender, &want), "held_by_other_kind", "{kind}");
        theirs.release(held.handle).expect("nobody has touched it");
    }
}

/// So nobody may rely on it: this library has its own keys for them.
fn read_write_and_fair_locks_of_the_two_sides_do_not_exclude_each_other(scene: &Scene) {
    for (kind, same) in [("write", LockKind::ReadWrite), ("fair", LockKind::Fair)] {
        let (theirs, ours) = (another_of(scene.peer, kind), another_of_ours(same));
        let want = scene.want_fresh();
        let (held, also) = (theirs.insist(&want), ours.insist(&want));
        theirs.release(held.handle).expect("it is held");
        ours.release(also.handle).expect("it is held");
    }
}

fn a_key_that_is_no_lock_is_refused_by_both_sides(scene: &Scene) {
    let want = scene.want_fresh();
    // What Redisson's semaphore is.
    redis_says(&["SET", &want.name, "3"]);
    assert_eq!(refusal(&scene.ours.contender, &want), "held_by_other_kind");
    assert_eq!(refusal(&scene.theirs.contender, &want), "backend");
    assert_eq!(redis_says(&["GET", &want.name]), "3");
    redis_says(&["DEL", &want.name]);
}

fn a_lock_of_the_dead_that_has_no_lease_is_told_from_a_busy_one_and_freed_by_force(scene: &Scene) {
    let [_, theirs] = scene.more();
    let want = scene.want_fresh();
    theirs.contender.insist(&want);
    let busy = scene.ours.contender.lock(&want).expect_err("it is held");
    assert!(!busy.message.contains("no lease"), "{busy:?}");
    theirs.contender.kill();
    assert_eq!(redis_says(&["PERSIST", &want.name]), "1");
    let endless = scene.ours.contender.lock(&want).expect_err("nobody has freed it");
    assert!(endless.code == "timed_out" && endless.message.contains("no lease"), "{endless:?}");
    for (side, _) in scene.both_ways() {
        let seen = side.contender.inspect(&want.name).expect("a lock");
        assert_eq!((seen.is_locked, seen.left_ms), (true, -1), "{side}");
    }
    assert_eq!(scene.ours.contender.force_unlock(&want.name), Ok(true));
    let held = scene.theirs.contender.insist(&want);
    scene.theirs.contender.release(held.handle).expect("it is held");
}

fn refusal(contender: &Contender, want: &Want) -> String {
    contender.lock(want).expect_err("it is not to be had").code
}
