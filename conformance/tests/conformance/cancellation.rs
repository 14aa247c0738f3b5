//! A caller that goes away at any point of an acquisition or a release leaves nothing behind.
//!
//! The future is polled once, then twice, and so on until it comes to its end, and dropped each
//! time: that is every point at which it can be dropped. It is dropped at once, when the server may
//! not have been asked yet, and when it is woken up, which mostly means that there is an answer.
//! Afterwards another process and the same one get the lock at once: neither the server nor the
//! queue in the process has a remnant. No subscription and no connection is left.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use distlock::BoxFuture;
use distlock::mysql::MySqlTokens;
use distlock::{
    Fencing, Guard, LockError, LockKind, LockName, LockOptions, Locks, Token, TokenIssuer,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::timeout;

use crate::arena::{
    Applicability, Arena, Check, LONG, assert_free_for, fresh_name, of_all, of_locks,
};
use crate::residue::Process;

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "an_acquire_dropped_at_any_point_holds_nothing",
        asked: of_all,
        run: |arena| arena.run(async || a_free_lock(arena).await),
    },
    Check {
        name: "a_waiter_cancelled_at_any_point_blocks_no_other",
        asked: of_locks,
        run: |arena| arena.run(async || a_busy_lock(arena).await),
    },
    Check {
        name: "a_waiter_dropped_at_the_hand_off_holds_nothing",
        asked: of_locks,
        run: |arena| arena.run(async || a_hand_off(arena).await),
    },
    Check {
        name: "an_acquire_dropped_while_its_token_is_minted_holds_nothing",
        asked: |subject| {
            let mints = subject.promise.fencing == Fencing::Optional;
            Applicability::of_those_that(mints, "has no tokens of a token source")
        },
        run: |arena| {
            // What blocks while the server starts.
            let _mint = arena.servers.addresses(LockKind::MysqlTable);
            arena.run(async || a_minted_token(arena).await);
        },
    },
    Check {
        name: "a_release_dropped_at_any_point_is_finished",
        asked: of_all,
        run: |arena| arena.run(async || a_release(arena).await),
    },
];

/// More polls than anything takes that is asked for here.
const MANY: u32 = 1000;
/// A waiter that is not told of a hand-off is cut at this number of polls at least, and completes
/// as often.
const SOME: u32 = 10;
const ENDS: u32 = 3;
/// A waiter that is not woken is not polled.
const QUIET_FOR: Duration = Duration::from_millis(100);
/// The wait of an acquire that runs to its end though the lock stays held.
const SHORT_WAIT: Duration = Duration::from_millis(60);

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
struct CancelPoint {
    /// The number of polls after which it is dropped.
    polls: u32,
    /// Not at once, but when it is woken for one more.
    late: bool,
}

/// All cuts of up to that many polls.
fn cuts(polls: u32) -> impl Iterator<Item = CancelPoint> {
    (1..=polls).flat_map(|polls| [false, true].map(|late| CancelPoint { polls, late }))
}

/// The outcome, if it comes before the cut; the future is dropped then in any case.
async fn until<T>(
    cut: CancelPoint,
    at_most: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
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
    let outcome = timeout(at_most, running).await.ok().flatten();
    drop(future.take());
    outcome
}

/// Takes the lock and releases it, up to the cut. Whether it came to an end.
async fn try_lock(locks: &Locks, name: &LockName, options: &LockOptions, cut: CancelPoint) -> bool {
    match until(cut, QUIET_FOR, locks.lock(name, options)).await {
        Some(outcome) => {
            let guard = outcome.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
            guard.release().await.expect("a release");
            true
        }
        None => false,
    }
}

/// Nothing is left on the servers, in either process, and on the ways between them.
async fn assert_clean(one: &Process<'_>, other: &Process<'_>, name: &LockName, what: &str) {
    one.locks.flush().await;
    assert_free_for(&other.locks, name, what).await;
    assert_free_for(&one.locks, name, what).await;
    one.assert_idle(name, what).await;
    other.assert_idle(name, what).await;
}

async fn a_free_lock(arena: &Arena) {
    let (one, other) = Process::two(arena).await;
    let options = arena.options(Duration::ZERO);
    for cut in cuts(MANY) {
        let name = fresh_name();
        let ended = try_lock(&one.locks, &name, &options, cut).await;
        assert_clean(&one, &other, &name, &format!("an acquire: {cut:?}")).await;
        if ended {
            return;
        }
    }
    panic!("a free lock is not taken within {MANY} polls");
}

async fn a_busy_lock(arena: &Arena) {
    let (one, other) = Process::two(arena).await;
    let shortly = arena.options(SHORT_WAIT);
    for cut in cuts(MANY) {
        let name = fresh_name();
        let free = arena.options(Duration::ZERO);
        let held = other.locks.lock(&name, &free).await.expect("it is free");
        // The second of the process waits for its turn there, where there is one.
        let wait = || until(cut, LONG, one.locks.lock(&name, &shortly));
        let gone: (Option<Result<Guard, _>>, Option<Result<Guard, _>>) =
            tokio::join!(wait(), wait());
        let ended = [gone.0, gone.1].map(|outcome| match outcome {
            Some(Ok(_)) => panic!("two hold it"),
            Some(Err(LockError::TimedOut { .. })) => true,
            Some(Err(error)) => panic!("{cut:?}: {error}"),
            None => false,
        });
        one.locks.flush().await;
        held.release().await.expect("a release");
        assert_clean(&one, &other, &name, &format!("a waiter: {cut:?}")).await;
        if ended == [true, true] && !cut.late {
            return;
        }
    }
    panic!("a wait of {SHORT_WAIT:?} does not end within {MANY} polls");
}

async fn a_hand_off(arena: &Arena) {
    let (one, other) = Process::two(arena).await;
    let patient = arena.options(Duration::from_secs(10));
    let mut ends = 0;
    for cut in cuts(MANY) {
        let name = fresh_name();
        let free = arena.options(Duration::ZERO);
        let held = other.locks.lock(&name, &free).await.expect("it is free");
        // Begins to wait, sees the release come, and goes away at the next step or a later one.
        let waiting = try_lock(&one.locks, &name, &patient, cut);
        let (ended, released) = tokio::join!(waiting, held.release());
        released.expect("a release");
        assert_clean(&one, &other, &name, &format!("a hand-off: {cut:?}")).await;
        ends += u32::from(ended);
        if ends >= ENDS && cut.polls >= SOME {
            return;
        }
    }
    panic!("a hand-off does not end within {MANY} polls");
}

/// The database's token source, which is asked over a connection; that of the other checks makes a
/// token without ever waiting. Counts those that were begun, and those that were made.
struct CountingIssuer {
    issuer: MySqlTokens,
    begun: AtomicU32,
    made: AtomicU32,
}

impl TokenIssuer for CountingIssuer {
    fn next<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let token = self.issuer.next(name).await;
            self.made.fetch_add(1, Ordering::SeqCst);
            token
        })
    }
}

async fn a_minted_token(arena: &Arena) {
    let (mut one, other) = Process::two(arena).await;
    let addresses = arena.servers.addresses(LockKind::MysqlTable);
    let server = addresses.mysql_server().expect("an address").expect("a database");
    let (begun, made) = (AtomicU32::new(0), AtomicU32::new(0));
    let issuer = Arc::new(CountingIssuer { issuer: MySqlTokens::new(&server), begun, made });
    one.locks = one.locks.with_token_issuer(Arc::clone(&issuer) as _);
    let options = arena.options(Duration::ZERO).fenced();
    // How often it is polled meanwhile depends on what comes together, and on the machine.
    for _ in 0..ENDS {
        let mut has_ended = false;
        for cut in cuts(MANY) {
            let name = fresh_name();
            has_ended = try_lock(&one.locks, &name, &options, cut).await;
            assert_clean(&one, &other, &name, &format!("an acquire with a token: {cut:?}")).await;
            if has_ended {
                break;
            }
        }
        assert!(has_ended, "a free lock is not taken within {MANY} polls");
        if issuer.begun.load(Ordering::SeqCst) > issuer.made.load(Ordering::SeqCst) + 1 {
            return;
        }
    }
    panic!("a token is issued within one poll");
}

async fn a_release(arena: &Arena) {
    let (one, other) = Process::two(arena).await;
    let options = arena.options(Duration::ZERO);
    let name = fresh_name();
    drop(one.locks.lock(&name, &options).await.expect("it is free"));
    assert_clean(&one, &other, &name, "a guard that was dropped").await;
    for cut in cuts(MANY) {
        let name = fresh_name();
        let guard = one.locks.lock(&name, &options).await.expect("it is free");
        let outcome = until(cut, QUIET_FOR, guard.release()).await;
        assert_clean(&one, &other, &name, &format!("a release: {cut:?}")).await;
        if let Some(outcome) = outcome {
            outcome.expect("a release");
            return;
        }
    }
    panic!("a release does not end within {MANY} polls");
}
