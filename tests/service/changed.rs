//! A voucher that is changed, or cannot be read, while many wait for what is read of it.

use std::time::Duration;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use testbed::{Action, Command, Proxy, Times};
use tokio::time::{sleep, timeout};

use crate::crowd::{Fate, buy_at, buy_together};
use crate::support::{Place, Service, eventually, token};

/// By then the service has noticed that a client has gone.
const NOTICED_WITHIN: Duration = Duration::from_millis(300);

/// A service whose way to the database can be held up.
async fn start() -> (Service, Proxy) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (database, through) = place.database_through_proxy();
    (Service::start_at(through, &[]).await, database)
}

fn reading() -> Command {
    Command::sql("SELECT v.id")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_after_a_change_of_a_voucher_never_see_an_earlier_read() {
    let (service, database) = start().await;
    let voucher = service.voucher(9).await;
    let held = database.arm(reading(), Action::HoldAnswer, Times::Next(1));
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let before = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("it is read", async || held.fired() == 1).await;
    let path = format!("/api/admin/vouchers/{voucher}");
    let later = Some(json!({"starts_at": "2119-01-01T00:00:00Z"}));
    service.call(Method::PATCH, &path, Some(&token(9, Role::Admin)), later).await.expect(200);
    assert_eq!(service.buy(&voucher, 2).await.problem(409), "not_started");
    held.release();
    let before = before.await.expect("a purchase");
    assert!(!matches!(before.fate(), Fate::Unknown), "{}", before.words());
    assert_eq!(service.buy(&voucher, 3).await.problem(409), "not_started");
}

#[tokio::test(flavor = "multi_thread")]
async fn none_of_many_that_wait_for_a_failed_read_reads_again() {
    let (service, database) = start().await;
    let voucher = service.voucher(20).await;
    let lost = database.arm(reading(), Action::LoseAnswer, Times::Next(1));
    let tries = buy_together(&service.url, &voucher, 1..=20).await;
    assert_eq!((lost.fired(), lost.matched()), (1, 1));
    for one in tries {
        assert_eq!(one.words(), "503 \"dependency_unavailable\"");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_read_answers_others_also_when_its_first_request_was_dropped() {
    let (service, database) = start().await;
    let voucher = service.voucher(9).await;
    let held = database.arm(reading(), Action::HoldAnswer, Times::Next(1));
    let all = database.watch(reading());
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let first = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
    eventually("it is read", async || held.fired() == 1).await;
    first.abort();
    let (url, wanted) = (service.url.clone(), voucher.clone());
    let second = tokio::spawn(async move { buy_at(&url, &wanted, 2).await });
    let again = async {
        while all.matched() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(NOTICED_WITHIN, again).await.is_err(), "it is read again");
    held.release();
    let second = second.await.expect("a purchase");
    assert!(matches!(second.fate(), Fate::Bought(_)), "{}", second.words());
    assert_eq!(all.matched(), 1);
}
