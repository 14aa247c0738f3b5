//! What `docker compose --profile demo up` puts on sale, by `deploy/demo.sql`.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use crate::support::{Place, Service, client};

async fn seed(place: &Place) {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("a connection");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/demo.sql");
    let sql = std::fs::read_to_string(path).expect("deploy/demo.sql");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut database)
        .await
        .expect("the vouchers are seeded");
}

/// The phases of what is on sale, latest start first.
async fn phases(service: &Service) -> Vec<String> {
    let answer = client().get(format!("{}/api/vouchers", service.url)).send().await;
    let body = answer.expect("an answer").json::<serde_json::Value>().await.expect("JSON");
    let vouchers = body["vouchers"].as_array().expect("vouchers").iter();
    vouchers.map(|voucher| voucher["phase"].as_str().expect("a phase").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_vouchers_are_seeded_once_and_can_be_bought() {
    let service = Service::start(&[]).await;
    for _ in 0..2 {
        seed(&service.place).await;
        assert_eq!(phases(&service).await, ["not_started", "open"]);
    }
    service.buy("1", 7).await.expect(201);
    let audit = service.audit("1").await;
    assert_eq!(audit["consistent"], true, "{audit}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_vouchers_are_not_seeded_beside_a_voucher_on_sale() {
    let service = Service::start(&[]).await;
    service.voucher(5).await;
    seed(&service.place).await;
    assert_eq!(phases(&service).await, ["open"]);
    service.stop().await;
}
