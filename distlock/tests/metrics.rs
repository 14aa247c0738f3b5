//! What is measured of a lock that changes hands and is renewed, on a real Redis. What is given up
//! is counted in `background.rs`, how late many renewals are in `watchdog_load.rs`.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use distlock::{Backends, LockKind, Locks, locker};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};
use support::redisson::kept;
use support::{connect, eventually, fresh_name, server};

/// A third of it is the rhythm of renewal.
const LEASE: Duration = Duration::from_millis(900);

type Series = HashMap<(String, String), Vec<f64>>;

/// What each histogram and each counter was told, by its name and the kind.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Series>>);

impl Told {
    fn of(&self, name: &str) -> Vec<f64> {
        let key = (name.to_owned(), "redisson".to_owned());
        self.0.lock().expect("no panic").get(&key).cloned().unwrap_or_default()
    }
}

struct One(Told, (String, String));

impl One {
    fn new(told: &Told, key: &Key) -> Arc<Self> {
        let kind = key.labels().find(|label| label.key() == "kind").expect("a kind");
        Arc::new(Self(told.clone(), (key.name().to_owned(), kind.value().to_owned())))
    }
}

impl HistogramFn for One {
    fn record(&self, seconds: f64) {
        let mut told = self.0.0.lock().expect("no panic");
        told.entry(self.1.clone()).or_default().push(seconds);
    }
}

impl CounterFn for One {
    fn increment(&self, _: u64) {
        self.record(1.0);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Told {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(One::new(self, key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(One::new(self, key))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_and_the_renewals_of_a_lock_are_measured() {
    let redis = Some(connect(server().url()).await);
    let backends = Backends { redis, ..Backends::default() };
    let mechanism = locker(LockKind::Redisson, &backends).expect("a locker");
    let told = Told::default();
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
    let renewals = || told.of("distlock_renewal_late_seconds");
    eventually("it is renewed twice", async || renewals().len() >= 2).await;
    assert!(renewals().iter().all(|late| (0.0..begun.elapsed().as_secs_f64()).contains(late)));
    assert!(told.of("distlock_hand_off_seconds").is_empty(), "it did not have to wait");
    held.release().await.expect("a release");

    let held = others.lock(&name, &patient).await.expect("it is free");
    let waiter = tokio::spawn({
        let (locks, name) = (locks.clone(), name.clone());
        async move { locks.lock(&name, &patient).await }
    });
    eventually("it has to wait", async || !told.of("distlock_busy_total").is_empty()).await;
    let freed = Instant::now();
    held.release().await.expect("a release");
    let guard = waiter.await.expect("no panic").expect("it was released");
    let hand_offs = told.of("distlock_hand_off_seconds");
    assert_eq!(hand_offs.len(), 1, "{hand_offs:?}");
    assert!((0.0..=freed.elapsed().as_secs_f64()).contains(&hand_offs[0]), "{hand_offs:?}");
    guard.release().await.expect("a release");
}
