//! Tokens.

use conformance::fresh_name;
use conformance::protocol::LockRequest;
use distlock::{Fencing, Guarantees};

use crate::arena::{Applicability, Arena, Check, SHORT, assert_free, at_once};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "each_ownership_has_a_higher_token_than_the_one_before",
        asked: |subject| {
            Applicability::of_those_that(has_tokens(&subject.promise), "has no tokens")
        },
        run: tokens_rise,
    },
    Check {
        name: "a_request_for_a_token_of_a_kind_without_tokens_is_refused",
        asked: |subject| Applicability::of_those_that(!has_tokens(&subject.promise), "has tokens"),
        run: no_token_no_lock,
    },
];

pub(crate) fn has_tokens(promise: &Guarantees) -> bool {
    match promise.fencing {
        Fencing::Yes | Fencing::Optional => true,
        Fencing::No | Fencing::NotNeeded | Fencing::NotApplicable => false,
    }
}

fn tokens_rise(arena: &Arena) {
    let [one, another] = [arena.contender(), arena.contender()];
    let name = fresh_name();
    let want = LockRequest::new(&name, SHORT).fenced().waiting(SHORT * 3);
    let mut tokens = Vec::new();
    for process in [&one, &one, &another, &one] {
        let held = process.lock(&want).expect("it is free");
        tokens.push(held.token.expect("a token"));
        process.release(held.handle).expect("a release");
    }
    let held = one.lock(&want).expect("it is free");
    tokens.push(held.token.expect("a token"));
    one.kill();
    let held = another.lock(&want).expect("its holder is dead");
    tokens.push(held.token.expect("a token"));
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    if arena.promise.fencing == Fencing::Yes {
        let held = another.lock(&at_once(&fresh_name())).expect("it is free");
        assert!(held.token.is_some(), "a token that was not asked for");
    }
}

fn no_token_no_lock(arena: &Arena) {
    let (process, name) = (arena.contender(), fresh_name());
    let failure = process.lock(&at_once(&name).fenced()).expect_err("there is no token");
    assert_eq!(failure.code, "unsupported", "{failure:?}");
    assert_free(&process, &name);
}
