//! Whether a unit can be bought, as clients that wait are told.

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use testbed::Command;

use crate::queued::buyer::{QUEUED, end_of, lock_stock, ticket_of};
use crate::support::{Place, Service, eventually, token, voucher_body};

const MODES: [&[&str]; 3] = [&["--writer", "single"], &["--writer", "grouped"], &QUEUED];

impl Service {
    async fn is_available(&self, voucher: &str) -> bool {
        let path = format!("/api/vouchers/{voucher}/availability");
        let answer = self.call(Method::GET, &path, None, None).await;
        assert_eq!(answer.headers["cache-control"], "public, max-age=1");
        let body = answer.expect(200);
        assert_eq!(body["voucher_id"], voucher, "{body}");
        body["available"].as_bool().expect("yes or no")
    }
}

/// Buys as that user; the order's id.
async fn order(service: &Service, voucher: &str, user: u64) -> String {
    let answer = service.buy(voucher, user).await;
    if answer.status != 202 {
        return answer.expect(201)["order"]["id"].as_str().expect("an id").to_owned();
    }
    let (_, order) = end_of(&service.url, &ticket_of(answer), user).await;
    order.expect("an order").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_is_available_until_it_is_sold_and_again_when_its_order_is_cancelled() {
    for mode in MODES {
        let service = Service::start(mode).await;
        let other = Service::start_at(service.place.clone(), mode).await;
        let voucher = service.voucher(1).await;
        assert!(service.is_available(&voucher).await, "{mode:?}");
        let order = order(&service, &voucher, 5).await;
        for replica in [&service, &other] {
            eventually("it is sold", async || !replica.is_available(&voucher).await).await;
        }
        service.cancel(&order, 5).await.expect(200);
        for replica in [&service, &other] {
            eventually("it is back", async || replica.is_available(&voucher).await).await;
        }
        assert_eq!(service.add_up(&voucher).await, (0, 1, 1), "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_is_not_on_sale_has_no_unit_available() {
    let service = Service::start(&[]).await;
    let admin = token(1, Role::Admin);
    let mut later = voucher_body(1);
    later["starts_at"] = json!("2119-01-01T00:00:00Z");
    let created = service.post("/api/admin/vouchers", &admin, later).await.expect(201);
    let voucher = created["voucher"]["id"].as_str().expect("an id");
    for unknown in [voucher, "4000000"] {
        let path = format!("/api/vouchers/{unknown}/availability");
        let answer = service.call(Method::GET, &path, None, None).await;
        assert_eq!(answer.problem(404), "voucher_not_found");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
    let path = format!("/api/admin/vouchers/{voucher}/on-sale");
    service.post(&path, &admin, json!({})).await.expect(200);
    assert!(!service.is_available(voucher).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_is_admitted_is_not_available_before_its_order_is_written() {
    let service = Service::start(&QUEUED).await;
    let voucher = service.voucher(1).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let ticket = ticket_of(service.buy(&voucher, 5).await);
    for _ in 0..20 {
        assert!(!service.is_available(&voucher).await, "its unit is admitted");
    }
    tx.rollback().await.expect("a ROLLBACK");
    let order = end_of(&service.url, &ticket, 5).await.1.expect("an order");
    for _ in 0..20 {
        assert!(!service.is_available(&voucher).await, "its unit is sold");
    }
    service.cancel(&order.to_string(), 5).await.expect(200);
    eventually("it is back", async || service.is_available(&voucher).await).await;
    assert_eq!(
        end_of(&service.url, &ticket_of(service.buy(&voucher, 6).await), 6).await.0,
        "bought"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_waits_costs_the_database_one_read_a_second() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (database, through) = place.database_through_proxy();
    let service = Service::start_at(through, &[]).await;
    let voucher = service.voucher(1).await;
    order(&service, &voucher, 5).await;
    eventually("it is sold", async || !service.is_available(&voucher).await).await;
    let reads = database.watch(Command::sql("SELECT v.id"));
    let began = std::time::Instant::now();
    for _ in 0..300 {
        service.is_available(&voucher).await;
    }
    let most = began.elapsed().as_secs() + 1;
    assert!(reads.matched() <= most, "{} reads, {most} at most", reads.matched());
}
