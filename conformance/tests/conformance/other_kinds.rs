//! Two kinds on one name of one server.

use std::time::Duration;

use conformance::variant::Variant;
use conformance::{Home, home};
use distlock::{LockError, LockKind, LockOptions, Locks, Release, locker};

use crate::arena::{Applicability, Arena, Check, fresh_name};

pub(crate) const CHECKS: &[Check] = &[Check {
    name: "a_name_that_another_kind_holds_is_not_taken",
    asked: |subject| {
        if !subject.promise.is_on_a_server() {
            return Applicability::No("lives in no server");
        }
        if subject.variant != Variant::Usual {
            return Applicability::No("has members that are asked themselves");
        }
        Applicability::of_those_that(
            neighbours(subject.kind).count() > 0,
            "lives where no other kind does",
        )
    },
    run: |arena| arena.run(async || others_stay_out(arena).await),
}];

/// Kinds whose lock is the key of that very name. The others have places of their own, where they
/// meet no other kind.
fn uses_the_plain_key(kind: LockKind) -> bool {
    let has_its_own = matches!(kind, LockKind::Fair | LockKind::ReadWrite);
    home(kind) == Home::Redis && !has_its_own
}

/// The other kinds that live where this one does.
fn neighbours(kind: LockKind) -> impl Iterator<Item = LockKind> {
    LockKind::ALL.into_iter().filter(move |other| *other != kind && home(*other) == home(kind))
}

async fn others_stay_out(arena: &Arena) {
    let locks = arena.locks().await;
    let mut met = 0;
    for other in neighbours(arena.kind) {
        let others = match locker(other, &arena.servers.backends(other).await) {
            Err(LockError::Unsupported(_)) => continue,
            outcome => Locks::new(outcome.expect("its server is there")),
        };
        let name = fresh_name();
        let guard = locks.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        let lease = others.guarantees().lease(Duration::from_secs(10));
        let outcome = others.lock(&name, &LockOptions::new(Duration::ZERO, lease)).await;
        match outcome {
            Err(LockError::TimedOut { .. } | LockError::HeldByOtherKind) => {}
            Err(error) => panic!("{other}: {error}"),
            Ok(_) if uses_the_plain_key(other) && uses_the_plain_key(arena.kind) => {
                panic!("{other} took what was held");
            }
            Ok(guard) => drop(guard.release().await.expect("a release")),
        }
        others.flush().await;
        assert!(!guard.is_lost());
        assert_eq!(
            guard.release().await.expect("a release"),
            Release::Released,
            "{other} was here"
        );
        met += 1;
    }
    assert!(met > 0, "it met no other kind");
}
