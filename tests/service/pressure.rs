//! Too much at once, a lock that is taken, and a lock that is lost.

use std::time::{Duration, Instant};

use testbed::{Action, Command, Times};

use crate::crowd::{Books, Fate, Try, buy_at, buy_together};
use crate::redis_side::RedisSide;
use crate::support::{Place, Service, eventually};

/// Clearly less than any work or wait in these tests.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);

fn answer(one: &Try) -> &crate::support::Answer {
    one.answer.as_ref().expect("an answer")
}

fn is_bought(one: &Try) -> bool {
    matches!(one.fate(), Fate::Bought(_))
}

async fn books(service: &Service, voucher: &str) -> Books {
    Books::read(&service.place.database_url, voucher).await
}

#[tokio::test(flavor = "multi_thread")]
async fn more_purchases_than_there_are_places_for_are_refused_at_once_and_never_queue() {
    let service = Service::start(&["--lab", "--work-ms", "1500", "--max-orders", "2"]).await;
    let voucher = service.voucher(100).await;
    for round in 1..=2 {
        let users = (0..40).map(|n| round * 100 + n);
        let started = Instant::now();
        let tries = buy_together(&service.url, &voucher, users).await;
        assert!(started.elapsed() < Duration::from_secs(3), "the third waited for the first");
        let (bought, refused): (Vec<_>, Vec<_>) = tries.iter().partition(|one| is_bought(one));
        assert_eq!(bought.len(), 2, "as many as there are places");
        let first_end = bought.iter().map(|one| one.took).min().expect("two purchases");
        for one in &refused {
            assert_eq!(answer(one).problem(503), "overloaded");
            assert_eq!(answer(one).body["executed"], false);
            assert_eq!(answer(one).headers["retry-after"], "1");
            assert!(one.took < first_end, "{:?}: no place was free before", one.took);
        }
        let slowest = refused.iter().map(|one| one.took).max();
        println!("{} refused, the slowest after {slowest:?}", refused.len());
        let books = books(&service, &voucher).await;
        books.add_up_to(100);
        books.bear_out(&tries);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_purchase_of_one_user_is_refused_at_once_if_it_may_not_wait() {
    let flags = ["--lab", "--work-ms", "1500", "--lock-wait-ms", "0"];
    // Two replicas of one deployment: also the lock that another process holds is not waited for.
    let first = Service::start(&flags).await;
    let second = Service::start_at(first.place.clone(), &flags).await;
    let voucher = first.voucher(10).await;
    let redis = RedisSide::connect(&first.place.redis_url).await;
    let (url, wanted) = (first.url.clone(), voucher.clone());
    let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("the first holds the lock", async || redis.has_lock(1).await).await;
    for service in [&first, &second] {
        let one = buy_at(&service.url, &voucher, 1).await;
        assert_eq!(answer(&one).problem(409), "order_in_progress");
        assert_eq!(answer(&one).headers["retry-after"], "1");
        assert!(one.took < PROMPT_WITHIN, "{:?}", one.took);
    }
    assert!(!purchase.is_finished(), "the lock was held all the while");
    let one = purchase.await.expect("the purchase");
    assert!(is_bought(&one), "{}", one.words());
    assert_eq!(books(&first, &voucher).await.orders.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_whose_lock_ran_out_in_the_middle_is_rolled_back_and_refused() {
    let flags = ["--lab", "--work-ms", "600", "--lease-ms", "200", "--lock", "lua-release"];
    let service = Service::start(&flags).await;
    let voucher = service.voucher(10).await;
    let one = buy_at(&service.url, &voucher, 1).await;
    assert_eq!(answer(&one).problem(503), "lock_lost");
    assert_eq!(answer(&one).body["executed"], false);
    assert!(answer(&one).headers.contains_key("retry-after"));
    assert!(one.took >= Duration::from_millis(600), "{:?}", one.took);
    let books = books(&service, &voucher).await;
    assert_eq!((books.orders.len(), books.stock), (0, 10));
    // The same work under a lease that is long enough, under one that is renewed, and without a
    // check of the lock.
    let enough = ["--lease-ms", "2000", "--lock", "lua-release"];
    let renewed = ["--lease-ms", "200", "--lock", "redisson"];
    let careless = ["--lease-ms", "200", "--lock", "lua-release", "--on-lost", "ignore"];
    for (user, flags) in (1..).zip([&enough[..], &renewed, &careless]) {
        let flags = [&["--lab", "--work-ms", "600"], flags].concat();
        let other = Service::start_at(service.place.clone(), &flags).await;
        let one = buy_at(&other.url, &voucher, user).await;
        assert!(is_bought(&one), "{flags:?}: {}", one.words());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_that_ignores_the_loss_of_its_lock_still_releases_what_is_not_its_own() {
    let flags = ["--lab", "--work-ms", "1300", "--lease-ms", "1000", "--lock-wait-ms", "5000"];
    let flags = [&flags[..], &["--lock", "set-nx", "--on-lost", "ignore"]].concat();
    let one = Service::start(&flags).await;
    let other = Service::start_at(one.place.clone(), &flags).await;
    // Two vouchers, so that only the user's lock keeps the two purchases apart.
    let (wanted, also_wanted) = (one.voucher(10).await, one.voucher(10).await);
    let redis = RedisSide::connect(&one.place.redis_url).await;
    let url = one.url.clone();
    let first = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("the first holds the lock", async || redis.has_lock(1).await).await;
    let url = other.url.clone();
    let second = tokio::spawn(async move { buy_at(&url, &also_wanted, 1).await });
    assert!(is_bought(&first.await.expect("a purchase")));
    let answered = Instant::now();
    // Its lease ended 0.3 s ago, and that of the second has 0.7 s left.
    redis.until_given_back(1).await;
    assert!(answered.elapsed() < Duration::from_millis(500), "the lease of the second has ended");
    assert!(!second.is_finished(), "the second was not under way");
    assert!(is_bought(&second.await.expect("a purchase")));
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_redis_has_forgotten_do_no_harm() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher(10).await;
    let redis = RedisSide::connect(&service.place.redis_url).await;
    for user in 1..=4 {
        let before = redis.unknown_scripts().await;
        redis.flush_scripts().await;
        let one = buy_at(&service.url, &voucher, user).await;
        assert!(is_bought(&one), "{}", one.words());
        assert!(redis.unknown_scripts().await > before, "no script was missed");
        redis.until_given_back(user).await;
    }
}

/// The window between the release and the commit, made as wide as it may be on a bad day.
const LATE_COMMIT: Duration = Duration::from_millis(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_taken_inside_the_transaction_sells_twice_and_one_around_it_does_not() {
    for (order, duplicates) in [("inside", true), ("outside", false)] {
        for _ in 0..3 {
            let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
            let (proxy, place) = place.database_through_proxy();
            let flags = ["--lab", "--guards", "off", "--lock-order", order];
            let service = Service::start_at(place, &flags).await;
            let voucher = service.voucher(100).await;
            let late = Action::DelayRequest(LATE_COMMIT);
            proxy.arm(Command::sql("COMMIT"), late, Times::Always);
            let tries = buy_together(&service.url, &voucher, [1, 2, 3, 1, 2, 3, 1, 2, 3]).await;
            let audit = service.audit(&voucher).await;
            assert_eq!(audit["duplicate_users"] != 0, duplicates, "{order}: {audit}");
            let acknowledged = tries.iter().filter(|one| is_bought(one)).count();
            assert_eq!(audit["orders"], acknowledged, "{order}: {audit}");
        }
    }
}
