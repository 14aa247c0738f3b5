//! `--fenced` against a holder that is frozen past its lease and does not check its lock when it
//! continues. The code is naive, there is one unit, and a successor is on another replica. Witness:
//! the late replica stands still, with a statement under way, until the successor has the lock.

use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};
use testbed::{Action, Command, Proxy, Replica, ReplicaSpec, Times};
use tokio::task::{JoinHandle, block_in_place, spawn_blocking};

use crate::crowd::{Try, buy_at};
use crate::fleet::SECKILL;
use crate::support::{Place, SECRET, Service, eventually, servers};

const LATE: u64 = 1;
const SUCCESSOR: u64 = 2;
/// How long the service waits for a row; with room for a busy machine where it is told.
const AT_THE_FENCE: Duration = Duration::from_secs(3);
/// What both sell by.
const NAIVE: [&str; 11] = [
    "--lab",
    "--guards",
    "off",
    "--on-lost",
    "ignore",
    "--lock-scope",
    "voucher",
    "--lease-ms",
    "800",
    "--lock-wait-ms",
    "5000",
];
/// The first statement of a transaction, before anything is shown or read.
const BEFORE_THE_READ: &str = "START TRANSACTION";
/// Then it knows how many there are.
const AT_THE_READ: &str = "SELECT stock";

/// A replica whose way to the database leads through a proxy, and one that takes over.
struct Two {
    late: Replica,
    successor: Replica,
    way: Proxy,
    database: MySqlConnection,
    /// One unit.
    voucher: String,
}

impl Two {
    async fn start(fenced: bool) -> Self {
        let flags = [&NAIVE[..], if fenced { &["--fenced"] } else { &[] }].concat();
        let place = spawn_blocking(Place::fresh).await.expect("a place");
        let (way, through) = place.database_through_proxy();
        let admin = Service::start_at(place.clone(), &flags).await;
        let voucher = admin.voucher(1).await;
        admin.stop().await;
        let [late, successor] = [&through, &place].map(|place| {
            block_in_place(|| servers().bed.replica(replica(place, &flags))).expect("a replica")
        });
        let database = MySqlConnection::connect(&place.database_url).await.expect("the database");
        Self { late, successor, way, database, voucher }
    }

    /// The late one waits for the answer to that statement and is frozen.
    async fn freeze_at(&self, statement: &str) -> (JoinHandle<Try>, testbed::Rule) {
        let held = self.way.arm(Command::sql(statement), Action::HoldAnswer, Times::Next(1));
        let buying = self.buy(&self.late, LATE);
        eventually("it asks", async || held.fired() == 1).await;
        block_in_place(|| self.late.freeze()).expect("it can be frozen");
        (buying, held)
    }

    fn thaw(&self) {
        block_in_place(|| self.late.thaw()).expect("it can be thawed");
    }

    fn buy(&self, replica: &Replica, user: u64) -> JoinHandle<Try> {
        let (url, voucher) = (replica.base_url().to_owned(), self.voucher.clone());
        tokio::spawn(async move { buy_at(&url, &voucher, user).await })
    }

    /// The successor has the lock and waits for the fence.
    async fn until_one_waits_at_the_fence(&mut self) {
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE db = DATABASE() AND info LIKE 'INSERT INTO lock_fence%'";
        let database = &mut self.database;
        eventually("one waits at the fence", async || {
            let waiting = sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *database).await;
            waiting.expect("what is under way") > 0
        })
        .await;
    }

    async fn sold(&mut self) -> i64 {
        let sold = sqlx::query_scalar("SELECT COUNT(*) FROM lab_orders WHERE voucher_id = ?");
        sold.bind(&self.voucher).fetch_one(&mut self.database).await.expect("the orders")
    }
}

fn replica(place: &Place, flags: &[&str]) -> ReplicaSpec {
    ReplicaSpec::new("fenced", SECKILL)
        .args(["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0"])
        .args(flags.iter().copied())
        .env("DATABASE_URL", &place.database_url)
        .env("REDIS_URL", place.service_redis_url())
        .env("REDIS_TIMEOUT_MS", place.redis_timeout_ms())
        .env("JWT_SECRET", SECRET)
}

async fn words(buying: JoinHandle<Try>) -> String {
    buying.await.expect("no panic").words()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_was_frozen_before_its_first_read_is_refused_that_read() {
    for (fenced, late) in [(true, r#"503 "lock_lost""#), (false, r#"409 "sold_out""#)] {
        let mut two = Two::start(fenced).await;
        let (buying, held) = two.freeze_at(BEFORE_THE_READ).await;
        assert_eq!(words(two.buy(&two.successor, SUCCESSOR)).await, "201 null");
        held.release();
        two.thaw();
        assert_eq!(words(buying).await, late, "fenced: {fenced}");
        assert_eq!(two.sold().await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fence_a_holder_that_was_frozen_after_its_read_writes_late_and_sells_twice() {
    let mut two = Two::start(false).await;
    let (buying, held) = two.freeze_at(AT_THE_READ).await;
    assert_eq!(words(two.buy(&two.successor, SUCCESSOR)).await, "201 null");
    held.release();
    two.thaw();
    assert_eq!(words(buying).await, "201 null");
    assert_eq!(two.sold().await, 2, "the flaw does not show");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_fence_its_successor_reads_only_after_it_has_written() {
    let mut two = Two::start(true).await;
    let (buying, held) = two.freeze_at(AT_THE_READ).await;
    let successor = two.buy(&two.successor, SUCCESSOR);
    two.until_one_waits_at_the_fence().await;
    held.release();
    two.thaw();
    assert_eq!(words(buying).await, "201 null");
    assert_eq!(words(successor).await, r#"409 "sold_out""#);
    assert_eq!(two.sold().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_fence_a_late_write_is_refused_once_the_successor_has_read() {
    let mut two = Two::start(true).await;
    let (buying, _held) = two.freeze_at(AT_THE_READ).await;
    let successor = two.buy(&two.successor, SUCCESSOR);
    two.until_one_waits_at_the_fence().await;
    // The database gives up the frozen one: only then can another session read.
    two.way.cut();
    assert_eq!(words(successor).await, "201 null");
    two.thaw();
    let late = buying.await.expect("no panic");
    assert!(late.words().starts_with("503 "), "{}", late.words());
    assert_eq!(late.answer.expect("an answer").body["executed"], false);
    assert_eq!(two.sold().await, 1);
}

/// The price of the fence.
#[tokio::test(flavor = "multi_thread")]
async fn a_successor_of_a_holder_that_is_frozen_in_its_transaction_is_refused_in_bounded_time() {
    let mut two = Two::start(true).await;
    let (buying, held) = two.freeze_at(AT_THE_READ).await;
    let successor = two.buy(&two.successor, SUCCESSOR);
    two.until_one_waits_at_the_fence().await;
    let waiting = Instant::now();
    let turned_away = successor.await.expect("no panic");
    assert!(waiting.elapsed() < AT_THE_FENCE * 3, "{:?}", waiting.elapsed());
    assert_eq!(turned_away.words(), r#"503 "overloaded""#);
    assert_eq!(turned_away.answer.expect("an answer").body["executed"], false);
    assert_eq!(two.sold().await, 0);
    held.release();
    two.thaw();
    assert_eq!(words(buying).await, "201 null", "it was there first");
    assert_eq!(two.sold().await, 1);
}
