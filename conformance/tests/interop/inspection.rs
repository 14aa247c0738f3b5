//! A lock that another program holds, as the inspector of this library shows it.

use std::time::Duration;

use conformance::listed;
use conformance::protocol::Outcome;
use distlock::{LockError, LockHolder, LockName, LockOptions, Locks, RemainingLease, locker};

use crate::Check;
use crate::nodes::children;
use crate::scene::{RENEWED, Scene, another_of, in_a_runtime, kind, setup};

/// A waiter asks for the holder once a second.
const LONG_ENOUGH_TO_ASK: Duration = Duration::from_secs(3);

pub(crate) const CHECKS: &[Check] = &[(
    "a_foreign_holder_is_inspected_listed_and_named_to_a_waiter",
    a_foreign_holder_is_inspected_listed_and_named_to_a_waiter,
)];

/// Of peers that have such a lock.
pub(crate) const OF_READ_WRITE: &[Check] = &[(
    "a_foreign_read_write_lock_is_shown_as_read_or_written",
    a_foreign_read_write_lock_is_shown_as_read_or_written,
)];

fn a_foreign_holder_is_inspected_listed_and_named_to_a_waiter(scene: &Scene) {
    let want = scene.want_fresh();
    let theirs = &scene.theirs.contender;
    let first = theirs.insist(&want);
    let second = theirs.lock(&want.clone().again_as(&first.owner)).expect("again");
    let znode = scene.is_curator().then(|| children(&want.name).remove(0));
    let is_theirs = |holder: &LockHolder| assert_is(holder, znode.as_deref(), &first.owner);
    in_a_runtime(async || {
        let locks = locks_of(scene).await;
        let name = LockName::new(want.name.clone()).expect("a name");
        let holder = only_holder(&locks, &name).await;
        is_theirs(&holder);
        assert_eq!(listed(&locks, &want.name).await.expect("a list"), [want.name.as_str()]);
        let options = LockOptions::new(LONG_ENOUGH_TO_ASK, locks.guarantees().lease(RENEWED));
        let refused = locks.lock(&name, &options).await.expect_err("it is held");
        let LockError::TimedOut { holder: Some(named), .. } = refused else {
            panic!("{refused:?}")
        };
        is_theirs(&named);
        assert_eq!(named.id, holder.id);
    });
    for hold in [second, first] {
        assert_eq!(theirs.release(hold.handle), Ok(Outcome::Released));
    }
}

fn a_foreign_read_write_lock_is_shown_as_read_or_written(scene: &Scene) {
    let kinds =
        if scene.is_curator() { ["zookeeper-read", "zookeeper-write"] } else { ["read", "write"] };
    for (theirs, shares) in kinds.into_iter().zip([true, false]) {
        let theirs = another_of(scene.peer, theirs);
        let want = scene.want_fresh();
        let held = theirs.insist(&want);
        in_a_runtime(async || {
            let name = LockName::new(want.name.clone()).expect("a name");
            let holder = only_holder(&locks_of(scene).await, &name).await;
            assert_eq!(holder.shares, shares, "{holder:?}");
        });
        assert_eq!(theirs.release(held.handle), Ok(Outcome::Released));
    }
}

/// The locks of this library's kind that the peer shares.
async fn locks_of(scene: &Scene) -> Locks {
    let kind = kind(scene.peer);
    let backends = setup(kind.as_str()).addresses.connect().await.expect("servers");
    Locks::new(locker(kind, &backends).expect("a locker"))
}

async fn only_holder(locks: &Locks, name: &LockName) -> LockHolder {
    let shown = locks.inspect(name).await.expect("an answer");
    let [holder] = shown.state.holders() else { panic!("one holds it: {shown:?}") };
    holder.clone()
}

/// Asserts that it is the owner, which Curator stores nowhere but in the name of its znode.
fn assert_is(holder: &LockHolder, znode: Option<&str>, owner: &str) {
    if let Some(znode) = znode {
        assert_eq!((&holder.id[..], holder.lease), (znode, RemainingLease::Session));
        let place = holder.place.as_deref().expect("its session");
        assert!(place.starts_with("session 0x"), "{place}");
    } else {
        assert_eq!((holder.owner.as_deref(), holder.holds), (Some(owner), Some(2)));
        let RemainingLease::Ends(left) = holder.lease else { panic!("{holder:?}") };
        assert!(left <= RENEWED && !left.is_zero(), "{left:?}");
    }
}
