//! The groups of several replicas meet in the database, and do not kill one another there.

use std::collections::HashSet;
use std::sync::Arc;

use testbed::Replica;
use tokio::task::JoinSet;

use crate::crowd::{Books, Fate, Try, buy_at};
use crate::replicas::spec;
use crate::support::{Place, Service, client, servers};

const STOCK: i64 = 1500;
const USERS: u64 = 2000;
/// Requests of each user, at different replicas.
const REQUESTS: u64 = 2;
const AT_A_TIME: usize = 64;

fn replicas(place: &Place, lock: &str) -> Vec<Replica> {
    let flags = ["--writer", "grouped", "--allow-mixed", "--lock", lock, "--lock-wait-ms", "10000"];
    let start = |name| servers().bed.replica(spec(place, name, &flags)).expect("a replica");
    vec![start("one"), start("two")]
}

/// A counter of the replica, over all its labels that contain that text.
async fn counted(replica: &Replica, name: &str, label: &str) -> u64 {
    let page = client().get(format!("{}/metrics", replica.base_url())).send().await;
    let page = page.expect("an answer").text().await.expect("a page");
    let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

async fn rush(replicas: &[Replica], voucher: &str) -> Vec<Try> {
    let urls: Arc<Vec<_>> = Arc::new(replicas.iter().map(|r| r.base_url().to_owned()).collect());
    let mut buyers = JoinSet::new();
    for buyer in 0..AT_A_TIME {
        let (urls, voucher) = (Arc::clone(&urls), voucher.to_owned());
        buyers.spawn(async move {
            let mut tries = Vec::new();
            for request in (0..USERS * REQUESTS).skip(buyer).step_by(AT_A_TIME) {
                // The same users at all replicas at about the same time, in another order.
                let user = 1 + (request / REQUESTS * 7919) % USERS;
                let url = &urls[usize::try_from(request % REQUESTS).expect("small")];
                tries.push(buy_at(url, &voucher, user).await);
            }
            tries
        });
    }
    buyers.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_two_replicas_sell_the_same_users_without_a_storm_of_deadlocks() {
    for lock in ["redisson", "none"] {
        // Makes the schema and the voucher; sells nothing.
        let clerk = Service::start(&["--allow-mixed"]).await;
        let voucher = clerk.voucher(u32::try_from(STOCK).expect("few")).await;
        let place = clerk.place.clone();
        let replicas = tokio::task::block_in_place(|| replicas(&place, lock));
        let tries = rush(&replicas, &voucher).await;
        let books = Books::read(&place.database_url, &voucher).await;
        books.add_up_to(STOCK);
        assert!(books.stock >= 0, "{lock}: {} left", books.stock);
        let mut bought = HashSet::new();
        for one in &tries {
            match one.fate() {
                Fate::Bought(order) => {
                    assert_eq!(books.of(one.user), [order], "{lock}");
                    assert!(bought.insert(one.user), "{lock}: told twice");
                }
                Fate::Refused => {}
                Fate::Unknown => panic!("{lock}: {}", one.words()),
            }
        }
        assert_eq!(bought.len(), books.orders.len(), "{lock}: each order was told once");
        let sent_away = tries.iter().filter(|one| one.words().starts_with("503")).count();
        assert!(books.stock == 0 || sent_away > 0, "{lock}: {} left", books.stock);
        assert!(sent_away * 10 < tries.len(), "{lock}: {sent_away} were sent away");
        let (mut groups, mut deadlocks, mut setbacks) = (0, 0, 0);
        for replica in &replicas {
            groups += counted(replica, "seckill_groups_total", "").await;
            setbacks += counted(replica, "seckill_batch_failures_total", "").await;
            deadlocks += counted(replica, "seckill_batch_failures_total", "conflict").await;
        }
        println!(
            "{lock}: {} orders in {groups} groups, {setbacks} setbacks, {deadlocks} deadlocks, \
             {sent_away} sent away",
            books.orders.len()
        );
        assert!(groups < books.orders.len() as u64, "{lock}: nothing was written together");
        assert!(deadlocks * 20 <= groups, "{lock}: {deadlocks} deadlocks in {groups} groups");
    }
}
