//! Purchases on nodes of Galera, where another node may abort a transaction at any statement. The
//! server says so at the end of a packet: what is behind that statement in the packet runs outside
//! the transaction, and COMMIT answers OK.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use seckill::domain::{OrderId, OrderStatus};
use seckill::store::{
    CommitError, ConnectionIdentity, DatabaseOptions, Resolution, SaleTables, Session, StoreError,
    Transaction, database, resolve, resolve_status,
};
use sqlx::{AssertSqlSafe, Executor, MySqlPool, Row};
use testbed::{Action, Command, Database, Proxy, Times};
use tokio::task::block_in_place;

use crate::breakable::until_ready;
use crate::crowd::{Books, Crowd, Fate, Try, buy_at, buy_with_key};
use crate::support::{Place, Service, app, eventually, make_admins, servers, within};

const STOCK: u32 = 100;
const USER: u64 = 7;
/// A machine that stands still for 5 s ends a call before the other node writes.
const TRIES: u32 = 5;
/// For another node to abort a transaction. A call is given up after 5 s.
const IN_TIME: Duration = Duration::from_secs(4);
const TAKE: &str = "UPDATE units SET stock = stock - 1 WHERE id = 1";
/// An abort ends it without an error.
const SLEEP: &str = "DO SLEEP(60)";

/// Two nodes, shared by the tests here.
fn nodes() -> &'static [Database; 2] {
    static NODES: OnceLock<[Database; 2]> = OnceLock::new();
    NODES.get_or_init(|| servers().bed.galera(false).expect("Galera is installed"))
}

/// A database on both nodes, and a pool of each as the service makes it.
struct Pair {
    name: String,
    pools: [MySqlPool; 2],
}

impl Pair {
    async fn with_database(name: &str) -> Self {
        let nodes = tokio::task::spawn_blocking(nodes).await.expect("nodes");
        nodes[0].create_database(name).expect("a database of one's own");
        let pool = |node: &Database| {
            let url = node.url(name);
            DatabaseOptions { url, pool_size: 4, naive: false, silence: None }
        };
        let [one, other] = nodes.each_ref().map(pool);
        let pools = [
            database(&one).await.expect("a pool of one node"),
            database(&other).await.expect("a pool of the other node"),
        ];
        Self { name: name.to_owned(), pools }
    }

    /// A table with one row that has all units.
    async fn with_units(name: &str) -> Self {
        let pair = Self::with_database(name).await;
        let table = "CREATE TABLE units (id INT PRIMARY KEY, stock INT NOT NULL)";
        pair.pools[0].execute(table).await.expect("a table");
        let row = format!("INSERT INTO units VALUES (1, {STOCK})");
        pair.pools[0].execute(AssertSqlSafe(row)).await.expect("a row");
        eventually("the other node has the row", async || {
            pair.number(1, "SELECT COUNT(*) FROM units").await == Some(1)
        })
        .await;
        pair
    }

    async fn number(&self, node: usize, sql: &'static str) -> Option<i64> {
        let row = sqlx::query(sql).fetch_one(&self.pools[node]).await.ok()?;
        row.try_get(0).ok()
    }

    /// Waits until the first node sleeps in a transaction, and writes its row on the other node.
    async fn abort_the_sleeper(&self) {
        let sleeps = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                      WHERE STATE = 'User sleep' AND DB = DATABASE()";
        eventually("the transaction has the row", async || self.number(0, sleeps).await == Some(1))
            .await;
        self.pools[1].execute(TAKE).await.expect("a write on the other node");
    }

    /// How many transactions of the first node were rolled back for those of the other one.
    async fn aborted(&self) -> u64 {
        let sql = "SHOW GLOBAL STATUS LIKE 'wsrep_local_bf_aborts'";
        let row = sqlx::query(sql).fetch_one(&self.pools[0]).await.expect("a count");
        let count: String = row.try_get(1).expect("a value");
        count.parse().expect("a number")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_another_node_aborts_before_its_commit_is_refused() {
    let pair = Pair::with_units("aborted_before_commit").await;
    for _ in 0..TRIES {
        let tx = Transaction::open(&pair.pools[0]).await.expect("a transaction");
        let commit = tx.commit_after(vec![TAKE.to_owned(), SLEEP.to_owned()]);
        let (committed, ()) = tokio::join!(commit, pair.abort_the_sleeper());
        match committed {
            Err(CommitError::Refused(StoreError::Conflict)) => return,
            Ok(()) => panic!("a transaction is acknowledged that was rolled back"),
            Err(_) => {}
        }
    }
    panic!("the other node was late {TRIES} times");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_behind_an_aborted_one_are_not_written_outside_the_transaction() {
    let pair = Pair::with_units("behind_an_aborted").await;
    let first = [TAKE, SLEEP, "INSERT INTO units VALUES (2, 1)"].map(str::to_owned);
    for _ in 0..TRIES {
        let opening = Transaction::open_with(&pair.pools[0], &first);
        let (opened, ()) = tokio::join!(opening, pair.abort_the_sleeper());
        let (tx, written) = opened.expect("a transaction");
        tx.rollback().await;
        let rows = pair.number(0, "SELECT COUNT(*) FROM units").await.expect("a count");
        assert_eq!(rows, 1, "a statement is written without its transaction: {written:?}");
        if matches!(written, Err(StoreError::Conflict)) {
            return;
        }
    }
    panic!("the other node was late {TRIES} times");
}

/// Two nodes cannot outvote each other: when one is killed, the other serves no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_quorum_is_a_503_and_sells_again_once_it_may_serve_alone() {
    const PLENTY: u32 = 100_000;
    let started = block_in_place(|| servers().bed.galera(false));
    let [node, lost] = started.expect("Galera is installed");
    block_in_place(|| node.create_database("shop")).expect("a database");
    let url = node.url("shop");
    make_admins(&url);
    let fresh = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let service = Service::start_at(Place { database_url: url.clone(), ..fresh }, &[]).await;
    let voucher = service.voucher(PLENTY).await;
    let options = DatabaseOptions { url: url.clone(), pool_size: 1, naive: false, silence: None };
    let pool = database(&options).await.expect("a pool");
    let mut session = Session::open(&pool).await.expect("a session");
    let crowd = Crowd::start(&service.url, &voucher, 8);
    crowd.until_bought(20).await;

    lost.kill().expect("it is killed");
    until_ready(&service, Some("database")).await;
    let read = session.fetch_optional(sqlx::query("SELECT id FROM orders LIMIT 1")).await;
    assert!(matches!(read, Err(StoreError::Unavailable { .. })), "{:?}", read.map(drop));
    let refused = buy_at(&service.url, &voucher, USER).await;
    assert_eq!(refused.words(), "503 \"dependency_unavailable\"");
    assert_eq!(refused.fate(), Fate::Refused);

    block_in_place(|| node.serve_without_quorum()).expect("it serves");
    until_ready(&service, None).await;
    crowd.until_bought(20).await;
    let tries = crowd.end().await;
    let words: BTreeSet<_> = tries.iter().map(Try::words).collect();
    assert!(!words.iter().any(|words| words.starts_with("500")), "{words:?}");
    let books = Books::read(&url, &voucher).await;
    books.add_up_to(PLENTY.into());
    books.bear_out(&tries);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_that_another_node_aborts_a_dozen_times_before_its_commit_is_served() {
    const ABORTS: usize = 12;
    let rewrite = [
        "UPDATE voucher_stock SET stock = stock + 1",
        "UPDATE voucher_stock SET stock = stock - 1",
    ];
    for (name, flags) in [
        ("aborted_single", &["--writer", "single"][..]),
        ("aborted_grouped", &["--writer", "grouped"]),
        ("aborted_row", &["--lock", "mysql-row"]),
        ("aborted_fenced", &["--lock", "mysql-table", "--lab", "--fenced"]),
    ] {
        let pair = Pair::with_database(name).await;
        let url = nodes()[0].url(&pair.name);
        let fresh = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        make_admins(&url);
        let proxy = Proxy::before(nodes()[0].addr()).expect("a proxy");
        let database_url = proxy.instead_of(nodes()[0].addr(), &url);
        let service = Service::start_at(Place { database_url, ..fresh }, flags).await;
        let voucher = service.voucher(STOCK).await;
        let mut sold = None;
        for user in (USER..).take(TRIES as usize) {
            // A COMMIT that is its own packet.
            let hold = || proxy.arm(Command::sql("COMMIT"), Action::HoldRequest, Times::Next(1));
            let mut commit = hold();
            let key = format!("key-{user}");
            let buying = buy_with_key(&service.url, &voucher, user, &key);
            let aborting = async {
                for number in 1..=ABORTS {
                    let is_sent = async || commit.fired() == 1;
                    if !within(IN_TIME, is_sent).await {
                        break;
                    }
                    let before = pair.aborted().await;
                    let tx = Transaction::open(&pair.pools[1]).await.expect("a transaction");
                    let written = tx.commit_after(rewrite.map(str::to_owned).to_vec()).await;
                    let is_aborted = async || pair.aborted().await > before;
                    if written.is_err() || !within(IN_TIME, is_aborted).await {
                        break;
                    }
                    let next = (number < ABORTS).then(hold);
                    commit.release();
                    let Some(next) = next else { return true };
                    commit = next;
                }
                commit.release();
                false
            };
            let began = Instant::now();
            let (bought, is_aborted) = tokio::join!(buying, aborting);
            if let (Fate::Bought(order), true) = (bought.fate(), is_aborted) {
                sold = Some((user, order));
                break;
            }
            let stood_still = !is_aborted || began.elapsed() > IN_TIME;
            assert!(stood_still, "{name}: {}", bought.words());
        }
        let (user, order) = sold.unwrap_or_else(|| panic!("{name}: no purchase in {TRIES} tries"));
        let books = Books::read(&url, &voucher).await;
        books.add_up_to(STOCK.into());
        assert_eq!(books.of(user), [order], "{name}");
    }
}

/// A transaction of one node that has what others wrote, and has written, and by what it is
/// resolved.
async fn begun(pair: &Pair, statement: &'static str) -> (Transaction, ConnectionIdentity) {
    let mut tx = Transaction::open(&pair.pools[0]).await.expect("a transaction");
    tx.execute(sqlx::query("SET SESSION wsrep_sync_wait = 7")).await.expect("a setting");
    tx.execute(sqlx::query(statement)).await.expect("a write");
    let identity = "SELECT CAST(CONNECTION_ID() AS UNSIGNED), \
                    CONCAT_WS('/', @@hostname, @@port, @@server_id)";
    let row = tx.fetch_optional(sqlx::query(identity)).await.expect("an answer").expect("a row");
    let identity = ConnectionIdentity { id: row.get(0), server: row.get(1) };
    (tx, identity)
}

/// By what a transaction of one node is resolved that is committed. Tables that other tests make
/// may abort some.
async fn commit(pair: &Pair, statement: &'static str) -> ConnectionIdentity {
    for _ in 0..TRIES {
        let (tx, identity) = begun(pair, statement).await;
        if tx.commit().await.is_ok() {
            return identity;
        }
    }
    panic!("it is aborted {TRIES} times");
}

async fn with_orders(name: &str) -> Pair {
    let pair = Pair::with_database(name).await;
    for table in [
        include_str!("../../migrations/0005_orders.sql"),
        include_str!("../../migrations/0007_orders_status.sql"),
        include_str!("../../migrations/0008_orders_begin_unpaid.sql"),
    ] {
        pair.pools[0].execute(sqlx::raw_sql(table)).await.expect("a table");
    }
    pair
}

const ORDER: &str = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
                     VALUES (1, 7, 1, 100, UTC_TIMESTAMP(3))";

/// A node that was lost or frozen may commit seconds after another one was asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_another_node_says_is_absent_can_no_longer_be_committed() {
    let pair = with_orders("late_order").await;
    let (tx, identity) = begun(&pair, ORDER).await;
    let table = SaleTables::GUARDED.orders;
    let found = resolve(&pair.pools[1], table, &identity, &[OrderId(1)]).await;
    assert_eq!(found, Resolution::Absent);
    let committed = tx.commit().await;
    assert!(
        matches!(committed, Err(CommitError::Refused(StoreError::Conflict))),
        "it is committed"
    );
    for node in 0..2 {
        assert_eq!(pair.number(node, "SELECT COUNT(*) FROM orders").await, Some(0));
    }
    let identity = commit(&pair, ORDER).await;
    let found = resolve(&pair.pools[1], table, &identity, &[OrderId(1)]).await;
    assert_eq!(found, Resolution::Committed);
    assert_eq!(pair.number(1, "SELECT CAST(user_id AS SIGNED) FROM orders").await, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_another_node_says_is_unpaid_can_no_longer_be_paid_by_an_earlier_one() {
    let pair = with_orders("late_payment").await;
    pair.pools[0].execute(ORDER).await.expect("an order");
    let pay = "UPDATE orders SET status = 'paid' WHERE id = 1";
    let (tables, order) = (&SaleTables::GUARDED, OrderId(1));
    let (tx, identity) = begun(&pair, pay).await;
    let found = resolve_status(&pair.pools[1], tables, &identity, order).await;
    assert_eq!(found, Some(OrderStatus::Unpaid));
    assert!(tx.commit().await.is_err(), "it is paid");
    let identity = commit(&pair, pay).await;
    let found = resolve_status(&pair.pools[1], tables, &identity, order).await;
    assert_eq!(found, Some(OrderStatus::Paid));
    let price = pair.number(1, "SELECT CAST(price_cents AS SIGNED) FROM orders").await;
    assert_eq!(price, Some(100));
}

/// Each node would grant the lock, so no replica starts with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_lock_no_node_may_grant_alone_does_not_start() {
    let pair = Pair::with_database("named").await;
    let fresh = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let place = Place { database_url: nodes()[0].url(&pair.name), ..fresh };
    let refused = app(&place, &["--lock", "mysql-named"]).await.err().expect("it is Galera");
    let words = format!("{refused:#}");
    assert!(words.contains("the lock mysql-named") && words.contains("Galera node"), "{words}");
}
