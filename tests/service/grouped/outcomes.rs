//! Whatever is in a group: each member has the outcome that it would have had alone, in the order
//! of arrival.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use seckill::sale::Writer;
use testbed::{Action, Command, Times};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use super::desk::{Desk, names, place, told};

/// Mixes that are tried.
const CASES: u32 = 60;
/// Within which a batch is sent.
const DEADLINE: Duration = Duration::from_secs(30);
/// Turns of the other tasks in which a purchase comes to the writer; it takes 2.
const TURNS_TO_ARRIVE: u32 = 50;

#[tokio::test]
async fn any_mix_has_the_outcomes_of_the_single_writer_in_the_order_of_arrival() {
    let place = place().await;
    let (single, grouped) =
        (Desk::open(&place, Writer::Single).await, Desk::open(&place, Writer::Grouped).await);
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    // Earlier buyers, orders that arrive together, and the units left for them.
    let mixes = (vec(1..12_u64, 0..4), vec(1..12_u64, 1..30), 0..16_u32);
    let mut seen = HashSet::new();
    for _ in 0..CASES {
        let mix = mixes.new_tree(&mut runner).expect("a mix").current();
        let outcomes = compare(&single, &grouped, &mix).await;
        seen.extend(outcomes);
    }
    assert_eq!(seen, HashSet::from(["bought", "already_ordered", "sold_out"]), "too little tried");
}

/// The outcomes, which both writers agree on.
async fn compare(
    single: &Desk,
    grouped: &Desk,
    (before, together, stock): &(Vec<u64>, Vec<u64>, u32),
) -> Vec<&'static str> {
    let context = format!("{before:?} before {together:?}, {stock} in stock");
    let one = single.voucher(*stock).await;
    single.buy_in_turn(one, before).await;
    let alone = single.buy_in_turn(one, together).await;
    let other = grouped.voucher(*stock).await;
    grouped.buy_in_turn(other, before).await;
    let outcomes = grouped.buy_together(other, together).await;
    assert_eq!(names(&outcomes), names(&alone), "{context}");
    let orders = grouped.orders(other).await;
    for (user, outcome) in together.iter().zip(&outcomes) {
        let (name, order) = told(outcome);
        // A buyer who was told of an order has that one; a buyer who is sold out has none.
        let expected = if name == "sold_out" { None } else { order };
        assert_eq!(orders.get(user).copied(), expected, "{context}: {user} {name}");
    }
    assert_eq!(grouped.audit(other).await, single.audit(one).await, "{context}");
    names(&outcomes)
}

#[tokio::test]
async fn orders_that_arrive_together_are_written_together() {
    let (proxy, place) = place().await.database_through_proxy();
    let desk = Desk::open(&place, Writer::Grouped).await;
    let voucher = desk.voucher(100).await;
    // In the order of users, so that groups lock what they share in the same order.
    let in_order = Command::sql("START TRANSACTION").when(|parts| {
        let sql = String::from_utf8_lossy(parts[0]);
        let Some((_, sql)) = sql.split_once("INSERT INTO orders") else { return false };
        let rows = sql.split('(').skip(2).filter_map(|row| row.split(',').nth(1)?.parse().ok());
        rows.collect::<Vec<u64>>().is_sorted()
    });
    let inserts = proxy.watch(in_order);
    let commits = proxy.watch(Command::sql("UPDATE voucher_stock"));
    let users: Vec<u64> = (1..=100).rev().collect();
    let outcomes = desk.buy_together(voucher, &users).await;
    assert_eq!(names(&outcomes), ["bought"; 100]);
    assert_eq!((inserts.matched(), commits.matched()), (1, 1));
    assert_eq!(desk.audit(voucher).await, (0, 100));
}

#[tokio::test]
async fn orders_that_are_fewer_than_the_batch_in_flight_gather_until_it_ends() {
    let (proxy, place) = place().await.database_through_proxy();
    // A slow batch would not be waited for, and the first one is held.
    let desk = Desk::open_with(&place, Writer::Grouped, Duration::from_hours(1)).await;
    let desk = Arc::new(desk);
    let voucher = desk.voucher(100).await;
    let opens = Command::sql("START TRANSACTION").containing("INSERT INTO orders");
    let inserts = proxy.arm(opens, Action::HoldAnswer, Times::Next(1));
    let buyers = |users: &'static [u64]| {
        let desk = Arc::clone(&desk);
        tokio::spawn(async move { desk.buy_together(voucher, users).await })
    };
    // All arrive in this test's own thread, before the first batch can be answered.
    let mut purchases = Vec::new();
    for users in [&[1, 2, 3, 4][..], &[5], &[6, 7]] {
        purchases.push(buyers(users));
        for _ in 0..TURNS_TO_ARRIVE {
            yield_now().await;
        }
    }
    let begun = Instant::now();
    while inserts.fired() < 1 {
        assert!(begun.elapsed() < DEADLINE, "no batch was sent");
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(inserts.matched(), 1, "a batch begins while one of more orders is on its way");
    inserts.release();
    for purchase in purchases {
        let outcomes = purchase.await.expect("purchases");
        assert!(names(&outcomes).iter().all(|name| *name == "bought"), "{outcomes:?}");
    }
    assert_eq!(inserts.matched(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn orders_of_tasks_that_are_ready_at_once_are_one_batch() {
    let (proxy, place) = place().await.database_through_proxy();
    let desk = Arc::new(Desk::open(&place, Writer::Grouped).await);
    let voucher = desk.voucher(100).await;
    let opens = Command::sql("START TRANSACTION").containing("INSERT INTO orders");
    let inserts = proxy.watch(opens);
    // Begun in the thread that runs them, so that none runs before all are there.
    let begin = async move {
        let mut purchases = JoinSet::new();
        for user in 1..=16 {
            let desk = Arc::clone(&desk);
            purchases.spawn(async move { desk.buy(voucher, user).await });
        }
        purchases.join_all().await
    };
    let outcomes = tokio::spawn(begin).await.expect("purchases");
    assert!(names(&outcomes).iter().all(|name| *name == "bought"), "{outcomes:?}");
    assert_eq!(inserts.matched(), 1);
}

#[tokio::test]
async fn the_last_units_are_sold_in_the_order_of_arrival_and_duplicates_take_none() {
    let desk = Desk::open(&place().await, Writer::Grouped).await;
    let voucher = desk.voucher(4).await;
    desk.buy(voucher, 7).await;
    let users = [9, 7, 3, 9, 8, 2, 1, 3];
    let outcomes = desk.buy_together(voucher, &users).await;
    let [b, a, s] = ["bought", "already_ordered", "sold_out"];
    assert_eq!(names(&outcomes), [b, a, b, a, b, s, s, a]);
    assert_eq!(desk.audit(voucher).await, (0, 4));
}
