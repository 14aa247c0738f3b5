//! What the program writes: token files, the schema, login codes.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::domain::Role;
use seckill::load_users;
use seckill::store::{StoreError, Users};
use seckill::token::Tokens;
use serde_json::{Value, json};
use sqlx::{Connection, MySqlConnection, MySqlPool};
use tempfile::TempDir;

use super::{env, run};
use crate::caller::Caller;
use crate::fleet::{fleet, outbox};
use crate::support::{Place, SECRET};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

/// `seckill token` for that many users into that file.
fn make_tokens(place: &Place, users: &str, out: &Path, flags: &[&str]) -> super::CommandOutput {
    let out = out.to_str().expect("UTF-8");
    run(&[&["token", "--users", users, "--out", out], flags].concat(), &env(place))
}

/// The lines of a token file: user and token.
fn read(path: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(path).expect("a token file");
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).expect("JSON on each line");
            assert_eq!(value.as_object().expect("an object").len(), 2, "{line}");
            assert!(line.starts_with(r#"{"user_id":""#), "{line}");
            let field = |name: &str| value[name].as_str().expect("a string").to_owned();
            (field("user_id"), field("token"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_written_a_line_each_for_their_owner_only_and_work() {
    let fleet = fleet().await;
    let folder = TempDir::new().unwrap();
    let (buyers, admins) = (folder.path().join("buyers"), folder.path().join("admins"));
    let said = make_tokens(&fleet.place, "1200", &buyers, &[]).fine();
    assert_eq!(said, format!("1200 tokens written to {}\n", buyers.display()));
    make_tokens(&fleet.place, "2", &admins, &["--admin", "--ttl-s", "100"]).fine();
    assert_eq!((mode(&buyers), mode(&admins)), (0o600, 0o600));

    let (buyers, admins) = (read(&buyers), read(&admins));
    let ids: BTreeSet<_> = buyers.iter().chain(&admins).map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1202, "each is a user of its own");
    let tokens = Tokens::new(&SECRET.to_owned().into()).unwrap();
    for (id, token) in buyers.iter().chain(&admins) {
        assert_eq!(tokens.verify(token).expect("a good token").user.to_string(), *id);
    }
    let caller = Caller::new(fleet.proxy.url());
    let me = caller.get("/api/me", &buyers[0].1).await.expect(200);
    assert_eq!((&me["id"], &me["role"]), (&json!(buyers[0].0), &json!("buyer")));
    assert_eq!(caller.get("/api/me", &admins[1].1).await.expect(200)["role"], "admin");
}

#[test]
fn an_older_token_file_is_replaced_whole_and_closed_to_others() {
    let place = Place::fresh();
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("tokens");
    fs::write(&out, "x".repeat(100_000)).unwrap();
    fs::set_permissions(&out, Permissions::from_mode(0o644)).unwrap();
    run(&["migrate"], &env(&place)[..1]).fine();
    let said = make_tokens(&place, "1", &out, &[]).fine();
    assert_eq!(said, format!("1 token written to {}\n", out.display()));
    assert_eq!((read(&out).len(), mode(&out)), (1, 0o600));
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_a_load_get_a_series_of_phones_that_is_not_in_use() {
    let place = Place::fresh();
    run(&["migrate"], &env(&place)[..1]).fine();
    let users = Users::new(MySqlPool::connect(&place.database_url).await.expect("the database"));
    let create = async |drawn: &[u32]| {
        let mut drawn = drawn.iter().copied().cycle();
        load_users::create(&users, 3, Role::Buyer, || drawn.next().expect("a number")).await
    };
    let first = create(&[7]).await.expect("a free series");
    let second = create(&[7, 100_007, 8]).await.expect("the series 8");
    assert_eq!(first.iter().chain(&second).collect::<BTreeSet<_>>().len(), 6);
    let refused = create(&[7, 8]).await.expect_err("both are in use");
    assert!(matches!(refused, StoreError::Duplicate(_)), "{refused}");
}

#[test]
fn tokens_that_cannot_be_made_or_written_are_an_error_and_leave_an_older_file_as_it_was() {
    let place = Place::fresh();
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("tokens");
    fs::write(&out, "precious").unwrap();
    make_tokens(&place, "1", &out, &[]).refused(Some(&place), "cannot create users");
    let dead = Place { database_url: "mysql://u:hush-1@127.0.0.1:1/d".into(), ..Place::fresh() };
    make_tokens(&dead, "1", &out, &[]).refused(Some(&dead), "cannot connect to DATABASE_URL");
    let weak = [("DATABASE_URL", place.database_url.as_str()), ("JWT_SECRET", "weak")];
    let args = ["token", "--out", out.to_str().unwrap()];
    run(&args, &weak).refused(Some(&place), "JWT_SECRET must have at least 32 bytes");
    assert_eq!(fs::read_to_string(&out).unwrap(), "precious");
    let nowhere = folder.path().join("no/such/folder");
    make_tokens(&place, "1", &nowhere, &[]).refused(Some(&place), "cannot write");
    make_tokens(&place, "1", folder.path(), &[]).refused(Some(&place), "cannot write");
}

/// How many steps a run of `migrate` says it applied.
fn steps(said: &str) -> usize {
    let number = said.split(' ').next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no number in {said:?}"))
}

#[test]
fn a_schema_is_made_once_by_repeated_and_simultaneous_runs() {
    let place = Place::fresh();
    let env = env(&place);
    let applied: usize = thread::scope(|scope| {
        let runs: Vec<_> =
            (0..6).map(|_| scope.spawn(|| steps(&run(&["migrate"], &env[..1]).fine()))).collect();
        runs.into_iter().map(|run| run.join().expect("all succeed")).sum()
    });
    assert!(applied > 0);
    assert_eq!(run(&["migrate"], &env[..1]).fine(), "0 steps applied, the schema is up to date\n");
    assert!(steps(&run(&["migrate", "--lab"], &env[..1]).fine()) > 0);
    assert_eq!(steps(&run(&["migrate", "--lab"], &env[..1]).fine()), 0);
    assert_eq!(steps(&run(&["migrate"], &env[..1]).fine()), 0, "the laboratory's steps stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_broke_off_is_run_again_and_one_that_was_changed_is_refused() {
    let place = Place::fresh();
    let env = env(&place);
    run(&["migrate"], &env[..1]).fine();
    let mut database = MySqlConnection::connect(&place.database_url).await.unwrap();
    // As a crash between the entry and the statement leaves it.
    let crash = "UPDATE _sqlx_migrations SET success = FALSE WHERE version = 5; DROP TABLE orders";
    sqlx::raw_sql(crash).execute(&mut database).await.unwrap();
    assert_eq!(steps(&run(&["migrate"], &env[..1]).fine()), 1);
    sqlx::raw_sql("SELECT id FROM orders").execute(&mut database).await.expect("orders are back");
    let change = "UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = 5";
    sqlx::raw_sql(change).execute(&mut database).await.unwrap();
    run(&["migrate"], &env[..1]).refused(Some(&place), "migration 5 was previously applied");
    run(&["serve", "--bind", "127.0.0.1:0"], &env).refused(Some(&place), "migration 5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_was_applied_and_not_recorded_is_recorded() {
    let place = Place::fresh();
    let env = env(&place);
    run(&["migrate"], &env[..1]).fine();
    let mut database = MySqlConnection::connect(&place.database_url).await.unwrap();
    // As a crash between the statement and its entry leaves it.
    let crash = "UPDATE _sqlx_migrations SET success = FALSE WHERE version = 7";
    sqlx::raw_sql(crash).execute(&mut database).await.unwrap();
    assert_eq!(steps(&run(&["migrate"], &env[..1]).fine()), 1);
    assert_eq!(steps(&run(&["migrate"], &env[..1]).fine()), 0);
    // A step that fails so without having been broken off is a mistake.
    let mistake = "DELETE FROM _sqlx_migrations WHERE version = 7";
    sqlx::raw_sql(mistake).execute(&mut database).await.unwrap();
    run(&["migrate"], &env[..1]).refused(Some(&place), "cannot migrate");
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_from_before_they_had_a_status_count_as_paid() {
    let place = Place::fresh();
    let env = env(&place);
    run(&["migrate"], &env[..1]).fine();
    let mut database = MySqlConnection::connect(&place.database_url).await.unwrap();
    let before = "ALTER TABLE orders DROP COLUMN status, DROP COLUMN settled_at, \
         DROP COLUMN cancelled_by, DROP KEY ix_orders_voucher_status, \
         ADD KEY ix_orders_voucher (voucher_id); \
         DELETE FROM _sqlx_migrations WHERE version IN (7, 8); \
         INSERT INTO orders VALUES (1, 1, 1, 1, UTC_TIMESTAMP(3))";
    sqlx::raw_sql(before).execute(&mut database).await.unwrap();
    assert_eq!(steps(&run(&["migrate"], &env[..1]).fine()), 2);
    let insert = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
         VALUES (2, 2, 1, 1, UTC_TIMESTAMP(3))";
    sqlx::raw_sql(insert).execute(&mut database).await.unwrap();
    let statuses = sqlx::query_scalar::<_, String>("SELECT status FROM orders ORDER BY id");
    let statuses = statuses.fetch_all(&mut database).await.unwrap();
    assert_eq!(statuses, ["paid", "unpaid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_code_is_written_to_the_outbox_only_and_is_valid_at_every_replica() {
    let fleet = fleet().await;
    let phone = "+4915112345678";
    let at = |number: usize| Caller::new(fleet.replicas[number].base_url());
    let post = |number: usize, path: &'static str, body: Value| async move {
        let caller = at(number);
        caller.send(caller.raw((Method::POST, path), body.to_string())).await
    };
    let sent = post(0, "/api/login/codes", json!({"phone": phone})).await.expect(202);
    let challenge = &sent["challenge"];
    let known = json!({"challenge": challenge, "expires_in_s": 300});
    assert_eq!(sent, known, "without --dev the code is not in the answer");
    assert_eq!(mode(&outbox()), 0o600, "a reader could log in as any user");
    let lines = fs::read_to_string(outbox()).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let line = lines.into_iter().find(|line| line["phone"] == phone).expect("the phone's line");
    let code = &line["login_code"];
    let attempt = json!({"phone": phone, "challenge": challenge, "code": code});
    let login = post(1, "/api/login", attempt.clone()).await.expect(200);
    let me = at(2).get("/api/me", login["token"].as_str().unwrap()).await.expect(200);
    assert_eq!(me["id"], login["user"]["id"]);
    for number in 0..3 {
        let mut again = post(number, "/api/login", attempt.clone()).await;
        // Redis may stand still.
        let deadline = Instant::now() + Duration::from_secs(20);
        while again.status.as_u16() >= 503 && Instant::now() < deadline {
            again = post(number, "/api/login", attempt.clone()).await;
        }
        assert_eq!(again.problem(401), "wrong_code", "used up everywhere");
    }
}
