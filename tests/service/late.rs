//! Late purchases are answered from memory: their cost, and that the answers are true.

use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use testbed::{Action, Command, Proxy, Rule, Times};

use crate::crowd::{Books, Fate, buy_at};
use crate::queued::buyer::ticket_of;
use crate::redis_side::RedisSide;
use crate::support::{Answer, Place, Service, client, eventually, token};

/// How long what a replica knows may be told.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// A service whose ways to its servers are watched.
struct WatchedService {
    service: Service,
    database: Proxy,
    redis: Proxy,
    transactions: Rule,
    reads: Rule,
    scripts: Rule,
}

impl WatchedService {
    async fn start(flags: &[&str]) -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        Self::start_at(&place, flags).await
    }

    async fn start_at(place: &Place, flags: &[&str]) -> Self {
        let (database, through) = place.database_through_proxy();
        let (redis, through) = through.redis_through_proxy();
        let transactions = database.watch(Command::sql("START TRANSACTION"));
        let reads = database.watch(Command::sql("SELECT v.id"));
        // Readiness asks every few seconds whether scripts may run, and a replica looks for
        // deadlocks of jobs, on keys of their own.
        let is_of_its_own = |part: &&[u8]| {
            let part = String::from_utf8_lossy(part);
            part.contains("rights-probe") || part == "distlock_waits"
        };
        let scripts = Command::redis("EVALSHA").when(move |parts| !parts.iter().any(is_of_its_own));
        let scripts = redis.watch(scripts);
        let service = Service::start_at(through, flags).await;
        Self { service, database, redis, transactions, reads, scripts }
    }

    /// Transactions that were begun, and scripts that were run.
    fn work(&self) -> (u64, u64) {
        (self.transactions.matched(), self.scripts.matched())
    }

    /// How often the voucher was read while `life` passed so often, at most. What was read counts
    /// from the question on, so on a slow machine an answer can come too late to be used. Then one
    /// request goes the long way, for each read and for what was known at first.
    fn long_ways(&self, read_before: u64, (began, life): (Instant, Duration)) -> u64 {
        let reads = self.reads.matched() - read_before;
        let lives = began.elapsed().as_millis() / life.as_millis();
        assert!(u128::from(reads) <= lives + 2, "{reads} reads in {lives} lives");
        reads + 1
    }

    /// Sells the one unit of a new voucher to user 1, and sends user 2 away.
    async fn sold_out(&self) -> String {
        let voucher = self.service.voucher(1).await;
        self.service.buy(&voucher, 1).await.expect(201);
        assert_eq!(self.service.buy(&voucher, 2).await.problem(409), "sold_out");
        self.until_given_back(1).await;
        self.until_given_back(2).await;
        voucher
    }

    async fn until_given_back(&self, user: u64) {
        let redis = RedisSide::connect(&self.service.place.redis_url).await;
        redis.until_given_back(user).await;
    }
}

async fn add_stock(service: &Service, voucher: &str, units: u32) {
    let path = format!("/api/admin/vouchers/{voucher}/stock");
    service.post(&path, &token(9, Role::Admin), json!({ "units": units })).await.expect(200);
}

/// The purchase of that user with that key.
async fn buy_with(service: &Service, voucher: &str, user: u64, key: &str) -> Answer {
    let url = format!("{}/api/vouchers/{voucher}/orders", service.url);
    let request = client().request(Method::POST, url).header("idempotency-key", key);
    let request = request.bearer_auth(token(user, Role::Buyer));
    Answer::of(request.send().await.expect("an answer")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_after_the_last_unit_costs_neither_a_lock_nor_a_transaction() {
    for writer in ["single", "grouped"] {
        let watched = WatchedService::start(&["--writer", writer]).await;
        let voucher = watched.sold_out().await;
        let (began, before) = (Instant::now(), (watched.work(), watched.reads.matched()));
        let looked_up =
            watched.database.watch(Command::sql("SELECT").containing("idempotency_keys"));
        for user in 3..203 {
            let answer = buy_with(&watched.service, &voucher, user, "a-key").await;
            assert_eq!(answer.problem(409), "sold_out");
        }
        let allowed = watched.long_ways(before.1, (began, CACHE_TTL));
        let (transactions, scripts) = watched.work();
        let (transactions, scripts) = (transactions - before.0.0, scripts - before.0.1);
        assert!(transactions <= allowed, "{writer}: {transactions} transactions, not {allowed}");
        assert!(
            scripts <= 2 * allowed,
            "{writer}: {scripts} scripts of locks, not {allowed} pairs"
        );
        assert!(looked_up.matched() <= allowed, "{writer}: {} were looked up", looked_up.matched());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_at_a_sold_out_queue_costs_no_admission() {
    let watched = WatchedService::start(&["--mode", "queued", "--writer", "grouped"]).await;
    let voucher = watched.service.voucher(1).await;
    ticket_of(watched.service.buy(&voucher, 1).await);
    // Admissions name the users; the scripts that take entries do not.
    let admissions = watched.redis.watch(Command::redis("EVALSHA").containing(":users"));
    let mut user = 1;
    eventually("it is known that all is sold", async || {
        let before = admissions.matched();
        user += 1;
        assert_eq!(watched.service.buy(&voucher, user).await.problem(409), "sold_out");
        admissions.matched() == before
    })
    .await;
    let (began, before) = (Instant::now(), (admissions.matched(), watched.reads.matched()));
    for user in 1000..1200 {
        assert_eq!(watched.service.buy(&voucher, user).await.problem(409), "sold_out");
    }
    assert_eq!(watched.service.buy(&voucher, 1).await.problem(409), "already_ordered");
    let allowed = watched.long_ways(before.1, (began, CACHE_TTL / 2));
    let asked = admissions.matched() - before.0;
    assert!(asked <= allowed, "{asked} admissions, not {allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_before_the_window_costs_neither_a_lock_nor_a_transaction() {
    let watched = WatchedService::start(&[]).await;
    let voucher = watched.service.voucher(1).await;
    let path = format!("/api/admin/vouchers/{voucher}");
    let later = Some(json!({"starts_at": "2119-01-01T00:00:00Z"}));
    let admin = token(9, Role::Admin);
    watched.service.call(Method::PATCH, &path, Some(&admin), later).await.expect(200);
    let (began, before) = (Instant::now(), (watched.work(), watched.reads.matched()));
    // With a key as well: there is no order, so no earlier request can have had another answer.
    let looked_up = watched.database.watch(Command::sql("SELECT").containing("idempotency_keys"));
    for user in 1..201 {
        let answer = buy_with(&watched.service, &voucher, user, "a-key").await;
        assert_eq!(answer.problem(409), "not_started");
    }
    assert_eq!(looked_up.matched(), 0);
    let (reads, seconds) = (watched.reads.matched() - before.1, began.elapsed().as_secs());
    assert_eq!(watched.work(), before.0);
    assert!(reads <= seconds + 2, "{reads} reads in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_units_are_for_sale_within_a_second_at_every_replica() {
    let one = Service::start(&[]).await;
    let others = [
        Service::start_at(one.place.clone(), &[]).await,
        Service::start_at(one.place.clone(), &["--writer", "single"]).await,
    ];
    let voucher = one.voucher(1).await;
    one.buy(&voucher, 1).await.expect(201);
    let mut bought: Vec<(String, u64)> = Vec::new();
    for (round, back) in (1..).zip(["added", "cancelled", "added", "cancelled"]) {
        // All replicas know, and have just looked.
        for (number, service) in (10..).zip([&one, &others[0], &others[1]]) {
            eventually("it is sold out here", async || {
                let answer = service.buy(&voucher, number).await;
                answer.status == 201 || answer.problem(409) == "sold_out"
            })
            .await;
        }
        if back == "added" {
            add_stock(&one, &voucher, 3).await;
        }
        for (order, user) in bought.drain(..).filter(|_| back == "cancelled") {
            one.cancel(&order, user).await.expect(200);
        }
        let added = Instant::now();
        for (number, service) in (1..).zip([&one, &others[0], &others[1]]) {
            let mut user = round * 10_000 + number * 1000;
            let sold = loop {
                user += 1;
                let one = buy_at(&service.url, &voucher, user).await;
                match one.fate() {
                    Fate::Bought(order) => {
                        bought.push((order.to_string(), user));
                        break one;
                    }
                    Fate::Refused => {}
                    Fate::Unknown => panic!("{}", one.words()),
                }
                let late = one.sent.saturating_duration_since(added);
                assert!(late < CACHE_TTL, "told {} when asked after {late:?}", one.words());
            };
            println!("{back}: sold after {:?}", sold.sent.duration_since(added));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_unit_whose_order_may_still_be_rolled_back_is_not_yet_sold_out() {
    for writer in ["single", "grouped"] {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let victim = WatchedService::start_at(&place, &["--writer", writer]).await;
        let other = Service::start_at(place, &["--writer", writer]).await;
        let voucher = victim.service.voucher(1).await;
        // The stock is read while the unit is there, and again while no order has it yet.
        let held = victim.database.arm(Command::commit(), Action::HoldRequest, Times::Next(1));
        let (url, wanted) = (victim.service.url.clone(), voucher.clone());
        let first = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
        eventually("the first is about to commit", async || held.fired() == 1).await;
        let (url, wanted) = (other.url.clone(), voucher.clone());
        let second = tokio::spawn(async move { buy_at(&url, &wanted, 2).await });
        tokio::time::sleep(Duration::from_millis(300)).await;
        victim.database.cut();
        let second = second.await.expect("a purchase");
        assert!(matches!(second.fate(), Fate::Bought(_)), "{writer}: {}", second.words());
        assert!(!matches!(first.await.expect("a purchase").fate(), Fate::Bought(_)), "{writer}");
        let database_url = &other.place.database_url;
        Books::read(database_url, &voucher).await.add_up_to(1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_gets_already_ordered_without_a_lock_and_never_sold_out() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let seller = WatchedService::start_at(&place, &[]).await;
    let other = WatchedService::start_at(&place, &[]).await;
    let voucher = seller.service.voucher(3).await;
    let mut orders = Vec::new();
    for user in [1, 2, 3] {
        let bought = buy_with(&seller.service, &voucher, user, "first").await.expect(201);
        orders.push(bought["order"]["id"].clone());
    }
    // While units are left as well as afterwards; here it is sold out by now.
    for service in [&other, &seller] {
        eventually("it is sold out", async || {
            service.service.buy(&voucher, 9).await.problem(409) == "sold_out"
        })
        .await;
        // More than once: what is known may have become too old in between.
        eventually("it is told with neither a lock nor a transaction", async || {
            let before = service.work();
            for (user, order) in (1..).zip(&orders) {
                let again = service.service.buy(&voucher, user).await;
                assert_eq!(again.problem(409), "already_ordered");
                assert_eq!(again.body["order_id"], *order);
            }
            // The very request that bought is told what it was told then.
            let again = buy_with(&service.service, &voucher, 1, "first").await;
            assert_eq!(again.expect(201)["order"]["id"], orders[0]);
            let other_key = buy_with(&service.service, &voucher, 1, "second").await;
            assert_eq!(other_key.problem(409), "already_ordered");
            service.work() == before
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_gets_already_ordered_from_memory_while_units_are_left() {
    let watched = WatchedService::start(&[]).await;
    let voucher = watched.service.voucher(100).await;
    watched.service.buy(&voucher, 1).await.expect(201);
    watched.until_given_back(1).await;
    let before = watched.work();
    for _ in 0..20 {
        assert_eq!(watched.service.buy(&voucher, 1).await.problem(409), "already_ordered");
    }
    assert_eq!(watched.work(), before);
    watched.service.buy(&voucher, 2).await.expect(201);
    assert!(watched.work() > before, "the counts see a purchase");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_cancellations_cause_no_reads() {
    let watched = WatchedService::start(&[]).await;
    let (service, voucher) = (&watched.service, watched.service.voucher(1).await);
    let order = service.order(&voucher, 1).await;
    service.cancel(&order, 1).await.expect(200);
    service.buy(&voucher, 2).await.expect(201);
    assert_eq!(service.buy(&voucher, 3).await.problem(409), "sold_out");
    let (began, reads) = (Instant::now(), watched.reads.matched());
    for user in 4..54 {
        service.cancel(&order, 1).await.expect(200);
        assert_eq!(service.buy(&voucher, user).await.problem(409), "sold_out");
    }
    watched.long_ways(reads, (began, CACHE_TTL));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unguarded_sale_and_the_baseline_of_an_injected_bug_cache_no_buyer() {
    for flags in [["--guards", "off"], ["--inject-bug-control", "no-stock-condition"]] {
        let watched = WatchedService::start(&[&["--lab"], &flags[..]].concat()).await;
        let voucher = watched.sold_out().await;
        for user in 3..6 {
            let before = watched.work();
            assert_eq!(watched.service.buy(&voucher, user).await.problem(409), "sold_out");
            assert!(watched.work().0 > before.0, "{flags:?}: it was looked up");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_injected_cache_never_forgets_that_it_was_sold_out() {
    let service = Service::start(&["--lab", "--inject-bug", "sold-out-for-ever"]).await;
    let voucher = service.voucher(1).await;
    service.buy(&voucher, 1).await.expect(201);
    for user in 2..4 {
        assert_eq!(service.buy(&voucher, user).await.problem(409), "sold_out");
    }
    add_stock(&service, &voucher, 5).await;
    let added = Instant::now();
    while added.elapsed() < CACHE_TTL + Duration::from_millis(200) {
        assert_eq!(service.buy(&voucher, 5).await.problem(409), "sold_out");
    }
}
