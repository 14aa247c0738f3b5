//! The same owner again.

use conformance::fresh_name;
use conformance::protocol::{LockRequest, Outcome};
use distlock::Support;

use crate::arena::{
    Applicability, Arena, Check, LONG, SHORT, assert_busy, assert_free, at_once, has_lease,
    patiently,
};
use crate::fencing::has_tokens;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "the_same_owner_enters_again_and_the_last_release_frees",
        asked: |subject| {
            Applicability::of_those_that(subject.promise.reentrant.is_yes(), "refuses re-entry")
        },
        run: the_owner_enters_again,
    },
    Check {
        name: "what_is_left_of_a_lost_hold_frees_nothing_that_its_owner_takes_later",
        asked: |subject| {
            let ends = subject.promise.reentrant.is_yes() && has_lease(&subject.promise);
            Applicability::of_those_that(ends, "refuses re-entry, or has no lease that ends")
        },
        run: a_stale_hold_is_harmless,
    },
    Check {
        name: "the_same_owner_does_not_enter_twice",
        asked: |subject| match subject.promise.reentrant {
            Support::No => Applicability::Yes,
            Support::Yes => Applicability::No("lets its owner enter again"),
            Support::NotApplicable => Applicability::No("has no owner"),
        },
        run: the_owner_does_not_enter_twice,
    },
];

fn the_owner_enters_again(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let has_tokens = has_tokens(&arena.promise);
    let wanted = if has_tokens { at_once(&name).fenced() } else { at_once(&name) };
    let first = pair.holder.lock(&wanted).expect("the lock is free");
    let again = wanted.clone().again_as(&first.owner);
    // Both ways round: the inner hold ends first, or the outer one does.
    for inner_first in [true, false] {
        let outer = if inner_first {
            first.clone()
        } else {
            pair.holder.lock(&wanted).expect("it was released")
        };
        let again = again.clone().again_as(&outer.owner);
        let inner = pair.holder.lock(&again).expect("it is the owner's");
        assert_eq!(outer.token.is_some(), has_tokens);
        assert_eq!(inner.token, outer.token, "one ownership has one token");
        assert_busy(&pair.holder, &name);
        let (one, last) = if inner_first { (inner, outer) } else { (outer, inner) };
        assert_eq!(pair.holder.release(one.handle), Ok(Outcome::Released));
        assert_busy(pair.rival(), &name);
        assert_eq!(pair.holder.release(last.handle), Ok(Outcome::Released));
        assert_free(pair.rival(), &name);
    }
}

fn a_stale_hold_is_harmless(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let stale =
        pair.holder.lock(&LockRequest::new(&name, SHORT).unrenewed()).expect("the lock is free");
    let between = pair.rival().lock(&patiently(&name)).expect("the lease ends");
    assert_eq!(pair.rival().release(between.handle), Ok(Outcome::Released));
    assert!(pair.holder.is_lost(stale.handle), "its holder believes in it");
    match pair.holder.lock(&at_once(&name).again_as(&stale.owner)) {
        Ok(anew) => {
            assert_ne!(pair.holder.release(stale.handle), Ok(Outcome::Released));
            assert_busy(pair.rival(), &name);
            assert_eq!(pair.holder.release(anew.handle), Ok(Outcome::Released));
        }
        // Where it could not tell one from the other.
        Err(failure) => {
            assert_eq!(failure.code, "lost", "{failure:?}");
            // What it took of some servers before it was refused goes back behind it, and not with
            // the end of its lease.
            let soon = at_once(&name).waiting(LONG / 2);
            let next = pair.rival().lock(&soon).expect("nothing was taken");
            assert_eq!(pair.holder.release(stale.handle), Ok(Outcome::HeldByOther));
            assert_busy(&pair.holder, &name);
            assert_eq!(pair.rival().release(next.handle), Ok(Outcome::Released));
        }
    }
    assert_free(pair.rival(), &name);
}

fn the_owner_does_not_enter_twice(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("the lock is free");
    let failure = pair.holder.lock(&at_once(&name).again_as(&held.owner)).expect_err("held");
    assert_eq!(failure.code, "timed_out", "{failure:?}");
    assert_busy(pair.rival(), &name);
    assert_eq!(pair.holder.release(held.handle), Ok(Outcome::Released));
    assert_free(pair.rival(), &name);
}
