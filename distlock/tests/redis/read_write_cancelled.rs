//! A reader or a writer that goes away at any point of an acquisition leaves nothing behind. The
//! suite asks that of the writers, as of every kind; no kind is the readers alone. The future is
//! polled once, then twice, and so on until it comes to its end, and dropped each time.

use std::time::Duration;

use crate::support::dropped::up_to;
use crate::support::scene::{Scene, at_once, patient, waiting};
use crate::support::{connect, server};
use distlock::{Guard, LockError, Locks, ReadWrite, Release};

const WRITERS: &str = "distlock_rw_writers";
const READERS: &str = "distlock_rw_readers";
/// More polls than anything takes that is asked for here.
const MANY: usize = 100;
/// How long a wait lasts that has to run to its end.
const SHORT_WAIT: Duration = Duration::from_millis(500);
/// The number of polls at which a hand-off is cut, and the number of hand-offs that are completed.
const SOME: usize = 10;
const ENDS: u32 = 3;

/// Both sides of one process, each with the queue of its waiters, and the writers of another.
async fn sides() -> (Scene, [(Locks, &'static str); 2], Locks) {
    let (own, other) = (connect(server().url()).await, connect(server().url()).await);
    let (own, other) = (ReadWrite::new(&own), ReadWrite::new(&other));
    let sides = [(own.reader(), READERS), (own.writer(), WRITERS)];
    let sides = sides.map(|(locker, queue)| (Locks::new(locker), queue));
    (Scene::new().await, sides, Locks::new(other.writer()))
}

async fn release(guard: Guard) {
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

async fn write(other: &Locks, scene: &Scene) -> Guard {
    other.lock(&scene.name, &at_once()).await.expect("the write lock")
}

/// This side has no holder and no waiter, and a writer of the other process gets in.
async fn assert_clean(side: &Locks, other: &Locks, scene: &Scene, polls: usize) {
    side.flush().await;
    assert_eq!(scene.keys().await, [""; 0], "{polls} polls");
    release(write(other, scene).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_of_a_free_lock_dropped_at_any_point_leaves_nothing_behind() {
    let (scene, sides, other) = sides().await;
    for (side, _) in &sides {
        for polls in 1.. {
            assert!(polls < MANY, "it is not taken");
            let options = at_once();
            let outcome = up_to(polls, side.lock(&scene.name, &options)).await;
            // A guard that came is dropped as well.
            let taken = outcome.map(|outcome| outcome.expect("it is free")).is_some();
            assert_clean(side, &other, &scene, polls).await;
            if taken {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_dropped_at_any_point_until_its_wait_is_over_leaves_nothing_behind() {
    let (scene, sides, other) = sides().await;
    for (side, queue) in &sides {
        let (mut polls, mut queued, mut has_ended) = (0, 0, false);
        for _ in 0..MANY {
            polls += 1;
            let holder = write(&other, &scene).await;
            let options = waiting(SHORT_WAIT);
            let mut wait = Box::pin(side.lock(&scene.name, &options));
            let outcome = up_to(polls, wait.as_mut()).await;
            let ended = match outcome {
                Some(Err(LockError::TimedOut { .. })) => true,
                Some(outcome) => panic!("{polls} polls: {:?}", outcome.err()),
                None => false,
            };
            queued += usize::from(!ended && !scene.members(queue).await.is_empty());
            drop(wait);
            side.flush().await;
            assert_eq!(scene.members(queue).await, [""; 0], "{polls} polls");
            release(holder).await;
            assert_clean(side, &other, &scene, polls).await;
            has_ended |= ended;
            if has_ended && queued > 0 {
                break;
            }
            // A machine that was slow may have brought two steps to one poll, so that none of
            // these was the last one before the end.
            if ended {
                polls = 0;
            }
        }
        assert!(has_ended && queued > 0, "ended: {has_ended}; {queued} were dropped in {queue}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_dropped_at_any_point_of_the_hand_off_leaves_nothing_behind() {
    let (scene, sides, other) = sides().await;
    for (side, _) in &sides {
        let mut ends = 0;
        for polls in 1.. {
            assert!(polls < MANY, "a hand-off does not end");
            let (holder, options) = (write(&other, &scene).await, patient());
            let wait = up_to(polls, side.lock(&scene.name, &options));
            let (outcome, ()) = tokio::join!(wait, release(holder));
            if let Some(outcome) = outcome {
                release(outcome.expect("the lock")).await;
                ends += 1;
            }
            assert_clean(side, &other, &scene, polls).await;
            if ends >= ENDS && polls >= SOME {
                break;
            }
        }
    }
}
