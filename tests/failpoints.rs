//! A replica that is killed, that panics or that stands still at each named point, with buyers on
//! it and on a second replica. Whatever the point: no user gets two orders and not more is sold
//! than there is. A buyer who was told of an order has it, and the lock is free again after its
//! lease. Witness: the replica counts the points that it reaches; a killed one has said so and is
//! gone.
//!
//! Built with the feature `failpoints` only, as is the replica.

#[path = "failpoints/laboratory.rs"]
mod laboratory;
#[path = "failpoints/queued.rs"]
mod queued;

// Half of what the service's other tests share.
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/queued/buyer.rs"]
mod buyer;
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/crowd.rs"]
mod crowd;
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/redis_side.rs"]
mod redis_side;
#[allow(dead_code, reason = "shared with another test program")]
#[path = "service/support.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use seckill::failpoint;
use testbed::{Action as Fault, Command, Proxy, Replica, ReplicaSpec, Times};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::crowd::{Books, Fate, Try, buy_at, buy_until_told};
use crate::redis_side::RedisSide;
use crate::support::{Place, SECRET, Service, app, client, servers};

/// Renewed at every third of it.
const LEASE_MS: &str = "900";
/// Longer than the lease.
const WAIT_MS: &str = "4000";
/// Longer than a third of the lease.
const WORK_MS: &str = "400";
/// Longer than the lease as well.
const STANDSTILL: &str = "1*sleep(1200)";
const STOCK: i64 = 3;
/// More than there is in stock.
const BUYERS: u64 = 5;
/// Rounds at a time: most of a round is waiting.
const AT_A_TIME: usize = 6;

/// What happens at the point.
const ACTIONS: [(&str, &str); 3] =
    [("kill", "return(kill)"), ("panic", "1*panic"), ("stand still", STANDSTILL)];

/// Points that only orders pass whose statements are sent one by one, as those of fenced ones are.
const STEPWISE: [&str; 2] = ["sale-token-shown", "sale-unit-taken"];

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_any_point_sells_nothing_twice_and_leaves_no_lock() {
    break_at(failpoint::of_direct().collect(), &["--fenced"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_at_any_point_of_two_round_trips_sells_nothing_twice() {
    let points = failpoint::of_direct().filter(|point| point.starts_with("sale-"));
    break_at(points.filter(|point| !STEPWISE.contains(point)).collect(), &[]).await;
}

async fn break_at(points: Vec<&'static str>, fence: &'static [&'static str]) {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    // Makes vouchers, and stays well.
    let flags = ["--lab", "--lease-ms", LEASE_MS, "--lock-wait-ms", WAIT_MS];
    let flags = [&flags[..], fence, &["--work-ms", WORK_MS]].concat();
    let well = Arc::new(Service::start_at(place.clone(), &flags).await);
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let mut rounds = JoinSet::new();
    let all = points.into_iter().flat_map(|point| ACTIONS.map(|action| (point, action)));
    for (number, (point, (what, action))) in (1..).zip(all) {
        let (well, place) = (Arc::clone(&well), place.clone());
        let places = Arc::clone(&places);
        rounds.spawn(async move {
            let _place = places.acquire_owned().await.expect("it is never closed");
            let round = Round::begin(&well, place, (number, point), fence).await;
            round.run(&well, what, action).await;
        });
    }
    // A round that fails says which one it is.
    rounds.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_failpoints_serves_the_laboratory_only_and_knows_its_points() {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    for (flags, why) in [
        (&[][..], "built with failpoints, for the laboratory: it serves with --lab only"),
        (
            &["--lab", "--failpoints", "tulips=panic"],
            "unknown failpoint \"tulips\"; known: lock-before-",
        ),
        (&["--lab", "--failpoints", "lock-busy=return(1)"], "the only value to return is `kill`"),
        (&["--lab", "--failpoints", "lock-busy=shout"], "lock-busy: "),
    ] {
        let refused = app(&place, flags).await.err().expect("it does not start").to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn armed_failpoints_are_shown_wherever_the_laboratory_is() {
    let place = spawn_blocking(Place::fresh).await.expect("a place");
    let armed = "sale-committed=off; lock-busy=off";
    let flags = ["--lab", "--failpoints", armed];
    let service = Service::start_at(place, &flags).await;
    let all = "lab, dev, failpoints sale-committed lock-busy";
    let ready = service.call(Method::GET, "/readyz", None, None).await;
    assert_eq!(ready.headers["x-lab"], all);
    assert_eq!(ready.expect(200)["lab"], all);
    service.stop().await;
}

/// How often buyers come until the point is reached.
const RUSHES: u32 = 5;

struct Round {
    place: Place,
    /// Whose way to the database is the broken replica's.
    proxy: Proxy,
    through: Place,
    point: &'static str,
    fence: &'static [&'static str],
    voucher: String,
    /// Of this round only, since locks are by user.
    first_user: u64,
}

impl Round {
    async fn begin(
        well: &Service,
        place: Place,
        (number, point): (u64, &'static str),
        fence: &'static [&'static str],
    ) -> Self {
        let voucher = well.voucher(u32::try_from(STOCK).expect("few")).await;
        let (proxy, through) = place.database_through_proxy();
        Self { place, proxy, through, point, fence, voucher, first_user: number * 100 }
    }

    async fn run(mut self, well: &Service, what: &str, action: &str) {
        let context = format!("{what} at {}", self.point);
        println!("{context}");
        let spec = self.replica(action);
        let broken = spawn_blocking(|| servers().bed.replica(spec)).await.expect("no panic");
        let broken = broken.unwrap_or_else(|error| panic!("{context}: {error}"));
        if self.point == "sale-commit-in-doubt" {
            self.proxy.arm(Command::commit(), Fault::CutAnswer, Times::Next(1));
        }
        let mut rushes = 1;
        let tries = loop {
            let tries = self.rush(well, broken.base_url()).await;
            self.assert_borne_out(&tries, &context).await;
            if self.has_happened(&broken, what).await {
                break tries;
            }
            // On a busy machine all may be refused before a transaction.
            assert!(rushes < RUSHES, "{context}: not reached, {}", broken.log_tail(50));
            rushes += 1;
            self.voucher = well.voucher(u32::try_from(STOCK).expect("few")).await;
        };

        // Nothing is left to its lease for longer than that, and the rest can be sold.
        let mut again = JoinSet::new();
        for user in self.users() {
            let (url, voucher) = (well.url.clone(), self.voucher.clone());
            again.spawn(async move { buy_until_told(&url, &voucher, user).await });
        }
        let again = again.join_all().await;
        for tries in &again {
            let last = tries.last().expect("one at least");
            let words = last.words();
            assert!(last.fate() != Fate::Unknown, "{context}: {words}");
            assert!(!words.contains("order_in_progress"), "{context}: a lock stays: {words}");
        }
        let again = again.into_iter().flatten();
        let tries: Vec<Try> = tries.into_iter().chain(again).collect();
        let books = self.assert_borne_out(&tries, &context).await;
        assert_eq!(books.stock, 0, "{context}: not all is sold");
    }

    fn replica(&self, action: &str) -> ReplicaSpec {
        let flags = ["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0", "--db-pool", "6"];
        let lock = ["--lease-ms", LEASE_MS, "--lock-wait-ms", WAIT_MS];
        ReplicaSpec::new("broken", env!("CARGO_BIN_EXE_seckill"))
            .args(flags)
            .args(lock)
            .args(["--lab", "--work-ms", WORK_MS])
            .args(self.fence.iter().copied())
            .env("FAILPOINTS", format!("{}={action}", self.point))
            .env("DATABASE_URL", &self.through.database_url)
            .env("REDIS_URL", &self.place.redis_url)
            .env("JWT_SECRET", SECRET)
    }

    fn users(&self) -> impl Iterator<Item = u64> + use<> {
        self.first_user..self.first_user + BUYERS
    }

    /// One buys at the well replica; then all buy at the one that breaks, that one as well, who has
    /// to wait for the lock of another process.
    async fn rush(&self, well: &Service, broken: &str) -> Vec<Try> {
        let mut tasks = JoinSet::new();
        let mut buy = |url: &str, user: u64| {
            let (url, voucher) = (url.to_owned(), self.voucher.clone());
            tasks.spawn(async move { buy_at(&url, &voucher, user).await });
        };
        let redis = RedisSide::connect(&self.place.redis_url).await;
        buy(&well.url, self.first_user);
        let deadline = Instant::now() + Duration::from_secs(10);
        while !redis.has_lock(self.first_user).await {
            assert!(Instant::now() < deadline, "the lock is not taken");
            sleep(Duration::from_millis(2)).await;
        }
        self.users().for_each(|user| buy(broken, user));
        tasks.join_all().await
    }

    /// Whether the point was reached. What comes after the answer may be still to come.
    async fn has_happened(&self, broken: &Replica, what: &str) -> bool {
        let said = format!("failpoint {}", self.point);
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            if what == "kill" && !broken.is_running() {
                assert!(broken.log_tail(50).contains(&said), "{}", broken.log_tail(50));
                return true;
            }
            if what != "kill" && self.is_counted(broken).await {
                break;
            }
            if Instant::now() >= deadline {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        if what == "panic" {
            let said = format!("{said} panic");
            assert!(broken.log_tail(400).contains(&said), "{}", broken.log_tail(400));
        }
        true
    }

    async fn is_counted(&self, broken: &Replica) -> bool {
        assert!(broken.is_running(), "{}: {}", self.point, broken.log_tail(50));
        let reached = format!("distlock_failpoints_reached_total{{point=\"{}\"}}", self.point);
        let page = client().get(format!("{}/metrics", broken.base_url())).send().await;
        page.expect("an answer").text().await.expect("a page").contains(&reached)
    }

    /// What they were told is so; a killed transaction is rolled back first.
    async fn assert_borne_out(&self, tries: &[Try], context: &str) -> Books {
        let books = Books::read(&self.place.database_url, &self.voucher).await;
        books.add_up_to(STOCK);
        assert!(books.stock >= 0, "{context}: more is sold than there was");
        for user in self.users() {
            let orders = books.of(user);
            assert!(orders.len() <= 1, "{context}: {user} has {orders:?}");
            let fates = tries.iter().filter(|one| one.user == user).map(Try::fate);
            let mut all_refused = true;
            for fate in fates {
                if let Fate::Bought(order) = fate {
                    assert_eq!(orders, [order], "{context}: {user} was told of another");
                }
                all_refused &= fate == Fate::Refused;
            }
            assert!(!all_refused || orders.is_empty(), "{context}: {user} has {orders:?}");
        }
        books
    }
}
