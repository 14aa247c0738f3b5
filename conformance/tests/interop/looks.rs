//! What a lock that one side holds looks like to the other, and to the server.

use conformance::eventually;
use conformance::protocol::Outcome;
use uuid::Uuid;

use crate::Check;
use crate::nodes::children;
use crate::scene::{LONG_WAIT, RENEWED, Scene, Side, redis_says, want};

pub(crate) const OF_REDISSON: &[Check] = &[
    (
        "a_lock_looks_the_same_for_each_holder_and_hold_count",
        a_lock_looks_the_same_for_each_holder_and_hold_count,
    ),
    (
        "a_side_that_enters_again_keeps_the_other_out_until_its_last_release",
        a_side_that_enters_again_keeps_the_other_out_until_its_last_release,
    ),
];
pub(crate) const OF_CURATOR: &[Check] = &[
    (
        "nodes_are_named_alike_and_are_served_in_their_order",
        nodes_are_named_alike_and_are_served_in_their_order,
    ),
    OF_REDISSON[1],
];

/// One field, which is the owner, with the number of holds; a lease that has just begun; no other
/// key. Clients leave the latches of their calls to end by themselves, which takes 10 s.
fn a_lock_looks_the_same_for_each_holder_and_hold_count(scene: &Scene) {
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        let name = &want.name;
        let first = holder.contender.insist(&want);
        assert_hash(scene, name, &first.owner, 1);
        let second = holder.contender.lock(&want.clone().again_as(&first.owner)).expect("again");
        assert_eq!(second.owner, first.owner);
        assert_hash(scene, name, &first.owner, 2);
        for side in [holder, other] {
            let seen = side.contender.inspect(name).expect("a lock");
            assert!(seen.is_locked, "{side}");
            assert_lease(seen.left_ms);
        }
        assert_eq!(holder.contender.release(second.handle), Ok(Outcome::Released));
        assert_hash(scene, name, &first.owner, 1);
        assert_eq!(holder.contender.release(first.handle), Ok(Outcome::Released));
        eventually("nothing is left", || keys_of(scene, name).is_empty());
        for side in [holder, other] {
            let seen = side.contender.inspect(name).expect("a lock");
            assert_eq!((seen.is_locked, seen.left_ms), (false, -2), "{side}");
        }
    }
}

fn keys_of(scene: &Scene, name: &str) -> Vec<String> {
    let keys = redis_says(&["KEYS", &format!("*{name}*")]);
    let may_stay = |key: &&str| scene.peer.is_client() && key.contains("_latch:");
    keys.lines().filter(|key| !may_stay(key)).map(str::to_owned).collect()
}

fn assert_hash(scene: &Scene, name: &str, owner: &str, holds: u32) {
    let (process, number) = owner.split_once(':').expect("process:number");
    assert!(Uuid::parse_str(process).is_ok() && number.parse::<u64>().is_ok(), "{owner}");
    assert_eq!(redis_says(&["HGETALL", name]), format!("{owner}\n{holds}"));
    assert_lease(redis_says(&["PTTL", name]).trim().parse().expect("a number"));
    // A latch of the last call may be there for a moment.
    eventually("the lock is the only key", || keys_of(scene, name) == [name]);
}

/// Asserts that the lease is as long as the last renewal left it, with slack for a busy machine.
fn assert_lease(left_ms: i64) {
    let lease_ms = i64::try_from(RENEWED.as_millis()).expect("a few seconds");
    assert!((lease_ms / 3..=lease_ms).contains(&left_ms), "{left_ms} ms");
}

fn a_side_that_enters_again_keeps_the_other_out_until_its_last_release(scene: &Scene) {
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        let first = holder.contender.insist(&want);
        assert_busy(other, &want.name);
        let second = holder.contender.lock(&want.clone().again_as(&first.owner)).expect("again");
        holder.contender.release(second.handle).expect("it is held twice");
        assert_busy(other, &want.name);
        holder.contender.release(first.handle).expect("it is held once");
        let got = other.contender.insist(&want);
        assert_busy(holder, &want.name);
        other.contender.release(got.handle).expect("it is held");
    }
}

fn assert_busy(side: &Side, name: &str) {
    let refused = side.contender.lock(&want(name)).map_err(|failure| failure.code);
    assert_eq!(refused.expect_err("it is held"), "timed_out", "{side}");
}

fn nodes_are_named_alike_and_are_served_in_their_order(scene: &Scene) {
    for (holder, other) in scene.both_ways() {
        let want = scene.want_fresh();
        let held = holder.contender.insist(&want);
        let again = holder.contender.lock(&want.clone().again_as(&held.owner)).expect("again");
        let mut waiting = Vec::new();
        for side in [other, holder, other] {
            let waits = side.contender.lock_later(&want.clone().waiting(LONG_WAIT));
            waiting.push((side, waits));
            eventually("it is in the queue", || scene.waiters(&want.name) == waiting.len());
        }
        let names = children(&want.name);
        assert_eq!(names.len(), 4, "a re-entry makes no node: {names:?}");
        for (place, name) in names.iter().enumerate() {
            let (id, sequence) = parts(name);
            assert!(Uuid::parse_str(id).is_ok(), "{name}");
            assert_eq!(sequence, format!("{place:010}"), "{name}");
        }
        holder.contender.release(again.handle).expect("it is held twice");
        let mut last = (holder, held.handle);
        for (turn, (side, waits)) in waiting.into_iter().enumerate() {
            assert_eq!(children(&want.name), names[turn..]);
            last.0.contender.release(last.1).expect("it is held");
            last = (side, waits.wait().expect("its turn").handle);
        }
        last.0.contender.release(last.1).expect("it is held");
        eventually("nothing is left", || children(&want.name).is_empty());
    }
}

/// The id and the sequence of a node `_c_<id>-lock-<sequence>`.
fn parts(name: &str) -> (&str, &str) {
    let parts = name.strip_prefix("_c_").and_then(|name| name.split_once("-lock-"));
    parts.unwrap_or_else(|| panic!("{name}"))
}
