//! Purchases that meet other transactions: row locks that time out (1205) and deadlocks (1213).

use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};
use testbed::Command;

use crate::crowd::{Books, Fate, Try, buy_at, buy_together};
use crate::support::{Place, Service, eventually};

const STOCK: u32 = 10;
/// The server's list of transactions is made anew only if it was not read for 100 ms.
const LIST_AGES: Duration = Duration::from_millis(120);

/// A session that is not the service's.
pub(crate) struct ForeignSession(MySqlConnection);

impl ForeignSession {
    pub(crate) async fn connect(place: &Place) -> Self {
        let connected = MySqlConnection::connect(&place.database_url).await;
        Self(connected.expect("the database"))
    }

    async fn run(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.0).await.expect(sql);
    }

    async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.0).await.expect(sql)
    }

    /// Transactions of the service that wait for a lock.
    pub(crate) async fn waiting(&mut self) -> i64 {
        tokio::time::sleep(LIST_AGES).await;
        self.number(
            "SELECT COUNT(*) FROM information_schema.innodb_trx t \
             JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
             WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()",
        )
        .await
    }

    /// Transactions of the service that are open.
    async fn open(&mut self) -> i64 {
        tokio::time::sleep(LIST_AGES).await;
        self.number(
            "SELECT COUNT(*) FROM information_schema.innodb_trx t \
             JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
             WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()",
        )
        .await
    }

    async fn kill_the_open_one(&mut self) {
        let holder = "SELECT t.trx_mysql_thread_id FROM information_schema.innodb_trx t \
             JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
             WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()";
        let holder: u64 =
            sqlx::query_scalar(holder).fetch_one(&mut self.0).await.expect("it is open");
        let kill = sqlx::AssertSqlSafe(format!("KILL {holder}"));
        sqlx::raw_sql(kill).execute(&mut self.0).await.expect("killed");
    }

    pub(crate) async fn deadlocks(&mut self) -> i64 {
        self.number(
            "SELECT CAST(count AS SIGNED) FROM information_schema.innodb_metrics \
             WHERE name = 'lock_deadlocks'",
        )
        .await
    }
}

async fn books(service: &Service, voucher: &str) -> Books {
    let books = Books::read(&service.place.database_url, voucher).await;
    books.add_up_to(STOCK.into());
    books
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_row_that_stays_locked_is_a_definite_refusal_that_leaves_no_half_order() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let (proxy, through) = place.database_through_proxy();
    let service = Service::start_at(through, &[]).await;
    let voucher = service.voucher(STOCK).await;
    let (mut holder, mut watch) =
        (ForeignSession::connect(&place).await, ForeignSession::connect(&place).await);
    holder.run("START TRANSACTION; SELECT stock FROM voucher_stock FOR UPDATE").await;
    let waits = proxy.watch(Command::sql("UPDATE voucher_stock"));

    let started = Instant::now();
    let tries = buy_together(&service.url, &voucher, [1, 2, 3]).await;
    println!("refused after {:?}", started.elapsed());
    for one in &tries {
        let answer = one.answer.as_ref().expect("an answer");
        assert_eq!(answer.problem(503), "overloaded");
        assert_eq!(answer.body["executed"], false);
        assert!(answer.headers.contains_key("retry-after"));
        assert!(one.took > Duration::from_secs(2), "it did not wait for the row: {:?}", one.took);
    }
    assert_eq!(waits.matched(), 3, "each waits for the row once, however long the machine takes");
    // Rolled back before it was answered: 1205 alone undoes the statement only, and the row of
    // the order would come with whatever that connection commits next.
    eventually("only the holder's transaction", async || watch.open().await == 1).await;
    assert!(books(&service, &voucher).await.orders.is_empty());
    holder.run("COMMIT").await;
    for user in 1..=3 {
        let one = buy_at(&service.url, &voucher, user).await;
        assert!(matches!(one.fate(), Fate::Bought(_)), "{}", one.words());
    }
    assert_eq!(books(&service, &voucher).await.orders.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_of_three_inserts_of_one_pair_is_tried_again_and_sells_once() {
    // Without a lock, so that two purchases of one user reach the database at the same time.
    let service = Service::start(&["--lock", "none"]).await;
    let voucher = service.voucher(STOCK).await;
    let (mut first, mut watch) = (
        ForeignSession::connect(&service.place).await,
        ForeignSession::connect(&service.place).await,
    );
    for user in 1..=5_u64 {
        let before = watch.deadlocks().await;
        first.run("START TRANSACTION").await;
        let insert = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
                      VALUES (1, ?, ?, 1, UTC_TIMESTAMP(3))";
        let insert = sqlx::query(insert).bind(user).bind(&voucher);
        insert.execute(&mut first.0).await.expect("the first insert");
        let (url, wanted) = (service.url.clone(), voucher.clone());
        let purchases =
            tokio::spawn(async move { buy_together(&url, &wanted, [user, user]).await });
        eventually("two more inserts wait", async || watch.waiting().await == 2).await;
        // Both get the shared lock that a duplicate takes, and both want more: one is the victim.
        first.run("ROLLBACK").await;
        let tries = purchases.await.expect("two purchases");
        assert!(watch.deadlocks().await > before, "no deadlock happened");
        let mut words: Vec<_> = tries.iter().map(Try::words).collect();
        words.sort();
        assert_eq!(words, ["201 null", "409 \"already_ordered\""]);
        let Some(Fate::Bought(order)) = tries.iter().map(Try::fate).max_by_key(is_bought) else {
            panic!("{words:?}")
        };
        assert_eq!(books(&service, &voucher).await.of(user), [order]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_that_was_the_victim_of_a_deadlock_is_tried_again_also_if_it_was_the_lock() {
    for lock in ["redisson", "mysql-row"] {
        let service = Service::start(&["--lock", lock]).await;
        let voucher = service.voucher(STOCK).await;
        let (mut other, mut watch) = (
            ForeignSession::connect(&service.place).await,
            ForeignSession::connect(&service.place).await,
        );
        let before = watch.deadlocks().await;
        // It has done more than the purchase, so that the purchase is the victim.
        other.run("START TRANSACTION").await;
        let insert = "INSERT INTO orders (id, user_id, voucher_id, price_cents, created_at) \
                      VALUES (?, ?, ?, 1, UTC_TIMESTAMP(3))";
        for id in 2..=9_u64 {
            let work = sqlx::query(insert).bind(id).bind(id).bind(u64::MAX);
            work.execute(&mut other.0).await.expect("other work");
        }
        other.run("SELECT stock FROM voucher_stock FOR UPDATE").await;
        let (url, wanted) = (service.url.clone(), voucher.clone());
        let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
        eventually("the purchase waits for the stock", async || watch.waiting().await == 1).await;
        let same_pair = sqlx::query(insert).bind(1).bind(1).bind(&voucher);
        same_pair.execute(&mut other.0).await.expect("the purchase is the victim");
        assert!(watch.deadlocks().await > before, "{lock}: no deadlock happened");
        other.run("ROLLBACK").await;
        let one = purchase.await.expect("a purchase");
        let Fate::Bought(order) = one.fate() else { panic!("{lock}: {}", one.words()) };
        assert_eq!(books(&service, &voucher).await.of(1), [order]);
        // And nothing is locked any more.
        let again = buy_at(&service.url, &voucher, 1).await;
        assert_eq!(again.answer.expect("an answer").problem(409), "already_ordered");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_written_in_the_very_transaction_that_is_its_lock() {
    for guards in ["on", "off"] {
        let flags = ["--lock", "mysql-row", "--lab", "--work-ms", "2000", "--guards", guards];
        let service = Service::start(&flags).await;
        let voucher = service.voucher(STOCK).await;
        let mut watch = ForeignSession::connect(&service.place).await;
        let (url, wanted) = (service.url.clone(), voucher.clone());
        let purchase = tokio::spawn(async move { buy_at(&url, &wanted, 1).await });
        eventually("one transaction is open", async || watch.open().await == 1).await;
        // Without its lock there is no order.
        watch.kill_the_open_one().await;
        let one = purchase.await.expect("a purchase").answer.expect("an answer");
        assert_eq!(one.problem(503), "dependency_unavailable", "guards {guards}");
        assert_eq!(one.body["executed"], false);
        let audit = service.audit(&voucher).await;
        assert_eq!((&audit["orders"], &audit["stock_left"]), (&0.into(), &STOCK.into()), "{audit}");
    }
}

fn is_bought(fate: &Fate) -> bool {
    matches!(fate, Fate::Bought(_))
}
