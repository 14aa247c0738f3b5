//! Work that ends when its lock is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use distlock::{Lease, LockError, LockKind, LockOptions, Release};
use tokio::time::{sleep, timeout};

use crate::support::{
    LONG, Look, but_for_one_standstill, connect, fresh_name, granted, locks_of, server,
};

/// Renewed at each third of it.
const LEASE: Duration = Duration::from_secs(3);
/// For timers and the answer of a renewal.
const SLACK: Duration = Duration::from_millis(500);

/// Work without an end, which counts its steps.
async fn endless(steps: Arc<AtomicU64>) {
    loop {
        steps.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn work_ends_within_a_third_of_the_lease_after_its_lock_was_taken_away() {
    but_for_one_standstill(ends_in_time_after_its_lock_was_taken_away).await;
}

async fn ends_in_time_after_its_lock_was_taken_away() -> Result<(), String> {
    let url = server().url();
    let (look, name) = (Look::at(url).await, fresh_name());
    let locks = locks_of(LockKind::Redisson, connect(url).await);
    let options = LockOptions::new(Duration::ZERO, Lease::Renewed(LEASE));
    let guard = locks.lock(&name, &options).await.expect("the lock");
    let steps = Arc::new(AtomicU64::new(0));
    let taken_away = async {
        sleep(Duration::from_millis(100)).await;
        look.delete(&name).await;
        Instant::now()
    };
    let (outcome, since) = tokio::join!(
        async { (timeout(LONG, guard.run(endless(Arc::clone(&steps)))).await, Instant::now()) },
        taken_away
    );
    let (outcome, ended) = outcome;
    let outcome = outcome.expect("an end");
    assert!(matches!(outcome, Err(LockError::Lost)), "{outcome:?}");
    let took = ended - since;
    assert_eq!(Arc::strong_count(&steps), 1, "the work's future is dropped");
    let done = steps.load(Ordering::Relaxed);
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
    let is_in_time = took <= LEASE / 3 + SLACK && done > 10;
    if is_in_time { Ok(()) } else { Err(format!("it worked on for {took:?}, in {done} steps")) }
}

#[tokio::test]
async fn work_ends_with_the_validity_time_while_the_server_is_silent() {
    but_for_one_standstill(ends_with_the_validity_time).await;
}

async fn ends_with_the_validity_time() -> Result<(), String> {
    let own = testbed::Bed::start().expect("a private bed");
    let redis = own.redis(testbed::RedisOptions::default()).expect("Redis is installed");
    let locks = locks_of(LockKind::Redisson, connect(redis.url()).await);
    let lease = Duration::from_secs(1);
    let options = LockOptions::new(Duration::ZERO, Lease::Renewed(lease));
    let guard = granted(&locks, &fresh_name(), &options).await;
    let begun = Instant::now();
    redis.freeze().expect("a frozen server");
    let outcome = timeout(LONG, guard.run(endless(Arc::default()))).await.expect("an end");
    assert!(matches!(outcome, Err(LockError::Lost)), "{outcome:?}");
    let took = begun.elapsed();
    redis.thaw().expect("a server that answers");
    let is_in_time = took >= lease / 2 && took <= lease + SLACK;
    if is_in_time { Ok(()) } else { Err(format!("it worked for {took:?}")) }
}

#[tokio::test]
async fn work_is_not_begun_without_its_lock_and_its_outcome_counts_only_with_it() {
    let (name, url) = (fresh_name(), server().url());
    let locks = locks_of(LockKind::Redisson, connect(url).await);
    let options = LockOptions::new(LONG, Lease::Fixed(Duration::from_millis(100)));
    let guard = granted(&locks, &name, &options).await;
    // Without an await nothing can interrupt the work.
    let blocking = async { std::thread::sleep(Duration::from_millis(200)) };
    assert!(matches!(guard.run(blocking).await, Err(LockError::Lost)));
    let begun = AtomicU64::new(0);
    let work = async { begun.fetch_add(1, Ordering::Relaxed) };
    assert!(matches!(guard.run(work).await, Err(LockError::Lost)));
    assert_eq!(begun.into_inner(), 0);
    let options = LockOptions::new(LONG, Lease::Fixed(LONG));
    let sum = locks.run(&name, &options, async { 1 + 1 }).await.expect("it is held");
    assert_eq!(sum, 2);
    let again = locks.try_lock(&name, options.lease).await.expect("an answer");
    assert!(again.is_some(), "it was released");
}
