//! Stock in buckets: exact, never oversold, and no unit is left while buyers ask for one.

use distlock::LockKind;
use reqwest::Method;
use seckill::domain::{MAX_STOCK, Role};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};
use testbed::{Action, Command, Times};
use tokio::task::JoinSet;

use crate::crowd::{Books, Fate, buy_at, buy_until_told};
use crate::every_kind::servers_of;
use crate::judged_load::{JudgedLoad, load};
use crate::support::{Answer, Place, Service, eventually, token, voucher_body};

/// Two services on one database and one Redis.
async fn pair(flags: &[&str]) -> [Service; 2] {
    let first = Service::start(flags).await;
    let second = Service::start_at(first.place.clone(), flags).await;
    [first, second]
}

/// As many buyers as there are units, at both services at once: each of them buys.
async fn sell_out(services: &[Service; 2], (units, buckets): (u32, u32)) -> String {
    let voucher = services[0].voucher_in_buckets(units, buckets).await;
    let mut buyers = JoinSet::new();
    for user in 1..=u64::from(units) {
        let url = services[usize::from(user.is_multiple_of(2))].url.clone();
        let voucher = voucher.clone();
        buyers.spawn(async move { buy_until_told(&url, &voucher, user).await });
    }
    for tries in buyers.join_all().await {
        // A busy machine may refuse a purchase, which is then tried again.
        for one in tries.iter().filter(|one| !matches!(one.fate(), Fate::Bought(_))) {
            assert!(one.asks_for_another(), "{}", one.words());
        }
        // No purchase is under way before the first.
        assert!(!tries[0].words().contains("order_in_progress"), "{}", tries[0].words());
    }
    let books = Books::read(&services[0].place.database_url, &voucher).await;
    assert_eq!((books.stock, books.orders.len()), (0, units as usize));
    voucher
}

async fn execute(place: &Place, sql: &str) {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    database.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("done");
}

/// The units in the stock row, and those in each bucket.
async fn rows(place: &Place, voucher: &str) -> (i64, Vec<i64>) {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let row = "SELECT CAST(stock AS SIGNED) FROM voucher_stock WHERE voucher_id = ?";
    let row = sqlx::query_scalar(row).bind(voucher).fetch_one(&mut database).await;
    let buckets = "SELECT CAST(stock AS SIGNED) FROM voucher_stock_buckets WHERE voucher_id = ? \
                   ORDER BY bucket";
    let buckets = sqlx::query_scalar(buckets).bind(voucher).fetch_all(&mut database).await;
    (row.expect("the stock row"), buckets.expect("the buckets"))
}

async fn admin(service: &Service, method: Method, path: &str, body: Value) -> Answer {
    let path = format!("/api/admin/vouchers{path}");
    service.call(method, &path, Some(&token(1, Role::Admin)), Some(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_at_two_replicas_buys_each_unit_of_all_buckets_once() {
    let services = pair(&[]).await;
    let voucher = sell_out(&services, (203, 8)).await;
    for user in 1001..1020 {
        let one = buy_at(&services[1].url, &voucher, user).await;
        assert_eq!(one.words(), "409 \"sold_out\"");
    }
    services[0].add_up(&voucher).await;
    // The buyers of an empty bucket left none in the others.
    assert_eq!(rows(&services[0].place, &voucher).await, (0, vec![0; 8]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lock_and_every_writer_sells_all_of_a_stock_in_buckets() {
    for kind in LockKind::ALL.into_iter().filter(|kind| *kind != LockKind::None) {
        let more = servers_of(kind);
        // Buyers of the kinds in the database wait for a connection of the locks' pool.
        let mut flags = vec!["--lock", kind.as_str(), "--lock-wait-ms", "20000"];
        flags.extend(more.iter().map(String::as_str));
        println!("{kind}");
        sell_out(&pair(&flags).await, (23, 5)).await;
    }
    for flags in [&["--writer", "grouped"][..], &["--lab", "--fenced"], &["--lock-scope=voucher"]] {
        println!("{flags:?}");
        sell_out(&pair(flags).await, (23, 5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queued_mode_admits_as_many_as_all_buckets_have() {
    let service = Service::start(&["--mode", "queued", "--writer", "grouped"]).await;
    let voucher = service.voucher_in_buckets(23, 5).await;
    for user in 1..=23 {
        assert_eq!(service.buy(&voucher, user).await.status, 202);
    }
    eventually("all are written", async || service.add_up(&voucher).await == (23, 0, 0)).await;
    assert_eq!(service.buy(&voucher, 24).await.problem(409), "sold_out");
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_other_buckets_and_cancelled_ones_are_bought_before_sold_out_is_answered() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher_in_buckets(8, 8).await;
    let only_one = "UPDATE voucher_stock_buckets SET stock = IF(bucket = 7, 8, 0)";
    execute(&service.place, only_one).await;
    let mut orders = Vec::new();
    for user in 1..=8 {
        orders.push(service.order(&voucher, user).await);
    }
    service.cancel(&orders[0], 1).await.expect(200);
    eventually("the returned unit is seen", async || {
        let path = format!("/api/vouchers/{voucher}/availability");
        service.get(&path, &token(9, Role::Buyer)).await.body["available"] == true
    })
    .await;
    service.order(&voucher, 9).await;
    assert_eq!(service.buy(&voucher, 10).await.problem(409), "sold_out");
    assert_eq!(service.add_up(&voucher).await, (8, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_returned_after_the_buckets_were_read_as_empty_is_bought() {
    let service = Service::start(&[]).await;
    let (proxy, through) = service.place.database_through_proxy();
    let late = Service::start_at(through, &[]).await;
    let voucher = service.voucher_in_buckets(2, 2).await;
    let taking =
        proxy.arm(Command::sql("UPDATE voucher_stock"), Action::HoldRequest, Times::Next(1));
    let reading =
        proxy.arm(Command::sql("SELECT CAST(s.stock"), Action::HoldRequest, Times::Next(1));
    let (url, wanted) = (late.url.clone(), voucher.clone());
    let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 3).await });
    eventually("it is about to take a unit", async || taking.fired() == 1).await;
    let first = service.order(&voucher, 1).await;
    service.order(&voucher, 2).await;
    taking.release();
    eventually("it found none, and reads what is left", async || reading.fired() == 1).await;
    service.cancel(&first, 1).await.expect(200);
    reading.release();
    let one = purchase.await.expect("a purchase");
    assert!(matches!(one.fate(), Fate::Bought(_)), "{}", one.words());
    assert_eq!(service.add_up(&voucher).await, (2, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_units_are_divided_among_the_buckets_up_to_a_billion() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher_in_buckets(11, 4).await;
    assert_eq!(rows(&service.place, &voucher).await, (3, vec![2; 4]));
    let path = format!("/{voucher}/stock");
    let more = admin(&service, Method::POST, &path, json!({"units": 6})).await.expect(200);
    assert_eq!(more["voucher"]["stock"], 17);
    assert_eq!(rows(&service.place, &voucher).await, (5, vec![3; 4]));
    let few = admin(&service, Method::POST, &path, json!({"units": 3})).await.expect(200);
    assert_eq!(few["voucher"]["stock"], 20);
    let shown = service.get(&format!("/api/vouchers/{voucher}"), "").await.expect(200);
    assert_eq!(shown["voucher"]["stock"], 20);
    let full = format!("UPDATE voucher_stock_buckets SET stock = {}", (MAX_STOCK - 8 - 5) / 4);
    execute(&service.place, &full).await;
    let refused = admin(&service, Method::POST, &path, json!({"units": 10})).await;
    assert_eq!((refused.problem(400), &refused.body["field"]), ("invalid_body", &json!("units")));
    assert_eq!(rows(&service.place, &voucher).await.0, 8, "nothing was added");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_with_buckets_is_deleted_with_them_and_other_numbers_are_refused() {
    let service = Service::start(&["--lab"]).await;
    let voucher = service.voucher_in_buckets(11, 64).await;
    admin(&service, Method::DELETE, &format!("/{voucher}"), json!({})).await;
    let mut database = MySqlConnection::connect(&service.place.database_url).await.expect("it");
    let left = "SELECT COUNT(*) FROM voucher_stock_buckets";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut database).await.expect("a count");
    assert_eq!(left, 0);
    let place = service.place.clone();
    let create = async |service: &Service, buckets: Value| {
        let mut body = voucher_body(10);
        body["stock_buckets"] = buckets;
        let answer = admin(service, Method::POST, "", body).await;
        assert_eq!(answer.problem(400), "invalid_body");
        assert_eq!(answer.body["field"], "stock_buckets");
        answer.body["detail"].as_str().expect("a sentence").to_owned()
    };
    for wrong in [json!(0), json!(65), json!(-1), json!("8"), json!(1.5), json!(null)] {
        let detail = create(&service, wrong).await;
        assert!(detail.contains("from 1 to 64"), "{detail}");
    }
    service.stop().await;
    let naive = Service::start_at(place, &["--lab", "--guards", "off"]).await;
    let detail = create(&naive, json!(2)).await;
    assert!(detail.contains("--guards off"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_judge_counts_the_units_in_buckets() {
    let service = Service::start(&[]).await;
    let voucher = service.voucher_in_buckets(1000, 8).await;
    let (url, database) = (service.url.clone(), service.place.database_url.clone());
    let load = move || load((&url, &database), 300, &voucher, &[]);
    let JudgedLoad { report, check, .. } = tokio::task::spawn_blocking(load).await.expect("a load");
    assert_eq!((&report["ok"], &check["ok"]), (&json!(true), &json!(true)), "{check}");
    service.stop().await;
}
