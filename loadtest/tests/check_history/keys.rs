//! Orders whose request is known by its idempotency key: no other explains them.

use loadtest_judge::verdict::Rule::{NoRowWithoutRequest, RefusalsLeftNoRow};
use loadtest_load::history::key::key_of;
use loadtest_load::history::{Completion, Event};

use crate::legal::assert_clean;
use crate::mutations::{a_latecomer, assert_found, frees_a_unit};
use crate::tape::Tape;

const NEW_ORDER: u64 = 77;

/// A user who timed out and was refused, by requests of those numbers with different keys, and has
/// an order now.
pub(crate) fn timed_out_and_refused() -> (Tape, [u32; 2]) {
    let mut tape = Tape::keyed();
    frees_a_unit(&mut tape);
    let user = tape.user_of(a_latecomer(&tape));
    let mine = tape.requests_of(user);
    for n in &mine {
        tape.refuses(*n, "lock_lost");
    }
    tape.loses(mine[0]);
    tape.adds_row(NEW_ORDER, user);
    assert_ne!(tape.key_of(mine[0]), tape.key_of(mine[1]));
    (tape, [mine[0], mine[1]])
}

#[tokio::test]
async fn an_order_of_a_refused_request_is_found_though_another_of_its_user_was_lost() {
    let (tape, [lost, refused]) = timed_out_and_refused();
    let with_key = |key| {
        let mut tape = tape.clone();
        tape.rows.last_mut().expect("a row").key = key;
        tape
    };
    let of = |n| Some(key_of(tape.key_of(n)));
    assert_clean("it is that of the lost one", &[with_key(of(lost))]).await;
    assert_clean("nobody knows whose it is", &[with_key(None)]).await;
    let of_refused = with_key(of(refused));
    assert_found("of the refused one", &[of_refused], &[RefusalsLeftNoRow], &[refused]).await;
}

/// An answer "unknown" may name an order that its request has not written.
#[tokio::test]
async fn an_order_that_a_lost_request_names_is_that_of_the_request_with_its_key() {
    let (mut tape, [lost, refused]) = timed_out_and_refused();
    tape.answer(lost, |end| Event::Unknown(Completion { o: Some(NEW_ORDER), ..end }));
    let of = |n| {
        let mut tape = tape.clone();
        tape.rows.last_mut().expect("a row").key = Some(key_of(tape.key_of(n)));
        tape
    };
    assert_clean("it is its own", &[of(lost)]).await;
    let of_refused = [of(refused)];
    assert_found("of the refused one", &of_refused, &[RefusalsLeftNoRow], &[refused]).await;
}

#[tokio::test]
async fn an_order_under_a_key_that_its_user_never_sent_is_found() {
    let (mut tape, _) = timed_out_and_refused();
    tape.rows.last_mut().expect("a row").key = Some(12_345);
    assert_found("though he sent others", &[tape], &[NoRowWithoutRequest], &[]).await;
}

#[tokio::test]
async fn orders_under_the_keys_of_their_requests_are_right_whatever_was_answered() {
    let tape = Tape::keyed();
    assert!(tape.rows.iter().all(|row| row.key.is_some()));
    assert_clean("as they are", std::slice::from_ref(&tape)).await;
    let mut unheard = tape;
    for n in unheard.with_code("201") {
        unheard.hangs_up(n);
    }
    assert_clean("nobody waited for an acknowledgement", &[unheard]).await;
}

#[tokio::test]
async fn a_ticket_without_an_end_may_be_that_of_another_request_of_its_user() {
    let (mut tape, [pending, twin]) = timed_out_and_refused();
    tape.rows.last_mut().expect("a row").key = Some(key_of(tape.key_of(twin)));
    let admitted = |end| Completion { s: Some(202), ..end };
    tape.answer(pending, |end| Event::Unknown(admitted(end)));
    tape.refuses(twin, "same_ticket");
    tape.answer(twin, |end| Event::Fail(admitted(end)));
    assert_clean("whose key its order has", &[tape]).await;
}
