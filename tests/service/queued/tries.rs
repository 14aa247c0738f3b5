//! Tries of one entry by processes that end: those that may have ended them count, others do not.

use sqlx::{MySql, Transaction};
use testbed::{Action, Command, Replica, Times};
use tokio::task::block_in_place;

use crate::queued::buyer::{QueueState, buy, end_of, left, redis, ticket_of};
use crate::queued::locked::begin_orders;
use crate::queued::taken_over::{entries_of, replica, sale};
use crate::support::{Place, client, eventually};

const BUYER: u64 = 7;
/// Of a dead letter.
const MOST_TRIES: u32 = 5;

/// Buys at the replica whose order cannot be written before this ends; returns the ticket.
async fn held_up(
    place: &Place,
    voucher: &str,
    at: &Replica,
) -> (String, Transaction<'static, MySql>) {
    let rows = begin_orders(place, voucher, &[BUYER]).await;
    let ticket = ticket_of(buy(at.base_url(), voucher, BUYER).await);
    eventually("it is taken", async || entries_of(place, voucher, "victim").await == 1).await;
    (ticket, rows)
}

fn kill(replica: &Replica) {
    block_in_place(|| replica.kill()).expect("it can be killed");
}

/// Under its name, so that it continues with what it had.
fn restart(replica: &Replica) {
    block_in_place(|| replica.restart()).expect("it starts again");
}

/// How many tries are counted of the one entry.
async fn tries(place: &Place, voucher: &str) -> Option<u32> {
    let mut values = redis::cmd("HVALS");
    values.arg(format!("{{v:{voucher}}}:tries"));
    let tries: Vec<u32> = values.query_async(&mut redis(place).await).await.expect("an answer");
    assert!(tries.len() < 2, "{tries:?}");
    tries.first().copied()
}

/// Each process dies while it tries, so that only what it has said before is known of the try.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_has_killed_five_processes_during_a_try_is_a_dead_letter() {
    let (place, voucher) = sale().await;
    let (proxy, through) = place.redis_through_proxy();
    let victim = replica(&through, "victim", &[]);
    let (ticket, rows) = held_up(&place, &voucher, &victim).await;
    // None of them lives to say that its try has come back.
    let takes_back = |parts: &[&[u8]]| parts.last() == Some(&&b"-1"[..]);
    let _silent =
        proxy.arm(Command::redis("EVALSHA").when(takes_back), Action::HoldRequest, Times::Always);
    for counted in 1..=MOST_TRIES {
        kill(&victim);
        restart(&victim);
        eventually("a try is counted", async || tries(&place, &voucher).await == Some(counted))
            .await;
    }
    kill(&victim);
    rows.rollback().await.expect("a ROLLBACK");
    restart(&victim);
    assert_eq!(end_of(victim.base_url(), &ticket, BUYER).await.0, "dead");
    let given_back = QueueState { stock: 9, entries: 0, users: 0 };
    eventually("it is given back", async || left(&place, &voucher).await == given_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_tries_failed_for_other_reasons_is_bought_in_the_end() {
    let (place, voucher) = sale().await;
    let victim = replica(&place, "victim", &[]);
    let (ticket, rows) = held_up(&place, &voucher, &victim).await;
    for _ in 0..=MOST_TRIES {
        kill(&victim);
        restart(&victim);
        eventually("a try of it comes back", async || {
            let page = client().get(format!("{}/metrics", victim.base_url())).send().await;
            let page = page.expect("an answer").text().await.expect("a page");
            page.contains("seckill_queue_lock_wait_aborts_total{mode=\"alone\"}")
        })
        .await;
    }
    rows.rollback().await.expect("a ROLLBACK");
    assert_eq!(end_of(victim.base_url(), &ticket, BUYER).await.0, "bought");
}
