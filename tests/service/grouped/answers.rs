//! Groups as callers see them: full queues, ends, hang-ups and lost locks.

use std::time::Duration;

use seckill::domain::Role;
use serde_json::json;
use testbed::Command;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::crowd::{Books, Fate, Try, buy_at, buy_together, buy_until_told};
use crate::redis_side::RedisSide;
use crate::support::{Place, Service, eventually, token};
use crate::wire;

const GROUPED: [&str; 3] = ["--lab", "--writer", "grouped"];

async fn start(flags: &[&str]) -> Service {
    Service::start(&[&GROUPED[..], flags].concat()).await
}

fn is_bought(one: &Try) -> bool {
    matches!(one.fate(), Fate::Bought(_))
}

async fn books(service: &Service, voucher: &str) -> Books {
    Books::read(&service.place.database_url, voucher).await
}

/// The last answers of those users, and how many had none before.
async fn last_answers(
    url: &str,
    voucher: &str,
    users: impl IntoIterator<Item = u64>,
) -> (Vec<Try>, usize) {
    let mut tasks = JoinSet::new();
    for user in users {
        let (url, voucher) = (url.to_owned(), voucher.to_owned());
        tasks.spawn(async move { buy_until_told(&url, &voucher, user).await });
    }
    let mut doubtful = 0;
    let mut last = Vec::new();
    for mut tries in tasks.join_all().await {
        let is_doubtful = tries.iter().any(|one| one.fate() == Fate::Unknown);
        let one = tries.pop().expect("one at least");
        doubtful += usize::from(is_doubtful && !is_bought(&one));
        last.push(one);
    }
    (last, doubtful)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_buyers_get_exactly_the_stock_and_no_user_two() {
    for lock in ["redisson", "none", "local"] {
        let service = start(&["--lock", lock, "--lock-wait-ms", "10000"]).await;
        let voucher = service.voucher(60).await;
        // Each buyer asks twice.
        let users = (0..300).map(|n| 1 + n % 150);
        let (tries, doubtful) = last_answers(&service.url, &voucher, users).await;
        let books = books(&service, &voucher).await;
        books.add_up_to(60);
        assert_eq!((books.stock, books.orders.len()), (0, 60), "{lock}");
        let bought = tries.iter().filter(|one| is_bought(one)).count();
        assert!((bought..=bought + doubtful).contains(&60), "{lock}: {bought}, {doubtful}");
        for one in &tries {
            match one.fate() {
                Fate::Bought(order) => assert_eq!(books.of(one.user), [order], "{lock}"),
                Fate::Refused if one.words() == "409 \"already_ordered\"" => {
                    let [order] = books.of(one.user)[..] else { panic!("{lock}: no order") };
                    let answer = one.answer.as_ref().expect("an answer");
                    assert_eq!(answer.body["order_id"], order.to_string(), "{lock}");
                }
                Fate::Refused => {
                    assert_eq!(one.words(), "409 \"sold_out\"", "{lock}");
                    assert!(books.of(one.user).is_empty(), "{lock}: {} has one", one.user);
                }
                Fate::Unknown => panic!("{lock}: {}", one.words()),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_nothing_is_left_batches_query_before_they_write() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    // Twelve groups, of which all have gathered before the first is written.
    let flags = ["--work-ms", "400", "--group-size", "5"];
    let service = Service::start_at(through, &[&GROUPED[..], &flags].concat()).await;
    let voucher = service.voucher(2).await;
    let written = proxy.watch(Command::sql("START TRANSACTION").containing("INSERT INTO orders"));
    let tries = buy_together(&service.url, &voucher, 1..=60).await;
    assert_eq!(tries.iter().filter(|one| is_bought(one)).count(), 2);
    for one in tries.iter().filter(|one| !is_bought(one)) {
        assert_eq!(one.words(), "409 \"sold_out\"");
    }
    // Two at a time, before one of them has found that nothing is left, and with what was left.
    assert!((2..=6).contains(&written.matched()), "{}", written.matched());
    // A unit that comes back is sold by the next group.
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    service.post(&path, &token(9, Role::Admin), json!({ "units": 1 })).await.expect(200);
    let bought = async || is_bought(&buy_at(&service.url, &voucher, 61).await);
    eventually("the new unit is sold", bought).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_at_a_full_queue_is_refused_at_once_and_another_voucher_has_its_own() {
    let service = start(&["--work-ms", "4000", "--group-queue", "4"]).await;
    let (voucher, other) = (service.voucher(100).await, service.voucher(100).await);
    let crowd = buy_together(&service.url, &voucher, 1..41);
    let beside = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        buy_at(&service.url, &other, 1000).await
    };
    let (tries, beside) = tokio::join!(crowd, beside);
    assert!(is_bought(&beside), "{}", beside.words());
    // Four wait, in one of two ways. Orders that arrive while ready tasks join are one batch; or
    // four more than the two groups, of four at most, that are written at once.
    let bought = tries.iter().filter(|one| is_bought(one)).count();
    assert!((4..=12).contains(&bought), "{bought} of 40 bought");
    for one in tries.iter().filter(|one| !is_bought(one)) {
        let answer = one.answer.as_ref().expect("an answer");
        assert_eq!(answer.problem(503), "overloaded");
        assert_eq!(answer.body["executed"], false);
        assert_eq!(answer.headers["retry-after"], "1");
        assert!(one.took < Duration::from_secs(4), "waited for a group: {:?}", one.took);
    }
    let books = books(&service, &voucher).await;
    books.add_up_to(100);
    books.bear_out(&tries);
    // Nothing is left of the crowd.
    assert!(is_bought(&buy_at(&service.url, &voucher, 41).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_the_batches_in_flight_and_those_that_gather() {
    let service = start(&["--work-ms", "700"]).await;
    let voucher = service.voucher(100).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    let (url, place, wanted) = (service.url.clone(), service.place.clone(), voucher.clone());
    let purchases = tokio::spawn(async move { buy_together(&url, &wanted, 1..21).await });
    eventually("all hold their locks", async || redis.locks().await.len() == 20).await;
    service.stop().await;
    let tries = purchases.await.expect("purchases");
    assert!(tries.iter().all(is_bought), "a buyer was sent away");
    let books = Books::read(&place.database_url, &voucher).await;
    books.add_up_to(100);
    books.bear_out(&tries);
    assert_eq!(redis.locks().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_hang_up_change_nothing_for_their_neighbours() {
    let service = start(&["--work-ms", "700"]).await;
    let voucher = service.voucher(100).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    let mut gone = JoinSet::new();
    for user in 1..21 {
        let (url, voucher) = (service.url.clone(), voucher.clone());
        gone.spawn(async move {
            let request = format!(
                "POST /api/vouchers/{voucher}/orders HTTP/1.1\r\nHost: test\r\n\
                 Authorization: Bearer {}\r\nContent-Length: 0\r\n\r\n",
                token(user, Role::Buyer)
            );
            let mut stream = wire::connect(&url).await;
            stream.write_all(request.as_bytes()).await.expect("sent");
            stream
        });
    }
    let streams = gone.join_all().await;
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let neighbours = tokio::spawn(async move { buy_together(&url, &wanted, 101..121).await });
    eventually("all hold their locks", async || redis.locks().await.len() == 40).await;
    drop(streams);
    let tries = neighbours.await.expect("purchases");
    assert!(tries.iter().all(is_bought), "a neighbour was sent away");
    eventually("all locks are free", async || redis.locks().await.is_empty()).await;
    let books = books(&service, &voucher).await;
    books.add_up_to(100);
    books.bear_out(&tries);
    assert_eq!(books.orders.len(), 40, "who hung up has an order as well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_loses_its_lock_is_refused_and_its_neighbours_buy() {
    // Renewals come within the work, each second, and one of them tells.
    let service = start(&["--work-ms", "4000", "--lease-ms", "3000"]).await;
    let voucher = service.voucher(100).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let purchases = tokio::spawn(async move { buy_together(&url, &wanted, 1..21).await });
    eventually("the member holds its lock", async || redis.has_lock(5).await).await;
    redis.take_away(5).await;
    let tries = purchases.await.expect("purchases");
    for one in &tries {
        let expected = if one.user == 5 { "503 \"lock_lost\"" } else { "201 null" };
        assert_eq!(one.words(), expected, "user {}", one.user);
    }
    let books = books(&service, &voucher).await;
    books.add_up_to(100);
    books.bear_out(&tries);
}
