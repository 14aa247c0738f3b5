//! What is measured of each kind, under its own name, when it happens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::Addresses;
use distlock::{HoldKind, Lease, LockKind, LockOptions, Locks, RenewalKind};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};

use crate::arena::{Arena, Check, LONG, eventually, fresh_name, of_all, of_locks};

/// How long a hold may last in a check.
const BRIEF: Duration = Duration::from_millis(900);
/// A lease that is renewed in a check, though its server stands still for a moment.
const RENEWED: Duration = Duration::from_millis(3600);

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "what_is_taken_renewed_and_lost_is_counted_under_its_kind",
        asked: of_all,
        run: |arena| arena.run(async || a_hold_is_counted(arena).await),
    },
    Check {
        name: "a_waiter_is_counted_under_its_kind",
        asked: of_locks,
        run: |arena| arena.run(async || a_wait_is_counted(arena).await),
    },
];

/// How often each instrument was told something, by its name and the kind.
#[derive(Clone, Default)]
struct RecordedMetrics(Arc<Mutex<HashMap<(String, String), u64>>>);

struct Instrument(RecordedMetrics, (String, String));

impl RecordedMetrics {
    /// Locks of that kind that are measured here, with connections of their own.
    async fn locks(&self, arena: &Arena) -> Locks {
        let mechanism = arena.locker(&arena.backends().await).expect("its server is there");
        with_local_recorder(self, || Locks::new(mechanism))
    }

    fn of(&self, kind: LockKind, name: &str) -> u64 {
        let key = (format!("distlock_{name}"), kind.to_string());
        self.0.lock().expect("no panic").get(&key).copied().unwrap_or_default()
    }

    fn one(&self, key: &Key) -> Arc<Instrument> {
        let kind = key.labels().find(|label| label.key() == "kind").expect("a kind");
        Arc::new(Instrument(self.clone(), (key.name().to_owned(), kind.value().to_owned())))
    }
}

impl Instrument {
    fn add(&self, count: u64) {
        *self.0.0.lock().expect("no panic").entry(self.1.clone()).or_default() += count;
    }
}

impl HistogramFn for Instrument {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl CounterFn for Instrument {
    fn increment(&self, count: u64) {
        self.add(count);
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for RecordedMetrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

async fn a_hold_is_counted(arena: &Arena) {
    let (told, kind) = (RecordedMetrics::default(), arena.kind);
    let locks = told.locks(arena).await;
    let guard = locks.lock(&fresh_name(), &arena.options(LONG)).await.expect("the lock is free");
    for name in ["attempts_total", "acquisitions_total", "wait_seconds"] {
        assert!(told.of(kind, name) >= 1, "{name}");
    }
    assert_eq!(told.of(kind, "hold_seconds"), 0);
    guard.release().await.expect("a release");
    assert_eq!((told.of(kind, "hold_seconds"), told.of(kind, "losses_total")), (1, 0));

    let is_renewed = matches!(arena.promise.renewal, RenewalKind::Yes | RenewalKind::Heartbeat);
    if is_renewed {
        let options = LockOptions::new(LONG, Lease::Renewed(RENEWED));
        let guard = locks.lock(&fresh_name(), &options).await.expect("the lock is free");
        eventually("it is renewed", || told.of(kind, "renewal_delay_seconds") > 0);
        drop(guard.release().await);
    }

    if arena.promise.hold != HoldKind::Nothing {
        let before = told.of(kind, "losses_total");
        let options = LockOptions::new(LONG, arena.promise.lease(LONG));
        let options = LockOptions { max_hold: Some(BRIEF), ..options };
        let guard = locks.lock(&fresh_name(), &options).await.expect("the lock is free");
        eventually("it has been held for as long as it may", || guard.is_lost());
        drop(guard.release().await);
        eventually("its loss is counted", || told.of(kind, "losses_total") == before + 1);
    }

    let backends = Addresses::nowhere().connect().await.expect("addresses");
    // Some kinds need no server, others cannot be made without theirs.
    if let (true, Ok(nowhere)) = (arena.promise.is_on_a_server(), arena.locker(&backends)) {
        let nowhere = with_local_recorder(&told, || Locks::new(nowhere));
        let before = told.of(kind, "errors_total");
        let options = arena.options(Duration::ZERO);
        nowhere.lock(&fresh_name(), &options).await.expect_err("there is no server");
        assert_eq!(told.of(kind, "errors_total"), before + 1);
    }
}

async fn a_wait_is_counted(arena: &Arena) {
    let (told, kind, name) = (RecordedMetrics::default(), arena.kind, fresh_name());
    let locks = told.locks(arena).await;
    // Where processes do not meet, the holder is in the same one.
    let others = if arena.promise.is_on_a_server() { arena.locks().await } else { locks.clone() };
    let guard = others.lock(&name, &arena.options(LONG)).await.expect("the lock is free");
    let refused = locks.lock(&name, &arena.options(Duration::ZERO)).await;
    refused.expect_err("the lock is held");
    assert_eq!(told.of(kind, "timeouts_total"), 1);
    assert!(told.of(kind, "contended_attempts_total") >= 1);

    let (busy, hand_offs) =
        (told.of(kind, "contended_attempts_total"), told.of(kind, "hand_off_seconds"));
    let waiting = tokio::spawn({
        let (locks, name, options) = (locks.clone(), name.clone(), arena.options(LONG));
        async move { locks.lock(&name, &options).await }
    });
    eventually("it has to wait", || told.of(kind, "contended_attempts_total") > busy);
    guard.release().await.expect("a release");
    let guard = waiting.await.expect("no panic").expect("it was released");
    assert_eq!(told.of(kind, "hand_off_seconds"), hand_offs + 1);
    drop(guard.release().await);
}
