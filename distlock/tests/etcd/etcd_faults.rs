//! `etcd` when the way to its server fails.

use std::time::Duration;

use crate::support::{
    LONG, SHORT, assert_busy, at_once, await_queue, etcdctl, eventually, fresh_name, lock, locks,
    locks_at, queue, release, server, wait_for,
};
use distlock::{LockError, LossCause};
use testbed::{Direction, Proxy};
use tokio::time::{Instant, sleep};

/// Longer than the answers to a call are waited for.
const OUTAGE: Duration = Duration::from_secs(4);

fn proxy() -> Proxy {
    Proxy::before(server().addr()).expect("a proxy")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_a_waiter_keep_their_places_in_an_outage_shorter_than_the_lease() {
    let (way, name) = (proxy(), fresh_name());
    let locks_behind = || locks_at(&way.addr().to_string(), LONG);
    let guard = lock(&locks_behind(), &name).await;
    let waiter = wait_for(&locks_behind(), &name);
    await_queue(server(), &name, 2).await;
    let place = queue(&name);
    for direction in [Direction::ToServer, Direction::ToClient] {
        way.set_swallowing(direction, true);
    }
    sleep(OUTAGE).await;
    assert!(!guard.is_lost() && !waiter.is_finished());
    way.heal();
    release(guard).await;
    let heir = waiter.await.expect("no panic").expect("the lock");
    assert_eq!(queue(&name), place[1..]);
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_lost_make_no_second_contender_and_leave_nothing() {
    let (way, name) = (proxy(), fresh_name());
    let locks_behind = locks_at(&way.addr().to_string(), SHORT);
    release(lock(&locks_behind, &name).await).await;
    way.set_swallowing(Direction::ToClient, true);
    let refused = locks_behind.lock(&name, &at_once()).await.err();
    assert!(matches!(refused, Some(LockError::Backend(_))), "{refused:?}");
    assert!(queue(&name).len() <= 1);
    way.heal();
    locks_behind.flush().await;
    // What is given back without an answer ends with its lease.
    await_queue(server(), &name, 0).await;
    let guard = lock(&locks_behind, &name).await;
    assert_eq!(queue(&name).len(), 1);
    way.set_swallowing(Direction::ToClient, true);
    let releasing = tokio::spawn(guard.release());
    await_queue(server(), &name, 0).await;
    way.heal();
    drop(releasing.await.expect("no panic"));
    release(lock(&locks(), &name).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_server_ends_is_lost_at_the_next_heartbeat() {
    let (locks, name) =
        (locks_at(server().endpoint(), Duration::from_millis(15_500)), fresh_name());
    let guard = lock(&locks, &name).await;
    let key = queue(&name).swap_remove(0);
    etcdctl(server(), &["lease", "revoke", key.rsplit('/').next().expect("a lease")]);
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossCause::Taken);
    // A third of the lease of 15 s, and not its end.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_or_is_silent_is_left_for_the_next_one() {
    let silent = proxy();
    silent.set_swallowing(Direction::ToServer, true);
    for first in ["127.0.0.1:1".to_owned(), silent.addr().to_string()] {
        let locks = locks_at(&format!("{first},{}", server().endpoint()), LONG);
        let name = fresh_name();
        let guard = locks.lock(&name, &at_once()).await.expect("the lock, by one attempt");
        assert_busy(&locks, &name).await;
        release(guard).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_replaced_and_the_waiter_is_woken_on_the_new_one() {
    let (way, name) = (proxy(), fresh_name());
    let holders = locks();
    let guard = lock(&holders, &name).await;
    let waiter = wait_for(&locks_at(&way.addr().to_string(), LONG), &name);
    await_queue(server(), &name, 2).await;
    let before = way.counts().connections;
    way.cut();
    eventually("a new connection", async || way.counts().connections > before).await;
    assert!(!waiter.is_finished());
    release(guard).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}
