//! Background tasks of dropped callers are bounded. A server that does not answer costs a process
//! at most that number of tasks, and never delays the drop of a guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use distlock::BoxFuture;
use distlock::{
    Acquisition, Guarantees, Guard, Hold, Lease, LockError, LockKind, LockName, LockOptions,
    Locker, Locks, Release, Request, Validity, guarantees,
};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// As `Locks::flush` says.
const LIMIT: usize = 16_384;
/// Dropped when this number of tasks runs.
const DROPPED_TASKS: usize = 100;
/// Nothing here ends by time.
const LONG: Duration = Duration::from_hours(1);
const DEADLINE: Duration = Duration::from_secs(20);

/// Grants whatever it is asked for; releases wait for a place at the gate.
#[derive(Clone)]
struct SlowLocker {
    gate: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
    released: Arc<AtomicUsize>,
}

impl Locker for SlowLocker {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::LuaRelease)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(SlowAcquisition(self.clone(), request))
    }
}

struct SlowAcquisition(SlowLocker, Request);

impl Acquisition for SlowAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let validity = Validity::of_lease(Instant::now(), self.1.lease);
            Ok(Some(Box::new(SlowHold(self.0.clone(), validity)) as Box<dyn Hold>))
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }
}

struct SlowHold(SlowLocker, Validity);

impl Hold for SlowHold {
    fn validity(&self) -> Validity {
        self.1
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            self.0.begun.fetch_add(1, Ordering::SeqCst);
            let _place = self.0.gate.acquire().await;
            self.0.released.fetch_add(1, Ordering::SeqCst);
            Ok(Release::Released)
        })
    }
}

/// How many releases were given up.
#[derive(Clone, Default)]
struct GivenUp(Arc<AtomicU64>);

impl Recorder for GivenUp {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            "distlock_cleanups_dropped_total" => Counter::from_arc(Arc::clone(&self.0)),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

async fn take(locks: &Locks, number: usize) -> Guard {
    let name = LockName::new(format!("lock:{number}")).expect("a good name");
    let options = LockOptions::new(Duration::ZERO, Lease::Fixed(LONG));
    locks.lock(&name, &options).await.expect("it is free")
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_beyond_the_bound_are_dropped_and_counted_without_a_wait() {
    let (begun, released) = (Arc::default(), Arc::default());
    let slow = SlowLocker { gate: Arc::new(Semaphore::new(0)), begun, released };
    let given_up = GivenUp::default();
    let locks = with_local_recorder(&given_up, || Locks::new(Arc::new(slow.clone())));
    for number in 0..LIMIT + DROPPED_TASKS {
        drop(take(&locks, number).await);
    }
    assert_eq!(given_up.0.load(Ordering::SeqCst), DROPPED_TASKS as u64);
    // Nothing of a lock that was given up is left in the process.
    drop(take(&locks, LIMIT + DROPPED_TASKS - 1).await);
    assert_eq!(given_up.0.load(Ordering::SeqCst), DROPPED_TASKS as u64 + 1);

    slow.gate.add_permits(LIMIT);
    timeout(DEADLINE, locks.flush()).await.expect("what is under way comes to its end");
    assert_eq!(slow.begun.load(Ordering::SeqCst), LIMIT, "one for each place");
    assert_eq!(slow.released.load(Ordering::SeqCst), LIMIT, "and all of them");
    drop(take(&locks, 0).await);
    timeout(DEADLINE, locks.flush()).await.expect("there is room again");
    assert_eq!(slow.released.load(Ordering::SeqCst), LIMIT + 1);
    assert_eq!(given_up.0.load(Ordering::SeqCst), DROPPED_TASKS as u64 + 1);
}
