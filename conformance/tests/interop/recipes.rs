//! What else Curator has: who mixes it up with the plain lock, and what becomes of that.

use conformance::eventually;
use conformance::protocol::Outcome;

use crate::Check;
use crate::nodes::{children, data};
use crate::scene::{Scene, another_of, refusal};

pub(crate) const CHECKS: &[Check] = &[
    (
        "read_write_locks_and_semaphores_of_curator_are_refused_as_another_kind",
        read_write_locks_and_semaphores_of_curator_are_refused_as_another_kind,
    ),
    (
        "read_write_locks_and_semaphores_of_curator_enter_beside_a_holder_of_the_plain_lock",
        read_write_locks_and_semaphores_of_curator_enter_beside_a_holder_of_the_plain_lock,
    ),
    (
        "a_holder_of_ours_ignores_a_revocation_request_of_curator",
        a_holder_of_ours_ignores_a_revocation_request_of_curator,
    ),
];

/// With the beginning of a name that their nodes have.
const KINDS: [(&str, &str); 3] = [
    ("zookeeper-write", "__WRIT__"),
    ("zookeeper-read", "__READ__"),
    ("zookeeper-semaphore", "leases"),
];

fn read_write_locks_and_semaphores_of_curator_are_refused_as_another_kind(scene: &Scene) {
    let ours = &scene.ours.contender;
    for (kind, mark) in KINDS {
        let theirs = another_of(scene.peer, kind);
        let want = scene.want_fresh();
        let held = theirs.insist(&want);
        let nodes = children(&want.name);
        assert!(nodes.iter().any(|node| node.contains(mark)), "{kind}: {nodes:?}");
        assert_eq!(refusal(ours, &want), "held_by_other_kind", "{kind}");
        eventually("its node is gone again", || children(&want.name) == nodes);
        theirs.release(held.handle).expect("it is untouched");
    }
}

/// Curator's nodes of these recipes have other names than this library's.
fn read_write_locks_and_semaphores_of_curator_enter_beside_a_holder_of_the_plain_lock(
    scene: &Scene,
) {
    let ours = &scene.ours.contender;
    for (kind, _) in KINDS {
        let theirs = another_of(scene.peer, kind);
        let want = scene.want_fresh();
        let (held, beside) = (ours.insist(&want), theirs.insist(&want));
        assert_eq!(ours.release(held.handle), Ok(Outcome::Released), "{kind}");
        theirs.release(beside.handle).expect("it is held");
    }
}

fn a_holder_of_ours_ignores_a_revocation_request_of_curator(scene: &Scene) {
    let (ours, theirs) = (&scene.ours.contender, &scene.theirs.contender);
    let want = scene.want_fresh();
    let held = ours.insist(&want);
    assert_eq!(theirs.force_unlock(&want.name), Ok(true));
    let node = format!("{}/{}", want.name, children(&want.name)[0]);
    assert_eq!(data(&node), b"__REVOKE__");
    assert_eq!(refusal(theirs, &want), "timed_out");
    assert!(!ours.is_lost(held.handle));
    assert_eq!(ours.release(held.handle), Ok(Outcome::Released));
}
