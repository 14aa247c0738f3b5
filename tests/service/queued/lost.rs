//! A Redis that loses its data in the middle of a sale.

use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};

use crate::breakable::Breakable;
use crate::queued::buyer::{
    QUEUED, assert_settled, buy, buy_and_follow, crowd, end_of, ended, left, redis, service,
    ticket_of,
};
use crate::support::{Service, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_whose_entry_is_lost_ends_as_lost_and_its_user_may_buy_again() {
    let service = service(&[]).await;
    let (place, url) = (service.place.clone(), service.url.clone());
    let voucher = service.voucher(2).await;
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let mut tx = database.begin().await.expect("a transaction");
    // Its order is begun, and cannot be written.
    let locked = sqlx::query("SELECT stock FROM voucher_stock WHERE voucher_id = ? FOR UPDATE");
    locked.bind(&voucher).fetch_one(&mut *tx).await.expect("the stock");
    let ticket = ticket_of(buy(&url, &voucher, 5).await);
    redis::cmd("FLUSHDB").exec_async(&mut redis(&place).await).await.expect("an answer");
    let lost = Instant::now();
    tx.rollback().await.expect("a ROLLBACK");
    // The order that was begun is written, or the ticket is lost; both of them never.
    let (status, order) = end_of(&url, &ticket, 5).await;
    assert!(lost.elapsed() < Duration::from_secs(10), "{:?}", lost.elapsed());
    let story = buy_and_follow(&url, &voucher, 5).await;
    let books = assert_settled(&place, &voucher, &[(5, story.clone())], 2).await;
    match &status[..] {
        "lost" => assert_eq!(story.bought(), books.of(5)),
        "bought" => {
            assert_eq!(books.of(5), [order.expect("an order")]);
            assert!(story.bought().is_empty(), "{story:?}");
        }
        other => panic!("{other}"),
    }
    assert_eq!(books.orders.len(), 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_begun_before_redis_lost_its_data_is_not_written_after_the_rebuild() {
    let service = service(&[]).await;
    let (place, url) = (service.place.clone(), service.url.clone());
    let voucher = service.voucher(5).await;
    // The order of user 5 waits for the row that another transaction has begun.
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let mut tx = database.begin().await.expect("a transaction");
    let begun = sqlx::query(
        "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
         VALUES (1, 5, ?, 1, UTC_TIMESTAMP(3))",
    );
    begun.bind(&voucher).execute(&mut *tx).await.expect("a row");
    let ticket = ticket_of(buy(&url, &voucher, 5).await);
    eventually("its entry is taken", async || pending(&place, &voucher).await == 1).await;
    redis::cmd("FLUSHDB").exec_async(&mut redis(&place).await).await.expect("an answer");
    let waiting = buy(&url, &voucher, 6);
    let (_, other) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            tx.rollback().await.expect("a ROLLBACK");
        },
        waiting
    );
    // The rebuild waited for the order of user 5 or kept it out.
    let other = ticket_of(other);
    let (status, _) = end_of(&url, &ticket, 5).await;
    assert!(["lost", "bought"].contains(&&status[..]), "{status}");
    assert_eq!(end_of(&url, &other, 6).await.0, "bought");
    let books = assert_settled(&place, &voucher, &[], 5).await;
    assert_eq!(books.of(5).len(), usize::from(status == "bought"));
    eventually("the queue has what the database has", async || {
        let left = left(&place, &voucher).await;
        (left.stock, left.entries) == (books.stock, 0)
    })
    .await;
    service.stop().await;
}

/// Entries that are taken and not acknowledged.
async fn pending(place: &crate::support::Place, voucher: &str) -> i64 {
    let mut pending = redis::cmd("XPENDING");
    pending.arg(format!("{{v:{voucher}}}:stream")).arg("sale");
    let (count, ..): (i64, redis::Value, redis::Value, redis::Value) =
        pending.query_async(&mut redis(place).await).await.expect("an answer");
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_buys_exactly_the_stock_though_redis_comes_back_empty_in_the_middle() {
    const STOCK: u32 = 120;
    let servers = Breakable::start();
    let place = servers.place();
    let mut services = Vec::new();
    for name in ["a", "b"] {
        let flags = [&QUEUED[..], &["--replica-id", name]].concat();
        services.push(Service::start_at(place.clone(), &flags).await);
    }
    let urls: Vec<_> = services.iter().map(|service| service.url.clone()).collect();
    let voucher = services[0].voucher(STOCK).await;
    let mut stories = Vec::new();
    let mut next_user = 1;
    for round in 0..6 {
        let users = next_user..next_user + 60;
        next_user = users.end;
        let buying = crowd(&urls, &voucher, users);
        let (more, ()) = tokio::join!(buying, async {
            tokio::time::sleep(Duration::from_millis(20 + 15 * round)).await;
            if round < 4 {
                let mut redis = redis(&place).await;
                redis::cmd("FLUSHALL").exec_async(&mut redis).await.expect("an answer");
            }
        });
        stories.extend(more);
        let books = assert_settled(&place, &voucher, &stories, STOCK.into()).await;
        println!("{} sold, {:?}", books.orders.len(), ended(&place, &voucher).await);
    }
    // Whoever lost a ticket, or was refused, may buy: in the end all is sold.
    for user in next_user..next_user + 200 {
        let story = buy_and_follow(&urls[0], &voucher, user).await;
        stories.push((user, story));
        let books = assert_settled(&place, &voucher, &stories, STOCK.into()).await;
        if books.stock == 0 {
            break;
        }
    }
    let books = assert_settled(&place, &voucher, &stories, STOCK.into()).await;
    assert_eq!((books.stock, books.orders.len()), (0, STOCK as usize));
    for service in services {
        service.stop().await;
    }
}
