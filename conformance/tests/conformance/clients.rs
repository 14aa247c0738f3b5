//! The clients of other languages, which have the kind `redisson`, and which checks are asked of
//! them. Their processes speak the contender's protocol.

use std::sync::Arc;

use conformance::variant::Variant;
use conformance::{Peer, promise};
use distlock::LockKind;
use libtest_mimic::Trial;

use crate::arena::{Applicability, Subject};
use crate::matrix::Matrix;

/// Why a check of the kind is not asked of its clients, and which ones. `make clients-test` runs
/// the clients' own tests.
const NOT_ASKED: [(&str, &[&str]); 6] = [
    (
        "drops futures of this library; the clients' own tests cancel at each step",
        &[
            "an_acquire_dropped_at_any_point_holds_nothing",
            "a_waiter_cancelled_at_any_point_blocks_no_other",
            "a_waiter_dropped_at_the_hand_off_holds_nothing",
            "an_acquire_dropped_while_its_token_is_minted_holds_nothing",
            "a_release_dropped_at_any_point_is_finished",
            "a_dropped_guard_frees_the_lock",
        ],
    ),
    (
        "loses answers in the process of the test; the interop tests do so for clients",
        &[
            "an_acquire_whose_answer_is_lost_counts_once",
            "a_re_entry_whose_answer_is_lost_counts_once",
            "a_release_whose_answer_is_lost_frees_the_lock_and_no_other",
        ],
    ),
    (
        "is about the inspector, which clients do not have",
        &[
            "inspection_shows_a_held_lock_with_its_holder_and_a_free_one_as_free",
            "inspection_frees_by_force_and_a_waiter_enters",
            "inspection_again_and_again_does_not_keep_a_lock",
            "inspection_names_the_holder_and_its_process_to_a_waiter_that_times_out",
        ],
    ),
    (
        "is about metrics and options of this library",
        &[
            "what_is_taken_renewed_and_lost_is_counted_under_its_kind",
            "a_waiter_is_counted_under_its_kind",
            "a_bad_request_is_refused_before_a_server_is_asked",
            "a_hold_that_has_lasted_as_long_as_it_may_is_freed_under_its_guard",
            "an_entry_that_has_lasted_as_long_as_it_may_leaves_the_outer_hold",
        ],
    ),
    (
        "meets kinds of this library in one process",
        &["a_name_that_another_kind_holds_is_not_taken"],
    ),
    (
        "sets a clock by a preload library, which Go does not load",
        &["a_clock_that_is_minutes_off_neither_ends_a_lease_nor_lengthens_it"],
    ),
];

/// Checks that are asked of each client. A check of the kind that is new is asked of them, too.
pub(crate) const ASKED: usize = 22;

/// The clients, where `clients/prepare.sh` has made their contenders.
pub(crate) fn subjects() -> Vec<Subject> {
    if !cfg!(feature = "interop") {
        return Vec::new();
    }
    let (kind, variant) = (LockKind::Redisson, Variant::Usual);
    let subject = |client: Peer, name| {
        let (promise, client) = (promise(kind), Some(client));
        Subject { name, kind, variant, promise, client }
    };
    let names = ["client-python", "client-go", "client-node"];
    Peer::CLIENTS.into_iter().zip(names).map(|(client, name)| subject(client, name)).collect()
}

/// The test that so much is asked of each client.
pub(crate) fn floor_trial(matrix: &Arc<Matrix>) -> Option<Trial> {
    let (matrix, clients) = (Arc::clone(matrix), subjects());
    let name = "client-floor::each_client_is_asked_the_recorded_number_of_checks";
    let test = move || {
        for Subject { name, .. } in subjects() {
            let asked = matrix.asked().filter(|(subject, _)| subject.name == name).count();
            assert_eq!(asked, ASKED, "checks are asked of {name}");
        }
        Ok(())
    };
    (!clients.is_empty()).then(|| Trial::test(name, test))
}

/// Whether a check of the kind is asked of its clients.
pub(crate) fn is_asked(check: &str) -> Applicability {
    let not_asked = NOT_ASKED.iter().find(|(_, checks)| checks.contains(&check));
    not_asked.map_or(Applicability::Yes, |(reason, _)| Applicability::No(reason))
}
