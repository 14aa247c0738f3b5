//! What one member runs into is no other member's loss.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use seckill::domain::VoucherId;
use seckill::sale::{Outcome, Writer};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::desk::{Desk, names, place};
use crate::contention::ForeignSession;
use crate::redis_side;
use crate::support::{Place, eventually};

/// Less than a row is waited for.
const PROMPT_WITHIN: Duration = Duration::from_secs(2);
/// Users of a group; the unlucky ones are in its middle.
const USERS: std::ops::RangeInclusive<u64> = 1..=40;

async fn assert_only(unlucky: &[u64], outcome: &str, desk: &Desk) {
    let voucher = desk.voucher(100).await;
    assert_only_of(voucher, unlucky, outcome, desk).await;
}

async fn assert_only_of(voucher: VoucherId, unlucky: &[u64], outcome: &str, desk: &Desk) {
    assert_eq!(differing(voucher, unlucky, outcome, desk).await, []);
}

/// Buys for all; which users had another outcome than that, or than "bought", and which.
async fn differing(
    voucher: VoucherId,
    unlucky: &[u64],
    outcome: &str,
    desk: &Desk,
) -> Vec<(u64, &'static str)> {
    let users: Vec<u64> = USERS.collect();
    let outcomes = names(&desk.buy_together(voucher, &users).await);
    let sold = outcomes.iter().filter(|name| **name == "bought").count();
    let sold = i64::try_from(sold).expect("few");
    assert_eq!(desk.audit(voucher).await, (100 - sold, sold));
    let expected = |user| if unlucky.contains(&user) { outcome } else { "bought" };
    users.into_iter().zip(outcomes).filter(|(user, name)| *name != expected(*user)).collect()
}

#[tokio::test]
async fn a_poisonous_order_fails_alone_wherever_it_is() {
    let desk = Desk::open(&place().await, Writer::Grouped).await;
    desk.poison(1, 1644).await;
    assert_only(&[1], "defect", &desk).await;
    for user in [20, 21, 40] {
        desk.poison(user, 1644).await;
    }
    assert_only(&[1, 20, 21, 40], "defect", &desk).await;
}

#[tokio::test]
async fn an_order_that_always_meets_a_deadlock_gives_up_alone() {
    let desk = Desk::open(&place().await, Writer::Grouped).await;
    desk.poison(17, 1213).await;
    assert_only(&[17], "overloaded", &desk).await;
}

#[tokio::test]
async fn an_order_whose_row_stays_locked_gives_up_alone() {
    let place = place().await;
    let desk = Desk::open(&place, Writer::Grouped).await;
    let mut all = Vec::new();
    // A database that stands still uses up the time of others once.
    for _ in 0..3 {
        // The voucher that comes next, for the one of the group whose row another session writes.
        let next = desk.voucher(1).await.0 + 1;
        let mut other = locked(&place, 38, next).await;
        let voucher = desk.voucher(100).await;
        let others = differing(voucher, &[38], "overloaded", &desk).await;
        other.execute("ROLLBACK").await.expect("a ROLLBACK");
        if others.is_empty() {
            return;
        }
        all.push(others);
    }
    panic!("others gave up with it each time: {all:?}");
}

#[tokio::test]
async fn an_order_that_arrives_while_a_batch_waits_for_a_row_starts_a_second_batch() {
    let place = place().await;
    let desk = Desk::open(&place, Writer::Grouped).await;
    let next = desk.voucher(1).await.0 + 1;
    let mut other = locked(&place, 3, next).await;
    let mut watch = ForeignSession::connect(&place).await;
    let group = [1, 2, 3, 4];
    // Last of all, so that the replica knows it well when the group comes.
    let voucher = desk.voucher(100).await;
    tokio::select! {
        biased;
        _ = desk.buy_together(voucher, &group) => panic!("one of them waits"),
        () = async {
            // The group is on its way by then: nothing but tasks of this thread stands before it.
            for _ in 0..20 {
                yield_now().await;
            }
            for user in [50, 51] {
                let bought = timeout(PROMPT_WITHIN, desk.buy(voucher, user)).await;
                assert!(matches!(bought, Ok(Outcome::Bought(_))), "{user}");
                eventually("a row is waited for", async || watch.waiting().await == 1).await;
            }
        } => {}
    }
    other.execute("ROLLBACK").await.expect("a ROLLBACK");
}

/// A session that writes an order of that user and has not said how that ends.
async fn locked(place: &Place, user: u64, voucher: u64) -> MySqlConnection {
    let mut other = MySqlConnection::connect(&place.database_url).await.expect("a session");
    other.execute("START TRANSACTION").await.expect("a transaction");
    let row = format!(
        "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
         VALUES (1, {user}, {voucher}, 1, UTC_TIMESTAMP(3))"
    );
    other.execute(AssertSqlSafe(row)).await.expect("a row");
    other
}

#[tokio::test]
async fn ids_that_are_taken_are_drawn_again_for_the_whole_batch() {
    let place = place().await;
    let desk = Desk::open(&place, Writer::Grouped).await;
    let (other, voucher) = (desk.voucher(1).await, desk.voucher(100).await);
    // The counter of a Redis that lost its data begins anew, and some numbers are taken in each of
    // the seconds that this may last.
    let taken = (2000..2200_u64).step_by(10);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    let epoch = 1_640_995_200;
    let seconds = now - epoch..now - epoch + 15;
    let rows = seconds.flat_map(|second| taken.clone().map(move |number| second << 32 | number));
    let rows = rows.map(|id| format!("({id}, {id}, {other}, 1, UTC_TIMESTAMP(3))"));
    let rows = rows.collect::<Vec<_>>().join(",");
    desk.pool
        .execute(AssertSqlSafe(format!(
            "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) VALUES {rows}"
        )))
        .await
        .expect("!");
    let counter = set_counters(&place.redis_url, 2000).await;
    assert!(counter > 0, "no counter was set back");
    let desk = Desk::open(&place, Writer::Grouped).await;
    assert_only_of(voucher, &[], "", &desk).await;
}

/// Sets all counters of orders; how many there are.
async fn set_counters(url: &str, value: u64) -> usize {
    let mut redis = redis_side::connect(url).await;
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("icr:order:*").query_async(&mut redis).await.expect("keys");
    for key in &keys {
        redis::cmd("SET").arg(key).arg(value).exec_async(&mut redis).await.expect("a counter");
    }
    keys.len()
}
