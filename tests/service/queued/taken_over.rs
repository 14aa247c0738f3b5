//! Consumers that die, freeze, or come back.

use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};
use testbed::{Action, Command, Replica, Times};
use tokio::task::{JoinSet, block_in_place};

use crate::queued::buyer::{
    QUEUED, QueueState, assert_settled, buy, end_of, ended, left, lock_stock, redis, ticket_of,
};
use crate::replicas::spec;
use crate::support::{Place, Service, client, eventually, servers};

const USERS: std::ops::Range<u64> = 1..6;
const STOCK: u32 = 9;

/// A voucher of a sale that no replica works on yet.
pub(super) async fn sale() -> (Place, String) {
    let clerk = Service::start(&[]).await;
    let voucher = clerk.voucher(STOCK).await;
    let place = clerk.place.clone();
    clerk.stop().await;
    (place, voucher)
}

pub(super) fn replica(place: &Place, name: &str, flags: &[&str]) -> Replica {
    let flags = [&QUEUED[..], &["--drain-delay-ms", "0"], flags].concat();
    let spec = spec(place, name, &flags);
    block_in_place(|| servers().bed.replica(spec)).expect("a replica")
}

/// Another replica at that place.
async fn other(place: &Place) -> Service {
    let flags = [&QUEUED[..], &["--replica-id", "b"]].concat();
    Service::start_at(place.clone(), &flags).await
}

/// Has all buy at the replica while no stock can be taken; their tickets, once they are all taken
/// from the stream, and what keeps them from being written.
async fn taken(
    place: &Place,
    voucher: &str,
    url: &str,
) -> (Vec<(u64, String)>, sqlx::Transaction<'static, sqlx::MySql>) {
    let tx = lock_stock(&place.database_url, voucher).await;
    let mut tickets = Vec::new();
    for user in USERS {
        tickets.push((user, ticket_of(buy(url, voucher, user).await)));
    }
    let all = i64::try_from(tickets.len()).expect("few");
    eventually("all are taken", async || {
        let mut pending = redis::cmd("XPENDING");
        pending.arg(format!("{{v:{voucher}}}:stream")).arg("sale");
        let (count, ..): (i64, redis::Value, redis::Value, redis::Value) =
            pending.query_async(&mut redis(place).await).await.expect("an answer");
        count == all
    })
    .await;
    (tickets, tx)
}

async fn assert_all_bought(place: &Place, voucher: &str, url: &str, tickets: &[(u64, String)]) {
    for (user, ticket) in tickets {
        assert_eq!(end_of(url, ticket, *user).await.0, "bought");
    }
    let books = assert_settled(place, voucher, &[], STOCK.into()).await;
    assert_eq!(books.orders.len(), tickets.len());
    let sold = tickets.len() as u64;
    let rest = QueueState { stock: books.stock, entries: 0, users: sold };
    eventually("all is acknowledged", async || left(place, voucher).await == rest).await;
    let bought = i64::try_from(sold).expect("few");
    assert_eq!(ended(place, voucher).await, [("bought".to_owned(), bought)].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_dead_consumer_are_taken_over_by_another_replica() {
    let (place, voucher) = sale().await;
    let victim = replica(&place, "victim", &[]);
    let (tickets, tx) = taken(&place, &voucher, victim.base_url()).await;
    block_in_place(|| victim.kill()).expect("it can be killed");
    tx.rollback().await.expect("a ROLLBACK");
    let began = Instant::now();
    let other = other(&place).await;
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    println!("all had ended {:?} after the kill", began.elapsed());
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_restarted_under_its_name_takes_its_own_entries() {
    let (place, voucher) = sale().await;
    let victim = replica(&place, "victim", &[]);
    let (tickets, tx) = taken(&place, &voucher, victim.base_url()).await;
    block_in_place(|| victim.kill()).expect("it can be killed");
    tx.rollback().await.expect("a ROLLBACK");
    block_in_place(|| victim.restart()).expect("it starts again");
    assert_all_bought(&place, &voucher, victim.base_url(), &tickets).await;
    // They were not taken over from a consumer that showed no sign of life.
    let page = client().get(format!("{}/metrics", victim.base_url())).send().await;
    let page = page.expect("an answer").text().await.expect("a page");
    assert!(page.contains("\nseckill_queue_taken_over_total 0\n"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_freezes_and_wakes_up_writes_nothing_that_another_has_ended() {
    let (place, voucher) = sale().await;
    let victim = replica(&place, "victim", &[]);
    let (tickets, tx) = taken(&place, &voucher, victim.base_url()).await;
    block_in_place(|| victim.freeze()).expect("it can be frozen");
    tx.rollback().await.expect("a ROLLBACK");
    let other = other(&place).await;
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    block_in_place(|| victim.thaw()).expect("it goes on");
    // Longer than it takes the woken one to go on with what it had.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    other.stop().await;
}

/// How often the entry was handed out that was handed out least.
async fn handed_out(place: &Place, voucher: &str) -> i64 {
    let mut pending = redis::cmd("XPENDING");
    pending.arg(format!("{{v:{voucher}}}:stream")).arg(&["sale", "-", "+", "99"]);
    let pending: Vec<(String, String, i64, i64)> =
        pending.query_async(&mut redis(place).await).await.expect("an answer");
    pending.into_iter().map(|(.., times)| times).min().expect("entries")
}

/// What takes over entries.
fn takeovers() -> Command {
    Command::redis("EVALSHA").when(|parts| parts.contains(&&b"idle"[..]))
}

/// Redis hands out entries, and the answer does not come: they have not been tried.
#[tokio::test(flavor = "multi_thread")]
async fn entries_that_were_handed_out_six_times_and_never_tried_are_bought() {
    let (place, voucher) = sale().await;
    let victim = replica(&place, "victim", &[]);
    let (tickets, tx) = taken(&place, &voucher, victim.base_url()).await;
    block_in_place(|| victim.kill()).expect("it can be killed");
    tx.rollback().await.expect("a ROLLBACK");
    let (proxy, through) = place.redis_through_proxy();
    let lost = proxy.arm(takeovers(), Action::CutAnswer, Times::Always);
    let other = other(&through).await;
    let began = Instant::now();
    while handed_out(&place, &voucher).await < 6 {
        assert!(began.elapsed() < Duration::from_mins(1), "they are not taken over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("handed out six times within {:?}", began.elapsed());
    lost.disarm();
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    other.stop().await;
}

/// How many entries that consumer has.
pub(super) async fn entries_of(place: &Place, voucher: &str, consumer: &str) -> usize {
    let mut pending = redis::cmd("XPENDING");
    pending.arg(format!("{{v:{voucher}}}:stream")).arg(&["sale", "-", "+", "9999", consumer]);
    let pending: Vec<redis::Value> =
        pending.query_async(&mut redis(place).await).await.expect("an answer");
    pending.len()
}

/// As many as a replica has at most, unless it takes some over.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_at_its_limit_still_takes_over_entries_of_a_dead_one() {
    const MOST: usize = 512;
    /// On a busy machine one may be refused, and asks again.
    const ADMITTED: Duration = Duration::from_secs(20);
    let clerk = Service::start(&[]).await;
    let (place, voucher) = (clerk.place.clone(), clerk.voucher(2000).await);
    clerk.stop().await;
    let victim = replica(&place, "victim", &[]);
    let other = other(&place).await;
    let tx = lock_stock(&place.database_url, &voucher).await;
    let mut buyers = JoinSet::new();
    for first in 1..=16_u64 {
        let (url, voucher) = (other.url.clone(), voucher.clone());
        buyers.spawn(async move {
            for user in (first..=2 * MOST as u64 + 50).step_by(16) {
                let began = Instant::now();
                while buy(&url, &voucher, user).await.status.as_u16() != 202 {
                    assert!(began.elapsed() < ADMITTED, "{user} is not admitted");
                }
            }
        });
    }
    buyers.join_all().await;
    eventually("both have all they may have", async || {
        entries_of(&place, &voucher, "victim").await == MOST
            && entries_of(&place, &voucher, "b").await == MOST
    })
    .await;
    block_in_place(|| victim.kill()).expect("it can be killed");
    eventually("some of the dead one's are taken over", async || {
        entries_of(&place, &voucher, "b").await > MOST
    })
    .await;
    tx.rollback().await.expect("a ROLLBACK");
    other.stop().await;
}

/// What it takes over might be its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_cannot_show_its_work_takes_over_nothing() {
    let (place, voucher) = sale().await;
    let (proxy, through) = place.redis_through_proxy();
    let other = other(&through).await;
    let (tickets, tx) = taken(&place, &voucher, &other.url).await;
    let takeovers = proxy.watch(takeovers());
    let lost = proxy.arm(Command::redis("XCLAIM"), Action::CutRequest, Times::Always);
    eventually("a sign of its work is lost", async || lost.fired() > 0).await;
    let before = takeovers.matched();
    eventually("more are lost", async || lost.fired() > 4).await;
    assert_eq!(takeovers.matched(), before);
    lost.disarm();
    eventually("it takes over again", async || takeovers.matched() > before).await;
    tx.rollback().await.expect("a ROLLBACK");
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_a_replica_that_is_cut_off_from_the_database_are_bought_by_another() {
    let (place, voucher) = sale().await;
    let (proxy, through) = place.database_through_proxy();
    let cut_off = Service::start_at(through, &[&QUEUED[..], &["--replica-id", "a"]].concat()).await;
    let (tickets, tx) = taken(&place, &voucher, &cut_off.url).await;
    proxy.start_outage();
    tx.rollback().await.expect("a ROLLBACK");
    let other = other(&place).await;
    // It lives, and can be asked, and has not given up: its own patience lasts a minute.
    let began = Instant::now();
    assert_all_bought(&place, &voucher, &other.url, &tickets).await;
    let took = began.elapsed();
    println!("all had ended {took:?} after the cut");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // And it takes nothing that comes later.
    let ticket = ticket_of(buy(&other.url, &voucher, USERS.end).await);
    assert_eq!(end_of(&other.url, &ticket, USERS.end).await.0, "bought");
    proxy.end_outage();
    cut_off.stop().await;
    other.stop().await;
}

/// A session holds the rows of its tickets until the server ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_freezes_in_a_transaction_keeps_its_tickets_pending_for_seconds_only() {
    let (place, voucher) = sale().await;
    let working = ["--lab", "--work-ms", "1500"];
    let victim = replica(&place, "victim", &working);
    let ticket = ticket_of(buy(victim.base_url(), &voucher, 7).await);
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    let dirty = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
    sqlx::raw_sql(dirty).execute(&mut database).await.expect("dirty reads");
    eventually("its order is inserted, and not committed", async || {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM orders WHERE user_id = 7");
        let count: i64 = count.fetch_one(&mut database).await.expect("a number");
        count == 1
    })
    .await;
    block_in_place(|| victim.freeze()).expect("it can be frozen");
    let began = Instant::now();
    let other = other(&place).await;
    assert_all_bought(&place, &voucher, &other.url, &[(7, ticket)]).await;
    let took = began.elapsed();
    println!("it had ended {took:?} after it froze");
    assert!(took < Duration::from_secs(20), "{took:?}");
    block_in_place(|| victim.thaw()).expect("it goes on");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_a_name_leaves_no_consumer_and_one_with_a_name_does() {
    let (place, voucher) = sale().await;
    let consumers = async || {
        let mut database = redis(&place).await;
        let mut info = redis::cmd("XINFO");
        info.arg("CONSUMERS").arg(format!("{{v:{voucher}}}:stream")).arg("sale");
        let all: Vec<std::collections::HashMap<String, redis::Value>> =
            info.query_async(&mut database).await.expect("an answer");
        all.len()
    };
    for (user, (flags, stay)) in (1..).zip([(&[][..], 0), (&["--replica-id", "named"], 1)]) {
        let flags = [&QUEUED[..], flags].concat();
        let service = Service::start_at(place.clone(), &flags).await;
        let ticket = ticket_of(buy(&service.url, &voucher, user).await);
        assert_eq!(end_of(&service.url, &ticket, user).await.0, "bought");
        service.stop().await;
        assert_eq!(consumers().await, stay);
    }
}
