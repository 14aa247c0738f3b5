//! `nats` when the way to its server fails.

use std::time::Duration;

use distlock::{Guard, LockError, LockName, Release};
use testbed::{Bed, Direction, NatsOptions, Proxy};
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::sleep;

use crate::scene::{
    BUCKET, LONG, assert_busy, at_once, bucket, entry, eventually, fresh_name, lock, locks,
    locks_at, release, server, wait_for,
};

/// Longer than the answers to a step are waited for.
const OUTAGE: Duration = Duration::from_secs(4);

fn proxy() -> Proxy {
    Proxy::before(server().addr()).expect("a proxy")
}

fn url_of(way: &Proxy) -> String {
    format!("nats://{}", way.addr())
}

/// A waiter of another process that has been told that the lock is held.
async fn waits_behind(way: &Proxy, name: &LockName) -> JoinHandle<Result<Guard, LockError>> {
    let locks = locks_at(&url_of(way), BUCKET, LONG);
    release(lock(&locks, &fresh_name()).await).await;
    let before = way.counts();
    let waiter = wait_for(&locks, name);
    // It reads the entry, subscribes, and reads it again: more than heartbeats in both directions.
    eventually("it waits", async || {
        let now = way.counts();
        let sent = now.bytes_to_server - before.bytes_to_server;
        sent > 1000 && now.bytes_to_client - before.bytes_to_client > 1000
    })
    .await;
    waiter
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_whose_answers_are_lost_leaves_nothing() {
    let (way, name) = (proxy(), fresh_name());
    let locks_behind = locks_at(&url_of(&way), BUCKET, LONG);
    release(lock(&locks_behind, &fresh_name()).await).await;
    way.set_swallowing(Direction::ToClient, true);
    let refused = locks_behind.lock(&name, &at_once()).await.err();
    assert!(matches!(refused, Some(LockError::Backend(_))), "{refused:?}");
    way.heal();
    locks_behind.flush().await;
    let free = async || locks().lock(&name, &at_once()).await.is_ok();
    eventually("what is left is undone before its TTL ends", free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_counts_once() {
    let (way, name) = (proxy(), fresh_name());
    let locks_behind = locks_at(&url_of(&way), BUCKET, LONG);
    let guard = lock(&locks_behind, &name).await;
    let bucket = bucket(BUCKET).await;
    way.set_swallowing(Direction::ToClient, true);
    let releasing = tokio::spawn(guard.release());
    eventually("it is deleted", async || entry(&bucket, &name).await.is_none()).await;
    let heir = lock(&locks(), &name).await;
    way.heal();
    match releasing.await.expect("no panic") {
        Ok(released) => assert_eq!(released, Release::Released),
        Err(error) => assert!(matches!(error, LockError::Backend(_)), "{error}"),
    }
    locks_behind.flush().await;
    eventually("it answers", async || locks_behind.check_servers().await.is_ok()).await;
    assert!(!heir.is_lost());
    assert_busy(&locks_behind, &name).await;
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_a_waiter_outlive_an_outage_shorter_than_the_ttl() {
    let (way, name) = (proxy(), fresh_name());
    let locks_behind = locks_at(&url_of(&way), BUCKET, LONG);
    let guard = lock(&locks_behind, &name).await;
    let waiter = waits_behind(&way, &name).await;
    let before = way.counts().connections;
    for direction in [Direction::ToServer, Direction::ToClient] {
        way.set_swallowing(direction, true);
    }
    sleep(OUTAGE).await;
    assert!(!guard.is_lost() && !waiter.is_finished());
    way.heal();
    eventually("it connects again", async || way.counts().connections > before).await;
    eventually("it answers", async || locks_behind.check_servers().await.is_ok()).await;
    let shown = locks().inspect(&name).await.expect("an answer");
    assert_eq!(shown.state.holders().len(), 1, "{shown:?}");
    release(guard).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_replaced_and_the_waiter_is_woken_on_the_new_one() {
    let (way, name) = (proxy(), fresh_name());
    let guard = lock(&locks(), &name).await;
    let waiter = waits_behind(&way, &name).await;
    let before = way.counts().connections;
    way.cut();
    eventually("a new connection", async || way.counts().connections > before).await;
    assert!(!waiter.is_finished());
    release(guard).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_is_left_for_the_next_one() {
    let locks = locks_at(&format!("nats://127.0.0.1:1,{}", server().url()), BUCKET, LONG);
    let name = fresh_name();
    let guard = locks.lock(&name, &at_once()).await.expect("the lock, by one attempt");
    assert_busy(&locks, &name).await;
    release(guard).await;
}

/// A new request fails at once while the server is down.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_has_its_locks_and_grants_higher_tokens() {
    let bed = Bed::start().expect("a private bed");
    let server = block_in_place(|| bed.nats(&NatsOptions::default())).expect("NATS is installed");
    let (locks, name) = (locks_at(server.url(), BUCKET, LONG), fresh_name());
    let guard = lock(&locks, &name).await;
    let token = guard.token();
    block_in_place(|| server.kill()).expect("it is killed");
    let refused = locks.lock(&fresh_name(), &at_once()).await.err();
    assert!(matches!(refused, Some(LockError::Backend(_))), "{refused:?}");
    block_in_place(|| server.restart()).expect("it comes back");
    let others = locks_at(server.url(), BUCKET, LONG);
    assert_busy(&others, &name).await;
    eventually("it is released on the new connection", async || {
        locks.check_servers().await.is_ok()
    })
    .await;
    release(guard).await;
    let next = lock(&others, &name).await;
    assert!(next.token() > token, "{:?} after {token:?}", next.token());
    release(next).await;
}
