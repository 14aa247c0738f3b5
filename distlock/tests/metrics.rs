//! What is measured of a lock that changes hands and is renewed, on a real Redis. What is given up
//! is counted in `background.rs`, how late many renewals are in `watchdog_load.rs`.

mod support;

use std::pin::pin;
use std::time::{Duration, Instant};

use distlock::{Backends, Lease, LockKind, Locks, locker};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use support::redisson::kept;
use support::told::{LATE, RecordedMetrics};
use support::{connect, eventually, fresh_name, server};
use tokio::time::timeout;

/// A third of it is the rhythm of renewal.
const LEASE: Duration = Duration::from_millis(3600);

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_and_the_renewals_of_a_lock_are_measured() {
    let redis = Some(connect(server().url()).await);
    let backends = Backends { redis, ..Backends::default() };
    let mechanism = locker(LockKind::Redisson, &backends).expect("a locker");
    let told = RecordedMetrics::default();
    let locks = with_local_recorder(&told, || Locks::new(mechanism));
    // Another process, as far as the server can see.
    let others = Locks::new({
        let redis = Some(connect(server().url()).await);
        let backends = Backends { redis, ..Backends::default() };
        locker(LockKind::Redisson, &backends).expect("a locker")
    });
    let (name, patient) = (fresh_name(), kept(Duration::from_secs(20), LEASE));

    let begun = Instant::now();
    let held = locks.lock(&name, &patient).await.expect("it is free");
    let renewals = || told.of(LATE);
    eventually("it is renewed twice", async || renewals().len() >= 2).await;
    assert!(renewals().iter().all(|late| (0.0..begun.elapsed().as_secs_f64()).contains(late)));
    assert!(told.of("distlock_hand_off_seconds").is_empty(), "it did not have to wait");
    held.release().await.expect("a release");

    let held = others.lock(&name, &patient).await.expect("it is free");
    let waiter = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &patient).await }
    });
    // It asks once more when it is subscribed.
    let contended = || told.of("distlock_contended_attempts_total").len();
    eventually("it waits for the message", async || contended() >= 2).await;
    let freed = Instant::now();
    held.release().await.expect("a release");
    let guard = waiter.await.expect("no panic").expect("it was released");
    let hand_offs = told.of("distlock_hand_off_seconds");
    assert_eq!(hand_offs.len(), 1, "{hand_offs:?}");
    assert!((0.0..=freed.elapsed().as_secs_f64()).contains(&hand_offs[0]), "{hand_offs:?}");
    guard.release().await.expect("a release");
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_in_the_process_is_measured_as_well() {
    let mechanism = locker(LockKind::Local, &Backends::default()).expect("a locker");
    let told = RecordedMetrics::default();
    let locks = with_local_recorder(&told, || Locks::new(mechanism));
    let (name, patient) = (fresh_name(), kept(Duration::from_secs(20), LEASE));
    let held = locks.lock(&name, &patient).await.expect("it is free");
    let waiter = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &patient).await }
    });
    let second = Duration::from_secs(1);
    tokio::time::sleep(second).await;
    assert!(locks.try_lock(&name, Lease::Fixed(LEASE)).await.expect("no error").is_none());
    held.release().await.expect("a release");
    let guard = waiter.await.expect("no panic").expect("it was released");
    tokio::time::sleep(2 * second).await;
    guard.release().await.expect("a release");

    assert_eq!(told.of("distlock_attempts_total").len(), 3);
    assert_eq!(told.of("distlock_contended_attempts_total").len(), 2);
    assert_eq!(told.of("distlock_acquisitions_total").len(), 2);
    assert_eq!(told.of("distlock_timeouts_total").len(), 1);
    assert_eq!(told.of("distlock_hand_off_seconds"), [0.0]);
    assert_eq!(told.of("distlock_wait_seconds"), [0.0, 0.0, 1.0]);
    assert_eq!(told.of("distlock_hold_seconds"), [1.0, 2.0]);
}

/// A recorder of counters and of nothing else.
struct Counters(RecordedMetrics);

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.0.register_counter(key, metadata)
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn a_recorder_without_times_still_gets_the_counts() {
    let mechanism = locker(LockKind::Local, &Backends::default()).expect("a locker");
    let told = RecordedMetrics::default();
    let locks = with_local_recorder(&Counters(told.clone()), || Locks::new(mechanism));
    let (name, patient) = (fresh_name(), kept(Duration::from_secs(20), LEASE));
    let held = locks.lock(&name, &patient).await.expect("it is free");
    let mut waiter = pin!(locks.lock(&name, &patient));
    assert!(timeout(Duration::from_millis(1), waiter.as_mut()).await.is_err());
    drop(held);
    waiter.await.expect("it was released").release().await.expect("a release");
    for (name, times) in
        [("attempts", 2), ("contended_attempts", 1), ("acquisitions", 2), ("timeouts", 0)]
    {
        assert_eq!(told.of(&format!("distlock_{name}_total")).len(), times, "{name}");
    }
}
