use std::num::NonZeroU64;

use super::*;
use crate::judge::evidence::{Names, OrderRow, Record};
use crate::lab::lock::Lock;
use crate::lab::predict::Scope;
use crate::load::tokens;

/// A sale to 700 users in which the service put `granted` units on sale and sold all of them,
/// consistently in itself, and its audit says so.
fn sale(granted: u32) -> (Plan, History, Reading) {
    let lines = (0..700).map(|id| format!(r#"{{"user_id":"{id}","token":"t{id}"}}"#));
    let users = tokens::parse(&lines.collect::<Vec<_>>().join("\n")).expect("tokens");
    let plan = Plan {
        target: Target::parse("http://127.0.0.1:1").expect("a target"),
        voucher: "1".to_owned(),
        users: users.into(),
        per_user: 3,
        connections: 96,
        timeout: CALL_DEADLINE,
    };
    let bought = |user: u32| Record {
        user: user.into(),
        outcome: Outcome::Bought,
        order: NonZeroU64::new(u64::from(user) + 1000),
        n: user,
        key: user,
        voucher: 0,
        start_ns: u64::from(user),
        end_ns: u64::from(user) + 10,
        replica: Some(0),
        code: 0,
    };
    let history = History {
        records: (0..granted).map(bought).collect(),
        names: Names { replicas: vec!["r1".to_owned()], codes: vec!["201".to_owned()] },
        elapsed: Duration::from_secs(1),
    };
    let row = |user: u32| OrderRow { id: u64::from(user) + 1000, user_id: user.into() };
    let rows: Vec<OrderRow> = (0..granted).map(row).collect();
    let account = Audit::of(&rows, granted.into(), 0, ["orders", "voucher_stock", "stock_grants"]);
    (plan, history, Reading { rows, account, effects: Vec::new(), resources: Vec::new() })
}

fn report(guards: Guards, granted: u32) -> CellReport {
    let place = Place { lock: Lock::None, scope: Scope::User, guards, replicas: 3 };
    let (plan, history, reading) = sale(granted);
    let verdict = judge_private(100, &history, &reading, Some(&reading.account));
    CellReport::of(place, 100, Figures::of(&history, plan.connections), verdict)
}

#[test]
fn a_service_that_puts_150_units_on_sale_for_100_is_red_in_every_cell() {
    assert_eq!(report(Guards::On, 100).broken_rules, []);
    let guarded = report(Guards::On, 150);
    let stock = [Rule::OrdersWithinStock, Rule::StockAsOrdered, Rule::StockAddsUp];
    assert_eq!(guarded.broken_rules, stock);
    assert_eq!(guarded.oversold, 50);
    let unguarded = report(Guards::Off, 150);
    assert_eq!(unguarded.broken_rules, [Rule::StockAsOrdered], "although it is to oversell");
    assert!(!guarded.as_predicted && !unguarded.as_predicted);
}

#[test]
fn a_service_that_puts_fewer_units_on_sale_is_red_as_well() {
    assert_eq!(report(Guards::On, 50).broken_rules, [Rule::StockAsOrdered, Rule::StockAddsUp]);
}
