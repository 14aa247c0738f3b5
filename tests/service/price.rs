//! Purchases that state the price that the buyer saw.

use std::time::Duration;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::queued::buyer::{QUEUED, end_of, lock_stock, ticket_of};
use crate::support::{Answer, Service, client, eventually, token};

/// A voucher's price in these tests.
const PRICE: u64 = 8000;
/// Cached terms that are younger are not read again for another price.
const REREAD_AGE: Duration = Duration::from_millis(50);

const MODES: [&[&str]; 3] = [&["--writer", "single"], &["--writer", "grouped"], &QUEUED];

/// A purchase at that address with that body, with a key if one is given.
async fn buy(url: &str, voucher: &str, user: u64, body: &Value, key: Option<&str>) -> Answer {
    let request = client().post(format!("{url}/api/vouchers/{voucher}/orders")).json(body);
    let mut request = request.bearer_auth(token(user, Role::Buyer));
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    Answer::of(request.send().await.expect("an answer")).await
}

fn at(price_cents: u64) -> Value {
    json!({"price_cents": price_cents})
}

/// What the bought unit costs, once its order is written.
async fn paid(service: &Service, answer: Answer, user: u64) -> u64 {
    let order = match answer.status.as_u16() {
        202 => {
            let (status, order) = end_of(&service.url, &ticket_of(answer), user).await;
            assert_eq!(status, "bought");
            order.expect("an order").to_string()
        }
        _ => answer.expect(201)["order"]["id"].as_str().expect("an id").to_owned(),
    };
    service.look(&order, user).await["price_cents"].as_u64().expect("a price")
}

impl Service {
    /// Changes the price of a voucher.
    pub(crate) async fn set_price(&self, voucher: &str, price_cents: u64) {
        let path = format!("/api/admin/vouchers/{voucher}");
        let admin = token(1, Role::Admin);
        self.call(Method::PATCH, &path, Some(&admin), Some(at(price_cents))).await.expect(200);
    }
}

fn assert_refused_at(answer: &Answer, price_cents: u64) {
    assert_eq!(answer.problem(409), "price_changed");
    assert_eq!(answer.body["price_cents"], price_cents, "{}", answer.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_sold_at_the_stated_price_or_not_at_all() {
    for mode in MODES {
        let service = Service::start(mode).await;
        let (url, voucher) = (&service.url, service.voucher(4).await);
        for stated in [0, PRICE - 1, PRICE + 1] {
            assert_refused_at(&buy(url, &voucher, 5, &at(stated), None).await, PRICE);
        }
        let told = buy(url, &voucher, 5, &at(PRICE), None).await;
        assert_eq!(paid(&service, told, 5).await, PRICE, "{mode:?}");
        service.set_price(&voucher, 9000).await;
        assert_refused_at(&buy(url, &voucher, 6, &at(PRICE), None).await, 9000);
        let told = buy(url, &voucher, 6, &at(9000), None).await;
        assert_eq!(paid(&service, told, 6).await, 9000, "{mode:?}");
        // Clients that state nothing buy at the price of the moment.
        for (user, body) in [(7, json!({})), (8, json!({"price_cents": null}))] {
            let told = buy(url, &voucher, user, &body, None).await;
            assert_eq!(paid(&service, told, user).await, 9000, "{mode:?}");
        }
        let sold_out = || async { buy(url, &voucher, 9, &at(PRICE), None).await };
        eventually("that it is sold out counts more than the price", async || {
            sold_out().await.problem(409) == "sold_out"
        })
        .await;
        for wrong in [json!(-1), json!("8000"), json!(80.5), json!(u64::MAX)] {
            let refused = buy(url, &voucher, 9, &json!({"price_cents": wrong}), None).await;
            assert_eq!(refused.problem(400), "invalid_body", "{wrong}");
            assert_eq!(refused.body["field"], "price_cents", "{wrong}");
        }
        assert_eq!(service.add_up(&voucher).await, (4, 0, 0), "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_price_is_accepted_by_a_replica_that_has_cached_the_old_one() {
    for mode in MODES {
        let first = Service::start(mode).await;
        let second = Service::start_at(first.place.clone(), mode).await;
        let voucher = first.voucher(9).await;
        let told = buy(&second.url, &voucher, 5, &at(PRICE), None).await;
        // How old the cached terms are, and no event.
        sleep(REREAD_AGE).await;
        first.set_price(&voucher, 9000).await;
        let changed = buy(&second.url, &voucher, 6, &at(9000), None).await;
        assert_eq!(paid(&second, changed, 6).await, 9000, "{mode:?}");
        assert_refused_at(&buy(&second.url, &voucher, 7, &at(PRICE), None).await, 9000);
        assert_eq!(paid(&second, told, 5).await, PRICE, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_keeps_the_stated_price_if_that_changes_while_it_is_written() {
    for mode in MODES {
        let service = Service::start(mode).await;
        let voucher = service.voucher(2).await;
        let tx = lock_stock(&service.place.database_url, &voucher).await;
        let (url, wanted) = (service.url.clone(), voucher.clone());
        let buying = tokio::spawn(async move { buy(&url, &wanted, 5, &at(PRICE), None).await });
        let mut database = tx;
        eventually("its order is being written", async || {
            let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%voucher_stock%'";
            let waiting: i64 =
                sqlx::query_scalar(waiting).fetch_one(&mut *database).await.expect("a number");
            waiting > 0
        })
        .await;
        // A row of the stock does not hold up a change of the price.
        service.set_price(&voucher, 9000).await;
        database.rollback().await.expect("a ROLLBACK");
        let told = buying.await.expect("no panic");
        assert_eq!(paid(&service, told, 5).await, PRICE, "{mode:?}");
        assert_refused_at(&buy(&service.url, &voucher, 6, &at(PRICE), None).await, 9000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_one_stated_price() {
    for mode in MODES {
        let service = Service::start(mode).await;
        let (url, voucher) = (&service.url, service.voucher(3).await);
        // A refusal has no effect, so its key is free.
        assert_refused_at(&buy(url, &voucher, 5, &at(1), Some("k")).await, PRICE);
        let first = buy(url, &voucher, 5, &at(PRICE), Some("k")).await;
        let status = first.status.as_u16();
        let first_location = first.headers["location"].clone();
        for _ in 0..2 {
            for body in [at(PRICE), json!({})] {
                let again = buy(url, &voucher, 5, &body, Some("k")).await;
                assert_eq!(again.headers["location"], first_location, "{mode:?} {body}");
                again.expect(status);
            }
            let other = buy(url, &voucher, 5, &at(1), Some("k")).await;
            assert_eq!(other.problem(422), "idempotency_key_reused", "{mode:?}");
            service.set_price(&voucher, 9000).await;
        }
        let other = buy(url, &voucher, 5, &at(9000), Some("k")).await;
        assert_eq!(other.problem(422), "idempotency_key_reused", "{mode:?}");
        assert_eq!(paid(&service, first, 5).await, PRICE);
    }
}
