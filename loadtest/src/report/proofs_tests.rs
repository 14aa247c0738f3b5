use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::judge::evidence::AuditCheck;
use crate::judge::verdict::judge;

const USERS: [u64; 40] = {
    let mut ids = [0; 40];
    let mut index = 0;
    while index < ids.len() {
        ids[index] = 1000 + index as u64;
        index += 1;
    }
    ids
};

fn record(user: u32, outcome: Outcome, order_id: Option<u64>, (from, until): (u64, u64)) -> Record {
    let (start_ns, end_ns) = (from * 1_000_000, until * 1_000_000);
    Record { user, outcome, order_id, start_ns, end_ns, replica: Some(0), code: 0 }
}

fn bought(user: u32, id: u64, times: (u64, u64)) -> Record {
    record(user, Outcome::Bought, Some(id), times)
}

/// The row of each acknowledged order.
fn rows(records: &[Record]) -> Vec<OrderRow> {
    let row = |record: &Record| {
        let user_id = USERS[record.user as usize];
        record.order_id.map(|id| OrderRow { id, user_id })
    };
    records.iter().filter_map(row).collect()
}

fn proved(records: Vec<Record>, rows: &[OrderRow], offered: i64) -> Vec<Proof> {
    let (replicas, codes) = (vec!["r1".to_owned()], vec!["201".to_owned()]);
    let history = History { records, replicas, codes, elapsed: Duration::from_secs(1) };
    let evidence = Evidence {
        records: &history.records,
        users: &USERS,
        rows,
        rows_are_all: true,
        earlier: &HashSet::new(),
        offered: Some(offered),
        granted: Some(offered),
        left: Some(0),
        audit: AuditCheck::Absent,
    };
    proofs(&evidence, &history, &judge(&evidence))
}

fn only(proofs: Vec<Proof>, rule: Rule) -> Vec<Proof> {
    proofs.into_iter().filter(|proof| proof.rule == rule).collect()
}

#[test]
fn a_sale_in_which_nothing_was_broken_has_no_proofs() {
    let records = vec![bought(0, 1, (0, 5)), bought(1, 2, (1, 6))];
    let rows = rows(&records);
    assert!(proved(records, &rows, 2).is_empty());
}

#[test]
fn a_user_who_bought_twice_is_shown_with_all_of_the_users_requests() {
    let records = vec![
        bought(3, 1, (4, 9)),
        record(3, Outcome::AlreadyOrdered, None, (3, 12)),
        bought(3, 2, (2, 8)),
        bought(4, 3, (0, 5)),
    ];
    let rows = rows(&records);
    let proofs = only(proved(records, &rows, 9), Rule::OneOrderPerUser);
    let [proof] = &proofs[..] else { panic!("one user bought twice: {proofs:?}") };
    assert!(proof.what.contains("user 1003 has 2 orders"), "{}", proof.what);
    let shown: Vec<_> = proof.requests.iter().map(|one| (one.sent_ns, one.decides)).collect();
    assert_eq!(shown, [(2_000_000, true), (3_000_000, false), (4_000_000, true)]);
    assert_eq!(proof.requests[0].order.as_deref(), Some("2"));
    assert_eq!(proof.requests[0].replica.as_deref(), Some("r1"));
}

#[test]
fn the_first_order_beyond_the_stock_is_shown_with_the_purchases_that_overlapped_it() {
    let records = vec![
        bought(0, 1, (0, 5)),
        bought(1, 2, (4, 10)),
        bought(2, 3, (6, 12)),
        bought(3, 4, (11, 15)),
        bought(4, 5, (13, 20)),
    ];
    let rows = rows(&records);
    let proofs = only(proved(records, &rows, 2), Rule::OrdersWithinStock);
    let [proof] = &proofs[..] else { panic!("one case: {proofs:?}") };
    let shown: Vec<_> =
        proof.requests.iter().map(|one| (one.order.as_deref(), one.decides)).collect();
    assert_eq!(shown, [(Some("2"), false), (Some("3"), true), (Some("4"), false)]);
    assert!(proof.what.contains("acknowledgement 3") && proof.what.contains("2 units"));
}

#[test]
fn lost_orders_and_repeated_ids_are_shown() {
    let records =
        vec![bought(0, 1, (0, 5)), bought(1, 1, (1, 6)), record(2, Outcome::Bought, None, (0, 1))];
    let there = [OrderRow { id: 1, user_id: USERS[0] }];
    let proofs = proved(records, &there, 9);
    assert_eq!(only(proofs.clone(), Rule::AcknowledgedExist).len(), 2);
    let repeated = only(proofs, Rule::IdsAreUnique);
    assert_eq!((repeated.len(), repeated[0].requests.len()), (1, 2));
}

#[test]
fn somebody_told_sold_out_too_early_is_shown() {
    let records = vec![bought(0, 1, (0, 5)), record(1, Outcome::SoldOut, None, (1, 3))];
    let rows = rows(&records);
    let proofs = only(proved(records, &rows, 2), Rule::SoldOutIsTrue);
    assert_eq!((proofs.len(), proofs[0].requests[0].outcome), (1, Outcome::SoldOut));
}

#[test]
fn cases_and_their_requests_are_bounded_and_the_earliest_are_kept() {
    let mut records = Vec::new();
    for user in 0..40_u32 {
        let at = u64::from(40 - user);
        records.push(bought(user, u64::from(user) * 2, (at, at + 90)));
        records.push(bought(user, u64::from(user) * 2 + 1, (at, at + 90)));
    }
    let rows = rows(&records);
    let proofs = proved(records, &rows, 10);
    let twice = only(proofs.clone(), Rule::OneOrderPerUser);
    assert_eq!(twice.len(), MAX_PROOFS);
    assert!(twice[0].what.contains("user 1039"), "{}", twice[0].what);
    let [beyond] = &only(proofs, Rule::OrdersWithinStock)[..] else { panic!("one case") };
    assert_eq!(beyond.requests.len(), MAX_REQUESTS);
    assert_eq!(beyond.left_out, 80 - MAX_REQUESTS);
    assert!(beyond.requests.iter().any(|one| one.decides), "the one that decides is kept");
}
