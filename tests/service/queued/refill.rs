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

    let path = format!("/api/admin/vouchers/{voucher}/stock");
    let admin = token(9, Role::Admin);
    other.post(&path, &admin, json!({ "units": ADDED })).await.expect(200);
    let (added, mut user) = (Instant::now(), u64::from(STOCK));
    while tickets.len() < all + ADDED as usize {
        user += 1;
        let asked = added.elapsed();
        let answer = buy(&other.url, &voucher, user).await;
        if answer.status.as_u16() == 202 {
            tickets.push((user, ticket_of(answer)));
        } else {
            assert_eq!(answer.problem(409), "sold_out");
            assert!(asked < CACHE_TTL, "it is not true, {asked:?} later");
        }
    }
    println!("all that was added was admitted {:?} later", added.elapsed());
    assert_eq!(buy(&other.url, &voucher, user + 1).await.problem(409), "sold_out");

    held.disarm();
    held.release();
    for (user, ticket) in &tickets {
        assert_eq!(end_of(&other.url, ticket, *user).await.0, "bought");
    }
    let books = assert_settled(&place, &voucher, &[], (STOCK + ADDED).into()).await;
    assert_eq!(books.stock, 0);
    let rest = QueueState { stock: 0, entries: 0, users: (STOCK + ADDED).into() };
    eventually("all is acknowledged", async || left(&place, &voucher).await == rest).await;
    let bought = i64::from(STOCK + ADDED);
    assert_eq!(ended(&place, &voucher).await, [("bought".to_owned(), bought)].into());
    slow.stop().await;
    other.stop().await;
}
