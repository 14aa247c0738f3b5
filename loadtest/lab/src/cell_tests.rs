use std::collections::HashSet;
use std::num::NonZeroU64;

use loadtest_judge::setting::{Guards, Scope};
use loadtest_judge::terms::Terms;
use loadtest_load::history::final_state::{DatabaseReading, Effect, OrderRow, Protects};
use loadtest_load::history::record::{LockHold, Names, Record};
use loadtest_load::history::{Begin, History, Offer, VoucherHistory, final_reads};
use loadtest_load::outcome::Outcome;

use super::*;
use crate::lock::Lock;
use crate::sale::verdict;

/// A sale to 700 users of a voucher for which 100 units were asked. The service put `granted` units
/// on sale and sold all of them, and its audit agrees.
fn sale(granted: u32) -> History {
    sale_with_orders(granted, granted)
}

/// A sale of a voucher for which 100 units were asked, to 700 users, with this number of orders.
fn sale_with_orders(granted: u32, orders: u32) -> History {
    let bought = |user: u32| Record {
        start_ns: u64::from(user),
        end_ns: u64::from(user) + 10,
        user: user.into(),
        order: NonZeroU64::new(u64::from(user) + 1000),
        n: user,
        key: user,
        replica: Some(0),
        ..Record::that_ended(Outcome::Bought)
    };
    let row = |user: u32| OrderRow::new(u64::from(user) + 1000, user.into());
    let rows: Vec<OrderRow> = (0..orders).map(row).collect();
    let account = Audit::of(&rows, granted.into(), 0, ["orders", "voucher_stock", "stock_grants"]);
    let said = Some(account.clone());
    let reading =
        DatabaseReading { rows: rows.clone(), account, effects: Vec::new(), resources: Vec::new() };
    let offer = Offer { id: 1, offered: Some(100) };
    let voucher_history = VoucherHistory {
        offer: offer.clone(),
        records: 0..rows.len(),
        rows,
        earlier: HashSet::new(),
        account: Some(final_reads::database_account(1, &reading)),
        audits: [None, said],
        effects: Vec::new(),
        grants: Vec::new(),
    };
    History {
        begin: Begin::now("http://127.0.0.1:1".to_owned(), 0, 700, vec![offer]),
        records: (0..orders).map(bought).collect(),
        names: Names { replicas: vec!["r1".to_owned()], ..Names::default() },
        vouchers: vec![voucher_history],
        conditions: Vec::new(),
        marks: Vec::new(),
        events: 0,
    }
}

/// The sale above with a frozen holder of this lock, with recorded effects or without.
fn fenced(lock: Lock, recorded: bool) -> CellReport {
    let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas: 3 };
    let fault = Some(FaultKind::FreezeReplica);
    let trial = CellSpec::of(axes, Scenario::FrozenFenced, fault);
    let mut history = sale(100);
    if recorded {
        let protects = Protects::Voucher;
        let effect = |(seq, row): (u64, &OrderRow)| Effect {
            resource: 1,
            protects,
            seq,
            token: seq,
            order: row.id,
        };
        history.vouchers[0].effects = (1..).zip(&history.vouchers[0].rows).map(effect).collect();
    }
    CellReport::of(trial, 100, Figures::default(), verdict(&history, &Terms::default()))
}

#[test]
fn a_fenced_holder_whose_tokens_were_not_recorded_shows_nothing() {
    let blind = fenced(Lock::Redisson, false);
    assert_eq!(blind.invalid_because, ["the tokens' order was not recorded"]);
    assert!(!blind.valid);
    assert!(fenced(Lock::Redisson, true).ok(), "{:?}", fenced(Lock::Redisson, true));
    assert!(fenced(Lock::MysqlRow, false).valid, "that lock needs no tokens");
}

fn report(guards: Guards, granted: u32) -> CellReport {
    let axes = CellAxes { lock: Lock::None, scope: Scope::User, guards, replicas: 3 };
    CellReport::of(
        CellSpec::plain(axes),
        100,
        Figures::default(),
        verdict(&sale(granted), &Terms::default()),
    )
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

#[test]
fn two_holders_at_once_for_certain_break_a_rule_of_the_run_that_promises_one() {
    let axes =
        CellAxes { lock: Lock::Redisson, scope: Scope::User, guards: Guards::On, replicas: 2 };
    let plain = CellSpec::plain(axes);
    let of = |trial: CellSpec, until: Option<u64>| {
        let mut history = sale(100);
        let one_holder_per = trial.excludes_others().then_some(Scope::Voucher);
        let terms = Terms { one_holder_per, ..Terms::default() };
        for (n, until) in until.into_iter().flat_map(|until| [(0, 10), (1, until)]) {
            let hold = LockHold { earliest: until - 5, from: until - 5, until, lost: false };
            history.names.holds.insert(n, hold);
        }
        CellReport::of(trial, 100, Figures::default(), verdict(&history, &terms))
    };
    let red = of(plain, Some(14));
    assert_eq!(red.broken_rules, [Rule::OneHolderAtATime]);
    assert!(!red.as_predicted);
    assert!(of(plain, Some(15)).as_predicted, "one after the other");
    let silent = of(plain, None);
    assert!(silent.as_predicted, "nothing was seen");
    let why = "no replica reported when it held a lock".to_owned();
    assert!(silent.invalid_because.contains(&why));
    let fault = Some(FaultKind::FreezeReplica);
    assert!(of(CellSpec { fault, ..plain }, Some(14)).as_predicted, "its lock may be lost");
    for (replicas, as_predicted) in [(2, true), (1, false)] {
        let local = CellSpec::plain(CellAxes { lock: Lock::Local, replicas, ..axes });
        assert_eq!(of(local, Some(14)).as_predicted, as_predicted, "{replicas}");
    }
}

#[test]
fn an_error_beside_a_replica_that_died_unexpectedly_names_that_replica() {
    let unseen = || Error::Setup("no witness".to_owned());
    let dead = ["r2".to_owned()];
    assert_eq!(blame_dead_replicas(unseen(), &dead, false).to_string(), "replica r2 died");
    assert_eq!(blame_dead_replicas(unseen(), &dead, true).to_string(), "no witness");
    assert_eq!(blame_dead_replicas(unseen(), &[], false).to_string(), "no witness");
    let died = Error::Died("r1".to_owned());
    assert_eq!(
        blame_dead_replicas(died, &dead, true).to_string(),
        "replica r1 died",
        "it was up again"
    );
}

/// A cell of long work under a lock per voucher, without guards, with that number of orders of 100
/// units. The lock of the last one was lost by then, or was not.
fn long_work(scenario: Scenario, orders: u32, lost: bool) -> CellReport {
    let lock = Lock::Redisson;
    let axes = CellAxes { lock, scope: Scope::Voucher, guards: Guards::Off, replicas: 3 };
    let trial = CellSpec { scenario, ..CellSpec::plain(axes) };
    let mut history = sale_with_orders(100, orders);
    let hold = LockHold { earliest: 0, from: 0, until: 9, lost };
    history.names.holds.insert(orders - 1, hold);
    let terms = Terms::default();
    CellReport::of(trial, 100, Figures::default(), verdict(&history, &terms))
        .with_history(&history, &terms)
}

#[test]
fn an_order_that_was_committed_late_under_a_lost_lock_makes_its_cell_invalid_and_not_wrong() {
    let why = "1 orders were committed after their locks' validity time";
    let is_excused = |report: &CellReport| {
        let said = report.invalid_because.iter().any(|reason| reason.starts_with(why));
        assert_eq!((said, report.spoiled), (report.committed_late > 0, report.committed_late > 0));
        said
    };
    let oversold = long_work(Scenario::LongWorkKept, 101, true);
    assert_eq!(oversold.oversold, 1);
    assert!(is_excused(&oversold), "{:?}", oversold.broken_rules);
    assert!(!is_excused(&long_work(Scenario::LongWorkKept, 101, false)), "its lock was held");
    assert!(!is_excused(&long_work(Scenario::LongWorkKept, 100, true)), "nothing was broken");
    assert!(!is_excused(&long_work(Scenario::ShortWork, 101, true)), "its lease is long");
}

#[test]
fn a_rule_that_a_run_demands_and_that_is_not_judged_makes_its_cell_invalid() {
    let axes =
        CellAxes { lock: Lock::Redisson, scope: Scope::User, guards: Guards::On, replicas: 3 };
    let (history, trial) = (sale(100), CellSpec::plain(axes));
    let of = |demands: Vec<Rule>| {
        let terms = Terms { demands, ..Terms::default() };
        CellReport::of(trial, 100, Figures::default(), verdict(&history, &terms))
            .with_history(&history, &terms)
            .invalid_because
    };
    let unjudged = format!("not judged: {}", Rule::PurchasesEnd.words());
    assert!(!of(Vec::new()).contains(&unjudged));
    assert!(of(vec![Rule::PurchasesEnd]).contains(&unjudged));
}

#[test]
fn the_stock_has_to_add_up_where_a_database_may_lose_orders() {
    let blank = Verdict::unjudged("no sale");
    assert!(demanded(Prediction::LOSES, &blank).contains(&Rule::StockAddsUp));
    assert!(!demanded(Prediction::BREAKS, &blank).contains(&Rule::StockAddsUp));
}
