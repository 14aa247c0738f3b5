//! What is shared besides the plain lock, what is not, and what becomes of those who mix them up.

use conformance::counter::number_in;
use conformance::protocol::{Contest, LockRequest, Outcome};
use conformance::{Contender, Servers, eventually};
use distlock::LockKind;

use crate::Check;
use crate::scene::{
    LONG_WAIT, Scene, another_multi_of_ours, another_of, another_of_ours, redis_says, refusal, want,
};

pub(crate) const OF_REDISSON: &[Check] = &[
    (
        "a_multi_lock_is_the_plain_locks_that_it_is_made_of",
        a_multi_lock_is_the_plain_locks_that_it_is_made_of,
    ),
    (
        "multi_locks_of_the_two_sides_over_the_same_names_keep_each_other_out",
        multi_locks_of_the_two_sides_over_the_same_names_keep_each_other_out,
    ),
    (
        "a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind",
        a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind,
    ),
    (
        "a_read_write_lock_of_redisson_enters_beside_a_plain_hold_and_ends_with_it",
        a_read_write_lock_of_redisson_enters_beside_a_plain_hold_and_ends_with_it,
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
        "a_lock_of_a_dead_holder_without_a_lease_is_distinguished_and_freed_by_force",
        a_lock_of_a_dead_holder_without_a_lease_is_distinguished_and_freed_by_force,
    ),
];

/// The whole is a lock of one side, and the parts are locks of the other.
fn a_multi_lock_is_the_plain_locks_that_it_is_made_of(scene: &Scene) {
    let (theirs, ours) = (another_of(scene.peer, "multi"), another_multi_of_ours());
    for (multi, plain) in [(&theirs, &scene.ours), (&ours, &scene.theirs)] {
        let names = [scene.fresh_name(), scene.fresh_name()];
        let both = want(&names.join(","));
        let held = multi.insist(&both);
        for name in &names {
            assert_eq!(refusal(&plain.contender, &want(name)), "timed_out", "{plain}");
        }
        multi.release(held.handle).expect("it is held");
        // Whichever of them is busy: the other one is given back.
        for (busy, free) in [(0, 1), (1, 0)] {
            let one = plain.contender.insist(&want(&names[busy]));
            assert_eq!(refusal(multi, &both), "timed_out", "beside {plain}");
            let other = plain.contender.insist(&want(&names[free]));
            for held in [one, other] {
                plain.contender.release(held.handle).expect("it is held");
            }
        }
        let held = multi.insist(&both);
        multi.release(held.handle).expect("it is held");
    }
}

/// In whatever order each side names them.
fn multi_locks_of_the_two_sides_over_the_same_names_keep_each_other_out(scene: &Scene) {
    let (ours, theirs) = (another_multi_of_ours(), another_of(scene.peer, "multi"));
    let names = [scene.fresh_name(), scene.fresh_name()];
    let [forth, back] = [&names[0], &names[1]];
    let wanted = [want(&format!("{forth},{back}")), want(&format!("{back},{forth}"))];
    for (holder, other) in [(&ours, &theirs), (&theirs, &ours)] {
        let held = holder.insist(&wanted[0]);
        assert_eq!(redis_says(&["EXISTS", forth, back]), "2");
        assert_eq!(refusal(other, &wanted[1]), "timed_out");
        let waiting = other.lock_later(&wanted[1].clone().waiting(LONG_WAIT));
        let waiters = || scene.waiters(forth) + scene.waiters(back);
        eventually("the waiter waits", || waiters() == 1);
        holder.release(held.handle).expect("it is held");
        let got = waiting.wait().expect("they are free");
        assert_eq!(redis_says(&["EXISTS", forth, back]), "2");
        assert_eq!(refusal(holder, &wanted[0]), "timed_out");
        other.release(got.handle).expect("it is held");
    }
    contend(&[&ours, &theirs], &wanted);
}

/// Each side adds up, without any other guard. It names them in its own order: in two at once
/// Redisson's own would wait for each other.
fn contend(sides: &[&Contender; 2], wanted: &[LockRequest; 2]) {
    const TASKS: u32 = 2;
    const ROUNDS: u64 = 100;
    let counter = Servers::shared().fresh_path("counter");
    let contests = sides.iter().zip(wanted).map(|(side, wanted)| {
        let want = wanted.clone().waiting(LONG_WAIT);
        side.contend(Contest::new(want, TASKS, ROUNDS, &counter), LONG_WAIT * 2)
    });
    for contended in contests.collect::<Vec<_>>() {
        let failures = contended.wait().expect("a contest").failures;
        assert!(failures.is_empty(), "{failures:?}");
    }
    assert_eq!(number_in(&counter), sides.len() as u64 * u64::from(TASKS) * ROUNDS);
}

/// A read-write lock of Redisson has fields in its hash that are no owners. Redisson itself would
/// wait for it.
fn a_read_write_lock_of_redisson_is_refused_by_the_plain_one_as_another_kind(scene: &Scene) {
    for kind in ["write", "read"] {
        let theirs = another_of(scene.peer, kind);
        let want = scene.want_fresh();
        let held = theirs.insist(&want);
        assert_eq!(refusal(&scene.ours.contender, &want), "held_by_other_kind", "{kind}");
        theirs.release(held.handle).expect("it is untouched");
    }
}

/// As it does beside Redisson's own plain lock: it looks for its own field alone.
fn a_read_write_lock_of_redisson_enters_beside_a_plain_hold_and_ends_with_it(scene: &Scene) {
    for kind in ["write", "read"] {
        let theirs = another_of(scene.peer, kind);
        for plain in [&scene.ours, &scene.theirs] {
            let want = scene.want_fresh();
            let held = plain.contender.insist(&want);
            theirs.insist(&want);
            assert_eq!(plain.contender.release(held.handle), Ok(Outcome::Released), "{plain}");
            assert_eq!(redis_says(&["EXISTS", &want.name]), "0", "{kind} beside {plain}");
        }
    }
}

/// Read-write and fair locks do not exclude across the two libraries: this library has its own keys
/// for them.
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

fn a_lock_of_a_dead_holder_without_a_lease_is_distinguished_and_freed_by_force(scene: &Scene) {
    let [_, theirs] = scene.more();
    let want = scene.want_fresh();
    theirs.contender.insist(&want);
    let busy = scene.ours.contender.lock(&want).expect_err("it is held");
    assert!(!busy.message.contains("no lease"), "{busy:?}");
    theirs.contender.kill();
    assert_eq!(redis_says(&["PERSIST", &want.name]), "1");
    let endless = scene.ours.contender.lock(&want).expect_err("it is still held");
    assert!(endless.code == "timed_out" && endless.message.contains("no lease"), "{endless:?}");
    for (side, _) in scene.both_ways() {
        let seen = side.contender.inspect(&want.name).expect("a lock");
        assert_eq!((seen.is_locked, seen.left_ms), (true, -1), "{side}");
    }
    assert_eq!(scene.ours.contender.force_unlock(&want.name), Ok(true));
    let held = scene.theirs.contender.insist(&want);
    scene.theirs.contender.release(held.handle).expect("it is held");
}
