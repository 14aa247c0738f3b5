//! The place of a pending ticket in its queue.

use std::time::{Duration, Instant};

use seckill::domain::Role;
use serde_json::Value;
use sqlx::{Connection, MySql, MySqlConnection, MySqlPool, Transaction};
use tokio::time::sleep;

use crate::queued::buyer::{ask, buy, end_of, lock_stock, redis, service, ticket_of};
use crate::support::{Service, client, eventually, token};

/// The error of an INSERT that may wait no longer.
const LOCK_WAIT: u16 = 1205;
/// How long a stream of events may last.
const LIMIT: Duration = Duration::from_mins(1);

/// The ticket as its user sees it.
async fn look(service: &Service, ticket: &str, user: u64) -> Value {
    ask(&service.url, ticket, user).await.expect(200)["ticket"].clone()
}

/// Keeps the order of that ticket from being written, and no other. An INSERT that has waited for
/// a row of the same ticket locks all around it once that is rolled back, so it must not wait.
/// (MySQL waits for a second at least.)
pub(crate) async fn hold_back(
    service: &Service,
    ticket: &str,
    user: u64,
) -> Transaction<'static, MySql> {
    let database = MySqlPool::connect(&service.place.database_url).await.expect("the database");
    let begun = Instant::now();
    loop {
        let mut tx = database.begin().await.expect("a transaction");
        let no_wait = "SET SESSION innodb_lock_wait_timeout = 0";
        sqlx::query(no_wait).execute(&mut *tx).await.expect("a setting");
        let row = "INSERT INTO tickets (ticket, user_id, voucher_id, state) \
                   VALUES (UNHEX(REPLACE(?, '-', '')), ?, 1, 'refused')";
        let Err(error) = sqlx::query(row).bind(ticket).bind(user).execute(&mut *tx).await else {
            return tx;
        };
        let number = error.as_database_error().and_then(|error| {
            let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
            Some(error.number())
        });
        assert_eq!(number, Some(LOCK_WAIT), "{error}");
        assert!(begun.elapsed() < LIMIT, "the row is never free: {error}");
        tx.rollback().await.expect("a ROLLBACK");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A service, five tickets of a voucher of which none can be written yet, and what holds them up.
async fn five_tickets() -> (Service, String, Vec<String>, Transaction<'static, MySql>) {
    let service = service(&[]).await;
    let voucher = service.voucher(9).await;
    let tx = lock_stock(&service.place.database_url, &voucher).await;
    let mut tickets = Vec::new();
    for user in 1..=5 {
        tickets.push(ticket_of(buy(&service.url, &voucher, user).await));
    }
    (service, voucher, tickets, tx)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_ticket_says_how_many_others_are_ahead_of_it() {
    let (service, voucher, tickets, tx) = five_tickets().await;
    for (user, (ahead, ticket)) in (1..).zip((0..).zip(&tickets)) {
        let seen = look(&service, ticket, user).await;
        assert_eq!((&seen["users_ahead"], &seen["status"]), (&ahead.into(), &"pending".into()));
        assert_eq!(seen["expected_wait_s"], Value::Null, "nothing ends");
    }
    // One that was admitted by a former version has no number.
    let mut keys = redis(&service.place).await;
    let all = format!("{{v:{voucher}}}:tickets");
    let mut forget = redis::cmd("HDEL");
    forget.arg(&all).arg(format!("n:{}", tickets[4])).exec_async(&mut keys).await.expect("done");
    assert_eq!(look(&service, &tickets[4], 5).await["users_ahead"], Value::Null);
    tx.rollback().await.expect("a ROLLBACK");
    for (user, ticket) in (1..).zip(&tickets) {
        assert_eq!(end_of(&service.url, ticket, user).await.0, "bought");
        let seen = look(&service, ticket, user).await;
        let place = (&seen["users_ahead"], &seen["expected_wait_s"]);
        assert_eq!(place, (&Value::Null, &Value::Null));
    }
    let fields: u64 = redis::cmd("HLEN").arg(&all).query_async(&mut keys).await.expect("a number");
    assert_eq!(fields, 5, "numbers are left behind");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expected_wait_follows_from_the_tickets_that_have_ended() {
    let (service, _, tickets, tx) = five_tickets().await;
    let held = hold_back(&service, &tickets[4], 5).await;
    assert_eq!(look(&service, &tickets[4], 5).await["users_ahead"], 4);
    tx.rollback().await.expect("a ROLLBACK");
    for (user, ticket) in (1..).zip(&tickets[..4]) {
        assert_eq!(end_of(&service.url, ticket, user).await.0, "bought");
    }
    let mut seen = Value::Null;
    eventually("the wait is told", async || {
        seen = look(&service, &tickets[4], 5).await;
        !seen["expected_wait_s"].is_null()
    })
    .await;
    assert_eq!((&seen["users_ahead"], &seen["status"]), (&0.into(), &"pending".into()));
    let wait = seen["expected_wait_s"].as_u64().expect("seconds");
    // Four have ended in fifteen seconds at most.
    assert!((1..=4).contains(&wait), "{seen}");
    held.rollback().await.expect("a ROLLBACK");
    assert_eq!(end_of(&service.url, &tickets[4], 5).await.0, "bought");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_sends_a_place_that_has_changed() {
    let (service, _, tickets, tx) = five_tickets().await;
    let held = hold_back(&service, &tickets[4], 5).await;
    let events = format!("{}/api/tickets/{}/events", service.url, tickets[4]);
    let request = client().get(events).bearer_auth(token(5, Role::Buyer)).timeout(LIMIT);
    let mut stream = request.send().await.expect("an answer");
    let mut text = String::new();
    let mut tx = Some(tx);
    while !text.contains(r#""status":"bought""#) {
        let chunk = stream.chunk().await.expect("the events").expect("an event");
        text.push_str(str::from_utf8(&chunk).expect("UTF-8"));
        if text.contains(r#""users_ahead":4"#)
            && let Some(tx) = tx.take()
        {
            tx.rollback().await.expect("a ROLLBACK");
        }
        if text.contains(r#""users_ahead":0"#) {
            break;
        }
    }
    assert!(text.contains(r#""users_ahead":0"#), "{text}");
    held.rollback().await.expect("a ROLLBACK");
    let rest = stream.text().await.expect("the events");
    assert!(rest.contains(r#""status":"bought","#), "{rest}");
    let mut database =
        MySqlConnection::connect(&service.place.database_url).await.expect("the database");
    let orders: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM orders")
        .fetch_one(&mut database)
        .await
        .expect("a number");
    assert_eq!(orders, 5);
    service.stop().await;
}
