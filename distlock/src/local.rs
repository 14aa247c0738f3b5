//! `local`: a fair mutex per name inside this process.
//!
//! How it works: the key guard is the hold; it is handed to the next waiter, so no later task can
//! overtake. Guarantees exclusion inside one process. Flaw: two replicas do not see each other, so
//! each has a holder. Source: the JVM's `synchronized` and `ReentrantLock`. Tests:
//! `conformance/tests/flaws/no_exclusion.rs`, `loadtest compare`.

use std::any::Any;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::keyed::{KeyGuard, KeyedMutex};
use crate::lock_metrics::LockMetrics;
use crate::{
    Acquisition, Guarantees, Guard, Hold, LockError, LockKind, LockName, Locker, Release, Request,
    Validity, WakeEvent, WakeStrategy, guarantees,
};

/// A wait that is no shorter may last ten milliseconds longer (see `keyed/slow_waiter_waker.rs`).
const SLOW_WAIT_MIN: Duration = Duration::from_millis(100);

pub(crate) struct Local {
    names: KeyedMutex,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { names: KeyedMutex::new() }
    }

    /// The mutex of that mechanism, if it is this one.
    pub(crate) fn mutex_of(locker: &dyn Locker) -> Option<KeyedMutex> {
        let locker: &dyn Any = locker;
        locker.downcast_ref::<Self>().map(|local| local.names.clone())
    }
}

impl Locker for Local {
    fn name(&self) -> &'static str {
        LockKind::Local.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Local)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(LocalAcquisition { names: self.names.clone(), name: request.name })
    }
}

/// Takes the lock, waiting at most `wait`. Most waits inside a process are shorter than a timer is
/// worth. So only waits shorter than [`SLOW_WAIT_MIN`], and waits that have lasted for a tick, have
/// a timer.
pub(crate) async fn acquire(
    keys: &KeyedMutex,
    name: &LockName,
    wait: Duration,
    metrics: &LockMetrics,
) -> Result<Guard, LockError> {
    metrics.record_attempt();
    let gave_up = |waited| {
        metrics.record_timeout(waited);
        LockError::TimedOut { waited, has_no_expiry: false, holder: None }
    };
    if wait.is_zero() {
        let Some(key_guard) = keys.try_lock(name) else {
            metrics.record_contention();
            return Err(gave_up(Duration::ZERO));
        };
        metrics.record_acquisition(Duration::ZERO);
        return Ok(Guard::of_key_guard(key_guard, metrics));
    }
    let mut key_guard =
        if wait < SLOW_WAIT_MIN { keys.lock(name) } else { keys.lock(name).with_slow_wake() };
    let mut asked: Option<Instant> = None;
    let mut end: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let is_new = !key_guard.is_queued();
        if let Poll::Ready(key_guard) = Pin::new(&mut key_guard).poll(cx) {
            // Without a recorder the clock is not read: the acquisition is counted, its wait is
            // not.
            let waited = asked.map_or(Duration::ZERO, |asked| asked.elapsed());
            if asked.is_some() {
                metrics.record_hand_off(
                    key_guard.free_since().map_or(Duration::ZERO, |free| free.elapsed()),
                );
            }
            metrics.record_acquisition(waited);
            return Poll::Ready(Ok(Guard::of_key_guard(key_guard, metrics)));
        }
        if is_new {
            metrics.record_contention();
            asked = metrics.now();
        }
        if end.is_none()
            && let Some(came) = key_guard.late()
        {
            let came = *asked.get_or_insert_with(|| Instant::now() - came.elapsed());
            end = Some(Box::pin(sleep_until(came + wait)));
        }
        let Some(end) = &mut end else { return Poll::Pending };
        let end = end.as_mut().poll(cx);
        end.map(|()| Err(gave_up(asked.map_or(wait, |asked| asked.elapsed()))))
    })
    .await
}

/// An acquisition of `local` through the general path: for locks with `max_hold`, and for members
/// of a `multi`.
struct LocalAcquisition {
    names: KeyedMutex,
    name: LockName,
}

impl Acquisition for LocalAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let key_guard = self.names.try_lock(&self.name);
            Ok(key_guard.map(|key_guard| Box::new(LocalHold(Some(key_guard))) as Box<dyn Hold>))
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(async {
            let key_guard = self.names.lock(&self.name).await;
            let since = key_guard.free_since().unwrap_or_else(Instant::now);
            Ok(WakeEvent::Acquired { hold: Box::new(LocalHold(Some(key_guard))), since })
        }))
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { Ok(()) })
    }
}

struct LocalHold(Option<KeyGuard>);

impl Hold for LocalHold {
    fn validity(&self) -> Validity {
        Validity::UNBOUNDED
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let Some(mut key_guard) = self.0.take() else { return Ok(Release::Gone) };
            key_guard.end(Some(Instant::now()));
            Ok(Release::Released)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::{Lease, LockOptions, Locks};

    const LEASE: Lease = Lease::Fixed(Duration::from_secs(1));

    #[tokio::test]
    async fn a_guard_of_local_is_never_lost_and_frees_at_once() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let guard = locks.try_lock(&name, LEASE).await.unwrap().unwrap();
        assert_eq!(guard.owner(), guard.owner());
        assert!(
            !guard.is_lost() && guard.lost_signal().cause().is_none() && guard.token().is_none()
        );
        assert_eq!(
            (guard.validity(), guard.lost_signal().validity()),
            (Validity::UNBOUNDED, Validity::UNBOUNDED)
        );
        let lost = tokio::time::timeout(Duration::from_millis(20), guard.lost()).await;
        assert!(lost.is_err(), "nothing can end it");
        assert!(locks.try_lock(&name, LEASE).await.unwrap().is_none());
        let owner = guard.owner().clone();
        drop(guard);
        let next = locks.try_lock(&name, LEASE).await.unwrap().expect("free at once");
        assert_ne!(*next.owner(), owner);
        assert_eq!(next.release().await.unwrap(), Release::Released);
    }

    #[tokio::test]
    async fn a_lock_that_is_held_no_longer_than_it_may_be_is_freed_although_its_guard_is_there() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let wait = Duration::from_secs(10);
        let short = LockOptions { max_hold: Some(LockOptions::MIN_LEASE), ..options(wait) };
        let guard = locks.lock(&name, &short).await.unwrap();
        let next = locks.lock(&name, &options(wait)).await.expect("the same turns");
        assert!(guard.is_lost() && !next.is_lost());
        assert_eq!(guard.release().await.unwrap(), Release::Gone);
        assert!(locks.try_lock(&name, LEASE).await.unwrap().is_none(), "it is the next one's");
    }

    #[tokio::test]
    async fn a_wait_ends_in_its_time_be_it_too_short_for_the_watch_or_not() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let _guard = locks.try_lock(&name, LEASE).await.unwrap().unwrap();
        for wait in [SLOW_WAIT_MIN / 5, SLOW_WAIT_MIN * 2] {
            let (began, options) = (Instant::now(), options(wait));
            let ended = timeout(Duration::from_secs(10), locks.lock(&name, &options)).await;
            match ended.expect("it ends").unwrap_err() {
                LockError::TimedOut { waited, .. } => assert!(waited >= wait, "{waited:?}"),
                other => panic!("{other}"),
            }
            assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn an_attempt_without_a_wait_takes_no_place_in_the_queue() {
        let (local, name) = (Local::new(), LockName::new("a").unwrap());
        let (keys, metrics) = (local.names.clone(), LockMetrics::for_kind("a"));
        let key_guard = keys.try_lock(&name).unwrap();
        assert!(acquire(&keys, &name, Duration::ZERO, &metrics).await.is_err());
        assert_eq!(key_guard.waited_for(), 0, "it had no place that the turn could be given to");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn patient_waiters_get_the_lock_among_others_that_give_up_around_their_wake_up() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let inside = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..24 {
            let (locks, name, inside) = (locks.clone(), name.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let wait = [Duration::ZERO, SLOW_WAIT_MIN / 10, SLOW_WAIT_MIN, SLOW_WAIT_MIN * 100]
                    [task % 4];
                for pass in 0..20 {
                    match locks.lock(&name, &options(wait)).await {
                        Ok(guard) => {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two have the lock");
                            sleep(Duration::from_micros(pass % 4 * 700)).await;
                            inside.fetch_sub(1, SeqCst);
                            drop(guard);
                        }
                        Err(error) => assert!(wait <= SLOW_WAIT_MIN, "{error}"),
                    }
                }
            });
        }
        let ended = timeout(SLOW_WAIT_MIN * 600, tasks.join_all()).await;
        ended.expect("nobody waits for ever");
        assert!(locks.try_lock(&name, LEASE).await.unwrap().is_some(), "no turn is lost");
    }

    fn options(wait: Duration) -> LockOptions {
        LockOptions::new(wait, LEASE)
    }
}
