//! Changes that no rule forbids.

use loadtest_judge::verdict::Rule;
use loadtest_load::history::event::EffectEvent;
use loadtest_load::history::{Completion, Event, Invoke, Source};
use uuid::Uuid;

use crate::synthetic::Sale;
use crate::tape::{Tape, UNITS, broken, judge, proofs};

pub(crate) async fn assert_clean(what: &str, tapes: &[Tape]) {
    let judgement = judge(tapes).await;
    assert_eq!(broken(&judgement), [], "{what}: {:?}", judgement.failed_because);
    assert!(judgement.ok, "{what}: {:?}", judgement.failed_because);
}

#[tokio::test]
async fn a_legal_sale_holds_every_kind_of_answer_and_is_good() {
    let tape = Tape::legal();
    assert_eq!(tape.rows.len(), UNITS, "sold out");
    for code in ["201", "sold_out", "already_ordered", "overloaded", "hung_up", "timed_out"] {
        assert!(tape.with_code(code).len() > 5, "{code}");
    }
    assert_clean("as it is", std::slice::from_ref(&tape)).await;
    let judgement = judge(&[tape]).await;
    assert_eq!(judgement.requests, 3000);
    assert!(judgement.unknown > 10);
    let held = &judgement.vouchers[0].verdict;
    assert_eq!(held.findings.iter().filter(|finding| finding.held == Some(true)).count(), 11);
    assert_clean("fenced", &[Tape::fenced()]).await;
}

#[tokio::test]
async fn unknown_outcomes_may_have_happened_or_not() {
    let legal = Tape::legal();
    let mut happened = legal.clone();
    for n in happened.with_code("201") {
        happened.hangs_up(n);
    }
    assert_clean("nobody waited for an acknowledgement", &[happened]).await;
    let mut not = legal.clone();
    let buyers: Vec<u64> = not.rows.iter().map(|row| row.user_id).take(20).collect();
    for buyer in buyers {
        not.forgets(buyer);
        for n in not.requests_of(buyer) {
            not.hangs_up(n);
        }
    }
    assert_clean("twenty users never got through", &[not]).await;
    let mut endless = legal;
    let lost = endless.with_code("timed_out");
    let gone = |event: &Event<'_>| matches!(event, Event::Unknown(end) if lost.contains(&end.n));
    endless.events.retain(|event| !gone(event));
    assert_clean("requests without an end", &[endless]).await;
}

#[tokio::test]
async fn lines_may_stand_in_another_order_than_their_times() {
    let mut late = Tape::legal();
    let (left, ended): (Vec<_>, Vec<_>) =
        late.events.into_iter().partition(|event| matches!(event, Event::Invoke(_)));
    late.events = left.into_iter().chain(ended.into_iter().rev()).collect();
    late.rows.reverse();
    assert_clean("ends come last, the last first", &[late]).await;
}

#[tokio::test]
async fn a_repeated_request_may_get_the_first_answer_again() {
    let mut tape = Tape::legal();
    let bought = tape.with_code("201")[50];
    let order = tape.end_of(bought).o.expect("an order");
    let (left, _) = tape.places(bought);
    let Event::Invoke(first) = tape.events[left].clone() else { unreachable!() };
    for again in 0..3 {
        let (n, t) = (1_000_000 + again, 1 << 40);
        tape.events.push(Event::Invoke(Invoke { n, t, ..first }));
        let ended =
            Completion { n, t: t + 1, o: Some(order), s: Some(201), ..Completion::default() };
        tape.events.push(Event::Ok(ended));
    }
    assert_clean("three times with its key", &[tape]).await;
}

#[tokio::test]
async fn an_order_may_be_older_than_the_repeated_request_that_it_answers() {
    let mut tape = Tape::legal();
    let user = tape.user_of(tape.with_code("sold_out")[0]);
    let buyer = tape.rows.last().expect("orders").user_id;
    tape.forgets(buyer);
    let mine = tape.requests_of(user);
    let Event::Invoke(first) = tape.events[tape.places(mine[0]).0] else { unreachable!() };
    tape.loses(mine[0]);
    tape.answer(mine[1], |end| {
        let code = Some("already_ordered".into());
        Event::Fail(Completion { o: Some(70), c: code, ..end })
    });
    let (n, t) = (1_000_000, 1 << 40);
    tape.events.push(Event::Invoke(Invoke { n, t, ..first }));
    let (o, s) = (Some(70), Some(201));
    tape.events.push(Event::Ok(Completion { n, t: t + 1, o, s, ..Completion::default() }));
    tape.adds_row(70, user);
    assert_clean("lost, told of, repeated with its key", std::slice::from_ref(&tape)).await;

    let left = tape.events.iter_mut().rev().find(|event| matches!(event, Event::Invoke(_)));
    let Some(Event::Invoke(repeated)) = left else { unreachable!() };
    repeated.k = Uuid::nil();
    let judgement = judge(&[tape]).await;
    assert_eq!(broken(&judgement), [Rule::AlreadyOrderedIsTrue], "with another key");
    assert_eq!(proofs(&judgement, Rule::AlreadyOrderedIsTrue), [mine[1]].into());
}

/// Three units, asked for at 0, 100 and 200, and a "sold out" that comes at `told_at`.
fn three_units(told_at: u64) -> Tape {
    let mut tape = Tape { offered: 3, granted: 3, events: vec![], rows: vec![], ..Tape::legal() };
    let invoke = |n: u32, t| Invoke { t, n, u: u64::from(n) + 50, v: 1, k: Uuid::from_u128(9) };
    for (n, t) in [(0, 0), (1, 100), (2, 200)] {
        let order = u64::from(n) + 70;
        tape.events.push(Event::Invoke(invoke(n, t)));
        tape.events.push(Event::Ok(Completion {
            n,
            t: 500,
            o: Some(order),
            ..Completion::default()
        }));
        tape.adds_row(order, u64::from(n) + 50);
    }
    tape.events.push(Event::Invoke(invoke(3, 0)));
    let code = Some("sold_out".into());
    tape.events.push(Event::Fail(Completion {
        n: 3,
        t: told_at,
        c: code,
        ..Completion::default()
    }));
    tape
}

#[tokio::test]
async fn a_sold_out_is_true_from_the_moment_the_last_unit_was_asked_for() {
    assert_clean("a nanosecond after", &[three_units(201)]).await;
    for told_at in [200, 150, 1] {
        let judgement = judge(&[three_units(told_at)]).await;
        assert_eq!(broken(&judgement), [Rule::SoldOutIsTrue], "{told_at}");
        assert_eq!(proofs(&judgement, Rule::SoldOutIsTrue), [3].into(), "{told_at}");
    }
}

#[tokio::test]
async fn orders_from_before_the_load_are_not_of_the_load() {
    let mut tape = Tape::legal();
    let (first, user) = (5, tape.user_of(tape.with_code("sold_out")[0]));
    tape.earlier = vec![first];
    tape.adds_row(first, user);
    tape.granted += 1;
    for n in tape.requests_of(user) {
        tape.answer(n, |end| {
            let code = Some("already_ordered".into());
            Event::Fail(Completion { o: Some(first), c: code, ..end })
        });
    }
    assert_clean("somebody had one", &[tape]).await;
}

#[tokio::test]
async fn what_clients_see_is_judged_and_what_they_cannot_see_is_not_demanded() {
    let tape = Tape { source: Source::Clients, ..Tape::legal() };
    let judgement = judge(&[tape]).await;
    assert!(judgement.ok, "{:?}", judgement.failed_because);
    let judged = &judgement.vouchers[0];
    for rule in [Rule::StockAsOrdered, Rule::NoRowWithoutRequest, Rule::AuditAgrees] {
        assert!(!judged.demanded.contains(&rule), "{rule:?}");
        assert_eq!(judged.verdict.finding(rule).expect("present").held, None, "{rule:?}");
    }
}

#[tokio::test]
async fn vouchers_and_resources_are_judged_each_by_itself() {
    let mut second = Sale::new(2, 50, 800);
    second.first = 10_000;
    assert_clean("the same users", &[Tape::legal(), Tape::of(second)]).await;
    let mut tape = Tape::fenced();
    let rows = tape.rows.iter().rev();
    for (effect, row) in tape.effects.iter_mut().zip(rows) {
        (effect.o, effect.res) = (row.id, format!("redisson:lock:order:{}", row.user_id).into());
        effect.token = 1_000 - effect.token;
    }
    assert_clean("each buyer has a lock, and tokens, of his own", &[tape]).await;
}

#[tokio::test]
async fn a_holder_may_leave_more_than_one_effect_of_its_order() {
    let mut tape = Tape::fenced();
    for effect in &mut tape.effects {
        effect.seq *= 2;
    }
    let again = tape.effects.iter().step_by(3).cloned();
    let again: Vec<_> = again.map(|one| EffectEvent { seq: one.seq + 1, ..one }).collect();
    tape.effects.extend(again);
    assert_clean("twice under its one token", &[tape]).await;
}

#[tokio::test]
async fn a_sold_out_may_be_due_to_a_request_that_has_just_failed() {
    let mut tape = three_units(10_000);
    tape.hangs_up(2);
    let mut bought = tape.clone();
    bought.ends_late(3, 1 << 40);
    assert_clean("on account of one that left an order, for ever", &[bought]).await;
    tape.drops_row(72);
    let mut slow = tape.clone();
    slow.ends_late(3, 1 << 40);
    assert_clean("decided then, and answered late", &[slow]).await;
    for (asked_at, holds) in [(1_000_000_500, true), (1_000_000_501, false)] {
        let mut tape = tape.clone();
        tape.comes_late(3, asked_at);
        let judgement = judge(std::slice::from_ref(&tape)).await;
        let expected: &[Rule] = if holds { &[] } else { &[Rule::SoldOutIsTrue] };
        assert_eq!(broken(&judgement), expected, "{asked_at}");
        let ended = |event: &Event<'_>| matches!(event, Event::Unknown(end) if end.n == 2);
        tape.events.retain(|event| !ended(event));
        let judgement = judge(&[tape]).await;
        assert_eq!(broken(&judgement), [], "without an end it may be under way");
    }
}

#[tokio::test]
async fn a_unit_may_have_been_taken_since_a_lost_request_whose_repetition_was_acknowledged() {
    let mut tape = three_units(10_000);
    tape.comes_late(3, 1_990_000_000);
    let Event::Invoke(first) = tape.events[tape.places(2).0] else { unreachable!() };
    tape.hangs_up(2);
    let (n, t) = (4, 3_000_000_000);
    tape.events.push(Event::Invoke(Invoke { n, t, ..first }));
    let (o, s) = (Some(72), Some(201));
    tape.events.push(Event::Ok(Completion { n, t: t + 1, o, s, ..Completion::default() }));
    assert_clean("the order is as old as the first of them", std::slice::from_ref(&tape)).await;

    let left = tape.events.iter_mut().rev().find(|event| matches!(event, Event::Invoke(_)));
    let Some(Event::Invoke(repeated)) = left else { unreachable!() };
    repeated.k = Uuid::nil();
    let judgement = judge(&[tape]).await;
    assert_eq!(broken(&judgement), [Rule::SoldOutIsTrue], "with another key");
}
