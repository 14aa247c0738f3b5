//! A caller that goes away at any point of an acquisition or a release leaves nothing behind.
//!
//! The future is polled once, then twice, and so on until it comes to its end, and dropped each
//! time: that is every point at which it can be dropped. It is dropped at once, when the server may
//! not have been asked yet, and when it is woken up, which mostly means that there is an answer.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use distlock::{LockName, LockOptions, Locks};
use tokio::time::timeout;

use crate::arena::{Arena, Check, assert_free_for, fresh_name, of_all, of_locks};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "an_acquire_dropped_at_any_point_holds_nothing",
        asked: of_all,
        run: |arena| arena.run(async || a_free_lock(arena).await),
    },
    Check {
        name: "a_waiter_that_goes_away_at_any_point_is_in_nobodys_way",
        asked: of_locks,
        run: |arena| arena.run(async || a_busy_lock(arena).await),
    },
    Check {
        name: "a_waiter_that_goes_away_at_the_hand_off_holds_nothing",
        asked: of_locks,
        run: |arena| arena.run(async || a_hand_off(arena).await),
    },
    Check {
        name: "a_release_dropped_at_any_point_is_finished",
        asked: of_all,
        run: |arena| arena.run(async || a_release(arena).await),
    },
];

/// More polls than any acquisition of a free lock takes.
const MANY: u32 = 1000;
/// Polls of one that has to wait.
const SOME: u32 = 10;
/// A waiter that is not woken is not polled.
const WHILE: Duration = Duration::from_millis(100);

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// After so many polls.
    polls: u32,
    /// Not at once, but when it is woken for one more.
    late: bool,
}

/// All cuts of up to that many polls.
fn cuts(polls: u32) -> impl Iterator<Item = Cut> {
    (1..=polls).flat_map(|polls| [false, true].map(|late| Cut { polls, late }))
}

/// The outcome, if it comes before the cut; the future is dropped then in any case.
async fn until<T>(cut: Cut, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    let mut polls = 0;
    let running = poll_fn(|context| {
        let running = future.as_mut().filter(|_| polls < cut.polls);
        let Some(running) = running else { return Poll::Ready(None) };
        polls += 1;
        match running.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if polls < cut.polls || cut.late => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    });
    let outcome = timeout(WHILE, running).await.ok().flatten();
    drop(future.take());
    outcome
}

/// Takes the lock, up to the cut. Whether it came to an end.
async fn try_lock(locks: &Locks, name: &LockName, options: &LockOptions, cut: Cut) -> bool {
    match until(cut, locks.lock(name, options)).await {
        Some(outcome) => {
            let guard = outcome.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            guard.release().await.expect("a release");
            true
        }
        None => false,
    }
}

/// Nothing is left on the server, and no turn in either process.
async fn assert_clean(locks: &Locks, others: &Locks, name: &LockName, what: &str) {
    locks.flush().await;
    assert_free_for(others, name, what).await;
    assert_free_for(locks, name, what).await;
}

async fn a_free_lock(arena: &Arena) {
    let (locks, others) = arena.two_locks().await;
    let options = arena.options(Duration::ZERO);
    for cut in cuts(MANY) {
        let name = fresh_name();
        let ended = try_lock(&locks, &name, &options, cut).await;
        assert_clean(&locks, &others, &name, &format!("an acquire: {cut:?}")).await;
        if ended {
            return;
        }
    }
    panic!("a free lock is not taken within {MANY} polls");
}

async fn a_busy_lock(arena: &Arena) {
    let (locks, others) = arena.two_locks().await;
    let patient = arena.options(Duration::from_secs(10));
    for cut in cuts(SOME) {
        let name = fresh_name();
        let held = others.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        // The second of the process waits for its turn there, where there is one.
        let gone = tokio::join!(
            try_lock(&locks, &name, &patient, cut),
            try_lock(&locks, &name, &patient, cut),
        );
        assert_eq!(gone, (false, false), "two hold it");
        locks.flush().await;
        held.release().await.expect("a release");
        assert_clean(&locks, &others, &name, &format!("a waiter: {cut:?}")).await;
    }
}

async fn a_hand_off(arena: &Arena) {
    let (locks, others) = arena.two_locks().await;
    let patient = arena.options(Duration::from_secs(10));
    for cut in cuts(SOME) {
        let name = fresh_name();
        let held = others.lock(&name, &arena.options(Duration::ZERO)).await.expect("it is free");
        // Begins to wait, sees the release come, and goes away at the next step or a later one.
        let (_, released) = tokio::join!(try_lock(&locks, &name, &patient, cut), held.release());
        released.expect("a release");
        assert_clean(&locks, &others, &name, &format!("a hand-off: {cut:?}")).await;
    }
}

async fn a_release(arena: &Arena) {
    let (locks, others) = arena.two_locks().await;
    let options = arena.options(Duration::ZERO);
    for cut in cuts(MANY) {
        let name = fresh_name();
        let guard = locks.lock(&name, &options).await.expect("it is free");
        let outcome = until(cut, guard.release()).await;
        assert_clean(&locks, &others, &name, &format!("a release: {cut:?}")).await;
        if let Some(outcome) = outcome {
            outcome.expect("a release");
            return;
        }
    }
    panic!("a release does not end within {MANY} polls");
}
