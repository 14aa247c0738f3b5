//! `local`: a fair mutex per name inside this process.
//!
//! What `synchronized` or `ReentrantLock` give a JVM. The turn itself is the hold; a waiter is
//! handed the turn, so nobody barges in between. It guarantees exclusion inside one process.
//! Flaw: two replicas do not see each other, so each lets one in. Shown by
//! `conformance/tests/flaws/nobody_shares.rs` and `loadtest compare`.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::keyed::{KeyedMutex, Turn};
use crate::meter::Meter;
use crate::{
    Acquisition, Belief, Guarantees, Guard, Hold, LockError, LockKind, LockName, Locker, Release,
    Request, Wake, Woken, guarantees,
};

/// A wait that is no shorter may last ten milliseconds longer (see `keyed/watch.rs`).
const LONG: Duration = Duration::from_millis(100);

pub(crate) struct Local {
    names: KeyedMutex,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self { names: KeyedMutex::new() }
    }
}

impl Locker for Local {
    fn name(&self) -> &'static str {
        LockKind::Local.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Local)
    }

    fn turns(&self) -> Option<&KeyedMutex> {
        Some(&self.names)
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(LocalAcquisition { names: self.names.clone(), name: request.name })
    }
}

/// Takes the turn, which is the whole lock; waits for it at most so long. Most waits in a process
/// are over before a timer would pay, so only those have one that are short or have lasted for a
/// while.
pub(crate) async fn take(
    turns: &KeyedMutex,
    name: &LockName,
    wait: Duration,
    meter: &Meter,
) -> Result<Guard, LockError> {
    meter.attempt();
    let gave_up = |waited| {
        meter.timed_out(waited);
        LockError::TimedOut { waited, is_endless: false }
    };
    if wait.is_zero() {
        let Some(turn) = turns.try_lock(name) else {
            meter.busy();
            return Err(gave_up(Duration::ZERO));
        };
        meter.acquired(Duration::ZERO);
        return Ok(Guard::of_turn(turn, meter));
    }
    let mut turn = if wait < LONG { turns.lock(name) } else { turns.lock(name).watched() };
    let mut asked: Option<Instant> = None;
    let mut end: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        let is_new = !turn.is_queued();
        if let Poll::Ready(turn) = Pin::new(&mut turn).poll(cx) {
            // Without a clock there is nobody to be told how long it took, but only that it did.
            let waited = asked.map_or(Duration::ZERO, |asked| asked.elapsed());
            if asked.is_some() {
                meter.hand_off(turn.free_since().map_or(Duration::ZERO, |free| free.elapsed()));
            }
            meter.acquired(waited);
            return Poll::Ready(Ok(Guard::of_turn(turn, meter)));
        }
        if is_new {
            meter.busy();
            asked = meter.now();
        }
        if end.is_none()
            && let Some(came) = turn.late()
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

/// The same behind what stands above all mechanisms: for a lock that is held no longer than it may
/// be, and as a member of others.
struct LocalAcquisition {
    names: KeyedMutex,
    name: LockName,
}

#[async_trait]
impl Acquisition for LocalAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let turn = self.names.try_lock(&self.name);
        Ok(turn.map(|turn| Box::new(LocalHold(Some(turn))) as Box<dyn Hold>))
    }

    fn wake(&mut self) -> Wake<'_> {
        Wake::Signal(Box::pin(async {
            let turn = self.names.lock(&self.name).await;
            let since = turn.free_since().unwrap_or_else(Instant::now);
            Ok(Woken::Held { hold: Box::new(LocalHold(Some(turn))), since })
        }))
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        Ok(())
    }
}

struct LocalHold(Option<Turn>);

#[async_trait]
impl Hold for LocalHold {
    fn belief(&self) -> Belief {
        Belief::FOREVER
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let Some(mut turn) = self.0.take() else { return Ok(Release::Gone) };
        turn.end(Some(Instant::now()));
        Ok(Release::Released)
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
    async fn a_guard_is_the_turn_free_at_once_and_never_lost() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let guard = locks.try_lock(&name, LEASE).await.unwrap().unwrap();
        assert_eq!(guard.owner(), guard.owner());
        assert!(!guard.is_lost() && guard.loss().cause().is_none() && guard.token().is_none());
        assert_eq!((guard.belief(), guard.loss().belief()), (Belief::FOREVER, Belief::FOREVER));
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
        for wait in [LONG / 5, LONG * 2] {
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
    async fn who_does_not_wait_takes_no_turn_from_others() {
        let (local, name) = (Local::new(), LockName::new("a").unwrap());
        let (keys, meter) = (local.names.clone(), Meter::of("a"));
        let turn = keys.try_lock(&name).unwrap();
        assert!(take(&keys, &name, Duration::ZERO, &meter).await.is_err());
        assert_eq!(turn.waited_for(), 0, "it had no place that the turn could be given to");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_patient_have_the_lock_among_others_who_give_up_before_or_after_they_are_called() {
        let (locks, name) = (Locks::new(Arc::new(Local::new())), LockName::new("a").unwrap());
        let inside = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for task in 0..24 {
            let (locks, name, inside) = (locks.clone(), name.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let wait = [Duration::ZERO, LONG / 10, LONG, LONG * 100][task % 4];
                for pass in 0..20 {
                    match locks.lock(&name, &options(wait)).await {
                        Ok(guard) => {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two have the lock");
                            sleep(Duration::from_micros(pass % 4 * 700)).await;
                            inside.fetch_sub(1, SeqCst);
                            drop(guard);
                        }
                        Err(error) => assert!(wait <= LONG, "{error}"),
                    }
                }
            });
        }
        let ended = timeout(LONG * 600, tasks.join_all()).await;
        ended.expect("nobody waits for ever");
        assert!(locks.try_lock(&name, LEASE).await.unwrap().is_some(), "no turn is lost");
    }

    fn options(wait: Duration) -> LockOptions {
        LockOptions::new(wait, LEASE)
    }
}
