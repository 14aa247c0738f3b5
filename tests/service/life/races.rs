//! Payment, cancellation and time-out of one order at the same moment: exactly one happens.

use std::collections::HashMap;
use std::time::Duration;

use testbed::{Action, Command, Times};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;

use super::post;
use crate::contention::ForeignSession;
use crate::crowd::{Fate, buy_together};
use crate::support::{Answer, Place, Service, eventually};

const ORDERS: u64 = 60;
/// Rounds of the race; in each, every order of another user.
const ROUNDS: u64 = 4;
/// The most rounds, on a machine so busy that one side seldom wins.
const MAX_ROUNDS: u64 = 10;
const WINNERS: [&str; 3] = ["paid by none", "cancelled by buyer", "cancelled by time_out"];

/// What was answered, by status and code.
fn words(answer: &Answer) -> String {
    format!("{} {}", answer.status.as_u16(), answer.body["code"].as_str().unwrap_or("done"))
}

/// When the time of a bought order is over.
fn pay_by(bought: &Answer) -> OffsetDateTime {
    let text = bought.body["order"]["pay_by"].as_str().expect("a time");
    OffsetDateTime::parse(text, &Rfc3339).expect("a time")
}

async fn replicas(flags: &[&str]) -> [Service; 2] {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    [Service::start_at(place.clone(), flags).await, Service::start_at(place, flags).await]
}

/// Pays and cancels an order twice each, at both replicas, about when its time is over. Some come
/// at once. Others leave up to 75 ms between paying, which takes more steps, and cancelling.
async fn race(
    urls: [String; 2],
    (order, pay_by): (String, OffsetDateTime),
    user: u64,
) -> (String, u64, Vec<(String, String)>) {
    // From 200 ms before its time is over, which is looked for once a second, to 200 ms after the
    // look that finds it so.
    let after = i64::try_from(user * 37 % 1400).expect("few") - 200;
    let begins = pay_by + time::Duration::milliseconds(after);
    let left = begins - OffsetDateTime::now_utc();
    tokio::time::sleep(left.try_into().unwrap_or_default()).await;
    let mut tries = JoinSet::new();
    for (number, action) in ["pay", "cancel", "cancel", "pay"].into_iter().enumerate() {
        let url = urls[number % 2].clone();
        let path = format!("/api/orders/{order}/{action}");
        let after = if action == "cancel" { 25 * (user % 4) } else { 0 };
        tries.spawn(async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            let answer = post(&url, &path, user, None).await;
            (action.to_owned(), words(&answer))
        });
    }
    (order, user, tries.join_all().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_payment_cancellation_and_time_out_exactly_one_wins() {
    // On a busy machine the purchases of a round take seconds.
    let replicas = replicas(&["--unpaid-timeout-s", "4"]).await;
    let service = &replicas[0];
    let urls = replicas.each_ref().map(|replica| replica.url.clone());
    let mut winners: HashMap<String, u64> = HashMap::new();
    for round in 0..MAX_ROUNDS {
        if round >= ROUNDS && WINNERS.iter().all(|winner| winners.contains_key(*winner)) {
            break;
        }
        let voucher = service.voucher(u32::try_from(ORDERS).expect("few")).await;
        let users = (0..ORDERS).map(|number| 1 + round * 1000 + number);
        let mut races = JoinSet::new();
        // On a busy machine some are refused, or never learn of their order, which does not race.
        let mut unknown = 0_i64;
        for one in buy_together(&service.url, &voucher, users).await {
            match one.fate() {
                Fate::Bought(order) => {
                    let pay_by = pay_by(&one.answer.expect("an order"));
                    races.spawn(race(urls.clone(), (order.to_string(), pay_by), one.user));
                }
                Fate::Refused => {}
                Fate::Unknown => unknown += 1,
            }
        }
        let bought = i64::try_from(races.len()).expect("few");
        for (order, user, told) in races.join_all().await {
            let settled = service.look(&order, user).await;
            let status = settled["status"].as_str().expect("a status");
            // A request that is refused for want of a server has not raced.
            for (action, words) in told.iter().filter(|(_, words)| !words.starts_with("503 ")) {
                let expected = match (action.as_str(), status) {
                    ("pay", "paid") | ("cancel", "cancelled") => "200 done",
                    ("pay", "cancelled") => "409 order_cancelled",
                    ("cancel", "paid") => "409 order_paid",
                    _ => panic!("{action} of an order that is {status}"),
                };
                assert_eq!(words, expected, "{action} of an order that is {status}: {told:?}");
            }
            let by = settled["cancelled_by"].as_str().unwrap_or("none");
            *winners.entry(format!("{status} by {by}")).or_default() += 1;
        }
        let (orders, cancelled, left) = service.add_up(&voucher).await;
        assert_eq!(orders + left, 60);
        let made = bought..=bought + unknown;
        assert!(made.contains(&(orders + cancelled)), "{made:?}: {orders} and {cancelled}");
    }
    println!("{winners:?}");
    for winner in WINNERS {
        assert!(winners.contains_key(winner), "it was no race: {winners:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_waits_for_a_running_time_out_and_blocks_no_purchase() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let service = Service::start_at(place, &[]).await;
    let voucher = service.voucher(9).await;
    let order = service.order(&voucher, 17).await;
    service.order(&voucher, 18).await;
    let mut watch = ForeignSession::connect(&service.place).await;
    let before = watch.deadlocks().await;
    // It has the orders, and its way to the stock is long.
    let returns = Command::sql("UPDATE voucher_stock SET stock = stock + 2");
    let rule = proxy.arm(returns, Action::HoldRequest, Times::Next(1));
    let keeper = Service::start_at(through, &["--unpaid-timeout-s", "1"]).await;
    eventually("the orders time out", async || rule.fired() == 1).await;
    let (url, path) = (service.url.clone(), format!("/api/orders/{order}/cancel"));
    let cancelling = tokio::spawn(async move { post(&url, &path, 17, None).await });
    eventually("the cancellation waits", async || watch.waiting().await == 1).await;
    service.order(&voucher, 19).await;
    rule.release();
    let cancelled = cancelling.await.expect("an answer").expect(200);
    assert_eq!(cancelled["order"]["cancelled_by"], "time_out");
    assert_eq!(watch.deadlocks().await, before, "they met in a deadlock");
    assert_eq!(service.audit(&voucher).await["consistent"], true);
    keeper.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancellations_beyond_their_bound_are_refused_also_when_clients_hang_up() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let service = Service::start_at(through, &["--max-orders", "2"]).await;
    let voucher = service.voucher(9).await;
    let mut orders = Vec::new();
    for user in 1..=3 {
        orders.push(service.order(&voucher, user).await);
    }
    let returns = Command::sql("UPDATE voucher_stock SET stock = stock +");
    let rule = proxy.arm(returns, Action::HoldRequest, Times::Next(2));
    for (user, order) in (1..).zip(&orders[..2]) {
        let (url, path) = (service.url.clone(), format!("/api/orders/{order}/cancel"));
        let cancelling = tokio::spawn(async move { post(&url, &path, user, None).await });
        eventually("it is under way", async || rule.fired() == user).await;
        cancelling.abort();
    }
    let refused = service.cancel(&orders[2], 3).await;
    assert_eq!(refused.problem(503), "overloaded");
    assert_eq!(service.look(&orders[2], 3).await["status"], "unpaid");
    service.order(&voucher, 4).await;
    rule.release();
    eventually("a place is free", async || service.cancel(&orders[2], 3).await.status == 200).await;
    eventually("all are cancelled", async || service.add_up(&voucher).await == (1, 3, 8)).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_cancelled_while_others_are_bought_without_a_deadlock() {
    for writer in ["single", "grouped"] {
        let flags = ["--writer", writer, "--unpaid-timeout-s", "1", "--lock-wait-ms", "10000"];
        let replicas = replicas(&flags).await;
        let (service, other) = (&replicas[0], &replicas[1]);
        let voucher = service.voucher(2000).await;
        let mut watch = ForeignSession::connect(&service.place).await;
        let before = watch.deadlocks().await;
        let mut buyers = JoinSet::new();
        for buyer in 0..16_u64 {
            let urls = [service.url.clone(), other.url.clone()];
            let voucher = voucher.clone();
            buyers.spawn(async move {
                let mut told = HashMap::new();
                for number in 0..40 {
                    let user = 1 + buyer * 1000 + number;
                    let url = &urls[usize::try_from(number % 2).expect("small")];
                    let path = format!("/api/vouchers/{voucher}/orders");
                    let bought = post(url, &path, user, Some("k")).await.expect(201);
                    if number % 3 == 0 {
                        let path = format!("/api/orders/{}/cancel", super::id(&bought));
                        let answer = post(url, &path, user, Some("c")).await;
                        *told.entry(words(&answer)).or_insert(0) += 1;
                    }
                }
                told
            });
        }
        for told in buyers.join_all().await {
            assert_eq!(told.keys().collect::<Vec<_>>(), ["200 done"], "{writer}: {told:?}");
        }
        assert_eq!(watch.deadlocks().await, before, "{writer}: transactions met in a deadlock");
        let (orders, cancelled, left) = service.add_up(&voucher).await;
        assert_eq!((orders + cancelled, orders + left), (640, 2000), "{writer}");
    }
}
