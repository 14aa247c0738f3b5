//! Users from before a phone had one spelling: the oldest keeps the number, and nothing is lost.

use std::process::Command;

use reqwest::Method;
use seckill::domain::Role;
use serde_json::json;
use sqlx::{Connection, MySqlConnection};

use crate::fleet::SECKILL;
use crate::support::{Place, Service, eventually, token};

/// What `seckill migrate` prints.
fn migrate(place: &Place) -> Vec<String> {
    let mut command = Command::new(SECKILL);
    let command = command.arg("migrate").env_clear().env("DATABASE_URL", &place.database_url);
    let ended = command.output().expect("the program");
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8(ended.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

async fn users(database: &mut MySqlConnection) -> Vec<(u64, String)> {
    let query = sqlx::query_as("SELECT id, phone FROM users ORDER BY id");
    query.fetch_all(database).await.expect("the users")
}

/// Users whose tokens are refused, and up to which moment and since when.
async fn revocations(database: &mut MySqlConnection) -> Vec<(u64, String)> {
    let query = "SELECT user_id, CONCAT(not_before, ' ', made_at) FROM token_revocations \
         ORDER BY user_id";
    sqlx::query_as(query).fetch_all(database).await.expect("the revocations")
}

/// A database as the release before had it, with these users.
async fn old_database(rows: &str) -> (Place, MySqlConnection) {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    migrate(&place);
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let before = "ALTER TABLE users DROP KEY ix_users_phone_state, DROP COLUMN phone_state, \
         MODIFY phone VARCHAR(16) CHARACTER SET ascii NOT NULL; \
         DELETE FROM users; DELETE FROM token_subjects; \
         DELETE FROM _sqlx_migrations WHERE version = 17;";
    let sql = format!("{before} INSERT INTO users (id, phone) VALUES {rows}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut database).await.expect("old users");
    (place, database)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_users_with_one_number_the_oldest_keeps_it_and_the_others_are_listed() {
    // User 9 has a normalized number, but user 8 is older.
    let rows = "(1, '13900000016'), (2, '+8613900000016'), (3, '008613900000016'), \
         (4, '+13900000016'), (5, '123456'), (6, '+999000000000001'), (7, '+4915112345678'), \
         (8, '013900000018'), (9, '+8613900000018'), (10, '13900000019')";
    let (place, mut database) = old_database(rows).await;
    let orders = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) VALUES \
         (1, 1, 1, 1, UTC_TIMESTAMP(3)), (2, 2, 1, 1, UTC_TIMESTAMP(3)), \
         (3, 3, 1, 1, UTC_TIMESTAMP(3))";
    sqlx::raw_sql(orders).execute(&mut database).await.expect("their orders");

    let listed = [
        "user 2 is set aside: its phone +8613900000016 is +8613900000016, which user 1 has",
        "user 3 is set aside: its phone 008613900000016 is +8613900000016, which user 1 has",
        "user 4 is set aside: its phone +13900000016 is not valid",
        "user 5 is set aside: its phone 123456 is not valid",
        "user 9 is set aside: its phone +8613900000018 is +8613900000018, which user 8 has",
    ];
    let said = migrate(&place);
    assert_eq!(said[0], "1 steps applied, the schema is up to date");
    assert_eq!(said[1], "3 phone numbers are in E.164 now");
    assert_eq!(said[2..], listed);
    let expected = [
        (1, "+8613900000016"),
        (2, "+8613900000016#2"),
        (3, "008613900000016"),
        (4, "+13900000016"),
        (5, "123456"),
        (6, "+999000000000001"),
        (7, "+4915112345678"),
        (8, "+8613900000018"),
        (9, "+8613900000018#9"),
        (10, "+8613900000019"),
    ];
    let expected = expected.map(|(id, phone)| (id, phone.to_owned()));
    assert_eq!(users(&mut database).await, expected);
    let revoked = revocations(&mut database).await;
    assert_eq!(revoked.iter().map(|(user, _)| *user).collect::<Vec<_>>(), [2, 3, 4, 5, 9]);

    // Again: nothing changes, and the list is the same.
    let said = migrate(&place);
    assert_eq!(said[0], "0 steps applied, the schema is up to date");
    assert_eq!(said[1..], listed);
    assert_eq!(users(&mut database).await, expected);
    assert_eq!(revocations(&mut database).await, revoked);
    let owners = sqlx::query_scalar("SELECT user_id FROM orders ORDER BY id");
    let owners: Vec<u64> = owners.fetch_all(&mut database).await.expect("the orders");
    assert_eq!(owners, [1, 2, 3], "orders stay with their users");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_starts_normalizes_phones_and_logs_in_the_older_user() {
    let (place, _database) = old_database("(7, '13900000016'), (8, '+8613900000016')").await;
    let service = Service::start_at(place, &[]).await;
    let sent = json!({"phone": "8613900000016"});
    let mut sent = service.call(Method::POST, "/api/login/codes", None, Some(sent)).await;
    let body = sent.body.as_object_mut().expect("an object");
    body.remove("expires_in_s");
    body.insert("phone".to_owned(), json!("13900000016"));
    let login = service.call(Method::POST, "/api/login", None, Some(sent.expect(202))).await;
    assert_eq!(login.expect(200)["user"]["id"], "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_user_does_not_buy_with_an_earlier_token() {
    let rows = "(1, '13900000016'), (2, '+8613900000016'), (3, '008613900000016')";
    let (place, mut database) = old_database(rows).await;
    let admin = "UPDATE users SET role = 'admin' WHERE id = 1";
    sqlx::raw_sql(admin).execute(&mut database).await.expect("an admin");
    let earlier = [1, 2, 3].map(|user| token(user, Role::Buyer));
    let service = Service::start_at(place, &[]).await;
    let voucher = service.voucher(10).await;
    let buy = async |token: &str| {
        let path = format!("/api/vouchers/{voucher}/orders");
        service.call(Method::POST, &path, Some(token), None).await
    };
    for set_aside in &earlier[1..] {
        assert_eq!(buy(set_aside).await.problem(401), "unauthorized");
    }
    buy(&earlier[0]).await.expect(201);

    // A replica that runs while another one migrates learns of it.
    let more = "INSERT INTO users (id, phone) VALUES (4, '8613900000016')";
    sqlx::raw_sql(more).execute(&mut database).await.expect("another old user");
    let earlier = token(4, Role::Buyer);
    let lists = async || service.get("/api/orders", &earlier).await.status;
    assert_eq!(lists().await, 200);
    migrate(&service.place);
    eventually("the token is refused", async || lists().await == 401).await;
    assert_eq!(buy(&earlier).await.problem(401), "unauthorized");
    // An older replica that still runs logs that user in: it finds the number as it was.
    assert_eq!(buy(&token(4, Role::Buyer)).await.problem(401), "unauthorized");

    // A run of an earlier version set a user aside and revoked nothing.
    let before = "DELETE FROM token_revocations";
    sqlx::raw_sql(before).execute(&mut database).await.expect("no revocation");
    migrate(&service.place);
    let revoked: Vec<_> = revocations(&mut database).await;
    assert_eq!(revoked.iter().map(|(user, _)| *user).collect::<Vec<_>>(), [2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_user_of_an_older_replica_cannot_buy() {
    let (place, mut database) = old_database("(1, '13900000016')").await;
    let service = Service::start_at(place, &[]).await;
    // The older replica logs in a new user while the table of subjects has others.
    let more = "INSERT INTO users (id, phone) VALUES (2, '13900000017')";
    sqlx::raw_sql(more).execute(&mut database).await.expect("a user");
    migrate(&service.place);
    for user in [1, 2] {
        let token = token(user, Role::Buyer);
        let lists = async || service.get("/api/orders", &token).await.status;
        assert_eq!(lists().await, 200);
        let delete = sqlx::query("DELETE FROM users WHERE id = ?").bind(user);
        delete.execute(&mut database).await.expect("the user is deleted");
        eventually("the token is refused", async || lists().await == 401).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_old_users_are_normalized_in_batches() {
    let rows = (1..=2500).map(|id| format!("({id}, '1390000{:04}')", id % 2000));
    // Each number that comes again is spelled otherwise.
    let rows: Vec<_> = rows
        .enumerate()
        .map(|(at, row)| if at < 2000 { row } else { row.replace("'139", "'86139") })
        .collect();
    let (place, mut database) = old_database(&rows.join(", ")).await;
    let said = migrate(&place);
    assert_eq!(said[1], "2000 phone numbers are in E.164 now");
    assert_eq!(said.len(), 2 + 500, "{:?}", said.last());
    let users = users(&mut database).await;
    let kept = users.iter().filter(|(_, phone)| phone.starts_with("+86139")).count();
    assert_eq!((users.len(), kept), (2500, 2000));
}
