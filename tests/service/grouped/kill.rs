//! A replica that is killed (SIGKILL) at random moments while it writes groups: no acknowledged
//! order is lost, nobody gets two, and the stock is exact after each kill. Whoever was not answered
//! asks again after the next start. Every second buyer has an `Idempotency-Key` and asks again with
//! it, some also when they were answered: they are told of the order that they have, or are judged
//! anew if they have none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testbed::Replica;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::crowd::{Books, Fate, Try, buy_at, buy_with_key};
use crate::replicas::spec;
use crate::support::{Place, Service, servers};

/// Kills, over all lanes.
const ROUNDS: u64 = 200;
/// Replicas that are killed side by side, each with a voucher of its own.
const LANES: u64 = 4;
/// New buyers of a round; those of the round before who were not answered ask again.
const BUYERS: u64 = 24;
/// Buyers with a key who were told of an order, and ask again in a round.
const REPEATS: usize = 4;
/// The last rounds of a lane sell out.
const STOCK: u32 = 1100;
/// The longest time between the answer that a kill waits for and the kill.
const PAUSE: Duration = Duration::from_millis(4);
/// Locks of the dead end soon, and are waited for.
const FLAGS: [&str; 7] =
    ["--writer", "grouped", "--allow-mixed", "--lease-ms", "600", "--lock-wait-ms", "4000"];

/// What became of those who asked.
#[derive(Default)]
struct Tally {
    /// Users with the order that they were told of.
    told: HashMap<u64, u64>,
    /// Answers that did not come, or say to try again.
    unanswered: u64,
    /// Kills that left something open.
    kills_amid: u64,
    /// Requests with a key that were told once more of the order that their user had.
    told_again: u64,
}

struct Lane {
    place: Place,
    replica: Replica,
    voucher: String,
    next_user: u64,
    /// Those with a key who were told of an order in the last round.
    told_last: Vec<u64>,
    /// Those who were not answered.
    open: Vec<u64>,
    /// Who had an order when the last round was over.
    had: HashSet<u64>,
    tally: Tally,
}

impl Lane {
    async fn rounds(mut self) -> Tally {
        for _ in 0..ROUNDS / LANES {
            let tries = self.rush(true).await;
            self.check(&tries).await;
            block_in_place(|| self.replica.restart()).expect("it starts again");
        }
        let (began, buyers) = (Instant::now(), self.next_user);
        while !self.open.is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "some are never answered");
            let tries = self.rush(false).await;
            self.check(&tries).await;
        }
        let books = Books::read(&self.place.database_url, &self.voucher).await;
        assert_eq!(books.stock, 0, "{buyers} asked for {STOCK}");
        for (user, order) in &self.tally.told {
            assert_eq!(books.of(*user), [*order], "an acknowledged order is lost");
        }
        self.tally
    }

    /// All buyers at once, new ones and those who were not answered; and a kill, if that is wanted,
    /// when a random number of them has been answered, and up to `PAUSE` later.
    async fn rush(&mut self, kill: bool) -> Vec<Try> {
        let mut users = std::mem::take(&mut self.open);
        if kill {
            users.extend(self.next_user..self.next_user + BUYERS);
            self.next_user += BUYERS;
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
                assert!(Instant::now() < deadline, "nobody is answered");
                sleep(Duration::from_millis(1)).await;
            }
            sleep(PAUSE * u32::try_from(random(1000)).expect("small") / 1000).await;
            block_in_place(|| self.replica.kill()).expect("it can be killed");
        }
        tries.join_all().await
    }

    /// Whether that user is none of those who came last.
    fn asked_before(&self, user: u64) -> bool {
        user + BUYERS < self.next_user
    }

    async fn check(&mut self, tries: &[Try]) {
        let books = Books::read(&self.place.database_url, &self.voucher).await;
        books.add_up_to(STOCK.into());
        assert!(books.stock >= 0, "{} left", books.stock);
        for one in tries {
            let orders = books.of(one.user);
            assert!(orders.len() <= 1, "{} has {orders:?}", one.user);
            match one.fate() {
                Fate::Bought(order) => {
                    assert_eq!(orders, [order]);
                    let had = self.had.contains(&one.user);
                    assert!(!had || key_of(one.user).is_some(), "{} bought twice", one.user);
                    self.tally.told_again += u64::from(had);
                    self.tally.told.insert(one.user, order);
                    if key_of(one.user).is_some() && !had {
                        self.told_last.push(one.user);
                    }
                }
                Fate::Refused if one.words() == "409 \"already_ordered\"" => {
                    assert_eq!(key_of(one.user), None, "{} is owed its answer", one.user);
                    assert_eq!(orders.len(), 1, "{} has none", one.user);
                }
                Fate::Refused if one.words() == "409 \"sold_out\"" => {
                    assert!(orders.is_empty(), "{} has {orders:?}", one.user);
                }
                // On a slow machine a short lease ends; or nobody answered.
                Fate::Refused => {
                    assert!(orders.is_empty() || self.asked_before(one.user), "{}", one.words());
                    self.open.push(one.user);
                }
                Fate::Unknown => self.open.push(one.user),
            }
        }
        self.had = books.orders.values().copied().collect();
        self.tally.unanswered += self.open.len() as u64;
        self.tally.kills_amid += u64::from(!self.open.is_empty());
    }
}

/// The key of all requests of that user, if they have one.
fn key_of(user: u64) -> Option<String> {
    user.is_multiple_of(2).then(|| format!("key-of-{user}"))
}

fn random(below: u64) -> u64 {
    getrandom::u64().expect("randomness") % below
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_killed_two_hundred_times_loses_no_order_and_sells_nothing_twice() {
    // Makes the schema and the vouchers; sells nothing.
    let clerk = Arc::new(Service::start(&["--allow-mixed"]).await);
    let mut lanes = JoinSet::new();
    for number in 0..LANES {
        let clerk = Arc::clone(&clerk);
        lanes.spawn(async move {
            let voucher = clerk.voucher(STOCK).await;
            let place = clerk.place.clone();
            let spec = spec(&place, &format!("killed-{number}"), &FLAGS);
            let replica = block_in_place(|| servers().bed.replica(spec)).expect("a replica");
            let next_user = 1 + number * 1_000_000;
            let (told_last, open, had) = (Vec::new(), Vec::new(), HashSet::new());
            let tally = Tally::default();
            Lane { place, replica, voucher, next_user, told_last, open, had, tally }.rounds().await
        });
    }
    let tallies = lanes.join_all().await;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let told = sum(|tally| tally.told.len() as u64);
    let (unanswered, amid) = (sum(|tally| tally.unanswered), sum(|tally| tally.kills_amid));
    let again = sum(|tally| tally.told_again);
    println!("{told} orders told, {unanswered} answers lost, {amid} of {ROUNDS} kills amid work");
    println!("{again} requests with a key were told once more of their order");
    assert!(amid * 4 > ROUNDS, "only {amid} kills came while something was under way");
    assert!(told > ROUNDS, "only {told} were ever told");
    assert!(again > ROUNDS / 4, "only {again} requests with a key were told again");
}
