//! Too much at once, a lock that is taken, and a lock that is lost.

use std::time::{Duration, Instant};

use testbed::{Action, Command, Times};
use tokio::task::JoinSet;

use crate::crowd::{Books, Fate, Try, buy_at, buy_together};
use crate::queued::buyer::{IN_TIME, lock_stock};
use crate::redis_side::{self, RedisSide};
use crate::support::{Place, Service, eventually, within};

const TRIES: u32 = 5;
/// Clearly less than any wait in these tests. An answer that is later each time was waited for.
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

/// Has the locks of those users' purchases taken by another process.
async fn hold_locks(place: &Place, users: impl Iterator<Item = u64>) {
    let mut redis = redis_side::connect(&place.redis_url).await;
    let mut commands = redis::pipe();
    for user in users {
        let lock = format!("lock:order:{user}");
        commands.hset(&lock, "theirs:1", 1).ignore().pexpire(&lock, 120_000).ignore();
    }
    commands.exec_async(&mut redis).await.expect("locks");
}

/// Has them released.
async fn release_locks(place: &Place, users: impl Iterator<Item = u64>) {
    let mut redis = redis_side::connect(&place.redis_url).await;
    let mut commands = redis::pipe();
    for user in users {
        let lock = format!("lock:order:{user}");
        let channel = format!("redisson_lock__channel:{{{lock}}}");
        commands.del(&lock).ignore().publish(channel, 0).ignore();
    }
    commands.exec_async(&mut redis).await.expect("no locks");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_purchases_than_there_are_places_for_are_refused_at_once_and_never_queue() {
    const PLACES: usize = 2;
    let service = Service::start(&["--max-orders", "2", "--lock-wait-ms", "60000"]).await;
    let voucher = service.voucher(100).await;
    for round in 1..=2 {
        let users = (0..40).map(|n| round * 100 + n);
        // Those that have a place keep it until their locks are released.
        hold_locks(&service.place, users.clone()).await;
        let mut purchases = JoinSet::new();
        for user in users.clone() {
            let (url, voucher) = (service.url.clone(), voucher.clone());
            purchases.spawn(async move { buy_at(&url, &voucher, user).await });
        }
        let mut refused = Vec::new();
        eventually("all others are answered while the places are taken", async || {
            while let Some(one) = purchases.try_join_next() {
                refused.push(one.expect("a purchase"));
            }
            purchases.len() <= PLACES
        })
        .await;
        for one in &refused {
            assert_eq!(answer(one).problem(503), "overloaded");
            assert_eq!(answer(one).body["executed"], false);
            assert_eq!(answer(one).headers["retry-after"], "1");
        }
        release_locks(&service.place, users).await;
        let bought = purchases.join_all().await;
        assert_eq!(bought.len(), PLACES, "as many as there are places");
        for one in &bought {
            assert!(is_bought(one), "{}", one.words());
        }
        let took = || refused.iter().map(|one| one.took);
        println!("{} refused after {:?} to {:?}", refused.len(), took().min(), took().max());
        // A busy machine delays some of them.
        assert!(took().min() < Some(PROMPT_WITHIN), "none was refused at once");
        let books = books(&service, &voucher).await;
        books.add_up_to(100);
        books.bear_out(&refused);
        books.bear_out(&bought);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_purchase_of_one_user_is_refused_at_once_if_it_may_not_wait() {
    let flags = ["--lock-wait-ms", "0"];
    // Two replicas of one deployment: also the lock that another process holds is not waited for.
    let first = Service::start(&flags).await;
    let second = Service::start_at(first.place.clone(), &flags).await;
    for _ in 0..TRIES {
        if is_second_refused_in_time(&first, &second).await {
            return;
        }
    }
    panic!("the second had no answer while the first was under way, {TRIES} times");
}

/// Whether the user's second purchases were answered before the first gave up waiting for its row.
async fn is_second_refused_in_time(first: &Service, second: &Service) -> bool {
    let voucher = first.voucher(10).await;
    let redis = RedisSide::connect(&first.place.redis_url).await;
    let tx = lock_stock(&first.place.database_url, &voucher).await;
    let began = Instant::now();
    let (url, wanted) = (first.url.clone(), voucher.clone());
    let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    let is_locked = within(IN_TIME, async || redis.has_lock(1).await).await;
    let mut seconds = Vec::new();
    for service in [first, second] {
        seconds.push(buy_at(&service.url, &voucher, 1).await);
    }
    let is_under_way = !purchase.is_finished();
    tx.rollback().await.expect("a ROLLBACK");
    let is_prompt = seconds.iter().all(|one| one.took < PROMPT_WITHIN);
    let in_time = is_prompt && began.elapsed() < IN_TIME;
    let one = purchase.await.expect("the purchase");
    if !in_time {
        assert!(books(first, &voucher).await.orders.len() <= 1);
        return false;
    }
    assert!(is_locked && is_under_way, "the lock was held all the while");
    for one in &seconds {
        assert_eq!(answer(one).problem(409), "order_in_progress");
        assert_eq!(answer(one).headers["retry-after"], "1");
    }
    assert!(is_bought(&one), "{}", one.words());
    assert_eq!(books(first, &voucher).await.orders.len(), 1);
    true
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
    // Work under a lease that is long enough, under one that is shorter than the work and renewed,
    // and without a check of the lock.
    let enough = ["--work-ms", "600", "--lease-ms", "60000", "--lock", "lua-release"];
    let renewed = ["--work-ms", "9000", "--lease-ms", "4500", "--lock", "redisson"];
    let careless = ["--work-ms", "600", "--lease-ms", "200", "--lock", "lua-release"];
    let careless = [&careless[..], &["--on-lost", "ignore"]].concat();
    let mut others = JoinSet::new();
    for (user, flags) in (1..).zip([&enough[..], &renewed, &careless]) {
        let flags = [&["--lab"], flags].concat();
        let other = Service::start_at(service.place.clone(), &flags).await;
        let voucher = voucher.clone();
        others.spawn(async move {
            let one = buy_at(&other.url, &voucher, user).await;
            assert!(is_bought(&one), "{flags:?}: {}", one.words());
        });
    }
    others.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_that_ignores_the_loss_of_its_lock_still_releases_what_is_not_its_own() {
    let flags = ["--lab", "--lock-wait-ms", "5000", "--lock", "set-nx", "--on-lost", "ignore"];
    let one = Service::start(&[&flags[..], &["--lease-ms", "600"]].concat()).await;
    let long = [&flags[..], &["--lease-ms", "60000"]].concat();
    let other = Service::start_at(one.place.clone(), &long).await;
    for _ in 0..TRIES {
        if is_anothers_released_in_time(&one, &other).await {
            return;
        }
    }
    panic!("the second's lock came too late or stayed, {TRIES} times");
}

/// Whether the second had the lock before the first gave up waiting for its row.
async fn is_anothers_released_in_time(one: &Service, other: &Service) -> bool {
    // Two vouchers, so that only the user's lock keeps the two purchases apart.
    let (wanted, also_wanted) = (one.voucher(10).await, one.voucher(10).await);
    let redis = RedisSide::connect(&one.place.redis_url).await;
    let first_row = lock_stock(&one.place.database_url, &wanted).await;
    let second_row = lock_stock(&one.place.database_url, &also_wanted).await;
    let began = Instant::now();
    let url = one.url.clone();
    let first = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    let mut in_time = within(IN_TIME, async || redis.has_lock(1).await).await;
    let url = other.url.clone();
    let second = tokio::spawn(async move { buy_at(&url, &also_wanted, 1).await });
    // The lease of the first ends, and that of the second is a minute.
    let is_of_second =
        async || redis.lease(1).await.is_some_and(|lease| lease > Duration::from_secs(2));
    in_time = in_time && within(IN_TIME, is_of_second).await;
    first_row.rollback().await.expect("a ROLLBACK");
    let first = first.await.expect("a purchase");
    let is_released = in_time && within(IN_TIME, async || !redis.has_lock(1).await).await;
    let is_under_way = !second.is_finished();
    second_row.rollback().await.expect("a ROLLBACK");
    in_time = in_time && began.elapsed() < IN_TIME;
    let second = second.await.expect("a purchase");
    // A lock that is still there is for the next try no more.
    redis.until_given_back(1).await;
    if !in_time {
        return false;
    }
    assert!(is_bought(&first), "{}", first.words());
    assert!(is_under_way, "the second was not under way");
    assert!(is_released, "the lock of the second is still there");
    assert!(is_bought(&second), "{}", second.words());
    true
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
