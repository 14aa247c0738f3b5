//! A Redis that loses its data in the middle of a sale.

use std::time::{Duration, Instant};

use sqlx::{MySql, Transaction};
use testbed::{Action, Command, Times};

use crate::breakable::Breakable;
use crate::queued::buyer::{
    QUEUED, QueueState, assert_settled, buy, buy_and_follow, crowd, end_of, ended, left,
    lock_stock, redis, ticket_of,
};
use crate::support::{Place, Service, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_from_before_the_loss_is_not_written_once_the_sale_is_rebuilt() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let (queue, through) = through.redis_through_proxy();
    let flags = |name| [&QUEUED[..], &["--replica-id", name]].concat();
    let slow = Service::start_at(through, &flags("slow")).await;
    let voucher = slow.voucher(3).await;
    // The order of user 5 is on its way to the database, and does not arrive, however often.
    let held = proxy.arm(Command::sql("SELECT epoch"), Action::HoldRequest, Times::Always);
    let ticket = ticket_of(buy(&slow.url, &voucher, 5).await);
    eventually("its order is on the way", async || held.fired() > 0).await;
    // It takes no order of the others, which it would hold up as well.
    queue.start_outage();
    let mut database = redis(&place).await;
    redis::cmd("FLUSHDB").exec_async(&mut database).await.expect("an answer");
    // Others open the sale anew, with all its units, and sell them.
    let other = Service::start_at(place.clone(), &flags("other")).await;
    for user in [6, 7, 8] {
        assert_eq!(buy_and_follow(&other.url, &voucher, user).await.bought().len(), 1);
    }
    let rolled_back = proxy.watch(Command::sql("ROLLBACK"));
    held.disarm();
    held.release();
    eventually("the order arrives and is refused", async || rolled_back.matched() > 0).await;
    let books = assert_settled(&place, &voucher, &[], 3).await;
    assert!(books.of(5).is_empty(), "{:?}", books.orders);
    assert_eq!(ended(&place, &voucher).await, [("bought".to_owned(), 3)].into());
    assert_eq!(end_of(&other.url, &ticket, 5).await.0, "lost");
    queue.end_outage();
    slow.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_that_was_reported_lost_is_not_written_by_a_slow_replica() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let slow = Service::start_at(through, &QUEUED).await;
    let voucher = slow.voucher(3).await;
    let held = proxy.arm(Command::sql("SELECT epoch"), Action::HoldRequest, Times::Always);
    let ticket = ticket_of(buy(&slow.url, &voucher, 5).await);
    eventually("its order is on the way", async || held.fired() > 0).await;
    // Redis forgets this ticket alone: the sale and its epoch are as they were.
    let mut forget = redis::cmd("HDEL");
    forget.arg(format!("{{v:{voucher}}}:tickets")).arg(&ticket);
    forget.exec_async(&mut redis(&place).await).await.expect("an answer");
    let forgotten = Instant::now();
    assert_eq!(end_of(&slow.url, &ticket, 5).await.0, "lost");
    let took = forgotten.elapsed();
    assert!(took < Duration::from_secs(10), "lost only after {took:?}");
    held.disarm();
    held.release();
    eventually("its entry is acknowledged", async || {
        left(&place, &voucher).await == QueueState { stock: 3, entries: 0, users: 0 }
    })
    .await;
    let books = assert_settled(&place, &voucher, &[], 3).await;
    assert!(books.orders.is_empty(), "{:?}", books.orders);
    assert_eq!(buy_and_follow(&slow.url, &voucher, 5).await.bought().len(), 1);
    slow.stop().await;
}

/// Has Redis lose its data while several are admitted and not written: that keeps their orders from
/// being written.
async fn lose_entries(place: &Place, voucher: &str, tx: Transaction<'static, MySql>) {
    let mut redis = redis(place).await;
    eventually("some are admitted", async || {
        let mut length = redis::cmd("XLEN");
        length.arg(format!("{{v:{voucher}}}:stream"));
        let entries: u64 = length.query_async(&mut redis.clone()).await.expect("an answer");
        entries > 20
    })
    .await;
    redis::cmd("FLUSHALL").exec_async(&mut redis).await.expect("an answer");
    tx.rollback().await.expect("a ROLLBACK");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_buyers_buy_exactly_the_stock_though_redis_restarts_empty_in_the_middle() {
    // More than the rounds that lose tickets could sell.
    const STOCK: u32 = 260;
    let servers = Breakable::start();
    let place = servers.place();
    let mut services = Vec::new();
    for name in ["a", "b"] {
        // This Redis loses its data, and is slow only where the machine is.
        let flags = ["--replica-id", name, "--redis-timeout-ms", "10000"];
        let flags = [&QUEUED[..], &flags].concat();
        services.push(Service::start_at(place.clone(), &flags).await);
    }
    let urls: Vec<_> = services.iter().map(|service| service.url.clone()).collect();
    let voucher = services[0].voucher(STOCK).await;
    let mut stories = Vec::new();
    let mut next_user = 1;
    for round in 0..6_u32 {
        let users = next_user..next_user + 60;
        next_user = users.end;
        // Before the crowd comes: else it may have bought by then.
        let lock = async || lock_stock(&place.database_url, &voucher).await;
        let tx = if round < 4 { Some(lock().await) } else { None };
        let buying = crowd(&urls, &voucher, users);
        let (more, ()) = tokio::join!(buying, async {
            if let Some(tx) = tx {
                lose_entries(&place, &voucher, tx).await;
            }
        });
        stories.extend(more);
        let books = assert_settled(&place, &voucher, &stories, STOCK.into()).await;
        println!("{} sold, {:?}", books.orders.len(), ended(&place, &voucher).await);
    }
    let ends = ended(&place, &voucher).await;
    assert!(ends["lost"] > 0 && ends["bought"] > 0, "{ends:?}");
    // A buyer who lost a ticket, or was refused, may buy: in the end all is sold.
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
