//! Replicas that are killed (SIGKILL) at random moments while they write orders. No acknowledged
//! order is lost, no user gets two, and the stock is exact after each kill. A buyer without an
//! answer asks again after the next start. Every second buyer has an `Idempotency-Key` and asks
//! again with it, some also after an answer. They are told of the order that they have, or are
//! judged anew if they have none.
//!
//! The same holds for the writer `grouped` and for the mode `queued`, whose tickets are followed to
//! their ends after the next start. None is lost, for Redis loses nothing here, and none stays
//! pending. There each replica works on the queues of all, so what one of them had taken is taken
//! over by the others as well.
//!
//! `make kill-rounds` has 200 kills for each; `KILL_ROUNDS` says how many otherwise.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testbed::Replica;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::crowd::{Books, Fate, Try, buy_at, buy_with_key};
use crate::queued::buyer::{QueueState, end_of, ended, left, redis};
use crate::replicas::spec;
use crate::support::{Place, Service, servers};

/// Replicas that are killed side by side, each with a voucher of its own.
const LANES: u64 = 4;
/// New buyers of a round; those of the round before who were not answered ask again.
const BUYERS: u64 = 24;
/// Units for each round of a lane: the last rounds sell out.
const UNITS: u64 = 22;
/// Buyers with a key who were told of an order, and ask again in a round.
const REPEATS: usize = 4;
/// Longer than it takes to sell what is left after the last kill, and to answer all.
const DEADLINE: Duration = Duration::from_mins(1);

/// What is killed, and how often.
#[derive(Clone, Copy)]
struct Run {
    flags: &'static [&'static str],
    kills: u64,
    /// How many buckets the stock of each voucher is in.
    stock_buckets: u32,
    /// The longest time between the answer that a kill waits for and the kill.
    pause: Duration,
}

/// Locks of the dead end soon, and are waited for.
const GROUPED: Run = Run {
    flags: &["--writer", "grouped", "--allow-mixed", "--lease-ms", "600", "--lock-wait-ms", "4000"],
    kills: 200,
    stock_buckets: 1,
    pause: Duration::from_millis(4),
};
/// A purchase is answered before its order is written.
const QUEUED: Run = Run {
    flags: &["--mode", "queued", "--writer", "grouped", "--allow-mixed"],
    kills: 12,
    stock_buckets: 1,
    pause: Duration::from_millis(20),
};

/// Each order takes its unit from one of 8 rows, until one is empty and all are gathered.
const BUCKETS: Run = Run {
    flags: &["--allow-mixed", "--lease-ms", "600", "--lock-wait-ms", "4000"],
    kills: 40,
    stock_buckets: 8,
    ..GROUPED
};

/// What became of those who asked.
#[derive(Default)]
struct Tally {
    /// Users with the order that they were told of.
    told: HashMap<u64, u64>,
    /// Answers that did not come, or say to try again.
    unanswered: u64,
    /// Kills that left something open: requests without an answer, tickets on their way.
    kills_amid: u64,
    /// The latter of these.
    kills_amid_tickets: u64,
    /// Requests with a key that were told once more of the order that their user had.
    told_again: u64,
    /// Tickets that were followed, by their ends.
    tickets: HashMap<String, u64>,
}

/// How a purchase went; one with a ticket, when that had ended.
struct PurchaseReport {
    user: u64,
    fate: Fate,
    words: String,
}

struct Lane {
    run: Run,
    place: Place,
    replica: Replica,
    voucher: String,
    next_user: u64,
    /// Those with a key who were told of an order in the last round.
    told_last: Vec<u64>,
    /// Users without an answer.
    open: Vec<u64>,
    /// Users with an order at the end of the last round.
    had: HashSet<u64>,
    tally: Tally,
}

impl Lane {
    async fn rounds(mut self) -> Tally {
        for _ in 0..self.kills() {
            let tries = self.rush(true).await;
            let amid_tickets = self.entries().await > 0;
            block_in_place(|| self.replica.restart()).expect("it starts again");
            let told = self.follow(tries).await;
            self.check(&told).await;
            let amid = amid_tickets || !self.open.is_empty();
            self.tally.kills_amid += u64::from(amid);
            self.tally.kills_amid_tickets += u64::from(amid_tickets);
        }
        let began = Instant::now();
        loop {
            if self.open.is_empty() {
                let books = Books::read(&self.place.database_url, &self.voucher).await;
                if books.stock == 0 {
                    break;
                }
                self.open = self.new_users();
            }
            assert!(began.elapsed() < DEADLINE, "never all are answered and all is sold");
            let tries = self.rush(false).await;
            let told = self.follow(tries).await;
            self.check(&told).await;
        }
        self.assert_ended().await;
        self.tally
    }

    /// Of this replica.
    fn kills(&self) -> u64 {
        self.run.kills.div_ceil(LANES)
    }

    fn stock(&self) -> u64 {
        self.kills() * UNITS
    }

    fn is_queued(&self) -> bool {
        self.run.flags.contains(&"queued")
    }

    /// All is sold, to those who were told so; and of tickets nothing is left to do.
    async fn assert_ended(&self) {
        let books = Books::read(&self.place.database_url, &self.voucher).await;
        for (user, order) in &self.tally.told {
            assert_eq!(books.of(*user), [*order], "an acknowledged order is lost");
        }
        if !self.is_queued() {
            return;
        }
        let rest = QueueState { stock: 0, entries: 0, users: self.stock() };
        let began = Instant::now();
        while left(&self.place, &self.voucher).await != rest {
            assert!(began.elapsed() < DEADLINE, "some entries are never acknowledged");
            sleep(Duration::from_millis(20)).await;
        }
        let mut states = redis::cmd("HVALS");
        states.arg(format!("{{v:{}}}:tickets", self.voucher));
        let states: Vec<String> =
            states.query_async(&mut redis(&self.place).await).await.expect("the tickets");
        assert!(!states.iter().any(|state| state == "pending"), "some are pending for ever");
        let ends = ended(&self.place, &self.voucher).await;
        assert_eq!(ends["bought"].unsigned_abs(), self.stock(), "{ends:?}");
        assert_eq!(ends.get("lost"), None, "{ends:?}");
    }

    /// Entries of the stream: tickets that are on their way.
    async fn entries(&self) -> u64 {
        let mut length = redis::cmd("XLEN");
        length.arg(format!("{{v:{}}}:stream", self.voucher));
        length.query_async(&mut redis(&self.place).await).await.expect("an answer")
    }

    fn new_users(&mut self) -> Vec<u64> {
        let first = self.next_user;
        self.next_user += BUYERS;
        (first..self.next_user).collect()
    }

    /// All buyers at once, new ones and those without an answer. If a kill is wanted, it comes when
    /// a random number of them has been answered, and up to the run's pause later.
    async fn rush(&mut self, kill: bool) -> Vec<Try> {
        let mut users = std::mem::take(&mut self.open);
        if kill {
            users.extend(self.new_users());
            users.extend(std::mem::take(&mut self.told_last).into_iter().take(REPEATS));
        }
        let buyers = users.len() as u64;
        let answered = Arc::<AtomicU64>::default();
        let mut tries = JoinSet::new();
        for user in users {
            let (url, voucher) = (self.replica.base_url().to_owned(), self.voucher.clone());
            let answered = Arc::clone(&answered);
            tries.spawn(async move {
                let one = match key_of(user) {
                    Some(key) => buy_with_key(&url, &voucher, user, &key).await,
                    None => buy_at(&url, &voucher, user).await,
                };
                answered.fetch_add(1, Ordering::Relaxed);
                one
            });
        }
        if kill {
            let wanted = random(buyers);
            let deadline = Instant::now() + Duration::from_secs(20);
            while answered.load(Ordering::Relaxed) < wanted {
                assert!(Instant::now() < deadline, "no buyer is answered");
                sleep(Duration::from_millis(1)).await;
            }
            let part = u32::try_from(random(1000)).expect("small");
            sleep(self.run.pause * part / 1000).await;
            block_in_place(|| self.replica.kill()).expect("it can be killed");
        }
        tries.join_all().await
    }

    /// Whether that user is none of those who came last.
    fn asked_before(&self, user: u64) -> bool {
        user + BUYERS < self.next_user
    }

    /// Follows the tickets among the answers to their ends.
    async fn follow(&mut self, tries: Vec<Try>) -> Vec<PurchaseReport> {
        let mut all = JoinSet::new();
        for one in tries {
            let url = self.replica.base_url().to_owned();
            all.spawn(async move {
                let (user, fate, words) = (one.user, one.fate(), one.words());
                let Some(ticket) = ticket_of(&one) else {
                    return (PurchaseReport { user, fate, words }, None);
                };
                let (end, order) = end_of(&url, &ticket, user).await;
                let fate = match order {
                    Some(order) if end == "bought" => Fate::Bought(order),
                    _ => Fate::Refused,
                };
                (PurchaseReport { user, fate, words: format!("ticket {end}") }, Some(end))
            });
        }
        let mut told = Vec::new();
        for (one, end) in all.join_all().await {
            if let Some(end) = end {
                *self.tally.tickets.entry(end).or_default() += 1;
            }
            told.push(one);
        }
        told
    }

    async fn check(&mut self, told: &[PurchaseReport]) {
        let books = Books::read(&self.place.database_url, &self.voucher).await;
        books.add_up_to(i64::try_from(self.stock()).expect("few"));
        assert!(books.stock >= 0, "{} left", books.stock);
        for PurchaseReport { user, fate, words } in told {
            let (user, orders) = (*user, books.of(*user));
            assert!(orders.len() <= 1, "{user} has {orders:?}");
            match (fate, words.as_str()) {
                (Fate::Bought(order), _) => {
                    assert_eq!(orders, [*order]);
                    let had = self.had.contains(&user);
                    assert!(!had || key_of(user).is_some(), "{user} bought twice");
                    self.tally.told_again += u64::from(had);
                    self.tally.told.insert(user, *order);
                    if key_of(user).is_some() && !had {
                        self.told_last.push(user);
                    }
                }
                (Fate::Refused, "409 \"already_ordered\"") => {
                    assert_eq!(key_of(user), None, "{user} is owed its answer");
                    assert_eq!(orders.len(), 1, "{user} has none");
                }
                (Fate::Refused, "409 \"sold_out\"") => {
                    assert!(orders.is_empty(), "{user} has {orders:?}");
                }
                (Fate::Refused, end) if end.starts_with("ticket") => {
                    assert!(["ticket refused", "ticket dead"].contains(&end), "{user}: {end}");
                    assert!(orders.is_empty(), "{user}: {end}, and {orders:?}");
                    self.open.push(user);
                }
                // On a slow machine a short lease ends; or no answer came.
                (Fate::Refused, words) => {
                    assert!(orders.is_empty() || self.asked_before(user), "{words}");
                    self.open.push(user);
                }
                (Fate::Unknown, _) => self.open.push(user),
            }
        }
        self.had = books.orders.values().copied().collect();
        self.tally.unanswered += self.open.len() as u64;
    }
}

/// The key of all requests of that user, if they have one.
fn key_of(user: u64) -> Option<String> {
    user.is_multiple_of(2).then(|| format!("key-of-{user}"))
}

fn random(below: u64) -> u64 {
    getrandom::u64().expect("randomness") % below
}

/// The ticket in an answer that says 202.
fn ticket_of(one: &Try) -> Option<String> {
    let answer = one.answer.as_ref().ok().filter(|answer| answer.status.as_u16() == 202)?;
    Some(answer.body["ticket"]["id"].as_str().expect("a ticket").to_owned())
}

/// All lanes of a run, to their ends; their tallies.
async fn lanes_of(run: Run) -> (u64, Vec<Tally>) {
    let kills = std::env::var("KILL_ROUNDS").ok();
    let kills = kills.map_or(run.kills, |kills| kills.parse().expect("KILL_ROUNDS is a number"));
    let run = Run { kills, ..run };
    // Makes the schema and the vouchers; sells nothing.
    let clerk = Arc::new(Service::start(&["--allow-mixed"]).await);
    let mut lanes = JoinSet::new();
    for number in 0..LANES {
        let clerk = Arc::clone(&clerk);
        lanes.spawn(async move {
            let place = clerk.place.clone();
            let spec = spec(&place, &format!("killed-{number}"), run.flags);
            let replica = block_in_place(|| servers().bed.replica(spec)).expect("a replica");
            let mut lane = Lane {
                run,
                place,
                replica,
                voucher: String::new(),
                next_user: 1 + number * 1_000_000,
                told_last: Vec::new(),
                open: Vec::new(),
                had: HashSet::new(),
                tally: Tally::default(),
            };
            let stock = u32::try_from(lane.stock()).expect("few");
            lane.voucher = clerk.voucher_in_buckets(stock, run.stock_buckets).await;
            lane.rounds().await
        });
    }
    (run.kills, lanes.join_all().await)
}

/// What both have to have seen.
fn report(kills: u64, tallies: &[Tally]) {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let told = sum(|tally| tally.told.len() as u64);
    let (unanswered, amid) = (sum(|tally| tally.unanswered), sum(|tally| tally.kills_amid));
    let again = sum(|tally| tally.told_again);
    println!("{told} orders told, {unanswered} answers lost, {amid} of {kills} kills amid work");
    println!("{again} requests with a key were told once more of their order");
    assert!(amid >= (kills / 8).max(1), "only {amid} kills came while something was under way");
    assert!(told > kills, "only {told} were ever told");
    assert!(again > kills / 4, "only {again} requests with a key were told again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_two_hundred_times_loses_no_order_and_sells_nothing_twice() {
    let (kills, tallies) = lanes_of(GROUPED).await;
    report(kills, &tallies);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_replica_leaves_the_stock_in_buckets_exact_and_all_of_it_is_sold() {
    let (kills, tallies) = lanes_of(BUCKETS).await;
    report(kills, &tallies);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_killed_with_tickets_on_their_way_leave_none_pending_and_lose_no_order() {
    let (kills, tallies) = lanes_of(QUEUED).await;
    report(kills, &tallies);
    let amid = tallies.iter().map(|tally| tally.kills_amid_tickets).sum::<u64>();
    let mut tickets = HashMap::<&str, u64>::new();
    for (end, count) in tallies.iter().flat_map(|tally| &tally.tickets) {
        *tickets.entry(end).or_default() += count;
    }
    println!("{amid} of {kills} kills with tickets on their way; followed: {tickets:?}");
    assert!(amid >= (kills / 8).max(1), "only {amid} kills came while tickets were on their way");
    assert!(tickets["bought"] > kills, "{tickets:?}");
}
