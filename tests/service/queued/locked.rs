//! Rows that another session keeps locked, and who waits for them.

use std::time::{Duration, Instant};

use sqlx::{MySql, MySqlPool, Transaction};

use crate::queued::buyer::{
    QueueState, ask, assert_settled, buy, end_of, ended, left, lock_stock, service, ticket_of,
};
use crate::support::{Place, Service, client, eventually};

/// How long the server lets a statement of ours wait for a row.
const LOCK_WAIT: Duration = Duration::from_secs(3);
/// All of a group, and who of them cannot be written.
const USERS: std::ops::Range<u64> = 10..40;
const LOCKED: [u64; 5] = [12, 19, 20, 31, 38];
const STOCK: u32 = 50;

/// Orders of these users that are not committed: whether the users have bought is unknown.
pub(super) async fn begin_orders(
    place: &Place,
    voucher: &str,
    users: &[u64],
) -> Transaction<'static, MySql> {
    let database = MySqlPool::connect(&place.database_url).await.expect("the database");
    let mut tx = database.begin().await.expect("a transaction");
    for user in users {
        let insert = sqlx::query(
            "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
             VALUES (?, ?, ?, 8000, UTC_TIMESTAMP(3))",
        );
        let insert = insert.bind(user).bind(user).bind(voucher);
        insert.execute(&mut *tx).await.expect("an order");
    }
    tx
}

/// Has all of them wait for one group: the tickets.
async fn gather(service: &Service, voucher: &str) -> Vec<(u64, String)> {
    let stock = lock_stock(&service.place.database_url, voucher).await;
    let mut tickets = Vec::new();
    // The first two keep the two transactions of the voucher busy.
    for user in [1, 2].into_iter().chain(USERS) {
        tickets.push((user, ticket_of(buy(&service.url, voucher, user).await)));
    }
    stock.rollback().await.expect("a ROLLBACK");
    tickets
}

/// Sells to a group while orders of these users are locked; how long the others took to end.
async fn sell_beside(locked: &[u64]) -> Duration {
    let service = service(&[]).await;
    let voucher = service.voucher(STOCK).await;
    let orders = begin_orders(&service.place, &voucher, locked).await;
    let tickets = gather(&service, &voucher).await;
    let began = Instant::now();
    for (user, ticket) in tickets.iter().filter(|(user, _)| !locked.contains(user)) {
        assert_eq!(end_of(&service.url, ticket, *user).await.0, "bought");
    }
    let took = began.elapsed();
    println!("{} locked: the others had ended after {took:?}", locked.len());
    for (user, ticket) in tickets.iter().filter(|(user, _)| locked.contains(user)) {
        let state = ask(&service.url, ticket, *user).await.expect(200);
        assert_eq!(state["ticket"]["status"], "pending");
    }
    // New ones are written while those wait.
    let ticket = ticket_of(buy(&service.url, &voucher, 99).await);
    assert_eq!(end_of(&service.url, &ticket, 99).await.0, "bought");
    orders.rollback().await.expect("a ROLLBACK");
    for (user, ticket) in &tickets {
        assert_eq!(end_of(&service.url, ticket, *user).await.0, "bought");
    }
    let books = assert_settled(&service.place, &voucher, &[], STOCK.into()).await;
    let bought = i64::try_from(tickets.len() + 1).expect("few");
    assert_eq!(books.stock, i64::from(STOCK) - bought);
    assert_eq!(ended(&service.place, &voucher).await, [("bought".to_owned(), bought)].into());
    service.stop().await;
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_rows_do_not_block_other_orders_for_the_servers_row_lock_timeout() {
    for locked in [&LOCKED[..1], &LOCKED] {
        let mut all = Vec::new();
        // A disk that stands still holds up a group once.
        for _ in 0..3 {
            all.push(sell_beside(locked).await);
            if all.last().is_some_and(|took| *took < LOCK_WAIT) {
                break;
            }
        }
        let is_shown = all.iter().any(|took| *took < LOCK_WAIT);
        assert!(is_shown, "{} locked, and the others took {all:?}", locked.len());
    }
}

/// What is held up is given up with its connection: the server must not go on with it.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_waits_for_a_locked_row_ends_by_the_outcome_of_that_row() {
    let service = service(&[]).await;
    let voucher = service.voucher(STOCK).await;
    let orders = begin_orders(&service.place, &voucher, &LOCKED[..1]).await;
    let tickets = gather(&service, &voucher).await;
    eventually("it is held up alone", async || {
        let page = client().get(format!("{}/metrics", service.url)).send().await;
        let page = page.expect("an answer").text().await.expect("a page");
        page.contains("seckill_queue_lock_wait_aborts_total{mode=\"alone\"}")
    })
    .await;
    orders.commit().await.expect("a COMMIT");
    for (user, ticket) in &tickets {
        let (status, order) = end_of(&service.url, ticket, *user).await;
        if *user == LOCKED[0] {
            assert_eq!((&status[..], order), ("already_ordered", Some(LOCKED[0])));
        } else {
            assert_eq!(status, "bought");
        }
    }
    let sold = tickets.len() as u64;
    let others = i64::try_from(sold - 1).expect("few");
    // The order of another path took no unit here.
    let rest = QueueState { stock: i64::from(STOCK) - others, entries: 0, users: sold };
    eventually("all is acknowledged", async || left(&service.place, &voucher).await == rest).await;
    service.stop().await;
}
