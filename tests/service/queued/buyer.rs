//! Buyers who hold tickets, and what must be true when all tickets have ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::domain::Role;
use serde_json::Value;
use sqlx::{Connection, MySql, MySqlConnection, MySqlPool, Row, Transaction};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::crowd::Books;
use crate::redis_side;
use crate::support::{Answer, Place, Service, client, token};

/// What a service of the mode `queued` is started with.
pub(crate) const QUEUED: [&str; 4] = ["--mode", "queued", "--writer", "grouped"];
/// Longer than a ticket may take that is taken over or lost.
const TICKET_TIMEOUT: Duration = Duration::from_secs(40);

/// A purchase waits for its stock row for 3 s. What a test does meanwhile is tried again if the
/// machine stood still for so long.
pub(crate) const IN_TIME: Duration = Duration::from_millis(2500);

/// No order of that voucher is written before this ends.
pub(crate) async fn lock_stock(database_url: &str, voucher: &str) -> Transaction<'static, MySql> {
    let database = MySqlPool::connect(database_url).await.expect("the database");
    let mut tx = database.begin().await.expect("a transaction");
    let locked = sqlx::query("SELECT stock FROM voucher_stock WHERE voucher_id = ? FOR UPDATE");
    locked.bind(voucher).fetch_one(&mut *tx).await.expect("the stock");
    tx
}

/// The purchase of that user at that address.
pub(crate) async fn buy(url: &str, voucher: &str, user: u64) -> Answer {
    try_to_buy(url, voucher, user).await.expect("an answer")
}

/// Tries to buy at a replica that may die meanwhile.
pub(super) async fn try_to_buy(url: &str, voucher: &str, user: u64) -> Option<Answer> {
    let request = client().post(format!("{url}/api/vouchers/{voucher}/orders"));
    let request = request.bearer_auth(token(user, Role::Buyer));
    Some(Answer::of(request.send().await.ok()?).await)
}

/// The ticket in an answer that says 202.
pub(crate) fn ticket_of(answer: Answer) -> String {
    let location = answer.headers.get("location").cloned();
    let body = answer.expect(202);
    let ticket = body["ticket"]["id"].as_str().expect("a ticket").to_owned();
    assert_eq!(body["ticket"]["status"], "pending");
    assert_eq!(location.expect("Location"), &format!("/api/tickets/{ticket}")[..]);
    ticket
}

/// Where that user's ticket stands.
pub(super) async fn ask(url: &str, ticket: &str, user: u64) -> Answer {
    let request = client().request(Method::GET, format!("{url}/api/tickets/{ticket}"));
    let request = request.bearer_auth(token(user, Role::Buyer));
    Answer::of(request.send().await.expect("an answer")).await
}

/// Asks until the ticket has ended: the status, and the order that it names.
pub(crate) async fn end_of(url: &str, ticket: &str, user: u64) -> (String, Option<u64>) {
    let began = Instant::now();
    loop {
        let answer = ask(url, ticket, user).await;
        // A server that is away for a moment.
        let status = match answer.status.as_u16() {
            200 => answer.body["ticket"]["status"].as_str().expect("a status").to_owned(),
            503 => "pending".to_owned(),
            other => panic!("{other} {}", answer.body),
        };
        if status != "pending" {
            let order = answer.body["ticket"]["order_id"].as_str();
            return (status, order.map(|order| order.parse().expect("a number")));
        }
        assert!(began.elapsed() < TICKET_TIMEOUT, "ticket {ticket} of {user} never ends");
        sleep(Duration::from_millis(10)).await;
    }
}

/// How the purchases of a user went: the ends of its tickets, and the refusals, by their codes.
#[derive(Debug, Default, Clone)]
pub(super) struct Story {
    pub(super) tickets: Vec<(String, Option<u64>)>,
    pub(super) refusals: Vec<String>,
}

impl Story {
    pub(super) fn bought(&self) -> Vec<u64> {
        let bought = self.tickets.iter().filter(|(status, _)| status == "bought");
        bought.map(|(_, order)| order.expect("an order")).collect()
    }
}

/// Buys until an answer says how that ended, and follows the ticket to its end.
pub(super) async fn buy_and_follow(url: &str, voucher: &str, user: u64) -> Story {
    let mut story = Story::default();
    let began = Instant::now();
    let answer = loop {
        let answer = buy(url, voucher, user).await;
        if answer.body["code"] != "outcome_unknown" {
            break answer;
        }
        assert!(began.elapsed() < TICKET_TIMEOUT, "the purchase of {user} stays unknown");
    };
    if answer.status.as_u16() == 202 {
        story.tickets.push(end_of(url, &ticket_of(answer), user).await);
    } else {
        story.refusals.push(answer.body["code"].as_str().expect("a code").to_owned());
    }
    story
}

/// The purchases of those users, all at once, each at one of those addresses.
pub(super) async fn crowd(
    urls: &[String],
    voucher: &str,
    users: impl Iterator<Item = u64>,
) -> Vec<(u64, Story)> {
    let mut tasks = JoinSet::new();
    for (number, user) in users.enumerate() {
        let (url, voucher) = (urls[number % urls.len()].clone(), voucher.to_owned());
        tasks.spawn(async move { (user, buy_and_follow(&url, &voucher, user).await) });
    }
    tasks.join_all().await
}

/// What must be true when all tickets have ended: the books bear out what every buyer was told.
pub(super) async fn assert_settled(
    place: &Place,
    voucher: &str,
    stories: &[(u64, Story)],
    stock: i64,
) -> Books {
    let books = Books::read(&place.database_url, voucher).await;
    books.add_up_to(stock);
    assert!(books.stock >= 0, "{} left", books.stock);
    let mut told: HashMap<u64, Vec<u64>> = HashMap::new();
    for (user, story) in stories {
        told.entry(*user).or_default().extend(story.bought());
    }
    for (user, bought) in told {
        let orders = books.of(user);
        assert!(orders.len() <= 1, "{user} has {orders:?}");
        assert!(bought.iter().all(|order| orders == [*order]), "{user}: {bought:?}, {orders:?}");
    }
    books
}

/// The queue of a voucher: units that may be admitted, entries, and users that are marked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    pub(crate) stock: i64,
    pub(crate) entries: u64,
    pub(crate) users: u64,
}

pub(crate) async fn left(place: &Place, voucher: &str) -> QueueState {
    let mut redis = redis(place).await;
    let key = |name: &str| format!("{{v:{voucher}}}:{name}");
    let (stock, entries, users): (Option<i64>, u64, u64) = redis::pipe()
        .cmd("HGET")
        .arg(key("sale"))
        .arg("stock")
        .cmd("XLEN")
        .arg(key("stream"))
        .cmd("HLEN")
        .arg(key("users"))
        .query_async(&mut redis)
        .await
        .expect("an answer");
    QueueState { stock: stock.expect("an open queue"), entries, users }
}

/// A connection to the place's Redis.
pub(crate) async fn redis(place: &Place) -> redis::aio::MultiplexedConnection {
    redis_side::connect(&place.redis_url).await
}

/// Rows of `tickets` by their state.
pub(crate) async fn ended(place: &Place, voucher: &str) -> HashMap<String, i64> {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let rows = sqlx::query(
        "SELECT CAST(state AS CHAR), COUNT(*) FROM tickets WHERE voucher_id = ? GROUP BY 1",
    );
    let rows = rows.bind(voucher).fetch_all(&mut database).await.expect("the tickets");
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Makes the insert of that user's orders fail.
pub(super) async fn poison(place: &Place, user: u64) {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let trigger = format!(
        "CREATE TRIGGER poison_{user} BEFORE INSERT ON orders FOR EACH ROW \
         BEGIN IF NEW.user_id = {user} THEN \
         SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1644, MESSAGE_TEXT = 'poison'; \
         END IF; END"
    );
    let trigger = sqlx::raw_sql(sqlx::AssertSqlSafe(trigger));
    trigger.execute(&mut database).await.expect("a trigger");
}

/// Undoes that.
pub(super) async fn heal(place: &Place, user: u64) {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let drop = sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP TRIGGER poison_{user}")));
    drop.execute(&mut database).await.expect("no trigger");
}

/// A service of the mode `queued` at a place of its own, with more flags.
pub(super) async fn service(flags: &[&str]) -> Service {
    Service::start(&[&QUEUED[..], flags].concat()).await
}

/// The problem's code and the order that it names.
pub(super) fn refusal(answer: &Answer) -> (&str, Option<&Value>) {
    let body = &answer.body;
    (body["code"].as_str().expect("a code"), body.get("order_id"))
}
