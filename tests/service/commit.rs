//! A COMMIT whose answer is lost: the truth is found out before any client is answered, and the
//! lock is kept until then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seckill::domain::{OrderId, Role};
use seckill::store::{
    ConnectionIdentity, DatabaseOptions, Resolution, SaleTables, database, resolve,
};
use sqlx::{Connection, Executor, MySqlConnection};
use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::task::JoinHandle;

use crate::breakable::until_ready;
use crate::crowd::{Books, Fate, Try, buy_at, buy_together, buy_with_key};
use crate::redis_side::RedisSide;
use crate::support::{Answer, Place, Service, eventually, token};

const STOCK: u32 = 100;
const USER: u64 = 7;
/// The longest wait for the answer to one statement.
const CALL: Duration = Duration::from_secs(5);
/// How long the service goes on asking for the outcome.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Long enough not to end by itself in any of these tests.
const LEASE: [&str; 2] = ["--lease-ms", "120000"];

/// A service whose way to the database leads through a proxy.
struct Table {
    service: Service,
    proxy: Proxy,
    redis: RedisSide,
    /// The database itself.
    database_url: String,
    voucher: String,
}

impl Table {
    async fn lay() -> Self {
        Self::lay_under("redisson").await
    }

    async fn lay_under(lock: &str) -> Self {
        Self::lay_with(&["--lock", lock]).await
    }

    async fn lay_with(flags: &[&str]) -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let (proxy, through) = place.database_through_proxy();
        let redis = RedisSide::connect(&place.redis_url).await;
        let flags = [&LEASE[..], flags].concat();
        let service = Service::start_at(through, &flags).await;
        let voucher = service.voucher(STOCK).await;
        Self { service, proxy, redis, database_url: place.database_url, voucher }
    }

    /// Has this happen to the next COMMIT.
    fn arm(&self, action: Action) -> Rule {
        self.proxy.arm(Command::commit(), action, Times::Next(1))
    }

    /// Arms the action for COMMIT; when it fires, the database cannot be reached any more.
    fn arm_with_outage(&self, action: Action) -> Rule {
        self.proxy.arm_with_outage(Command::commit(), action, Times::Next(1))
    }

    async fn buy(&self) -> Try {
        buy_at(&self.service.url, &self.voucher, USER).await
    }

    /// Starts a purchase that is under way while the test continues.
    fn start_to_buy(&self) -> JoinHandle<Try> {
        let (url, voucher) = (self.service.url.clone(), self.voucher.clone());
        tokio::spawn(async move { buy_at(&url, &voucher, USER).await })
    }

    async fn books(&self) -> Books {
        let books = Books::read(&self.database_url, &self.voucher).await;
        books.add_up_to(STOCK.into());
        books
    }

    /// The caller was told of an order, which is there once, and the lock is free.
    async fn assert_bought(&self, one: &Try) {
        let Fate::Bought(order) = one.fate() else { panic!("{}", one.words()) };
        assert_eq!(self.books().await.of(USER), [order]);
        self.redis.until_given_back(USER).await;
        let again = self.buy().await.answer.expect("an answer");
        assert_eq!(again.problem(409), "already_ordered");
        assert_eq!(again.body["order_id"], order.to_string());
    }

    /// The caller was told that there is no order; there is none, the lock is free, and the same
    /// caller can buy.
    async fn assert_refused(&self, one: &Try) {
        assert_not_executed(one.answer.as_ref().expect("an answer"));
        assert!(self.books().await.of(USER).is_empty());
        self.redis.until_given_back(USER).await;
        let Fate::Bought(order) = self.buy().await.fate() else { panic!("not healed") };
        assert_eq!(self.books().await.of(USER), [order]);
    }
}

fn assert_not_executed(answer: &Answer) {
    assert_eq!(answer.problem(503), "dependency_unavailable");
    assert_eq!(answer.body["executed"], false, "{}", answer.body);
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_commit_that_is_cut_off_is_resolved_and_the_order_is_returned() {
    for action in [Action::CutAnswer, Action::ResetAnswer] {
        let table = Table::lay().await;
        let rule = table.arm(action);
        let one = table.buy().await;
        assert_eq!(rule.fired(), 1, "{action:?}");
        assert!(one.took < CALL, "{action:?} was seen at once, but took {:?}", one.took);
        println!("{action:?}: found out after {:?}", one.took);
        table.assert_bought(&one).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commit_of_a_transaction_that_is_the_lock_is_resolved_as_well() {
    let table = Table::lay_under("mysql-row").await;
    let rule = table.arm(Action::CutRequest);
    let one = table.buy().await;
    assert_eq!(rule.fired(), 1);
    table.assert_refused(&one).await;

    let table = Table::lay_under("mysql-row").await;
    let rule = table.arm(Action::CutAnswer);
    let one = table.buy().await;
    assert_eq!(rule.fired(), 1);
    table.assert_bought(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_injected_retry_refuses_a_buyer_with_a_key_on_account_of_its_own_order() {
    for (flag, fate) in [("--inject-bug", 409), ("--inject-bug-control", 201)] {
        let table = Table::lay_with(&["--lab", flag, "retry-with-fresh-id"]).await;
        let rule = table.arm(Action::CutAnswer);
        let one = buy_with_key(&table.service.url, &table.voucher, USER, "a-key").await;
        assert_eq!((rule.fired(), table.books().await.of(USER).len()), (1, 1), "{flag}");
        assert_eq!(one.answer.as_ref().expect("an answer").status, fate, "{flag}: {}", one.words());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_a_definite_refusal_without_an_order() {
    let table = Table::lay().await;
    let rule = table.arm(Action::CutRequest);
    let one = table.buy().await;
    assert_eq!(rule.fired(), 1);
    println!("found out after {:?}", one.took);
    table.assert_refused(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_commit_is_resolved_after_the_timeout_of_a_call() {
    let table = Table::lay().await;
    let rule = table.arm(Action::LoseAnswer);
    let one = table.buy().await;
    assert_eq!(rule.fired(), 1);
    assert!((CALL..CALL * 2).contains(&one.took), "{:?}", one.took);
    table.assert_bought(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_lost_on_a_silent_link_is_killed_with_its_connection_and_refused() {
    let table = Table::lay().await;
    let rule = table.arm(Action::LoseRequest);
    let kills = table.proxy.watch(Command::sql("KILL"));
    let look = "SELECT id FROM orders WHERE id = ? FOR UPDATE";
    let looks = table.proxy.watch(Command::sql(look));
    let one = table.buy().await;
    assert_eq!(rule.fired(), 1);
    assert!(one.took >= CALL, "{:?}", one.took);
    // Only KILL ends the old connection, whose transaction has the row. Without it the look at the
    // order would wait for that row until its own time-out, again and again.
    assert!(kills.matched() > 0, "the connection was not killed");
    assert_eq!(looks.matched(), 1, "the row of the order was still locked");
    table.assert_refused(&one).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_outcome_is_unknown_no_client_is_answered_and_the_lock_is_kept() {
    for action in [Action::CutAnswer, Action::CutRequest] {
        let table = Table::lay().await;
        let rule = table.arm_with_outage(action);
        let purchase = table.start_to_buy();
        eventually("the COMMIT is cut", async || rule.fired() == 1).await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            assert!(table.redis.has_lock(USER).await, "{action:?}: the lock was let go");
            assert!(!purchase.is_finished(), "{action:?}: answered without knowing");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(table.proxy.counts().refused > 0, "the outcome was not asked for");
        assert_eq!(table.books().await.orders.len(), usize::from(action.is_executed()));
        table.proxy.end_outage();
        let one = purchase.await.expect("the purchase");
        // Until the next look at the database every purchase is refused.
        until_ready(&table.service, None).await;
        if action.is_executed() {
            table.assert_bought(&one).await;
        } else {
            assert_not_executed(one.answer.as_ref().expect("an answer"));
            let bought = async || matches!(table.buy().await.fate(), Fate::Bought(_));
            eventually("the caller can buy", bought).await;
        }
        table.redis.until_given_back(USER).await;
        assert_eq!(table.books().await.of(USER).len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_cannot_be_resolved_is_reported_as_unknown_and_keeps_its_lock() {
    let table = Table::lay().await;
    table.arm_with_outage(Action::CutAnswer);
    let one = table.buy().await;
    assert!((RESOLVE_TIMEOUT..RESOLVE_TIMEOUT + CALL).contains(&one.took), "{:?}", one.took);
    assert_eq!(one.fate(), Fate::Unknown);
    let answer = one.answer.expect("an answer");
    assert_eq!(answer.problem(504), "outcome_unknown");
    assert!(answer.body.get("executed").is_none(), "it proves nothing: {}", answer.body);
    let order = answer.body["order_id"].as_str().expect("an order to ask for");
    let lease = table.redis.lease(USER).await.expect("the lock is kept");
    assert!(lease > Duration::from_mins(1), "{lease:?}");
    table.proxy.end_outage();
    // The order that the caller was told to ask for.
    let (path, token) = (format!("/api/orders/{order}"), token(USER, Role::Buyer));
    let is_told = async || {
        let asked = table.service.get(&path, &token).await;
        asked.status == 200 && asked.body["order"]["id"] == order
    };
    eventually("the order is told", is_told).await;
    assert_eq!(table.books().await.of(USER), [order.parse::<u64>().expect("a number")]);
}

/// The server's number of a connection that does not exist any more.
const GONE: u64 = 4_000_000_000;
/// How long a session of the service waits for a row.
const ROW_WAIT: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_still_ending_is_waited_for_however_long_that_takes() {
    // A COMMIT that is being executed cannot be killed any more; a plain read would not see it.
    let table = Table::lay().await;
    let options = DatabaseOptions {
        url: table.database_url.clone(),
        pool_size: 2,
        naive: false,
        silence: None,
    };
    let pool = database(&options).await.expect("a pool");
    let server = "SELECT CONCAT_WS('/', @@hostname, @@port, @@server_id)";
    let server: String = sqlx::query_scalar(server).fetch_one(&pool).await.expect("an identity");
    for (order, end, outcome) in
        [(1, "COMMIT", Resolution::Committed), (2, "ROLLBACK", Resolution::Absent)]
    {
        let mut ending = MySqlConnection::connect(&table.database_url).await.expect("a session");
        ending.execute("START TRANSACTION").await.expect("a transaction");
        let insert = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
                      VALUES (?, ?, 1, 1, UTC_TIMESTAMP(3))";
        let insert = sqlx::query(insert).bind(order).bind(order);
        insert.execute(&mut ending).await.expect("a row");
        let (pool, gone) = (pool.clone(), ConnectionIdentity { id: GONE, server: server.clone() });
        let looking = tokio::spawn(async move {
            resolve(&pool, SaleTables::GUARDED.orders, &gone, &[OrderId(order)]).await
        });
        // Longer than one wait for the row: also a look that times out has found out nothing.
        tokio::time::sleep(ROW_WAIT + Duration::from_millis(500)).await;
        assert!(!looking.is_finished(), "told before the transaction had ended");
        ending.execute(end).await.expect(end);
        assert_eq!(looking.await.expect("a resolution"), outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_connection_with_the_lost_ones_number_is_not_killed() {
    let table = Table::lay().await;
    let url = table.database_url.clone();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    let pool = database(&options).await.expect("a pool");
    let mut other = MySqlConnection::connect(&table.database_url).await.expect("a session");
    let id = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS UNSIGNED)");
    let id: u64 = id.fetch_one(&mut other).await.expect("its number");
    let lost = ConnectionIdentity { id, server: "the-old-primary/3306/1".to_owned() };
    let found = resolve(&pool, SaleTables::GUARDED.orders, &lost, &[OrderId(1)]).await;
    assert_eq!(found, Resolution::Absent);
    other.execute("SELECT 1").await.expect("it lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_in_the_middle_of_their_commit_give_no_wrong_answer() {
    let table = Arc::new(Table::lay().await);
    let rule = table.proxy.arm(Command::commit(), Action::CutBoth, Times::Every(3));
    let watching = Arc::clone(&table);
    let watcher = tokio::spawn(async move {
        // Orders and stock add up at every moment.
        loop {
            watching.books().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let (mut tries, mut bought) = (Vec::new(), 0);
    for round in 0..6 {
        let users = (0..20).map(|n| 100 + round * 20 + n);
        tries.extend(buy_together(&table.service.url, &table.voucher, users).await);
    }
    assert!(!watcher.is_finished(), "the books did not add up for a moment");
    watcher.abort();
    let books = table.books().await;
    books.bear_out(&tries);
    for one in &tries {
        assert_ne!(one.fate(), Fate::Unknown, "{}", one.words());
        bought += usize::from(one.answer.as_ref().is_ok_and(|answer| answer.status == 201));
    }
    assert_eq!(books.orders.len(), bought, "every order was told to its buyer");
    let (cut, commits) = (rule.fired(), rule.matched());
    println!("{cut} of {commits} commits cut, {bought} of {} bought", tries.len());
    assert!(cut >= 20, "only {cut} of {commits} were cut");
    assert!(bought >= 50, "only {bought} bought");
    eventually("all locks are free", async || table.redis.locks().await.is_empty()).await;
}
