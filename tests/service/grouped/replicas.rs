//! The groups of several replicas meet in the database, and do not kill one another there.

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
const AT_A_TIME: u64 = 64;

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
            for request in (buyer..USERS * REQUESTS).step_by(AT_A_TIME as usize) {
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
async fn groups_of_two_replicas_sell_the_same_users_without_a_storm_of_deadlocks() {
    for lock in ["redisson", "none"] {
        // Makes the schema and the voucher; sells nothing.
        let clerk = Service::start(&["--allow-mixed"]).await;
        let voucher = clerk.voucher(u32::try_from(STOCK).expect("few")).await;
        let place = clerk.place.clone();
        let replicas = tokio::task::block_in_place(|| replicas(&place, lock));
        let tries = rush(&replicas, &voucher).await;
        let books = Books::read(&place.database_url, &voucher).await;
        books.add_up_to(STOCK);
        assert_eq!(books.stock, 0, "{lock}");
        let bought = tries.iter().filter(|one| matches!(one.fate(), Fate::Bought(_))).count();
        assert_eq!(bought, books.orders.len(), "{lock}: each order was told once");
        for one in &tries {
            let rows = books.of(one.user);
            match one.fate() {
                Fate::Bought(order) => assert_eq!(rows, [order], "{lock}"),
                Fate::Refused => assert!(
                    rows.is_empty() || one.words() == "409 \"already_ordered\"",
                    "{lock}: {} has {rows:?}",
                    one.words()
                ),
                Fate::Unknown => panic!("{lock}: {}", one.words()),
            }
        }
        let (mut groups, mut deadlocks, mut setbacks) = (0, 0, 0);
        for replica in &replicas {
            groups += counted(replica, "seckill_groups_total", "").await;
            setbacks += counted(replica, "seckill_group_setbacks_total", "").await;
            deadlocks += counted(replica, "seckill_group_setbacks_total", "conflict").await;
        }
        println!(
            "{lock}: {} orders in {groups} groups, {setbacks} setbacks, {deadlocks} deadlocks",
            books.orders.len()
        );
        assert!(groups < books.orders.len() as u64, "{lock}: nothing was written together");
        assert!(deadlocks * 20 <= groups, "{lock}: {deadlocks} deadlocks in {groups} groups");
    }
}
