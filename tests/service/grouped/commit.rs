//! The answer to the COMMIT of a group is lost. None of its members is answered, and none of their
//! locks is released, before the truth is found out for all.

use std::time::{Duration, Instant};

use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::task::JoinHandle;

use crate::crowd::{Books, Fate, Try, buy_together};
use crate::queued::buyer::lock_stock;
use crate::redis_side::RedisSide;
use crate::support::{Place, Service, eventually};

const STOCK: u32 = 100;
/// Each asks once, all at a time.
const USERS: std::ops::Range<u64> = 1..31;
/// How long an outcome is kept unknown: less than the service goes on asking.
const UNKNOWN: Duration = Duration::from_secs(3);
/// Longer than any of these tests.
const LEASE: [&str; 2] = ["--lease-ms", "120000"];

/// A service that writes in groups, whose way to the database leads through a proxy.
struct Table {
    service: Service,
    proxy: Proxy,
    redis: RedisSide,
    database_url: String,
    voucher: String,
}

impl Table {
    async fn lay() -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let (proxy, through) = place.database_through_proxy();
        let redis = RedisSide::connect(&place.redis_url).await;
        // The work lets others gather behind the first.
        let flags = ["--writer", "grouped", "--lab", "--work-ms", "300"];
        let service = Service::start_at(through, &[&LEASE[..], &flags].concat()).await;
        let voucher = service.voucher(STOCK).await;
        Self { service, proxy, redis, database_url: place.database_url, voucher }
    }

    /// Has this happen to the next COMMIT of at least ten orders.
    fn arm(&self, action: Action, outage: bool) -> Rule {
        let commit = Command::sql("UPDATE voucher_stock").containing("COMMIT").when(|parts| {
            let sql = String::from_utf8_lossy(parts[0]);
            let units = sql.split("stock - ").nth(1).and_then(|rest| rest.split(' ').next());
            units.and_then(|units| units.parse::<u32>().ok()).is_some_and(|units| units >= 10)
        });
        if outage {
            self.proxy.arm_with_outage(commit, action, Times::Next(1))
        } else {
            self.proxy.arm(commit, action, Times::Next(1))
        }
    }

    /// Has all of them ask, and the first ones wait for the stock until all others have gathered
    /// behind them: each caller holds its lock by then.
    async fn start_to_buy(&self) -> JoinHandle<Vec<Try>> {
        let stock = lock_stock(&self.database_url, &self.voucher).await;
        let (url, voucher) = (self.service.url.clone(), self.voucher.clone());
        let purchases = tokio::spawn(async move { buy_together(&url, &voucher, USERS).await });
        eventually("all have gathered", async || {
            self.locks().await == USERS.count() || purchases.is_finished()
        })
        .await;
        stock.rollback().await.expect("a ROLLBACK");
        purchases
    }

    async fn buy(&self) -> Vec<Try> {
        self.start_to_buy().await.await.expect("purchases")
    }

    /// What is written, once nothing is on its way that the server has received.
    async fn settled_books(&self) -> Books {
        let stock = lock_stock(&self.database_url, &self.voucher).await;
        stock.rollback().await.expect("a ROLLBACK");
        self.books().await
    }

    async fn books(&self) -> Books {
        let books = Books::read(&self.database_url, &self.voucher).await;
        books.add_up_to(STOCK.into());
        books
    }

    async fn locks(&self) -> usize {
        self.redis.locks().await.len()
    }
}

fn count(tries: &[Try], is: impl Fn(&Fate) -> bool) -> usize {
    tries.iter().filter(|one| is(&one.fate())).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_is_cut_off_is_resolved_and_each_member_gets_its_order() {
    for action in [Action::CutAnswer, Action::ResetAnswer, Action::LoseAnswer] {
        let table = Table::lay().await;
        let rule = table.arm(action, false);
        let tries = table.buy().await;
        assert_eq!(rule.fired(), 1, "{action:?}: no group of ten");
        assert_eq!(count(&tries, |fate| matches!(fate, Fate::Bought(_))), 30, "{action:?}");
        let books = table.books().await;
        books.bear_out(&tries);
        assert_eq!(books.orders.len(), 30);
        eventually("all locks are free", async || table.locks().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_commit_never_arrived_is_refused_and_can_buy_again() {
    for action in [Action::CutRequest, Action::LoseRequest] {
        let table = Table::lay().await;
        let rule = table.arm(action, false);
        let tries = table.buy().await;
        assert_eq!(rule.fired(), 1, "{action:?}: no group of ten");
        let refused = count(&tries, |fate| *fate == Fate::Refused);
        assert!(refused >= 10, "{action:?}: {refused} refused");
        assert_eq!(count(&tries, |fate| *fate == Fate::Unknown), 0, "{action:?}");
        table.books().await.bear_out(&tries);
        let again = buy_together(&table.service.url, &table.voucher, USERS).await;
        assert_eq!(count(&again, |fate| matches!(fate, Fate::Bought(_))), refused, "{action:?}");
        assert_eq!(table.books().await.orders.len(), 30);
        eventually("all locks are free", async || table.locks().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_outcome_of_a_batch_is_unknown_no_member_is_answered_and_all_locks_are_kept() {
    for action in [Action::CutAnswer, Action::CutRequest] {
        let table = Table::lay().await;
        let rule = table.arm(action, true);
        let purchases = table.start_to_buy().await;
        eventually("a COMMIT is cut", async || rule.fired() == 1).await;
        let written = table.settled_books().await.orders.len();
        let began = Instant::now();
        while began.elapsed() < UNKNOWN {
            assert!(table.locks().await >= 10, "{action:?}: locks were let go");
            assert!(!purchases.is_finished(), "{action:?}: answered without knowing");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(table.books().await.orders.len(), written, "{action:?}");
        assert!(table.proxy.counts().refused > 0, "the outcome was not asked for");
        table.proxy.end_outage();
        let tries = purchases.await.expect("purchases");
        assert_eq!(count(&tries, |fate| *fate == Fate::Unknown), 0, "{action:?}");
        table.books().await.bear_out(&tries);
        eventually("all locks are free", async || table.locks().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_batch_that_cannot_be_resolved_are_answered_unknown_and_keep_their_locks() {
    let table = Table::lay().await;
    table.arm(Action::CutAnswer, true);
    let tries = table.buy().await;
    let unknown: Vec<_> = tries.iter().filter(|one| one.fate() == Fate::Unknown).collect();
    assert!(unknown.len() >= 10, "{} unknown", unknown.len());
    assert!(table.locks().await >= unknown.len(), "locks were let go");
    let books = table.settled_books().await;
    // Whose COMMIT was answered is written. The outage may have cut off a second group, too, whose
    // COMMIT was still on its way: that one is there as well, or not at all.
    let mut written = 0;
    for one in unknown {
        let answer = one.answer.as_ref().expect("an answer");
        assert_eq!(answer.problem(504), "outcome_unknown");
        let order: u64 = answer.body["order_id"].as_str().expect("an id").parse().expect("an id");
        let orders = books.of(one.user);
        assert!(orders.is_empty() || orders == [order], "told of {order} instead of {orders:?}");
        written += orders.len();
    }
    assert!(written >= 10, "{written} orders of the group whose answer was cut off");
    books.bear_out(&tries);
}
