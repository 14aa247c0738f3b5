//! The mode `queued`: a replica dies, panics or stands still at each step between the admission of
//! a purchase and the acknowledgement of its entry. Then another replica continues, and everything
//! ends as without the failure. A user who asked has one order, the poisonous entry is a dead
//! letter, and the queue has the database's stock and no entry. Witness: as in the rounds of the
//! direct mode.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seckill::failpoint;
use sqlx::{Connection, MySqlConnection};
use testbed::{Action as Fault, Command, Proxy, Replica, ReplicaSpec, Times};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet, block_in_place, spawn_blocking};
use tokio::time::sleep;

use crate::buyer::{
    QUEUED, QueueState, assert_settled, buy, end_of, ended, left, poison, ticket_of, try_to_buy,
};
use crate::support::{Place, SECRET, Service, client, eventually, servers};

/// Longer than it takes others to take over an entry.
const STANDSTILL: &str = "1*sleep(4500)";
/// What happens at the point.
const ACTIONS: [(&str, &str); 3] =
    [("kill", "return(kill)"), ("panic", "1*panic"), ("stand still", STANDSTILL)];
const STOCK: u32 = 8;
/// The users that can buy, and those that cannot.
const USERS: std::ops::Range<u64> = 1..5;
const POISONED: u64 = 5;
/// Rounds at a time: most of a round is waiting.
const AT_A_TIME: usize = 12;
/// Longer than a poisonous entry takes to die.
const DEADLINE: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_between_admission_and_acknowledgement_changes_no_outcome() {
    let places = Arc::new(Semaphore::new(AT_A_TIME));
    let undisturbed = ("queue-admitted", ("nothing", "off"));
    let all = failpoint::of_queued().flat_map(|point| ACTIONS.map(|action| (point, action)));
    let all = [undisturbed].into_iter().chain(all);
    // In one thread: what a round awaits need not be sent to another.
    let rounds = async {
        let mut rounds = JoinSet::new();
        for (point, (what, action)) in all {
            let places = Arc::clone(&places);
            rounds.spawn_local(async move {
                let _place = places.acquire_owned().await.expect("it is never closed");
                println!("{what} at {point}");
                Round::begin(point).await.run(what, action).await;
            });
        }
        // A round that fails says which one it is.
        rounds.join_all().await;
    };
    LocalSet::new().run_until(rounds).await;
}

struct Round {
    place: Place,
    /// Whose way to the database is the broken replica's.
    proxy: Proxy,
    through: Place,
    point: &'static str,
    voucher: String,
}

impl Round {
    async fn begin(point: &'static str) -> Self {
        let place = spawn_blocking(Place::fresh).await.expect("a place");
        // It makes the schema and the voucher, and works on no queue.
        let clerk = Service::start_at(place.clone(), &["--lab"]).await;
        let voucher = clerk.voucher(STOCK).await;
        clerk.stop().await;
        poison(&place, POISONED).await;
        let (proxy, through) = place.database_through_proxy();
        Self { place, proxy, through, point, voucher }
    }

    async fn run(self, what: &str, action: &str) {
        let context = format!("{what} at {}", self.point);
        let spec = self.replica(action);
        let broken = spawn_blocking(|| servers().bed.replica(spec)).await.expect("no panic");
        let broken = broken.unwrap_or_else(|error| panic!("{context}: {error}"));
        if self.point == "sale-commit-in-doubt" {
            let commit = Command::sql("UPDATE voucher_stock").containing("COMMIT");
            self.proxy.arm(commit, Fault::CutAnswer, Times::Next(1));
        }
        let tickets = self.rush(broken.base_url()).await;
        if what != "nothing" {
            self.assert_happened(&broken, what).await;
        }
        let flags = [&QUEUED[..], &["--lab", "--replica-id", "well"]].concat();
        let well = Service::start_at(self.place.clone(), &flags).await;
        // Those of the rush that were told, or had no answer, may come again.
        let mut refusals = USERS.chain([POISONED]).count() - tickets.len();
        let mut ends = JoinSet::new();
        for user in USERS.chain([POISONED]) {
            let (url, voucher) = (well.url.clone(), self.voucher.clone());
            let ticket = tickets.get(&user).cloned();
            ends.spawn(async move {
                let (end, refusals) = match ticket {
                    Some(ticket) => (end_of(&url, &ticket, user).await.0, 0),
                    None => until_ended(&url, &voucher, user).await,
                };
                (user, end, refusals)
            });
        }
        let ends = ends.join_all().await;
        let letters = letters(&self.place).await;
        for (user, end, again) in ends {
            refusals += again;
            let expected = if user == POISONED { "dead" } else { "bought" };
            assert_eq!(end, expected, "{context}: {user}; dead letters: {letters:?}");
        }
        self.assert_ended(refusals, &context).await;
        well.stop().await;
    }

    fn replica(&self, action: &str) -> ReplicaSpec {
        let flags = ["serve", "--bind", "127.0.0.1:0", "--drain-delay-ms", "0", "--db-pool", "6"];
        ReplicaSpec::new("broken", env!("CARGO_BIN_EXE_seckill"))
            .args(flags)
            .args(QUEUED)
            .args(["--lab", "--replica-id", "broken"])
            .env("FAILPOINTS", format!("{}={action}", self.point))
            .env("DATABASE_URL", &self.through.database_url)
            .env("REDIS_URL", &self.place.redis_url)
            .env("JWT_SECRET", SECRET)
    }

    /// All ask at once; the tickets of those who are answered.
    async fn rush(&self, url: &str) -> HashMap<u64, String> {
        let mut tasks = JoinSet::new();
        for user in USERS.chain([POISONED]) {
            let (url, voucher) = (url.to_owned(), self.voucher.clone());
            tasks.spawn(async move { (user, try_to_buy(&url, &voucher, user).await) });
        }
        let answers = tasks.join_all().await.into_iter();
        let answered = answers.filter_map(|(user, answer)| Some((user, answer?)));
        let admitted = answered.filter(|(_, answer)| answer.status.as_u16() == 202);
        admitted.map(|(user, answer)| (user, ticket_of(answer))).collect()
    }

    async fn assert_happened(&self, broken: &Replica, what: &str) {
        let began = Instant::now();
        let reached = format!("distlock_failpoints_reached_total{{point=\"{}\"}}", self.point);
        loop {
            let happened = if what == "kill" {
                !broken.is_running()
            } else {
                let page = client().get(format!("{}/metrics", broken.base_url())).send().await;
                let page = page.expect("an answer").text().await.expect("a page");
                page.contains(&reached)
            };
            if happened {
                break;
            }
            let log = broken.log_tail(30);
            assert!(began.elapsed() < DEADLINE, "{what} at {}: not reached: {log}", self.point);
            sleep(Duration::from_millis(20)).await;
        }
        let said = format!("failpoint {}", self.point);
        eventually(&said, async || broken.log_tail(400).contains(&said)).await;
    }

    /// As it is without anything happening. A buyer who was refused has a ticket that ended so: its
    /// admission was not answered in time, as on a machine that stands still.
    async fn assert_ended(&self, refusals: usize, context: &str) {
        let books = assert_settled(&self.place, &self.voucher, &[], STOCK.into()).await;
        let buyers = USERS.end - USERS.start;
        assert_eq!(books.orders.len() as u64, buyers, "{context}");
        let rest = QueueState { stock: books.stock, entries: 0, users: buyers };
        let settled = format!("{context}: {rest:?}");
        eventually(&settled, async || left(&self.place, &self.voucher).await == rest).await;
        let bought = i64::try_from(buyers).expect("few");
        let mut all = ended(&self.place, &self.voucher).await;
        let refused = all.remove("refused").unwrap_or(0);
        let told = i64::try_from(refusals).expect("few");
        assert!(refused <= told, "{context}: {refused} refused, {told} told");
        let ends = [("bought".to_owned(), bought), ("dead".to_owned(), 1)].into();
        assert_eq!(all, ends, "{context}");
    }
}

/// The dead letters, each with its reason.
async fn letters(place: &Place) -> Vec<(u64, String)> {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let letters = sqlx::query_as("SELECT user_id, reason FROM dead_letters");
    letters.fetch_all(&mut database).await.expect("the letters")
}

/// A process of which nothing is left cannot count, so it has done that before.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_kills_every_process_is_a_dead_letter_after_five_counted_tries() {
    let round = Round::begin("sale-begun").await;
    let spec = round.replica("return(kill)");
    let replica = spawn_blocking(|| servers().bed.replica(spec)).await.expect("no panic");
    let replica = replica.expect("a replica");
    let ticket = ticket_of(buy(replica.base_url(), &round.voucher, 1).await);
    let mut deaths = 0;
    let began = Instant::now();
    while letters(&round.place).await.is_empty() {
        assert!(began.elapsed() < DEADLINE, "it never dies, after {deaths} deaths");
        if !replica.is_running() {
            deaths += 1;
            // It may be dead before it is ready.
            let _ready_or_dead = block_in_place(|| replica.restart());
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(letters(&round.place).await, [(1, "tried too often".to_owned())]);
    // The first one was not counted: it might have been any of those that were tried with it.
    assert_eq!(deaths, 6);
    assert_eq!(end_of(replica.base_url(), &ticket, 1).await, ("dead".to_owned(), None));
    let given_back = QueueState { stock: STOCK.into(), entries: 0, users: 0 };
    eventually("it is given back", async || left(&round.place, &round.voucher).await == given_back)
        .await;
}

/// Asks until the purchase is admitted, or was; how it ended, and the number of refusals before.
async fn until_ended(url: &str, voucher: &str, user: u64) -> (String, usize) {
    let began = Instant::now();
    let mut refusals = 0;
    loop {
        let answer = buy(url, voucher, user).await;
        match answer.status.as_u16() {
            202 => return (end_of(url, &ticket_of(answer), user).await.0, refusals),
            409 if answer.body["code"] == "already_ordered" => {
                return ("bought".to_owned(), refusals);
            }
            _ => assert!(began.elapsed() < DEADLINE, "{user}: {}", answer.body),
        }
        refusals += 1;
        sleep(Duration::from_millis(50)).await;
    }
}
