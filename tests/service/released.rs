//! When the lock of a purchase is given back: after the answer, since nobody has to wait for that,
//! but before it where nobody waits for a lock.

use std::time::Duration;

use testbed::{Action, Command, Proxy, Rule, Times};

use crate::crowd::{Books, Fate, buy_at};
use crate::redis_side::RedisSide;
use crate::support::{Service, eventually};

/// Keeps the release of the lock of user 1 on its way, and what follows it to Redis.
fn hold_release(proxy: &Proxy) -> Rule {
    let release = Command::redis("").containing("redisson_unlock_latch:{lock:order:1}");
    proxy.arm(release, Action::HoldRequest, Times::Next(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_is_told_before_the_lock_is_given_back_and_buys_again_when_it_is() {
    for writer in ["single", "grouped"] {
        let (proxy, service) = Service::start_through_redis_proxy(&["--writer", writer]).await;
        let redis = RedisSide::connect(&service.place.redis_url).await;
        let (voucher, another) = (service.voucher(10).await, service.voucher(10).await);
        let held = hold_release(&proxy);
        let one = buy_at(&service.url, &voucher, 1).await;
        assert!(matches!(one.fate(), Fate::Bought(_)), "{writer}: {}", one.words());
        eventually("the release is on its way", async || held.fired() == 1).await;
        let url = service.url.clone();
        let again = tokio::spawn(async move { buy_at(&url, &another, 1).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!again.is_finished(), "{writer}: who asks again waits for the lock");
        held.release();
        let again = again.await.expect("a purchase");
        assert!(matches!(again.fate(), Fate::Bought(_)), "{writer}: {}", again.words());
        redis.until_given_back(1).await;
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_waits_for_a_lock_it_is_given_back_before_the_answer() {
    let flags = ["--lock-wait-ms", "0"];
    let (proxy, service) = Service::start_through_redis_proxy(&flags).await;
    let voucher = service.voucher(10).await;
    let held = hold_release(&proxy);
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("the release is on its way", async || held.fired() == 1).await;
    let books = Books::read(&service.place.database_url, &voucher).await;
    assert_eq!(books.of(1).len(), 1, "it is committed");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!purchase.is_finished(), "answered with the lock held");
    held.release();
    let one = purchase.await.expect("a purchase");
    assert!(matches!(one.fate(), Fate::Bought(_)), "{}", one.words());
    let another = service.voucher(10).await;
    let again = buy_at(&service.url, &another, 1).await;
    assert!(matches!(again.fate(), Fate::Bought(_)), "{}", again.words());
    service.stop().await;
}
