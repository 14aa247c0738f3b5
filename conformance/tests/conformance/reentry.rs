//! The same owner again.

use conformance::fresh_name;
use conformance::protocol::Outcome;
use distlock::Answer;

use crate::arena::{Arena, Asked, Check, assert_busy, assert_free, at_once};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "the_same_owner_enters_again_and_the_last_release_frees",
        asked: |promise| {
            Asked::of_those_that(promise.reentrant.is_yes(), "lets nobody enter twice")
        },
        run: the_owner_enters_again,
    },
    Check {
        name: "the_same_owner_does_not_enter_twice",
        asked: |promise| match promise.reentrant {
            Answer::No => Asked::Yes,
            Answer::Yes => Asked::No("lets its owner enter again"),
            Answer::NotApplicable => Asked::No("has no owner"),
        },
        run: the_owner_does_not_enter_twice,
    },
];

fn the_owner_enters_again(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let first = pair.holder.lock(&at_once(&name)).expect("nobody has it");
    let again = at_once(&name).again_as(&first.owner);
    // Both ways round: the inner hold ends first, or the outer one does.
    for inner_first in [true, false] {
        let outer = if inner_first {
            first.clone()
        } else {
            pair.holder.lock(&at_once(&name)).expect("it was released")
        };
        let again = again.clone().again_as(&outer.owner);
        let inner = pair.holder.lock(&again).expect("it is the owner's");
        assert_eq!(inner.token, outer.token, "one ownership has one token");
        assert_busy(&pair.holder, &name);
        let (one, last) = if inner_first { (inner, outer) } else { (outer, inner) };
        assert_eq!(pair.holder.release(one.handle), Ok(Outcome::Released));
        assert_busy(pair.rival(), &name);
        assert_eq!(pair.holder.release(last.handle), Ok(Outcome::Released));
        assert_free(pair.rival(), &name);
    }
}

fn the_owner_does_not_enter_twice(arena: &Arena) {
    let (pair, name) = (arena.pair(), fresh_name());
    let held = pair.holder.lock(&at_once(&name)).expect("nobody has it");
    let failure = pair.holder.lock(&at_once(&name).again_as(&held.owner)).expect_err("held");
    assert_eq!(failure.code, "timed_out", "{failure:?}");
    assert_busy(pair.rival(), &name);
    assert_eq!(pair.holder.release(held.handle), Ok(Outcome::Released));
    assert_free(pair.rival(), &name);
}
