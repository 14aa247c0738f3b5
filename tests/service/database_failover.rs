//! The primary of a replicated database is lost in the middle of a sale, again and again, and a
//! replica takes its place. The service follows it without a restart. The old primary comes back
//! read-only, as a replica, before the next round.
//!
//! Semi-synchronous: no acknowledged order is lost. Asynchronous: what the replica had not
//! received is.
//!
//! `make failover-rounds` has 200 failovers; `FAILOVER_ROUNDS` says how many otherwise.

use std::time::{Duration, Instant};

use seckill::store::{DatabaseOptions, StoreError, Transaction, database};
use sqlx::{Connection, MySqlConnection, MySqlPool, Row};
use testbed::{Direction, Flavor, ReplicatedDatabase, Replication, Stopwatch};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::crowd::{Books, Crowd, Fate, Try, buy_at};
use crate::replicas::spec;
use crate::support::{Place, Service, make_admins, servers};

/// The name of the database.
pub(crate) const SHOP: &str = "shop";
pub(crate) const STOCK: u32 = 1_000_000;
pub(crate) const CROWD: u32 = 16;
/// After the promotion, for the connections of a pool to lead to the new primary, in half of the
/// rounds of each way to lose one. A machine that stands still makes single rounds longer.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);
/// After the promotion, for a purchase to succeed in half of those rounds. The promise is that of
/// the connections; the rest is for the purchase on a busy machine.
const BOUGHT_WITHIN: Duration = Duration::from_secs(4);
/// After the promotion, for a purchase to succeed in each round, even if the machine stood still.
const FOLLOWED_AT_LAST: Duration = Duration::from_mins(1);
/// A call is given up after this; then the service finds out what became of its order.
const CALL: Duration = Duration::from_secs(5);
const REFUSAL_INTERVAL: Duration = Duration::from_millis(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
const TRIES: u32 = 5;
/// The looks of a pool at its primary while that is frozen, of which some wait for it.
const LOOKS: u64 = 8;

pub(crate) struct Sale {
    pub(crate) group: ReplicatedDatabase,
    service: Service,
    voucher: String,
    pub(crate) crowd: Crowd,
    next_user: u64,
    /// As the service has.
    pool: MySqlPool,
}

/// How long after a promotion each went on.
#[derive(Default)]
struct FollowTimes {
    /// The pool's connections lead to the new primary.
    pool: Vec<Duration>,
    /// A buyer got a unit.
    buyer: Vec<Duration>,
}

impl Sale {
    pub(crate) async fn start(replication: Replication) -> Self {
        let (group, place) = block_in_place(|| {
            let group = servers().bed.replicated(Flavor::Any, replication, 1).expect("a pair");
            group.primary().create_database(SHOP).expect("a database");
            make_admins(&group.primary_url(SHOP));
            let place = Place { database_url: group.url(SHOP), ..Place::fresh() };
            (group, place)
        });
        let service = Service::start_at(place, &["--writer", "grouped"]).await;
        let voucher = service.voucher(STOCK).await;
        let crowd = Crowd::start(&service.url, &voucher, CROWD);
        crowd.until_bought(20).await;
        let pool = pool_of(&group, 2).await;
        Self { group, service, voucher, crowd, next_user: 2, pool }
    }

    /// The replica hears nothing more; what is answered from then on it has not.
    pub(crate) async fn cut_off_the_replica(&self) {
        self.group.links().for_each(|link| link.set_swallowing(Direction::ToClient, true));
        let swallowed = || self.group.links().any(|link| link.counts().swallowed_to_client > 0);
        let began = Instant::now();
        while !swallowed() {
            assert!(began.elapsed() < Duration::from_secs(10), "the primary says nothing");
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Promotes the replica; how long it then takes until the pool leads there, and until a buyer
    /// gets a unit.
    pub(crate) async fn fail_over(&mut self) -> [Duration; 2] {
        block_in_place(|| self.group.fail_over().map(drop)).expect("the replica is promoted");
        let promoted = Stopwatch::start();
        let (pool, port) = (self.pool.clone(), self.group.primary().addr().port());
        let leads_there = async {
            while pool.connect_options().get_port() != port {
                assert!(promoted.elapsed() < FOLLOWED_AT_LAST, "the pool stays at the old primary");
                sleep(LOOK_INTERVAL).await;
            }
            promoted.elapsed()
        };
        tokio::join!(leads_there, self.buys_again(&promoted)).into()
    }

    async fn buys_again(&mut self, promoted: &Stopwatch) -> Duration {
        loop {
            self.next_user += 1;
            let one = buy_at(&self.service.url, &self.voucher, self.next_user).await;
            match one.fate() {
                Fate::Bought(_) => return promoted.elapsed(),
                Fate::Refused => assert!(promoted.elapsed() < FOLLOWED_AT_LAST, "{}", one.words()),
                Fate::Unknown => panic!("no outcome: {}", one.words()),
            }
            sleep(REFUSAL_INTERVAL).await;
        }
    }

    pub(crate) async fn end(self) -> (Books, Vec<Try>) {
        let tries = self.crowd.end().await;
        let books = Books::read(&self.group.primary_url(SHOP), &self.voucher).await;
        self.service.stop().await;
        (books, tries)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_order_is_lost_when_a_semi_synchronous_primary_is() {
    let rounds = std::env::var("FAILOVER_ROUNDS").ok();
    let rounds: u64 = rounds.map_or(4, |rounds| rounds.parse().expect("a number"));
    let mut sale = Sale::start(Replication::SemiSync).await;
    // After a kill, and after a freeze.
    let mut followed = [FollowTimes::default(), FollowTimes::default()];
    for round in 0..rounds {
        let lost = sale.group.primary().clone();
        // Every second replica lags when its primary is lost.
        if round % 2 == 1 {
            sale.cut_off_the_replica().await;
        }
        sleep(Duration::from_millis(getrandom::u64().expect("randomness") % 40)).await;
        // Every third primary is frozen, so its connections stay open.
        let freezes = round % 3 == 2;
        let struck = if freezes { lost.freeze() } else { lost.kill() };
        struck.expect("it is lost");
        let [pool, buyer] = sale.fail_over().await;
        followed[usize::from(freezes)].pool.push(pool);
        followed[usize::from(freezes)].buyer.push(buyer);
        sale.crowd.until_bought(20).await;
        block_in_place(|| sale.group.rejoin(&lost)).expect("it forgets what was not confirmed");
        assert_is_refused(&sale, &lost).await;
        sale.crowd.until_bought(20).await;
        if round % 20 == 19 {
            println!("{} failovers", round + 1);
        }
    }
    let (books, tries) = sale.end().await;
    books.add_up_to(STOCK.into());
    books.bear_out(&tries);
    let told = tries.iter().filter(|one| matches!(one.fate(), Fate::Bought(_))).count();
    let unknown = tries.iter().filter(|one| one.fate() == Fate::Unknown).count();
    assert!(unknown <= tries.len() / 100, "{unknown} of {} outcomes are unknown", tries.len());
    println!(
        "{rounds} failovers: {told} acknowledged orders, none lost; \
         {unknown} of {} answers unknown",
        tries.len()
    );
    for (how, followed) in ["killed", "frozen"].into_iter().zip(followed) {
        let count = followed.pool.len();
        let medians = [followed.pool, followed.buyer].map(median_and_longest);
        let [Some((pool, pool_at_most)), Some((buyer, buyer_at_most))] = medians else { continue };
        println!("{how}: the pool followed after {pool:?} (median) to {pool_at_most:?}");
        // A single time may be that of a machine that stood still.
        let follows_within = if count < 3 { BOUGHT_WITHIN } else { FOLLOWED_WITHIN };
        println!("{how}: a buyer bought again after {buyer:?} (median) to {buyer_at_most:?}");
        assert!(pool < follows_within && buyer < BOUGHT_WITHIN, "{how}: {pool:?}, {buyer:?}");
    }
}

fn median_and_longest(mut times: Vec<Duration>) -> Option<(Duration, Duration)> {
    times.sort();
    Some((*times.get(times.len() / 2)?, *times.last()?))
}

/// A pool as the service has, of that many connections.
async fn pool_of(group: &ReplicatedDatabase, pool_size: u32) -> MySqlPool {
    let options = DatabaseOptions { url: group.url(SHOP), pool_size, naive: false, silence: None };
    database(&options).await.expect("a pool")
}

/// The old primary is read-only now: the service's account cannot write to it.
async fn assert_is_refused(sale: &Sale, old: &testbed::Database) {
    let current = sale.group.primary().addr().to_string();
    let url = sale.group.primary_url(SHOP).replace(&current, &old.addr().to_string());
    let mut session = MySqlConnection::connect(&url).await.expect("it lets clients in");
    let written = sqlx::query("UPDATE voucher_stock SET stock = 0").execute(&mut session).await;
    let error = written.expect_err("it is read-only").to_string();
    assert!(error.contains("read-only option"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asynchronous_primary_takes_acknowledged_orders_with_it() {
    let mut sale = Sale::start(Replication::Async).await;
    sale.cut_off_the_replica().await;
    sale.crowd.until_bought(20).await;
    let old = sale.group.primary().clone();
    old.kill().expect("it is lost");
    sale.fail_over().await;
    if old.flavor() == Flavor::MySql {
        let refused = block_in_place(|| sale.group.rejoin(&old)).expect_err("it has more");
        assert!(refused.to_string().contains("does not replicate"), "{refused}");
    }
    let (books, tries) = sale.end().await;
    books.add_up_to(STOCK.into());
    let lost = |one: &&Try| matches!(one.fate(), Fate::Bought(_)) && books.of(one.user).is_empty();
    let lost = tries.iter().filter(lost).count();
    println!("{lost} acknowledged orders are lost");
    assert!(lost >= 19, "{lost} are lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_starts_while_another_server_of_its_database_is_silent() {
    let sale = Sale::start(Replication::SemiSync).await;
    let Sale { group, service, voucher, crowd, .. } = sale;
    let place = service.place.clone();
    crowd.end().await;
    service.stop().await;
    // The one that is named first, which was the primary.
    group.primary().freeze().expect("it is frozen");
    block_in_place(|| group.fail_over().map(drop)).expect("the replica is promoted");
    for (user, flags) in [(2, &[][..]), (3, &["--no-migrate"])] {
        let service = Service::start_at(place.clone(), flags).await;
        let one = buy_at(&service.url, &voucher, user).await;
        assert!(matches!(one.fate(), Fate::Bought(_)), "{flags:?}: {}", one.words());
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_take_writes_are_logged_and_neither_is_chosen() {
    let sale = Sale::start(Replication::Async).await;
    let Sale { group, service, voucher, crowd, .. } = sale;
    let place = service.place.clone();
    crowd.end().await;
    service.stop().await;
    let replica_of = |name| servers().bed.replica(spec(&place, name, &["--no-migrate"]));
    let replica = block_in_place(|| replica_of("before")).expect("one takes writes");
    let log = || std::fs::read_to_string(replica.log_path()).expect("its log");
    let told = "not exactly one database server takes writes";
    assert!(!log().contains(told), "{}", log());
    let second = &group.servers()[1];
    block_in_place(|| second.promote().and_then(|()| second.allow_writes())).expect("a primary");
    // By each of its two pools.
    let began = Instant::now();
    while log().matches(told).count() < 2 {
        assert!(began.elapsed() < FOLLOWED_AT_LAST, "{}", log());
        sleep(REFUSAL_INTERVAL).await;
    }
    let one = buy_at(replica.base_url(), &voucher, 2).await;
    assert!(matches!(one.fate(), Fate::Bought(_)), "it stays with its own: {}", one.words());
    // On a machine that stands still one of them may answer too late to be seen.
    let mut started = 0;
    let refused = loop {
        match block_in_place(|| replica_of("after")) {
            Err(refused) => break refused,
            Ok(_) => started += 1,
        }
        assert!(started < 5, "which one is the primary?");
    };
    let words = refused.to_string();
    assert!(words.contains("several of the database's servers take writes"), "{words}");
}

/// A COMMIT that waits there for 5 s keeps its buyers waiting, though others can buy long before.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_a_frozen_primary_once_the_pool_leads_elsewhere() {
    let mut waits = Vec::new();
    // On a machine that stands still all may take longer.
    for _ in 0..TRIES {
        waits.push(wait_at_a_frozen_primary().await);
        if waits.last() < Some(&CALL) {
            return;
        }
    }
    panic!("calls end after {waits:?}");
}

/// How long a call waits at a primary that is frozen and has a successor.
async fn wait_at_a_frozen_primary() -> Duration {
    let group = block_in_place(|| servers().bed.replicated(Flavor::Any, Replication::Async, 1));
    let group = group.expect("a pair");
    block_in_place(|| group.primary().create_database(SHOP)).expect("a database");
    let pool = pool_of(&group, 1).await;
    let mut transaction = Transaction::open(&pool).await.expect("a transaction");
    group.primary().freeze().expect("it is frozen");
    let asking = async move {
        let began = Instant::now();
        let answer = transaction.is_alive().await;
        assert!(matches!(answer, Err(StoreError::TimedOut { .. })), "{answer:?}");
        began.elapsed()
    };
    let promoting = async {
        block_in_place(|| group.fail_over().map(drop)).expect("the replica is promoted");
    };
    let (waited, ()) = tokio::join!(tokio::spawn(asking), promoting);
    waited.expect("no panic")
}

async fn rollbacks(session: &mut MySqlConnection) -> u64 {
    let row = sqlx::query("SHOW GLOBAL STATUS LIKE 'Com_rollback'").fetch_one(session).await;
    row.and_then(|row| row.try_get::<String, _>(1)).expect("a count").parse().expect("a number")
}

/// Connections that are being made while the primary stands still. They are welcomed once it goes
/// on, and it still takes writes: it has not heard of the failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_an_old_primary_welcomes_after_the_failover_is_not_used() {
    // On a machine that stands still all of them may be given up before.
    for _ in 0..TRIES {
        if is_served_by_the_new_primary_alone().await {
            return;
        }
    }
    panic!("the old primary welcomed none in {TRIES} tries");
}

/// Whether the old primary welcomed some, and connections were made.
async fn is_served_by_the_new_primary_alone() -> bool {
    const ALL_AT_ONCE: u32 = 64;
    let group = block_in_place(|| {
        let group = servers().bed.replicated(Flavor::Any, Replication::Async, 1).expect("a pair");
        group.primary().create_database(SHOP).expect("a database");
        group
    });
    let pool = pool_of(&group, ALL_AT_ONCE).await;
    let port = async |session: &mut MySqlConnection| -> u16 {
        sqlx::query_scalar("SELECT @@port").fetch_one(session).await.expect("its port")
    };
    let mut first = pool.acquire().await.expect("a connection");
    let old = group.primary().clone();
    assert_eq!(port(&mut first).await, old.addr().port());
    let before = rollbacks(&mut first).await;
    old.freeze().expect("it is frozen");
    let acquiring = async {
        let (mut attempts, began) = (Vec::new(), Instant::now());
        while pool.connect_options().get_port() == old.addr().port() {
            attempts.push(tokio::spawn({
                let pool = pool.clone();
                async move { pool.acquire().await }
            }));
            assert!(began.elapsed() < FOLLOWED_AT_LAST, "the pool stays at the old primary");
            sleep(REFUSAL_INTERVAL).await;
        }
        block_in_place(|| old.thaw()).expect("it goes on");
        attempts
    };
    let promoting = async {
        block_in_place(|| group.fail_over().map(drop)).expect("the replica is promoted");
    };
    let (attempts, ()) = tokio::join!(acquiring, promoting);
    let mut served = 0;
    for attempt in attempts {
        if let Ok(mut session) = attempt.await.expect("no panic") {
            assert_eq!(port(&mut session).await, group.primary().addr().port());
            served += 1;
        }
    }
    // Each connection begins with one. Some are those of looks.
    served > 0 && rollbacks(&mut first).await > before + LOOKS
}
