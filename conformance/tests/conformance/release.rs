//! How a hold ends because its holder wants it to.

use conformance::fresh_name;
use conformance::protocol::{LockRequest, Outcome};
use distlock::{Guarantees, OwnerCheck};

use crate::arena::{
    Applicability, Arena, Check, SHORT, assert_busy, assert_free, assert_free_for, at_once,
    fresh_name as checked_name, has_lease, of_all, patiently,
};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "a_release_frees_the_lock_at_once_and_says_so",
        asked: of_all,
        run: a_release_frees,
    },
    Check {
        name: "a_late_release_leaves_the_successor_alone",
        asked: |subject| match subject.promise.owner_checked {
            OwnerCheck::Racy | OwnerCheck::Atomic => with_lease(&subject.promise),
            OwnerCheck::Yes | OwnerCheck::No | OwnerCheck::NotApplicable => {
                Applicability::No("its release asks no server who the holder is")
            }
        },
        run: a_late_release_is_harmless,
    },
    Check {
        name: "a_late_release_frees_the_successor",
        asked: |subject| {
            let is_known = subject.promise.flaws.iter().any(|flaw| flaw.contains("DEL"));
            Applicability::of_those_that(
                subject.promise.owner_checked == OwnerCheck::No && is_known,
                "is not known for that",
            )
        },
        run: a_late_release_lets_a_third_in,
    },
    Check { name: "a_dropped_guard_frees_the_lock", asked: of_all, run: a_dropped_guard_frees },
];

fn with_lease(promise: &Guarantees) -> Applicability {
    Applicability::of_those_that(
        has_lease(promise),
        "no server ends its holds while their holder lives",
    )
}

fn a_release_frees(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    for _ in 0..3 {
        let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
        assert_eq!(pair.holder.release(held.handle), Ok(Outcome::Released));
        let held = pair.rival().lock(&at_once(&name)).expect("it was released");
        assert_eq!(pair.rival().release(held.handle), Ok(Outcome::Released));
    }
}

/// A holder whose lease has ended, and its successor: the processes and their handles.
fn succession(arena: &Arena, name: &str) -> [(conformance::Contender, u64); 2] {
    let [late, successor] = [arena.contender(), arena.contender()];
    let held = late.lock(&LockRequest::new(name, SHORT).unrenewed()).expect("the lock is free");
    let next = successor.lock(&patiently(name)).expect("the lease ends");
    assert!(late.is_lost(held.handle), "its holder believes in it");
    [(late, held.handle), (successor, next.handle)]
}

fn a_late_release_is_harmless(arena: &Arena) {
    let (third, name) = (arena.contender(), fresh_name());
    let [(late, late_handle), (successor, handle)] = succession(arena, &name);
    assert_eq!(late.release(late_handle), Ok(Outcome::HeldByOther));
    assert_busy(&third, &name);
    assert!(!successor.is_lost(handle));
    assert_eq!(successor.release(handle), Ok(Outcome::Released));
    assert_free(&third, &name);
}

fn a_late_release_lets_a_third_in(arena: &Arena) {
    let (third, name) = (arena.contender(), fresh_name());
    let [(late, late_handle), (successor, handle)] = succession(arena, &name);
    assert_busy(&third, &name);
    assert_eq!(late.release(late_handle), Ok(Outcome::Released), "it does not know better");
    third.lock(&at_once(&name)).expect("the successor's lock was freed");
    assert!(!successor.is_lost(handle), "two believe in it: that is the flaw");
}

fn a_dropped_guard_frees(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    pair.holder.drop_guard(held.handle);
    pair.holder.flush();
    assert_free(pair.rival(), &name);
    arena.run(async || {
        let (locks, others) = arena.two_locks().await;
        let (name, options) = (checked_name(), arena.options(std::time::Duration::ZERO));
        let panics = tokio::spawn({
            let (locks, name) = (locks.clone(), name.clone());
            async move {
                let _guard = locks.lock(&name, &options).await.expect("the lock is free");
                // A panic without the noise.
                std::panic::resume_unwind(Box::new("the holder's own"));
            }
        });
        assert!(panics.await.expect_err("it panics").is_panic());
        locks.flush().await;
        assert_free_for(&others, &name, "a holder that panicked").await;
    });
}
