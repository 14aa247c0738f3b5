//! `CountdownLatch` on a real Redis. Several servers, each with a connection of its own, are
//! several processes as far as Redis can see.

use std::time::Duration;

use crate::support::dropped::up_to;
use crate::support::ran::ran;
use crate::support::synchronizers::{Client, LOOK, PATIENT, SLACK, process};
use crate::support::{Look, but_for_one_standstill, eventually, fresh_name};
use distlock::{CountdownLatch, LockError, LockName, Semaphore};
use tokio::task::JoinSet;
use uuid::Uuid;

const CHANNEL: &str = "distlock_latch_channel";
const ZERO: Duration = Duration::ZERO;

async fn latch(name: &LockName) -> CountdownLatch {
    CountdownLatch::new(&process().await, name.clone())
}

async fn closed(name: &LockName, count: u32) -> CountdownLatch {
    let latch = latch(name).await;
    assert!(latch.try_set_count(count).await.expect("an answer"));
    latch
}

/// Waiters of several processes that wait when this comes back; each says when it was let go.
async fn waiters(name: &LockName, processes: usize) -> JoinSet<Duration> {
    let mut waiting = JoinSet::new();
    for _ in 0..processes {
        let latch = latch(name).await;
        for _ in 0..8 {
            let latch = latch.clone();
            waiting.spawn(async move {
                latch.wait(PATIENT).await.expect("it opens");
                ran()
            });
        }
    }
    let client = Client::here().await;
    let all = async || client.subscribers(CHANNEL, name).await == processes;
    eventually("all wait", all).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    waiting
}

fn latest(times: Vec<Duration>, since: Duration) -> Duration {
    let latest = times.into_iter().max().expect("somebody waited");
    latest.saturating_sub(since)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_opens_to_all_waiters_when_it_was_counted_down_and_not_before() {
    but_for_one_standstill(opens_to_all_waiters).await;
}

async fn opens_to_all_waiters() -> Result<(), String> {
    let name = fresh_name();
    let counting = closed(&name, 3).await;
    let mut waiting = waiters(&name, 3).await;
    for left in [2, 1] {
        assert_eq!(counting.count_down().await.expect("an answer"), left);
        assert_eq!(counting.count().await.expect("an answer"), left);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiting.try_join_next().is_none(), "it is closed");
    let opened = ran();
    assert_eq!(counting.count_down().await.expect("an answer"), 0);
    let took = latest(waiting.join_all().await, opened);
    println!("24 waiters of 3 processes let go after {took:?}");
    assert_eq!(counting.count().await.expect("an answer"), 0);
    counting.wait(ZERO).await.expect("who comes later need not wait");
    assert_eq!(counting.count_down().await.expect("an answer"), 0, "of no effect");
    let are_told = took < LOOK / 2;
    if are_told { Ok(()) } else { Err(format!("not told, but by their own look: {took:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_tasks_as_were_set_open_it_however_they_race() {
    for round in 0..10 {
        let name = fresh_name();
        let first = closed(&name, 24).await;
        let mut counting = JoinSet::new();
        for task in 0..24 {
            let latch = if task % 8 == 0 { latch(&name).await } else { first.clone() };
            counting.spawn(async move { latch.count_down().await.expect("an answer") });
        }
        let mut left = counting.join_all().await;
        left.sort_unstable();
        assert_eq!(left, (0..24).collect::<Vec<_>>(), "each count is another: round {round}");
        first.wait(ZERO).await.expect("it is open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_is_done_again_counts_once() {
    let name = fresh_name();
    let counting = closed(&name, 3).await;
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let mut same = JoinSet::new();
    for _ in 0..16 {
        let latch = latch(&name).await;
        same.spawn(async move { latch.count_down_as(first).await.expect("an answer") });
    }
    let answers = same.join_all().await;
    assert!(answers.iter().all(|left| *left == 2), "all get the first answer: {answers:?}");
    assert_eq!(counting.count_down_as(second).await.expect("an answer"), 1);
    assert_eq!(counting.count_down().await.expect("an answer"), 0);
    // Also for the next latch of that name.
    assert!(counting.try_set_count(2).await.expect("an answer"));
    assert_eq!(counting.count_down_as(first).await.expect("an answer"), 2);
    assert_eq!(counting.count_down_as(second).await.expect("an answer"), 1);
    assert_eq!(counting.count().await.expect("an answer"), 2, "they counted for the one before");
}

#[tokio::test]
async fn a_latch_is_set_once_until_it_opens_and_a_missing_one_is_open() {
    let (name, client) = (fresh_name(), Client::here().await);
    let latch = latch(&name).await;
    assert_eq!(latch.count().await.expect("an answer"), 0);
    latch.wait(ZERO).await.expect("it is open");
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    assert!(client.keys(&name).await.is_empty(), "nothing was made");
    assert!(latch.try_set_count(1).await.expect("an answer"));
    assert!(!latch.try_set_count(5).await.expect("an answer"), "it is closed");
    assert_eq!(latch.count_down().await.expect("an answer"), 0);
    assert!(latch.try_set_count(2).await.expect("an answer"), "it is open");
    for key in client.keys(&name).await {
        let lasts: i64 = client.command(&["TTL", &key]).await;
        assert_eq!(lasts == -1, key == name.as_str(), "{key} lasts for {lasts} s");
    }
    match latch.try_set_count(0).await {
        Err(LockError::BadRequest { field, .. }) => assert_eq!(field, "count"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_that_is_removed_is_open_and_waiters_find_out_in_bounded_time() {
    let client = Client::here().await;
    for told in [true, false] {
        but_for_one_standstill(async || is_open_once_removed(&client, told).await).await;
    }
}

async fn is_open_once_removed(client: &Client, told: bool) -> Result<(), String> {
    let name = fresh_name();
    let removing = closed(&name, 3).await;
    let waiting = waiters(&name, 2).await;
    let removed = ran();
    if told {
        assert!(removing.delete().await.expect("an answer"));
        assert!(!removing.delete().await.expect("an answer"));
    } else {
        client.command::<()>(&["DEL", name.as_str()]).await;
    }
    let took = latest(waiting.join_all().await, removed);
    println!("told: {told}, let go after {took:?}");
    let bound = if told { LOOK / 2 } else { LOOK + SLACK };
    if took < bound { Ok(()) } else { Err(format!("told: {told}, {took:?}")) }
}

#[tokio::test]
async fn a_worker_that_dies_keeps_a_latch_closed_so_every_wait_has_an_end() {
    let (process, name) = (process().await, fresh_name());
    let latch = CountdownLatch::new(&process, name.clone());
    latch.try_set_count(2).await.expect("an answer");
    latch.count_down().await.expect("an answer");
    for wait in [ZERO, Duration::from_millis(300)] {
        match latch.wait(wait).await {
            Err(LockError::TimedOut { waited, .. }) => {
                assert!(waited >= wait && waited < wait + SLACK, "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    match latch.wait(Duration::MAX).await {
        Err(LockError::BadRequest { field, .. }) => assert_eq!(field, "wait"),
        other => panic!("{other:?}"),
    }
    eventually("no channel is left", async || process.subscribed_channels() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_or_count_dropped_at_any_point_leaves_nothing_behind() {
    let (process, name) = (process().await, fresh_name());
    let latch = CountdownLatch::new(&process, name.clone());
    latch.try_set_count(1000).await.expect("an answer");
    for polls in 1..10 {
        let waiting = up_to(polls, latch.wait(Duration::from_millis(300))).await;
        assert!(!matches!(waiting, Some(Ok(()))), "it is closed");
    }
    let mut left = 1000;
    for round in 0..20 {
        // Begun is counted, and counted once.
        drop(up_to(round % 3 + 1, latch.count_down()).await);
        left -= 1;
        eventually("it counts", async || latch.count().await.expect("an answer") == left).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(latch.count().await.expect("an answer"), left, "and once");
    }
    eventually("no channel is left", async || process.subscribed_channels() == 0).await;
}

#[tokio::test]
async fn a_name_in_use_by_another_kind_is_an_error_and_stays_as_it_is() {
    let (process, name, client) = (process().await, fresh_name(), Client::here().await);
    let latch = CountdownLatch::new(&process, name.clone());
    let look = Look::at(crate::support::server().url()).await;
    for other in ["a lock", "a hash", "a semaphore"] {
        look.delete(&name).await;
        match other {
            "a lock" => look.set(&name, "17").await,
            "a hash" => look.make_hash(&name).await,
            _ => {
                let semaphore = Semaphore::new(&process, name.clone());
                assert!(semaphore.try_set_permits(1).await.expect("an answer"));
            }
        }
        let before = client.state(&name).await;
        for outcome in [
            latch.try_set_count(1).await.map(drop),
            latch.count_down().await.map(drop),
            latch.wait(ZERO).await,
            latch.delete().await.map(drop),
        ] {
            assert!(matches!(outcome, Err(LockError::HeldByOtherKind)), "{other}: {outcome:?}");
        }
        assert_eq!(client.state(&name).await, before, "{other}");
    }
}
