//! Streams of a user over all replicas.

use std::time::{Duration, Instant};

use reqwest::Response;
use seckill::domain::Role;
use testbed::Replica;

use crate::breakable::blocking;
use crate::caller::Caller;
use crate::fleet::start_together;
use crate::queued::buyer::{QUEUED, buy, lock_stock, ticket_of};
use crate::replicas::spec;
use crate::support::{Answer, Place, client, eventually, servers, token};

const USER: u64 = 5;
const MAX_STREAMS: usize = 4;
/// How long the streams of a dead replica count.
const LEASE: Duration = Duration::from_secs(4);

async fn open(url: &str, ticket: &str, user: u64) -> Response {
    let events = client().get(format!("{url}/api/tickets/{ticket}/events"));
    events.bearer_auth(token(user, Role::Buyer)).send().await.expect("an answer")
}

fn replica_of(stream: &Response) -> String {
    stream.headers()["x-replica"].to_str().expect("a name").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_streams_of_a_user_are_limited_over_all_replicas_and_a_dead_one_keeps_none() {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    let flags = [&QUEUED[..], &["--stream-lease-s", "4"]].concat();
    let replica = |number| spec(&place, &format!("streams-{number}"), &flags);
    let replicas = blocking(|| Ok(start_together((1..=3).map(replica))));
    let addresses: Vec<_> = replicas.iter().map(Replica::addr).collect();
    let proxy = blocking(|| servers().bed.haproxy(&addresses));
    let url = proxy.url();
    let voucher = Caller::new(url).voucher(5).await;
    let tx = lock_stock(&place.database_url, &voucher).await;
    let ticket = ticket_of(buy(url, &voucher, USER).await);

    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        let stream = open(url, &ticket, USER).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let at: Vec<_> = streams.iter().map(replica_of).collect();
    assert!(at.iter().any(|name| *name != at[0]), "all at one replica: {at:?}");
    // Longer than a lease: a stream that is open keeps its own.
    let until = Instant::now() + LEASE + LEASE / 2;
    while Instant::now() < until {
        for replica in &replicas {
            let refused = Answer::of(open(replica.base_url(), &ticket, USER).await).await;
            assert_eq!(refused.problem(429), "too_many_requests");
            assert_eq!(refused.headers["retry-after"], "5");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let other = ticket_of(buy(url, &voucher, USER + 1).await);
    assert_eq!(open(url, &other, USER + 1).await.status(), 200, "another user's");

    let dead = replicas.iter().find(|replica| replica.name() == at[0]).expect("that replica");
    let left = replicas.iter().find(|replica| replica.name() != at[0]).expect("another one");
    blocking(|| dead.kill());
    let killed = Instant::now();
    eventually("the dead replica's leases end", async || {
        open(left.base_url(), &ticket, USER).await.status() == 200
    })
    .await;
    println!("a stream again {:?} after the kill", killed.elapsed());
    tx.rollback().await.expect("a ROLLBACK");
}
