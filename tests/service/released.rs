//! The lock of a purchase is given back after the answer, since no client has to wait for that. It
//! comes before the answer where the same user might not wait for the lock.

use std::time::Duration;

use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::crowd::{Books, Fate, Try, buy_at};
use crate::redis_side::RedisSide;
use crate::support::{Service, eventually};

/// Longer than any of these locks is held.
const LONG_WAIT_FLAGS: [&str; 2] = ["--lock-wait-ms", "10000"];
/// For what must not happen meanwhile.
const QUIET_FOR: Duration = Duration::from_millis(100);

/// A service whose release of the lock of user 1 is kept on its way, and what it sends to Redis
/// behind it.
struct HeldRelease {
    service: Service,
    release: Rule,
    redis: RedisSide,
    _proxy: Proxy,
}

impl HeldRelease {
    async fn start(flags: &[&str]) -> Self {
        let (proxy, service) = Service::start_through_redis_proxy(flags).await;
        let release = Command::redis("").containing("redisson_unlock_latch:{lock:order:1}");
        let release = proxy.arm(release, Action::HoldRequest, Times::Next(1));
        // On another connection than the service's.
        let redis = RedisSide::connect(&service.place.redis_url).await;
        Self { service, release, redis, _proxy: proxy }
    }

    /// Begins to buy the voucher for that user.
    fn buy(&self, voucher: &str, user: u64) -> JoinHandle<Try> {
        let (url, voucher) = (self.service.url.clone(), voucher.to_owned());
        tokio::spawn(async move { buy_at(&url, &voucher, user).await })
    }

    async fn until_on_its_way(&self) {
        eventually("the release is on its way", async || self.release.fired() == 1).await;
        assert!(self.redis.has_lock(1).await, "it has arrived");
    }
}

async fn assert_bought(purchase: JoinHandle<Try>, context: &str) {
    let one = purchase.await.expect("a purchase");
    assert!(matches!(one.fate(), Fate::Bought(_)), "{context}: {}", one.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_is_answered_before_the_lock_is_released_and_buys_again_afterwards() {
    for writer in ["single", "grouped"] {
        let held =
            HeldRelease::start(&[&LONG_WAIT_FLAGS[..], &["--writer", writer]].concat()).await;
        let (voucher, another) = (held.service.voucher(10).await, held.service.voucher(10).await);
        assert_bought(held.buy(&voucher, 1), writer).await;
        held.until_on_its_way().await;
        let again = held.buy(&another, 1);
        sleep(QUIET_FOR).await;
        assert!(!again.is_finished(), "{writer}: who asks again waits for the lock");
        held.release.release();
        assert_bought(again, writer).await;
        held.redis.until_given_back(1).await;
        held.service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_short_lock_wait_the_lock_is_released_before_the_answer() {
    for wait in ["0", "99"] {
        let held = HeldRelease::start(&["--lock-wait-ms", wait]).await;
        let voucher = held.service.voucher(10).await;
        let purchase = held.buy(&voucher, 1);
        held.until_on_its_way().await;
        let books = Books::read(&held.service.place.database_url, &voucher).await;
        assert_eq!(books.of(1).len(), 1, "{wait}: it is committed");
        sleep(QUIET_FOR).await;
        assert!(!purchase.is_finished(), "{wait}: answered with the lock held");
        held.release.release();
        assert_bought(purchase, wait).await;
        assert!(!held.redis.has_lock(1).await, "{wait}: the lock is still held");
        held.service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_purchase_takes_no_place() {
    let held = HeldRelease::start(&[&LONG_WAIT_FLAGS[..], &["--max-orders", "1"]].concat()).await;
    let voucher = held.service.voucher(10).await;
    assert_bought(held.buy(&voucher, 1), "the first").await;
    held.until_on_its_way().await;
    let other = held.buy(&voucher, 2);
    sleep(QUIET_FOR).await;
    assert!(!other.is_finished(), "what the user sends to Redis is behind the release");
    held.release.release();
    assert_bought(other, "the other").await;
    held.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_locks_that_are_being_released() {
    let held = HeldRelease::start(&LONG_WAIT_FLAGS).await;
    let voucher = held.service.voucher(10).await;
    assert_bought(held.buy(&voucher, 1), "a purchase").await;
    held.until_on_its_way().await;
    let HeldRelease { service, release, redis, _proxy } = held;
    let ending = tokio::spawn(service.stop());
    sleep(QUIET_FOR).await;
    assert!(!ending.is_finished(), "it ended with a lock held");
    release.release();
    ending.await.expect("the end");
    assert!(!redis.has_lock(1).await, "the lock was left to its lease");
}
