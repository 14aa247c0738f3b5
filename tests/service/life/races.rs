//! Payment, cancellation and time-out of one order at the same moment: exactly one happens.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use seckill::domain::Role;
use testbed::{Action, Command, Database, Flavor, Proxy, Times};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::{JoinSet, block_in_place};

use super::post;
use crate::contention::ForeignSession;
use crate::crowd::{Fate, buy_at};
use crate::support::{
    Answer, Place, Service, client, eventually, make_admins, servers, token, within,
};

const ORDERS: u64 = 60;
/// Rounds of the race; in each, every order of another user.
const ROUNDS: u64 = 4;
/// The most rounds, on a machine so busy that one side seldom wins.
const MAX_ROUNDS: u64 = 10;
const WINNERS: [&str; 3] = ["paid by none", "cancelled by buyer", "cancelled by time_out"];
/// A cancellation waits for its order's row for 3 s. What happens meanwhile is tried again if the
/// machine stood still for so long.
const IN_TIME: Duration = Duration::from_millis(2500);
const TRIES: u32 = 5;

/// What was answered, by status and code.
fn words(answer: &Answer) -> String {
    format!("{} {}", answer.status.as_u16(), answer.body["code"].as_str().unwrap_or("done"))
}

/// When the time of a bought order is over.
fn pay_by(bought: &Answer) -> OffsetDateTime {
    let text = bought.body["order"]["pay_by"].as_str().expect("a time");
    OffsetDateTime::parse(text, &Rfc3339).expect("a time")
}

async fn replicas(place: Place, flags: &[&str]) -> [Service; 2] {
    [Service::start_at(place.clone(), flags).await, Service::start_at(place, flags).await]
}

/// A database server that no other test uses: deadlocks are counted by the server.
fn lone_server() -> Database {
    block_in_place(|| servers().bed.database(Flavor::Any)).expect("MariaDB or MySQL is installed")
}

/// A place with a database of that server.
fn place_at(database: &Database, name: &str) -> Place {
    block_in_place(|| {
        database.create_database(name).expect("a database");
        let database_url = database.url(name);
        make_admins(&database_url);
        Place { database_url, ..Place::fresh() }
    })
}

/// Asks with a key for as long as the answer is that the service is busy, for a minute at most.
async fn post_until_done(url: &str, path: &str, user: u64, key: &str) -> Answer {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = post(url, path, user, Some(key)).await;
        let is_busy = answer.status == 503 && answer.body["executed"] == false;
        if !is_busy || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One of the two; the action and what was answered.
async fn act(url: &str, order: &str, user: u64, action: &str) -> (String, String) {
    let answer = post(url, &format!("/api/orders/{order}/{action}"), user, None).await;
    (action.to_owned(), words(&answer))
}

/// Waits until the order is cancelled, without a request that may do so.
async fn until_cancelled(url: &str, order: &str, user: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let look = client().get(format!("{url}/api/orders/{order}"));
        let look = look.bearer_auth(token(user, Role::Buyer)).send().await;
        let answer = Answer::of(look.expect("an answer")).await;
        if answer.body["order"]["status"] == "cancelled" {
            return;
        }
        assert!(Instant::now() < deadline, "the order does not time out: {}", answer.body);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Pays and cancels an order twice each, at both replicas: about when its time is over, or, in a
/// third of the orders, when one side has won. So each side wins some, however slow the machine is.
/// Some come at once. Others leave up to 75 ms between paying, which takes more steps, and
/// cancelling.
async fn race(
    urls: [String; 2],
    (order, pay_by): (String, OffsetDateTime),
    user: u64,
) -> (String, u64, Vec<(String, String)>) {
    let mut told = Vec::new();
    match user % 9 {
        0 => told.push(act(&urls[0], &order, user, "pay").await),
        1 => told.push(act(&urls[0], &order, user, "cancel").await),
        2 => until_cancelled(&urls[0], &order, user).await,
        _ => {
            // From 200 ms before its time is over, which is looked for once a second, to 200 ms
            // after the look that finds it so.
            let after = i64::try_from(user * 37 % 1400).expect("few") - 200;
            let begins = pay_by + time::Duration::milliseconds(after);
            let left = begins - OffsetDateTime::now_utc();
            tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        }
    }
    let mut tries = JoinSet::new();
    for (number, action) in ["pay", "cancel", "cancel", "pay"].into_iter().enumerate() {
        let (url, order) = (urls[number % 2].clone(), order.clone());
        let after = if action == "cancel" { 25 * (user % 4) } else { 0 };
        tries.spawn(async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            act(&url, &order, user, action).await
        });
    }
    told.extend(tries.join_all().await);
    (order, user, told)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_payment_cancellation_and_time_out_exactly_one_wins() {
    // On a busy machine the purchases of a round take seconds.
    let place = block_in_place(Place::fresh);
    let replicas = replicas(place, &["--unpaid-timeout-s", "4"]).await;
    let service = &replicas[0];
    let urls = replicas.each_ref().map(|replica| replica.url.clone());
    let mut winners: HashMap<String, u64> = HashMap::new();
    // Those of orders at which no side has come first on purpose.
    let mut contested: HashSet<String> = HashSet::new();
    for round in 0..MAX_ROUNDS {
        let has_each = WINNERS.iter().all(|winner| winners.contains_key(*winner));
        if round >= ROUNDS && has_each && contested.len() > 1 {
            break;
        }
        let voucher = service.voucher(u32::try_from(ORDERS).expect("few")).await;
        let users = (0..ORDERS).map(|number| 1 + round * 1000 + number);
        let mut races = JoinSet::new();
        for user in users {
            let (urls, voucher) = (urls.clone(), voucher.clone());
            races.spawn(async move {
                let one = buy_at(&urls[0], &voucher, user).await;
                let order = match one.fate() {
                    Fate::Bought(order) => order,
                    other => return Err(other),
                };
                let pay_by = pay_by(one.answer.as_ref().expect("an order"));
                Ok(race(urls, (order.to_string(), pay_by), user).await)
            });
        }
        // On a busy machine some are refused, or never learn of their order, which does not race.
        let (all_told, others): (Vec<_>, Vec<_>) =
            races.join_all().await.into_iter().partition(Result::is_ok);
        let others = others.into_iter().filter_map(Result::err);
        let unknown = others.filter(|fate| *fate == Fate::Unknown).count();
        let unknown = i64::try_from(unknown).expect("few");
        let bought = i64::try_from(all_told.len()).expect("few");
        for (order, user, told) in all_told.into_iter().filter_map(Result::ok) {
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
            let winner = format!("{status} by {by}");
            if user % 9 > 2 {
                contested.insert(winner.clone());
            }
            *winners.entry(winner).or_default() += 1;
        }
        let (orders, cancelled, left) = service.add_up(&voucher).await;
        assert_eq!(orders + left, 60);
        let made = bought..=bought + unknown;
        assert!(made.contains(&(orders + cancelled)), "{made:?}: {orders} and {cancelled}");
    }
    println!("{winners:?}");
    assert!(contested.len() > 1, "it was no race: {contested:?} won");
    for winner in WINNERS {
        assert!(winners.contains_key(winner), "one side never won: {winners:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_waits_for_a_running_time_out_and_blocks_no_purchase() {
    let database = lone_server();
    let place = place_at(&database, "sale");
    let proxy = Proxy::before(database.addr()).expect("a proxy");
    let database_url = proxy.instead_of(database.addr(), &place.database_url);
    let through = Place { database_url, ..place.clone() };
    let service = Service::start_at(place, &[]).await;
    let mut watch = ForeignSession::connect(&service.place).await;
    let before = watch.deadlocks().await;
    let mut met = false;
    for _ in 0..TRIES {
        met = do_they_meet_in_time(&service, (&proxy, &through), &mut watch).await;
        if met {
            break;
        }
    }
    assert!(met, "the time-out or the cancellation was late {TRIES} times");
    assert_eq!(watch.deadlocks().await, before, "they met in a deadlock");
}

/// Whether the time-out went on before the cancellation gave up waiting for its row.
async fn do_they_meet_in_time(
    service: &Service,
    (proxy, through): (&Proxy, &Place),
    watch: &mut ForeignSession,
) -> bool {
    let voucher = service.voucher(9).await;
    let order = service.order(&voucher, 17).await;
    service.order(&voucher, 18).await;
    // It has the orders, and its way to the stock is long.
    let returns = Command::sql("UPDATE voucher_stock SET stock = stock + 2");
    let rule = proxy.arm(returns, Action::HoldRequest, Times::Next(1));
    let keeper = Service::start_at(through.clone(), &["--unpaid-timeout-s", "1"]).await;
    let mut began = Instant::now();
    eventually("the orders time out", async || {
        let now = Instant::now();
        let is_running = rule.fired() == 1;
        began = if is_running { began } else { now };
        is_running
    })
    .await;
    let (url, path) = (service.url.clone(), format!("/api/orders/{order}/cancel"));
    let cancelling = tokio::spawn(async move { post(&url, &path, 17, None).await });
    let mut waits = false;
    within(IN_TIME, async || {
        waits = watch.waiting().await == 1;
        waits || cancelling.is_finished()
    })
    .await;
    let bought = service.buy(&voucher, 19).await;
    rule.release();
    let in_time = began.elapsed() < IN_TIME;
    let cancelled = cancelling.await.expect("an answer");
    keeper.stop().await;
    assert_eq!(service.audit(&voucher).await["consistent"], true);
    if !in_time {
        return false;
    }
    assert!(waits, "the cancellation did not wait");
    bought.expect(201);
    assert_eq!(cancelled.expect(200)["order"]["cancelled_by"], "time_out");
    true
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
    let database = lone_server();
    for writer in ["single", "grouped"] {
        let flags = ["--writer", writer, "--unpaid-timeout-s", "1", "--lock-wait-ms", "10000"];
        let replicas = replicas(place_at(&database, writer), &flags).await;
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
                    let bought = post_until_done(url, &path, user, "k").await.expect(201);
                    if number % 3 == 0 {
                        let path = format!("/api/orders/{}/cancel", super::id(&bought));
                        let answer = post_until_done(url, &path, user, "c").await;
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
