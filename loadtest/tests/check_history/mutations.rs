//! Changes that a rule forbids: each must be found by exactly the rules it breaks, with the
//! requests that prove it.

use std::collections::HashSet;

use loadtest_judge::verdict::Rule;
use loadtest_judge::verdict::Rule::*;
use loadtest_load::history::final_state::Audit;
use loadtest_load::history::{Completion, Event};

use crate::synthetic::Sale;
use crate::tape::{Tape, broken, judge, proofs};

const NEW_ORDER: u64 = 77;
const STRANGER: u64 = 5;

/// Asserts that these rules are broken and no other, and that the first is proved by all of these
/// requests.
pub(crate) async fn assert_found(what: &str, tapes: &[Tape], rules: &[Rule], requests: &[u32]) {
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
pub(crate) fn a_latecomer(tape: &Tape) -> u32 {
    *tape.with_code("sold_out").last().expect("sold out")
}

/// Removes the order of a late buyer, so that there is a unit for another one.
pub(crate) fn frees_a_unit(tape: &mut Tape) {
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
        tape.answer(n, |end| Event::Ok(Completion { o: None, ..end }));
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
            tape.answer(n, |end| Event::Ok(Completion { t: 1 << 40, ..end }));
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
            |end| Completion { o: Some(NEW_ORDER + 1), c: Some("outcome_unknown".into()), ..end };
        tape.answer(mine[0], |end| Event::Unknown(named(end)));
        tape.adds_row(NEW_ORDER, user);
        mine[1..].to_vec()
    })
    .await;
}

#[tokio::test]
async fn an_order_without_a_request_is_found() {
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
            tape.answer(n, |end| Event::Ok(Completion { t: 1 << 41, ..end }));
        }
        for n in tape.with_code("already_ordered") {
            tape.answer(n, |end| Event::Fail(Completion { t: 1 << 41, ..end }));
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
        tape.comes_late(told, 2_000_000_000);
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
        tape.answer(n, |end| Event::Fail(Completion { o: other, ..end }));
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
