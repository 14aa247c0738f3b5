//! Changes that a rule forbids: each must be found by exactly the rules it breaks, with the
//! requests that prove it.

use std::collections::HashSet;

use loadtest::history::event::Effect;
use loadtest::history::{Ended, Event};
use loadtest::judge::evidence::Audit;
use loadtest::judge::verdict::Rule::{self, *};

use crate::synthetic::Sale;
use crate::tape::{Tape, broken, judge, proofs};

const NEW_ORDER: u64 = 77;
const STRANGER: u64 = 5;

/// Asserts that these rules are broken and no other, and that the first is proved by all of these
/// requests.
async fn assert_found(what: &str, tapes: &[Tape], rules: &[Rule], requests: &[u32]) {
    let judgement = judge(tapes).await;
    let (mut expected, found) = (rules.to_vec(), broken(&judgement));
    expected.sort_unstable();
    assert_eq!(found, expected, "{what}: {:?}", judgement.failed_because);
    assert!(!judgement.ok, "{what}");
    let named = proofs(&judgement, rules[0]);
    let wanted: HashSet<u32> = requests.iter().copied().collect();
    assert!(wanted.is_subset(&named), "{what}: {wanted:?} is not in {named:?}");
}

/// The sale with one change, which gives the requests that prove it.
async fn assert_change(what: &str, rules: &[Rule], change: impl FnOnce(&mut Tape) -> Vec<u32>) {
    let mut tape = Tape::legal();
    let requests = change(&mut tape);
    assert_found(what, &[tape], rules, &requests).await;
}

/// A buyer whose one acknowledged request is this one, and the order.
fn a_purchase(tape: &Tape, nth: usize) -> (u32, u64) {
    let n = tape.with_code("201")[nth];
    (n, tape.end_of(n).o.expect("an order"))
}

/// A request that was told "sold out" after all others, so of a user without an order.
fn a_latecomer(tape: &Tape) -> u32 {
    *tape.with_code("sold_out").last().expect("sold out")
}

/// Takes the order of somebody who came late away again, so that there is a unit for another one.
fn frees_a_unit(tape: &mut Tape) {
    let last = tape.rows.last().expect("orders").user_id;
    tape.forgets(last);
}

/// A request that was refused at the door while there was plenty.
fn an_early_refusal(tape: &Tape) -> u32 {
    tape.with_code("overloaded")[0]
}

#[tokio::test]
async fn more_orders_than_units_are_found() {
    assert_change("one acknowledged too many", &[OrdersWithinStock], |tape| {
        let n = a_latecomer(tape);
        tape.buys(n, NEW_ORDER);
        tape.adds_row(NEW_ORDER, tape.user_of(n));
        vec![n]
    })
    .await;
    assert_change(
        "one too many by a request with an unknown outcome",
        &[OrdersWithinStock],
        |tape| {
            let n = a_latecomer(tape);
            tape.loses(n);
            tape.adds_row(NEW_ORDER, tape.user_of(n));
            vec![*tape.with_code("201").last().expect("orders")]
        },
    )
    .await;
    let all = [OrdersWithinStock, StockAsOrdered];
    assert_change("the service put one more on sale than was ordered", &all, |tape| {
        tape.granted += 1;
        let n = a_latecomer(tape);
        tape.buys(n, NEW_ORDER);
        tape.adds_row(NEW_ORDER, tape.user_of(n));
        vec![n]
    })
    .await;
}

#[tokio::test]
async fn a_user_with_two_orders_is_found() {
    assert_change("both acknowledged", &[OneOrderPerUser], |tape| {
        frees_a_unit(tape);
        let again = tape.with_code("already_ordered")[0];
        tape.buys(again, NEW_ORDER);
        let user = tape.user_of(again);
        tape.adds_row(NEW_ORDER, user);
        vec![again]
    })
    .await;
    assert_change("one of them without an answer", &[OneOrderPerUser], |tape| {
        frees_a_unit(tape);
        let again = tape.with_code("already_ordered")[3];
        tape.loses(again);
        tape.adds_row(NEW_ORDER, tape.user_of(again));
        vec![again]
    })
    .await;
}

#[tokio::test]
async fn a_stock_that_is_not_what_it_should_be_is_found() {
    for step in [-1, 1] {
        assert_change("units left", &[StockAddsUp], |tape| {
            tape.left = Some(step);
            vec![]
        })
        .await;
        assert_change("units granted", &[StockAsOrdered], |tape| {
            tape.granted += step;
            vec![]
        })
        .await;
    }
    assert_change("a unit leaked with a request that failed", &[StockAddsUp], |tape| {
        frees_a_unit(tape);
        tape.left = Some(0);
        vec![]
    })
    .await;
}

#[tokio::test]
async fn an_acknowledged_order_that_is_lost_is_found() {
    for nth in [0, 7, 150] {
        assert_change("no row", &[AcknowledgedExist], |tape| {
            let (n, order) = a_purchase(tape, nth);
            tape.drops_row(order);
            vec![n]
        })
        .await;
    }
    assert_change("an answer that names no order", &[AcknowledgedExist], |tape| {
        let (n, _) = a_purchase(tape, 5);
        tape.answer(n, |end| Event::Ok(Ended { o: None, ..end }));
        vec![n]
    })
    .await;
    let both = [AcknowledgedExist, NoRowWithoutRequest];
    assert_change("the row is somebody else's", &both, |tape| {
        let (n, order) = a_purchase(tape, 9);
        tape.drops_row(order);
        tape.adds_row(order, STRANGER);
        vec![n]
    })
    .await;
    let both = [AcknowledgedExist, RefusalsLeftNoRow];
    assert_change("the answer names another order than the row", &both, |tape| {
        let (n, _) = a_purchase(tape, 5);
        tape.buys(n, NEW_ORDER);
        vec![n]
    })
    .await;
}

#[tokio::test]
async fn a_refused_request_that_left_an_order_is_found() {
    for code in ["overloaded", "lock_lost", "sold_out"] {
        assert_change(code, &[RefusalsLeftNoRow], |tape| {
            let lost: Vec<u64> = tape.unknown().into_iter().map(|n| tape.user_of(n)).collect();
            let bought = tape.with_code("201").into_iter();
            let mut known = bought.filter(|n| !lost.contains(&tape.user_of(*n)));
            let n = known.next().expect("a user with known outcomes");
            // So late that a "sold out" is true.
            tape.answer(n, |end| Event::Ok(Ended { t: 1 << 40, ..end }));
            tape.refuses(n, code);
            vec![n]
        })
        .await;
    }
    assert_change("a latecomer who was told that all is gone", &[RefusalsLeftNoRow], |tape| {
        frees_a_unit(tape);
        let n = a_latecomer(tape);
        tape.adds_row(NEW_ORDER, tape.user_of(n));
        vec![n]
    })
    .await;
    assert_change("whose user's lost request wrote another one", &[RefusalsLeftNoRow], |tape| {
        frees_a_unit(tape);
        let n = a_latecomer(tape);
        let user = tape.user_of(n);
        let mine = tape.requests_of(user);
        for n in &mine {
            tape.refuses(*n, "order_in_progress");
        }
        let named =
            |end| Ended { o: Some(NEW_ORDER + 1), c: Some("outcome_unknown".into()), ..end };
        tape.answer(mine[0], |end| Event::Unknown(named(end)));
        tape.adds_row(NEW_ORDER, user);
        mine[1..].to_vec()
    })
    .await;
}

#[tokio::test]
async fn an_order_that_nobody_asked_for_is_found() {
    assert_change("of a stranger", &[NoRowWithoutRequest], |tape| {
        frees_a_unit(tape);
        tape.adds_row(NEW_ORDER, STRANGER);
        vec![]
    })
    .await;
    let mut first = Tape::legal();
    frees_a_unit(&mut first);
    let mut second = Sale::new(2, 50, 800);
    second.first = 10_000;
    let second = Tape::of(second);
    let user = STRANGER;
    first.adds_row(NEW_ORDER, user);
    assert_found("of a user of another voucher", &[first, second], &[NoRowWithoutRequest], &[])
        .await;
}

#[tokio::test]
async fn a_false_sold_out_is_found() {
    assert_change("at the beginning", &[SoldOutIsTrue], |tape| {
        let n = an_early_refusal(tape);
        tape.refuses(n, "sold_out");
        vec![n]
    })
    .await;
    assert_change("although units were left for ever", &[SoldOutIsTrue], |tape| {
        tape.offered += 500;
        tape.granted += 500;
        vec![tape.with_code("sold_out")[0]]
    })
    .await;
    assert_change("before the last hundred were asked for", &[SoldOutIsTrue], |tape| {
        let late = tape.with_code("201").split_off(90);
        for n in late {
            let (left, _) = tape.places(n);
            let Event::Invoke(invoke) = &mut tape.events[left] else { unreachable!() };
            invoke.t = 1 << 40;
            tape.answer(n, |end| Event::Ok(Ended { t: 1 << 41, ..end }));
        }
        for n in tape.with_code("already_ordered") {
            tape.answer(n, |end| Event::Fail(Ended { t: 1 << 41, ..end }));
        }
        vec![tape.with_code("sold_out")[0]]
    })
    .await;
    assert_change("long after the requests that came to nothing", &[SoldOutIsTrue], |tape| {
        frees_a_unit(tape);
        let last = tape.rows.last().expect("orders").user_id;
        tape.forgets(last);
        for n in tape.requests_of(last) {
            tape.hangs_up(n);
        }
        let told = a_latecomer(tape);
        tape.ends_late(told, 2_000_000_000);
        vec![told]
    })
    .await;
}

#[tokio::test]
async fn a_false_already_ordered_is_found() {
    assert_change("to somebody who has none", &[AlreadyOrderedIsTrue], |tape| {
        let n = a_latecomer(tape);
        tape.refuses(n, "already_ordered");
        vec![n]
    })
    .await;
    assert_change("before the purchase was sent", &[AlreadyOrderedIsTrue], |tape| {
        let n = tape.with_code("already_ordered")[0];
        let user = tape.user_of(n);
        for other in tape.requests_of(user).into_iter().filter(|other| *other != n) {
            let (left, _) = tape.places(other);
            let Event::Invoke(invoke) = &mut tape.events[left] else { unreachable!() };
            invoke.t = 1 << 30;
            let (_, ended) = tape.places(other);
            if let Event::Ok(end) | Event::Fail(end) | Event::Unknown(end) = &mut tape.events[ended]
            {
                end.t = 1 << 40;
            }
        }
        vec![n]
    })
    .await;
    assert_change("naming somebody else's order", &[AlreadyOrderedIsTrue], |tape| {
        let n = tape.with_code("already_ordered")[0];
        let mine = tape.end_of(n).o;
        let other = tape.rows.iter().map(|row| row.id).find(|id| Some(*id) != mine);
        tape.answer(n, |end| Event::Fail(Ended { o: other, ..end }));
        vec![n]
    })
    .await;
    assert_change("after a request that did not happen", &[AlreadyOrderedIsTrue], |tape| {
        let n = a_latecomer(tape);
        let user = tape.user_of(n);
        for other in tape.requests_of(user) {
            tape.loses(other);
        }
        tape.refuses(n, "already_ordered");
        vec![n]
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_given_twice_is_found() {
    assert_change("to one user, by requests with different keys", &[IdsAreUnique], |tape| {
        let n = tape.with_code("already_ordered")[0];
        let order = tape.end_of(n).o.expect("an order");
        tape.buys(n, order);
        vec![n]
    })
    .await;
    assert_change("to two users", &[IdsAreUnique, AcknowledgedExist], |tape| {
        let ((_, given), (n, own)) = (a_purchase(tape, 3), a_purchase(tape, 60));
        for other in tape.requests_of(tape.user_of(n)) {
            tape.refuses(other, "order_in_progress");
        }
        tape.buys(n, given);
        tape.drops_row(own);
        vec![n]
    })
    .await;
    assert_change("to two rows", &[IdsAreUnique, OneOrderPerUser], |tape| {
        frees_a_unit(tape);
        let (n, order) = a_purchase(tape, 3);
        tape.adds_row(order, tape.user_of(n));
        vec![n]
    })
    .await;
    let first = Tape::legal();
    let mut second = Sale::new(2, 50, 800);
    second.first = 10_000;
    let mut second = Tape::of(second);
    let (n, own) = a_purchase(&second, 3);
    let (other, given) = a_purchase(&first, 3);
    let user = second.user_of(n);
    for also in second.requests_of(user) {
        second.refuses(also, "order_in_progress");
    }
    second.buys(n, given);
    second.drops_row(own);
    second.adds_row(given, user);
    assert_found("for two vouchers", &[first, second], &[IdsAreUnique], &[n, other]).await;
}

#[tokio::test]
async fn an_effect_under_a_token_that_had_fallen_is_found() {
    let fenced = Tape::fenced();
    let request_of = |tape: &Tape, order: u64| {
        tape.with_code("201").into_iter().find(|n| tape.end_of(*n).o == Some(order))
    };
    let mut stale = fenced.clone();
    stale.effects[50].token = 1;
    let mut requests: Vec<u32> = request_of(&stale, stale.effects[50].o).into_iter().collect();
    requests.extend(request_of(&stale, stale.effects[49].o));
    assert_found("a stale holder wrote", &[stale], &[TokensRise], &requests).await;

    let mut jump = fenced.clone();
    jump.effects[10].token = 1_000_000;
    let requests: Vec<u32> = request_of(&jump, jump.effects[10].o).into_iter().collect();
    assert_found("a token came back after it had fallen", &[jump], &[TokensRise], &requests).await;

    let mut swapped = fenced.clone();
    let (a, b) = (swapped.effects[20].seq, swapped.effects[30].seq);
    (swapped.effects[20].seq, swapped.effects[30].seq) = (b, a);
    assert_found("two commits in the wrong order", &[swapped], &[TokensRise], &[]).await;

    let mut past = fenced;
    let gone = past.effects.remove(70);
    let requests: Vec<u32> = request_of(&past, gone.o).into_iter().collect();
    assert_found("an order past the fence", &[past], &[TokensRise], &requests).await;
}

#[tokio::test]
async fn an_effect_that_its_lock_cannot_have_allowed_is_found() {
    let fenced = Tape::fenced();
    let requests = |tape: &Tape, orders: &[u64]| -> Vec<u32> {
        let wanted = |n: &u32| tape.end_of(*n).o.is_some_and(|order| orders.contains(&order));
        tape.with_code("201").into_iter().filter(wanted).collect()
    };
    let mut equal = fenced.clone();
    equal.effects[50].token = equal.effects[49].token;
    let both = requests(&equal, &[equal.effects[49].o, equal.effects[50].o]);
    assert_found("two orders under one token", &[equal], &[TokensRise], &both).await;

    let mut phantom = fenced.clone();
    let last = phantom.effects.last().expect("effects").clone();
    phantom.effects.push(Effect { seq: last.seq + 1, token: last.token + 1, o: NEW_ORDER, ..last });
    assert_found("of an order that does not exist", &[phantom], &[TokensRise], &[]).await;

    let order = fenced.effects[60].o;
    let of_order: Vec<u32> = requests(&fenced, &[order]);
    let owner = fenced.rows.iter().find(|row| row.id == order).expect("a row").user_id;
    for (what, resource) in [
        ("a lock of another kind", "fair:lock:voucher:1".to_owned()),
        ("another voucher's lock", "redisson:lock:voucher:2".to_owned()),
        (
            "its buyer's lock, where others had the voucher's",
            format!("redisson:lock:order:{owner}"),
        ),
        ("another buyer's lock", "redisson:lock:order:5".to_owned()),
        ("a lock of nobody knows what", "redisson:x".to_owned()),
    ] {
        let mut tape = fenced.clone();
        tape.effects[60].res = resource.into();
        assert_found(what, &[tape], &[TokensRise], &of_order).await;
    }
    let mut nameless = fenced.clone();
    for effect in &mut nameless.effects {
        effect.res = "redisson:x".into();
    }
    assert_found("all under a lock of nobody knows what", &[nameless], &[TokensRise], &[]).await;

    let mut swapped = fenced;
    for (effect, row) in swapped.effects.iter_mut().zip(&swapped.rows) {
        effect.res = format!("redisson:lock:order:{}", row.user_id).into();
    }
    let other = swapped.effects[61].res.clone();
    swapped.effects[61].res = std::mem::replace(&mut swapped.effects[60].res, other);
    assert_found("two buyers under each other's lock", &[swapped], &[TokensRise], &of_order).await;
}

#[tokio::test]
async fn an_audit_that_says_something_else_is_found() {
    let legal = Tape::legal();
    let units = legal.granted;
    let own = Audit::of(&legal.rows, units, 0, ["orders", "voucher_stock", "stock_grants"]);
    for said in [
        Audit { stock_left: 1, ..own.clone() },
        Audit { orders: own.orders - 1, ..own.clone() },
        Audit { consistent: false, ..own.clone() },
        Audit { tables: std::collections::BTreeMap::new(), ..own.clone() },
    ] {
        let tape = Tape { said: Some(said), ..legal.clone() };
        assert_found("the audit", &[tape], &[AuditAgrees], &[]).await;
    }
}
