//! `seckill adopt`, on a database as hm-dianping has it: without the unique key.

use std::process::{Command, Output};

use sqlx::{Executor, MySqlConnection, Row};

use super::{ROWS, connect};
use crate::contention::ForeignSession;
use crate::fleet::SECKILL;
use crate::support::{Place, app, eventually};

/// User 7 has three orders of a voucher, of which the second is paid; user 8 has two.
const DUPLICATES: &str = "INSERT INTO tb_voucher_order (id, user_id, voucher_id, status) VALUES \
     (101, 7, 1, 1), (102, 7, 1, 3), (103, 7, 1, 1), (104, 8, 1, 4), (105, 8, 1, 1), \
     (106, 8, 2, 1)";

fn adopt(place: &Place, flags: &[&str]) -> Command {
    let mut command = Command::new(SECKILL);
    command.args(["adopt", "--from", &place.database_url]).args(flags);
    command
}

async fn run(place: &Place, flags: &[&str]) -> (i32, String) {
    let mut command = adopt(place, flags);
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().expect("it runs")).await.expect("it");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("an exit code"), text(stdout) + &text(stderr))
}

/// A place with hm-dianping's tables, and second orders.
async fn theirs() -> (Place, MySqlConnection) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let mut database = connect(&place).await;
    for file in std::fs::read_dir("migrations/dianping").expect("a folder") {
        let sql = std::fs::read_to_string(file.expect("a file").path()).expect("a definition");
        database.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.expect("a table");
    }
    database.execute(sqlx::raw_sql(ROWS)).await.expect("the rows");
    database.execute(DUPLICATES).await.expect("the orders");
    (place, database)
}

async fn ids(database: &mut MySqlConnection, table: &'static str) -> Vec<i64> {
    let sql = format!("SELECT id FROM {table} ORDER BY id");
    let rows = database.fetch_all(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await;
    rows.expect("the orders").iter().map(|row| row.get(0)).collect()
}

async fn tables(database: &mut MySqlConnection) -> Vec<String> {
    let rows = database.fetch_all("SHOW TABLES").await.expect("the tables");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Whether a second order of a user is refused.
async fn has_key(database: &mut MySqlConnection) -> bool {
    let insert = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES (999, 8, 2)";
    let refused = database.execute(insert).await.is_err();
    if !refused {
        database.execute("DELETE FROM tb_voucher_order WHERE id = 999").await.expect("it is gone");
    }
    refused
}

const ORDERS: &str = "tb_voucher_order";
const SET_ASIDE: &str = "tb_voucher_order_set_aside";

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_listed_and_refused_or_set_aside_and_undo_gives_each_order_back() {
    let (place, mut database) = theirs().await;
    let before = tables(&mut database).await;
    let (code, text) = run(&place, &[]).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("user 7 has several orders of voucher 1: 101 102 103"), "{text}");
    assert!(text.contains("2 users have several") && text.contains("set-aside"), "{text}");
    assert_eq!(tables(&mut database).await, before, "nothing was changed");
    let (code, text) = run(&place, &["--duplicates", "set-aside"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("set 3 orders aside") && text.contains("added the unique key"), "{text}");
    assert_eq!(
        ids(&mut database, ORDERS).await,
        [102, 105, 106],
        "the used one, and none that is cancelled"
    );
    assert_eq!(ids(&mut database, SET_ASIDE).await, [101, 103, 104]);
    assert!(has_key(&mut database).await);
    let (code, text) = run(&place, &[]).await;
    assert_eq!((code, &*text), (0, "the unique key uq_seckill_user_voucher is there\n"));
    for _ in 0..2 {
        let (code, text) = run(&place, &["--undo"]).await;
        assert_eq!(code, 0, "{text}");
        assert_eq!(tables(&mut database).await, before);
        assert_eq!(ids(&mut database, ORDERS).await, [101, 102, 103, 104, 105, 106]);
        assert!(!has_key(&mut database).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adoption_that_is_killed_half_way_loses_no_order_and_is_completed_by_the_next() {
    let (place, mut database) = theirs().await;
    // A transaction that has read the table holds up the change of the table, not of its rows.
    let mut reader = connect(&place).await;
    reader
        .execute(sqlx::raw_sql("BEGIN; SELECT 1 FROM tb_voucher_order LIMIT 1"))
        .await
        .expect("it");
    let mut adopting = adopt(&place, &["--duplicates", "set-aside"]).spawn().expect("it starts");
    let altering = "SELECT 1 FROM information_schema.processlist \
         WHERE db = DATABASE() AND info LIKE 'ALTER TABLE%'";
    eventually("the change of the table waits", async || {
        !connect(&place).await.fetch_all(altering).await.expect("the list").is_empty()
    })
    .await;
    adopting.kill().expect("it is killed");
    adopting.wait().expect("it has ended");
    let all = [ids(&mut database, ORDERS).await, ids(&mut database, SET_ASIDE).await].concat();
    assert_eq!(all, [102, 105, 106, 101, 103, 104]);
    reader.execute("COMMIT").await.expect("the reader ends");
    let (code, text) = run(&place, &["--duplicates", "set-aside"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(has_key(&mut database).await);
    assert_eq!(run(&place, &["--undo"]).await.0, 0);
    assert_eq!(ids(&mut database, ORDERS).await, [101, 102, 103, 104, 105, 106]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_commits_meanwhile_decides_which_order_stays() {
    let (place, mut database) = theirs().await;
    let unpaid = "INSERT INTO tb_voucher_order (id, user_id, voucher_id) VALUES \
         (107, 9, 1), (108, 9, 1)";
    database.execute(unpaid).await.expect("the orders");
    let mut payment = connect(&place).await;
    let pay = "BEGIN; UPDATE tb_voucher_order SET status = 2 WHERE id = 108";
    payment.execute(sqlx::raw_sql(pay)).await.expect("it is paid");
    let mut adopting = adopt(&place, &["--duplicates", "set-aside"]).spawn().expect("it starts");
    let mut session = ForeignSession::connect(&place).await;
    let what = "the adoption waits for the payment";
    eventually(what, async || session.waiting().await > 0).await;
    payment.execute("COMMIT").await.expect("it is committed");
    let ended = tokio::task::spawn_blocking(move || adopting.wait());
    assert!(ended.await.expect("it").expect("it has ended").success());
    let paid = "SELECT id FROM tb_voucher_order WHERE user_id = 9 AND status = 2";
    assert_eq!(database.fetch_one(paid).await.expect("the paid order").get::<i64, _>(0), 108);
    assert_eq!(ids(&mut database, SET_ASIDE).await, [101, 103, 104, 107]);
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_removes_its_own_key_beside_one_whose_name_sorts_first() {
    let (place, mut database) = theirs().await;
    assert_eq!(run(&place, &["--duplicates", "set-aside"]).await.0, 0);
    let other = "ALTER TABLE tb_voucher_order ADD UNIQUE KEY a_key (user_id, voucher_id)";
    database.execute(other).await.expect("another key");
    let (code, text) = run(&place, &["--undo"]).await;
    assert_eq!(code, 2, "second orders cannot come back beside that key: {text}");
    assert_eq!(ids(&mut database, SET_ASIDE).await, [101, 103, 104], "none is lost");
    let keys = database.fetch_all("SHOW INDEX FROM tb_voucher_order").await.expect("the keys");
    let mut keys: Vec<String> = keys.iter().map(|row| row.get("Key_name")).collect();
    keys.dedup();
    assert_eq!(keys, ["PRIMARY", "a_key"], "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_gets_the_tables_and_undo_keeps_those_that_have_rows() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let flags = ["--api", "hm-dianping"];
    let refused = app(&place, &flags).await.err().expect("there are no tables").to_string();
    assert!(refused.contains("tb_voucher_order") && refused.contains("seckill adopt"), "{refused}");
    let mut database = connect(&place).await;
    let native = tables(&mut database).await;
    let (code, text) = run(&place, &[]).await;
    assert_eq!((code, text.matches("made the table tb_").count()), (0, 8), "{text}");
    drop(app(&place, &flags).await.expect("it serves"));
    database.execute("INSERT INTO tb_shop_type (id) VALUES (1)").await.expect("a row");
    let (code, text) = run(&place, &["--undo"]).await;
    assert!(code == 0 && text.contains("kept the table tb_shop_type"), "{text}");
    database.execute("DELETE FROM tb_shop_type").await.expect("no row");
    assert_eq!(run(&place, &["--undo"]).await.0, 0);
    assert_eq!(tables(&mut database).await, native);
}
