//! Units that come back while a queue drains.

use std::time::{Duration, Instant};

use seckill::domain::Role;
use serde_json::json;
use testbed::{Action, Command, Times};

use crate::crowd::Books;
use crate::queued::buyer::{
    QUEUED, QueueState, assert_settled, buy, end_of, ended, left, lock_stock, ticket_of,
};
use crate::queued::taken_over::entries_of;
use crate::support::{Place, Service, eventually, token};

const STOCK: u32 = 6;
const ADDED: u32 = 3;
/// How long "sold out" may be told when it is not true any more.
const CACHE_TTL: Duration = Duration::from_secs(1);
/// Within which what was added is sold, however slow the machine is.
const DEADLINE: Duration = Duration::from_secs(20);

/// Adds units and has them bought; how long after that "sold out" was told, at the latest.
async fn add_and_sell(
    at: &Service,
    voucher: &str,
    (tickets, user): (&mut Vec<(u64, String)>, &mut u64),
) -> Duration {
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    let admin = token(9, Role::Admin);
    at.post(&path, &admin, json!({ "units": ADDED })).await.expect(200);
    let (added, mut late) = (Instant::now(), Duration::ZERO);
    let all = tickets.len() + ADDED as usize;
    while tickets.len() < all {
        *user += 1;
        let asked = added.elapsed();
        assert!(asked < DEADLINE, "what was added is not for sale");
        let answer = buy(&at.url, voucher, *user).await;
        if answer.status.as_u16() == 202 {
            tickets.push((*user, ticket_of(answer)));
        } else {
            assert_eq!(answer.problem(409), "sold_out");
            late = asked;
        }
    }
    println!("all that was added was admitted {:?} later", added.elapsed());
    *user += 1;
    assert_eq!(buy(&at.url, voucher, *user).await.problem(409), "sold_out");
    late
}

/// What is committed and not acknowledged is on its way no more.
#[tokio::test(flavor = "multi_thread")]
async fn units_added_while_a_queue_drains_are_sold_and_no_buyer_gets_sold_out_afterwards() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.redis_through_proxy();
    let flags = |name| [&QUEUED[..], &["--replica-id", name]].concat();
    let slow = Service::start_at(through, &flags("slow")).await;
    let voucher = slow.voucher(STOCK).await;
    let tx = lock_stock(&place.database_url, &voucher).await;
    let mut tickets = Vec::new();
    for user in 1..=u64::from(STOCK) {
        tickets.push((user, ticket_of(buy(&slow.url, &voucher, user).await)));
    }
    let all = STOCK as usize;
    eventually("all are taken", async || entries_of(&place, &voucher, "slow").await == all).await;
    let other = Service::start_at(place.clone(), &flags("other")).await;
    // All are written, and no acknowledgement arrives.
    let ends = Command::redis("EVALSHA").containing("bought:");
    let held = proxy.arm(ends, Action::HoldRequest, Times::Always);
    tx.rollback().await.expect("a ROLLBACK");
    eventually("all are written", async || {
        Books::read(&place.database_url, &voucher).await.orders.len() == all && held.fired() > 0
    })
    .await;
    assert_eq!(left(&place, &voucher).await.stock, 0);

    let (mut user, mut total) = (u64::from(STOCK), STOCK);
    let mut all_late = Vec::new();
    // A machine that stands still delays the look at the stock once.
    while all_late.last().is_none_or(|late| *late >= CACHE_TTL) {
        assert!(all_late.len() < 3, "not true, so long after units were added: {all_late:?}");
        let buyers = (&mut tickets, &mut user);
        all_late.push(add_and_sell(&other, &voucher, buyers).await);
        total += ADDED;
    }

    held.disarm();
    held.release();
    for (user, ticket) in &tickets {
        assert_eq!(end_of(&other.url, ticket, *user).await.0, "bought");
    }
    let books = assert_settled(&place, &voucher, &[], total.into()).await;
    assert_eq!(books.stock, 0);
    let rest = QueueState { stock: 0, entries: 0, users: total.into() };
    eventually("all is acknowledged", async || left(&place, &voucher).await == rest).await;
    let bought = i64::from(total);
    assert_eq!(ended(&place, &voucher).await, [("bought".to_owned(), bought)].into());
    slow.stop().await;
    other.stop().await;
}
