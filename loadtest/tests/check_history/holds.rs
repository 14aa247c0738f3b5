//! Holds of a lock that lets one in at a time: an overlap that no delay explains is found, and only
//! where the header says that the lock promises it.

use loadtest_judge::verdict::Rule::OneHolderAtATime;
use loadtest_load::history::event::Completion;
use loadtest_load::history::{DEMANDS, Event, LOCK_PER, LOCK_WAIT_MS, ONE_HOLDER_PER};

use crate::mutations::assert_found;
use crate::tape::{Tape, judge};

/// When a request was sent and answered.
fn times(tape: &Tape, n: u32) -> [u64; 2] {
    let Event::Invoke(invoke) = &tape.events[tape.places(n).0] else { unreachable!() };
    [invoke.t, tape.end_of(n).t]
}

/// Two requests of one user, and a time in which both were under way.
fn pair(tape: &Tape) -> ([u32; 2], [u64; 2]) {
    let bought = tape.with_code("201")[40];
    let [sent, ended] = times(tape, bought);
    let others = tape.requests_of(tape.user_of(bought));
    let meanwhile = others.into_iter().filter(|n| *n != bought).find_map(|n| {
        let [from, until] = times(tape, n);
        let both = [from.max(sent) + 10, until.min(ended)];
        (both[0] + 10 < both[1]).then_some((n, both))
    });
    let (other, both) = meanwhile.expect("requests at once");
    ([bought, other], both)
}

/// Gives a request this hold, which began `unsure` ns earlier at most.
fn hold(tape: &mut Tape, n: u32, h: [u64; 2], unsure: u64) {
    let [sent, _] = times(tape, n);
    let w = h[0].saturating_sub(sent).saturating_sub(unsure);
    let is_ok = matches!(tape.events[tape.places(n).1], Event::Ok(_));
    let held = |end: Completion<'static>| Completion { h: Some(h), w, ..end };
    tape.answer(n, |end| if is_ok { Event::Ok(held(end)) } else { Event::Fail(held(end)) });
}

#[tokio::test]
async fn two_holders_at_once_are_found_where_the_lock_admits_one_at_a_time() {
    let mut tape = Tape::legal();
    tape.settings.push((ONE_HOLDER_PER, "user"));
    let ([one, other], [from, until]) = pair(&tape);
    let both = [one, other];
    let halves = [[from, from + 1], [from + 1, until]];
    for (n, half) in both.into_iter().zip(halves) {
        hold(&mut tape, n, half, 0);
    }
    assert!(judge(&[tape.clone()]).await.ok, "one after the other");

    hold(&mut tape, one, [from, from + 2], 0);
    let rules = [OneHolderAtATime];
    assert_found("for a nanosecond", &[tape.clone()], &rules, &both).await;
    let mut bare = tape.clone();
    bare.settings.clear();
    assert!(judge(&[bare]).await.ok, "the lock promises nothing");
    hold(&mut tape, one, [from, from + 2], 1);
    assert!(judge(&[tape]).await.ok, "it may have been over when the other began");
}

#[tokio::test]
async fn a_run_whose_lock_promises_one_holder_and_reports_none_was_not_judged() {
    let mut tape = Tape::legal();
    tape.settings.push((ONE_HOLDER_PER, "user"));
    let judgement = judge(&[tape]).await;
    let why = "could not be judged: one at a time holds a lock (no answer reported a hold)";
    assert!(!judgement.ok && judgement.failed_because[0].contains(why), "{judgement:?}");
}

#[tokio::test]
async fn unknown_terms_make_a_history_bad() {
    for (setting, why) in [
        ((DEMANDS, "served_never"), "the rule served_never is unknown"),
        ((ONE_HOLDER_PER, "planet"), "one_holder_per planet is unknown"),
        ((LOCK_PER, "planet"), "lock_per planet is unknown"),
        ((LOCK_WAIT_MS, "-1"), "lock_wait_ms -1 is no time"),
    ] {
        let mut tape = Tape::legal();
        tape.settings.push(setting);
        let judgement = judge(&[tape]).await;
        assert!(!judgement.ok && judgement.failed_because[0].contains(why), "{judgement:?}");
    }
}
