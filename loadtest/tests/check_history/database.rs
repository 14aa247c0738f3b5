//! `--database`: the final reads are made anew.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use loadtest_judge::audit::DatabaseReader;
use loadtest_judge::check::{Check, Judgement};
use loadtest_judge::setting::Guards;
use loadtest_judge::verdict::Rule;
use loadtest_load::history::{Begin, FENCED, FinalRead, Offer, Recorder};
use loadtest_measure::error::Result;
use sqlx::{Connection as _, MySqlConnection};
use testbed::{Bed, Database, Flavor};

use crate::keys::timed_out_and_refused;
use crate::tape::{Tape, UNITS, broken, proofs};

/// What every order has.
const COLUMNS: &str = "(id, user_id, voucher_id, price_cents, created_at)";

/// The service's own tables.
const SCHEMA: [&str; 12] = [
    include_str!("../../../migrations/0002_vouchers.sql"),
    include_str!("../../../migrations/0003_voucher_stock.sql"),
    include_str!("../../../migrations/0021_voucher_stock_buckets.sql"),
    include_str!("../../../migrations/0004_stock_grants.sql"),
    include_str!("../../../migrations/0005_orders.sql"),
    include_str!("../../../migrations/0007_orders_status.sql"),
    include_str!("../../../migrations/0008_orders_begin_unpaid.sql"),
    include_str!("../../../migrations/0009_idempotency_keys.sql"),
    include_str!("../../../migrations/lab/9001_lab_orders.sql"),
    include_str!("../../../migrations/lab/9002_lab_stock.sql"),
    include_str!("../../../migrations/lab/9003_lab_effects.sql"),
    include_str!("../../../migrations/lab/9004_lab_orders_status.sql"),
];

struct Shop {
    database: Database,
    sql: MySqlConnection,
    _bed: Bed,
}

impl Shop {
    /// A database that holds what came of a sale, under tokens that rise.
    async fn after(tape: &Tape) -> Self {
        let bed = Bed::start().expect("a folder");
        let database = bed.database(Flavor::Any).expect("a database server");
        database.create_database("sale").expect("created");
        let sql = MySqlConnection::connect(&database.url("sale")).await.expect("connected");
        let mut shop = Self { database, sql, _bed: bed };
        for statement in SCHEMA {
            shop.run(statement).await;
        }
        shop.run("SET foreign_key_checks = 0").await;
        shop.run(&format!("INSERT INTO stock_grants (voucher_id, units) VALUES (1, {UNITS})"))
            .await;
        for stock in ["voucher_stock", "lab_stock"] {
            shop.run(&format!("INSERT INTO {stock} VALUES (1, 0)")).await;
        }
        for (token, row) in (7..).zip(&tape.rows) {
            let order = format!("({}, {}, 1, 100, NOW())", row.id, row.user_id);
            shop.run(&format!("INSERT INTO orders {COLUMNS} VALUES {order}")).await;
            let effect = format!("(1, 'redisson:lock:voucher:1', {token}, {})", row.id);
            let columns = "(voucher_id, resource, token, order_id)";
            shop.run(&format!("INSERT INTO lab_effects {columns} VALUES {effect}")).await;
        }
        shop
    }

    async fn run(&mut self, statement: &str) {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&mut self.sql).await.expect("done");
    }

    async fn try_check(&self, file: &Path) -> Result<Judgement> {
        let database = Some(self.database.url("sale").into());
        let deadline = Duration::from_mins(1);
        Check { file: file.to_owned(), database, deadline }.run().await
    }

    async fn check(&self, file: &Path) -> Judgement {
        self.try_check(file).await.expect("judged")
    }
}

/// The requests of a sale, with what is in the database as its final read, or without one.
async fn record(tape: &Tape, path: &Path, shop: Option<&Shop>) {
    let offers = vec![Offer { id: 1, offered: Some(tape.offered) }];
    let mut begin = Begin::now("http://127.0.0.1:1".into(), 1, 600, offers);
    begin.settings.insert(FENCED.to_owned(), "on".to_owned());
    let recorder = Recorder::create(path, &begin).expect("created");
    for event in &tape.events {
        recorder.record(event.clone()).await;
    }
    if let Some(shop) = shop {
        let mut reader =
            DatabaseReader::connect(&shop.database.url("sale")).await.expect("connected");
        let reading = reader.read("1", Guards::On).await.expect("read");
        let said = Some(&reading.account);
        recorder.final_read(1, FinalRead::Database { reading: &reading, said }).await;
    }
    recorder.finish().await.expect("written");
}

#[tokio::test]
async fn the_database_is_read_instead_of_the_file_and_shows_what_changed_since() {
    let tape = Tape::legal();
    let mut shop = Shop::after(&tape).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (read, unread) = (folder.path().join("read"), folder.path().join("unread"));
    record(&tape, &read, Some(&shop)).await;
    record(&tape, &unread, None).await;
    assert!(!crate::tape::check(&unread).await.ok, "no final read");
    for file in [&read, &unread] {
        let judgement = shop.check(file).await;
        assert!(judgement.ok, "{:?}", judgement.failed_because);
    }
    let alone = crate::tape::check(&read).await;
    assert!(alone.ok, "{:?}", alone.failed_because);
    let tokens = alone.vouchers[0].verdict.finding(Rule::TokensRise).expect("present");
    assert_eq!(tokens.held, Some(true), "what fenced holders did was recorded: {}", tokens.detail);

    let n = tape.with_code("201")[30];
    let order = tape.end_of(n).o.expect("an order");
    shop.run(&format!("UPDATE orders SET status = 'cancelled' WHERE id = {order}")).await;
    let judgement = shop.check(&unread).await;
    assert_eq!(broken(&judgement), [Rule::StockAddsUp], "its unit was not returned");
    shop.run("UPDATE voucher_stock SET stock = 1").await;
    assert!(shop.check(&unread).await.ok, "an order that is cancelled returns its unit");
    shop.run(&format!("DELETE FROM orders WHERE id = {order}")).await;
    shop.run(&format!("DELETE FROM lab_effects WHERE order_id = {order}")).await;
    let judgement = shop.check(&unread).await;
    assert_eq!(broken(&judgement), [Rule::AcknowledgedExist], "{:?}", judgement.failed_because);
    assert_eq!(proofs(&judgement, Rule::AcknowledgedExist), [n].into());
    assert!(crate::tape::check(&read).await.ok, "the file still says what was there then");

    shop.run("UPDATE lab_effects SET token = 1 WHERE seq = 100").await;
    let judgement = shop.check(&unread).await;
    assert!(broken(&judgement).contains(&Rule::TokensRise), "{:?}", judgement.failed_because);
    shop.run("DROP TABLE lab_effects").await;
    let judgement = shop.check(&read).await;
    let why = judgement.failed_because.join("; ");
    assert!(why.contains("could not be judged: no effect under a lower token"), "{why}");
}

#[tokio::test]
async fn the_database_says_by_its_key_which_request_has_written_an_order() {
    let (tape, [lost, refused]) = timed_out_and_refused();
    let mut shop = Shop::after(&tape).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history");
    record(&tape, &file, None).await;
    assert!(shop.check(&file).await.ok, "nobody knows whose it is");
    let row = tape.rows.last().expect("a row");
    let columns = "(order_id, action, user_id, request_key, created_at)";
    for (n, broken_rules) in [(lost, &[][..]), (refused, &[Rule::RefusalsLeftNoRow])] {
        let key = format!("UNHEX(LEFT(SHA2('{}', 256), 32))", tape.key_of(n));
        for (action, key) in [("purchase", key.as_str()), ("pay", "UNHEX(REPEAT('5', 32))")] {
            let values = format!("({}, '{action}', {}, {key}, NOW())", row.id, row.user_id);
            shop.run(&format!("REPLACE INTO idempotency_keys {columns} VALUES {values}")).await;
        }
        let judgement = shop.check(&file).await;
        assert_eq!(broken(&judgement), broken_rules, "{:?}", judgement.failed_because);
    }
    assert_eq!(proofs(&shop.check(&file).await, Rule::RefusalsLeftNoRow), [refused].into());
    record(&tape, &file, Some(&shop)).await;
    let alone = crate::tape::check(&file).await;
    assert_eq!(broken(&alone), [Rule::RefusalsLeftNoRow], "the key is in the file");
}

#[tokio::test]
async fn orders_of_others_from_before_the_load_are_not_taken_for_new_ones() {
    let tape = Tape::legal();
    let mut shop = Shop::after(&tape).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history");
    record(&tape, &file, None).await;
    shop.run(&format!("INSERT INTO orders {COLUMNS} VALUES (7, 5, 1, 100, NOW())")).await;
    let effect =
        "(voucher_id, resource, token, order_id) VALUES (1, 'redisson:lock:voucher:1', 1, 7)";
    shop.run(&format!("INSERT INTO lab_effects {effect}")).await;
    shop.run("UPDATE lab_effects SET seq = 0 WHERE order_id = 7").await;
    let judgement = shop.check(&file).await;
    let phantom = [Rule::OrdersWithinStock, Rule::StockAddsUp, Rule::NoRowWithoutRequest];
    assert_eq!(broken(&judgement), phantom, "all units were there when the load began");

    shop.run("INSERT INTO stock_grants (voucher_id, units) VALUES (1, 1)").await;
    let error = shop.try_check(&file).await.expect_err("which one is new cannot be told");
    assert_eq!(error.exit_code(), 2);
    let why = error.to_string();
    assert!(why.contains("1 units had been sold before the load"), "{why}");
}

#[tokio::test]
async fn a_database_that_cannot_be_read_is_bad_usage_and_never_a_pass() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history");
    record(&Tape::legal(), &file, None).await;
    let url = "mysql://u:p@127.0.0.1:1/sale";
    for (named, in_environment, words) in [
        (url, "", "cannot read the database"),
        ("env", url, "cannot read the database"),
        ("env", "", "--database env needs DATABASE_URL"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_loadtest"))
            .arg("check")
            .arg(&file)
            .args(["--database", named])
            .env("DATABASE_URL", in_environment)
            .output()
            .expect("the built program");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
        assert!(!stderr.contains("u:p"), "no password: {stderr}");
    }
}

#[tokio::test]
async fn the_address_of_the_database_can_be_set_by_the_environment() {
    let tape = Tape::legal();
    let shop = Shop::after(&tape).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history");
    record(&tape, &file, None).await;
    let output = Command::new(env!("CARGO_BIN_EXE_loadtest"))
        .arg("check")
        .arg(&file)
        .args(["--database", "env"])
        .env("DATABASE_URL", shop.database.url("sale"))
        .output()
        .expect("the built program");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
}
