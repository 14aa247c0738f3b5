use std::collections::HashSet;
use std::num::NonZeroU64;

use loadtest_load::history::Grant;
use loadtest_load::history::final_state::{Audit, OrderRow};
use loadtest_load::history::record::{Names, Record};
use loadtest_load::outcome::Outcome;

use super::*;
use crate::evidence::{AuditCheck, Evidence};

/// The second code of a scene's requests.
const UNANSWERED: &str = "503 dependency_unavailable";
const TABLES: [&str; 3] = ["orders", "voucher_stock", "stock_grants"];

/// A load of three users with ids 10, 11 and 12 on two units; changed by each test.
struct Scene {
    records: Vec<Record>,
    rows: Vec<OrderRow>,
    earlier: HashSet<u64>,
    left: Option<i64>,
    granted: i64,
    all: bool,
    grants: Vec<Grant>,
}

fn record(user: u64, outcome: Outcome, order_id: Option<u64>, at: u64) -> Record {
    let n = u32::try_from(at).expect("small");
    Record {
        start_ns: at,
        end_ns: at + 10,
        user: user + 10,
        order: order_id.and_then(NonZeroU64::new),
        n,
        key: n,
        replica: Some(0),
        ..Record::that_ended(outcome)
    }
}

fn row(id: u64, user_id: u64) -> OrderRow {
    OrderRow::new(id, user_id)
}

impl Scene {
    /// Users 10 and 11 buy, 12 is told "sold out", 11 asks twice: nothing is wrong.
    fn good() -> Self {
        Self {
            records: vec![
                record(0, Outcome::Bought, Some(100), 0),
                record(1, Outcome::Bought, Some(101), 5),
                record(1, Outcome::AlreadyOrdered, Some(101), 20),
                record(2, Outcome::SoldOut, None, 30),
            ],
            rows: vec![row(100, 10), row(101, 11)],
            earlier: HashSet::new(),
            left: Some(0),
            granted: 2,
            all: true,
            grants: Vec::new(),
        }
    }

    fn judge(&self) -> Verdict {
        let own = Audit::of(&self.rows, 2, self.left.unwrap_or(0), TABLES);
        self.judge_with(AuditCheck::Equal { said: &own, own: &own })
    }

    fn judge_with(&self, audit: AuditCheck<'_>) -> Verdict {
        let mut records = self.records.clone();
        Record::sort(&mut records);
        let codes = ["", UNANSWERED].map(str::to_owned).into();
        judge(&Evidence {
            records: &records,
            names: &Names { codes, ..Names::default() },
            rows: &self.rows,
            rows_are_all: self.all,
            earlier: &self.earlier,
            elsewhere: &HashSet::new(),
            offered: Some(2),
            grants: &self.grants,
            granted: self.all.then_some(self.granted),
            left: self.left,
            effects: &[],
            audit,
            terms: &Terms::default(),
            marks: &[],
        })
    }
}

fn broken(verdict: &Verdict) -> Vec<Rule> {
    let demanded = Rule::ALL.into_iter().filter(|rule| !rule.is_of_some_runs());
    verdict.broken(&demanded.collect::<Vec<_>>()).map(|finding| finding.rule).collect()
}

#[test]
fn a_clean_sale_breaks_no_rule() {
    let verdict = Scene::good().judge();
    assert_eq!(broken(&verdict), []);
    assert_eq!(
        (verdict.orders, verdict.oversold, verdict.duplicate_users, verdict.lost),
        (2, 0, 0, 0)
    );
    assert_eq!(verdict.findings.len(), Rule::ALL.len());
}

#[test]
fn one_order_too_many_is_oversold() {
    let mut scene = Scene::good();
    scene.records[3] = record(2, Outcome::Bought, Some(102), 30);
    scene.rows.push(row(102, 12));
    scene.left = Some(-1);
    let verdict = scene.judge();
    assert_eq!(broken(&verdict), [Rule::OrdersWithinStock]);
    assert_eq!(verdict.oversold, 1);
}

#[test]
fn a_user_with_two_orders_is_found_even_if_both_were_acknowledged() {
    let mut scene = Scene::good();
    scene.records[1] = record(0, Outcome::Bought, Some(101), 5);
    scene.records[2] = record(1, Outcome::SoldOut, None, 20);
    scene.rows[1] = row(101, 10);
    let verdict = scene.judge();
    assert_eq!(broken(&verdict), [Rule::OneOrderPerUser]);
    assert_eq!(verdict.duplicate_users, 1);
}

#[test]
fn a_stock_that_does_not_add_up_is_found() {
    let mut scene = Scene::good();
    scene.left = Some(1);
    assert_eq!(broken(&scene.judge()), [Rule::StockAddsUp]);
}

#[test]
fn the_unit_of_a_cancelled_order_is_left_or_sold_to_another() {
    let mut scene = Scene::good();
    scene.rows[0].cancelled = true;
    assert_eq!(broken(&scene.judge()), [Rule::StockAddsUp], "it was not returned");
    scene.left = Some(1);
    assert_eq!(broken(&scene.judge()), []);
    scene.records[3] = record(2, Outcome::Bought, Some(102), 30);
    scene.rows.push(row(102, 12));
    scene.left = Some(0);
    let verdict = scene.judge();
    assert_eq!((broken(&verdict), verdict.oversold, verdict.orders), (vec![], 0, 3));
    scene.records.push(record(0, Outcome::Bought, Some(103), 50));
    scene.rows.push(row(103, 10));
    assert!(broken(&scene.judge()).contains(&Rule::OneOrderPerUser), "it was its user's one order");
}

#[test]
fn more_or_fewer_units_on_sale_than_were_ordered_are_found() {
    for granted in [1, 3] {
        let scene = Scene { granted, ..Scene::good() };
        assert_eq!(broken(&scene.judge()), [Rule::StockAsOrdered]);
    }
}

#[test]
fn an_acknowledged_order_that_does_not_exist_is_lost() {
    let mut scene = Scene::good();
    scene.rows.remove(0);
    scene.left = Some(1);
    scene.records.remove(3);
    let verdict = scene.judge();
    assert_eq!(broken(&verdict), [Rule::AcknowledgedExist]);
    assert_eq!(verdict.lost, 1);
}

#[test]
fn an_acknowledgement_without_an_id_cannot_be_asked_for_and_counts_as_lost() {
    let mut scene = Scene::good();
    scene.records[0].order = None;
    let verdict = scene.judge();
    assert!(broken(&verdict).contains(&Rule::AcknowledgedExist));
}

#[test]
fn an_order_of_another_user_does_not_count_as_the_acknowledged_one() {
    let mut scene = Scene::good();
    scene.rows[0] = row(100, 12);
    assert!(broken(&scene.judge()).contains(&Rule::AcknowledgedExist));
}

#[test]
fn a_refused_request_that_left_an_order_is_found() {
    let mut scene = Scene::good();
    scene.records[0] = record(0, Outcome::Refused, None, 0);
    scene.records.remove(3);
    assert_eq!(broken(&scene.judge()), [Rule::RefusalsLeftNoRow]);
}

#[test]
fn an_unknown_outcome_explains_one_order_of_its_user_and_no_more() {
    let mut scene = Scene::good();
    scene.records[0] = record(0, Outcome::Unknown, None, 0);
    assert_eq!(broken(&scene.judge()), []);

    scene.records.push(record(0, Outcome::Refused, None, 1));
    scene.rows.push(row(102, 10));
    let found = broken(&scene.judge());
    assert!(found.contains(&Rule::RefusalsLeftNoRow), "{found:?}");
}

#[test]
fn an_order_of_a_user_without_requests_is_a_phantom() {
    let mut scene = Scene::good();
    scene.records.remove(0);
    scene.records.remove(2);
    assert_eq!(broken(&scene.judge()), [Rule::NoRowWithoutRequest]);
}

#[test]
fn sold_out_before_enough_was_asked_for_is_false() {
    let mut scene = Scene::good();
    scene.records[3] = record(2, Outcome::SoldOut, None, 0);
    scene.records[1] = record(1, Outcome::Bought, Some(101), 500);
    scene.records[2] = record(1, Outcome::AlreadyOrdered, Some(101), 520);
    assert_eq!(broken(&scene.judge()), [Rule::SoldOutIsTrue]);
}

#[test]
fn sold_out_while_a_unit_stays_is_false() {
    let mut scene = Scene::good();
    scene.rows.pop();
    scene.records.truncate(1);
    scene.records.push(record(2, Outcome::SoldOut, None, 30));
    scene.left = Some(1);
    assert_eq!(broken(&scene.judge()), [Rule::SoldOutIsTrue]);
}

#[test]
fn sold_out_a_second_after_units_were_added_is_false_and_until_then_it_is_not() {
    const SECOND: u64 = 1_000_000_000;
    // One of the two units was added when the first was sold, and the second buyer came late.
    let told = |at| {
        let mut scene = Scene::good();
        scene.grants = vec![Grant { t: 50, v: 1, units: 1 }];
        scene.records[1] = record(1, Outcome::Bought, Some(101), 3 * SECOND);
        scene.records[2] = record(1, Outcome::AlreadyOrdered, Some(101), 3 * SECOND + 50);
        scene.records[3] = Record { n: 9, ..record(2, Outcome::SoldOut, None, at) };
        broken(&scene.judge())
    };
    assert_eq!(told(40), []);
    assert_eq!(told(SECOND), [], "it may have been asked for when that was still believed");
    assert_eq!(told(SECOND + 50), [Rule::SoldOutIsTrue]);
    assert_eq!(told(2 * SECOND), [Rule::SoldOutIsTrue]);
}

#[test]
fn already_ordered_without_an_order_is_false() {
    let mut scene = Scene::good();
    scene.records[3] = record(2, Outcome::AlreadyOrdered, None, 30);
    assert_eq!(broken(&scene.judge()), [Rule::AlreadyOrderedIsTrue]);
}

#[test]
fn two_acknowledgements_of_one_id_are_found() {
    let mut scene = Scene::good();
    scene.records[2] = record(1, Outcome::Bought, Some(101), 20);
    assert_eq!(broken(&scene.judge()), [Rule::IdsAreUnique]);
}

#[test]
fn one_ticket_may_answer_two_requests_of_its_user_and_of_no_other() {
    let by_ticket = |user, at| {
        let other = record(user, Outcome::Bought, Some(101), at);
        Record { admitted: true, ..other }
    };
    let mut scene = Scene::good();
    scene.records[1] = by_ticket(1, 5);
    scene.records[2] = by_ticket(1, 20);
    assert_eq!(broken(&scene.judge()), []);
    scene.records[3] = by_ticket(2, 30);
    assert!(broken(&scene.judge()).contains(&Rule::IdsAreUnique));
}

#[test]
fn a_unit_is_kept_for_a_ticket_from_when_it_was_asked_for_until_it_ends() {
    const SECOND: u64 = 1_000_000_000;
    // One of two units is sold; the other one was reserved for user 11 until its ticket ended.
    let told = |admitted, at| {
        let mut scene = Scene::good();
        scene.rows.pop();
        scene.left = Some(1);
        let ended = Record { end_ns: SECOND, ..record(1, Outcome::Refused, None, 5) };
        scene.records = vec![
            scene.records[0],
            Record { admitted, ..ended },
            Record { n: 9, ..record(2, Outcome::SoldOut, None, at) },
        ];
        broken(&scene.judge())
    };
    assert_eq!(told(true, 30), []);
    assert_eq!(told(true, 2 * SECOND - 20), [], "it may have been believed for a second");
    assert_eq!(told(true, 2 * SECOND), [], "it was sent when that was known");
    assert_eq!(told(true, 2 * SECOND + 1), [Rule::SoldOutIsTrue]);
    assert_eq!(told(false, 30), [Rule::SoldOutIsTrue], "nothing was kept for who was refused");
    // So was that of an admission without an answer in time, until a worker gave it back.
    let mut scene = Scene::good();
    scene.records[1] = Record { code: 1, ..record(1, Outcome::Refused, None, 5) };
    let bought = record(1, Outcome::Bought, Some(101), 3 * SECOND);
    scene.records[2] = Record { n: 8, admitted: true, ..bought };
    scene.records[3] = Record { n: 9, ..record(2, Outcome::SoldOut, None, 2 * SECOND) };
    assert_eq!(broken(&scene.judge()), []);
    scene.records[1].code = 0;
    assert_eq!(broken(&scene.judge()), [Rule::SoldOutIsTrue]);
    // The answer that brought the ticket first was lost, and its second request was told the end.
    let mut scene = Scene::good();
    scene.records[1] = record(1, Outcome::Unknown, None, 5);
    let bought = record(1, Outcome::Bought, Some(101), 3 * SECOND);
    scene.records[2] = Record { n: 8, admitted: true, ..bought };
    scene.records[3] = Record { n: 9, ..record(2, Outcome::SoldOut, None, 2 * SECOND) };
    assert_eq!(broken(&scene.judge()), []);
}

#[test]
fn an_audit_that_differs_in_any_member_is_found() {
    let scene = Scene::good();
    let own = Audit::of(&scene.rows, 2, 0, TABLES);
    let lies = [
        Audit { initial_stock: 3, ..own.clone() },
        Audit { stock_left: 1, ..own.clone() },
        Audit { orders: 1, ..own.clone() },
        Audit { distinct_users: 1, ..own.clone() },
        Audit { duplicate_users: 1, ..own.clone() },
        Audit { oversold: 1, ..own.clone() },
        Audit { consistent: false, ..own.clone() },
        Audit { tables: Audit::of(&[], 0, 0, ["lab_orders", "a", "b"]).tables, ..own.clone() },
    ];
    for said in &lies {
        let verdict = scene.judge_with(AuditCheck::Equal { said, own: &own });
        assert_eq!(broken(&verdict), [Rule::AuditAgrees], "{said:?}");
    }
}

#[test]
fn an_audit_that_is_missing_breaks_a_run_that_has_to_have_one() {
    let verdict = Scene::good().judge_with(AuditCheck::Absent);
    for (demands, expected) in [(vec![], &[][..]), (vec![Rule::AuditAgrees], &[Rule::AuditAgrees])]
    {
        let terms = Terms { demands, ..Terms::default() };
        let demanded = verdict.demanded(true, false, &terms);
        let broken: Vec<_> = verdict.broken(&demanded).map(|finding| finding.rule).collect();
        assert_eq!(broken, expected);
    }
}

#[test]
fn an_audit_that_did_not_move_with_the_clients_is_found() {
    let scene = Scene::good();
    let before = Audit::of(&[], 2, 2, TABLES);
    let good = Audit::of(&scene.rows, 2, 0, TABLES);
    let check = AuditCheck::Moved { before: &before, after: &good };
    assert_eq!(broken(&scene.judge_with(check)), []);
    let check = AuditCheck::Moved { before: &good, after: &good };
    assert_eq!(broken(&scene.judge_with(check)), [Rule::AuditAgrees]);
    for (said, then) in [(3, 0), (2, 1)] {
        let before = Audit { stock_left: said, ..before.clone() };
        let after = Audit { stock_left: then, ..good.clone() };
        let check = AuditCheck::Moved { before: &before, after: &after };
        assert_eq!(broken(&scene.judge_with(check)), [Rule::AuditAgrees], "{said} to {then}");
    }
    let inconsistent = Audit { consistent: false, ..good.clone() };
    let check = AuditCheck::Moved { before: &before, after: &inconsistent };
    assert_eq!(broken(&scene.judge_with(check)), [Rule::AuditAgrees]);
}

#[test]
fn orders_from_before_the_load_break_no_rule() {
    let mut scene = Scene::good();
    scene.earlier.insert(100);
    scene.granted = 3;
    scene.records.remove(0);
    scene.records.pop();
    scene.left = Some(1);
    assert_eq!(broken(&scene.judge()), []);
    assert_eq!(scene.judge().orders, 1);
}

#[test]
fn a_rule_that_cannot_be_judged_is_never_held() {
    let mut scene = Scene::good();
    scene.all = false;
    scene.left = None;
    let verdict = scene.judge_with(AuditCheck::Absent);
    let unjudged =
        [Rule::StockAsOrdered, Rule::StockAddsUp, Rule::NoRowWithoutRequest, Rule::AuditAgrees];
    assert_eq!(broken(&verdict), unjudged);
    for rule in unjudged {
        assert_eq!(verdict.finding(rule).expect("present").held, None);
    }
}
