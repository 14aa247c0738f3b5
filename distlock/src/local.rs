//! `local`: a fair mutex per name inside this process.
//!
//! What `synchronized` or `ReentrantLock` give a JVM. The turn itself is the hold; a waiter is
//! handed the turn, so nobody barges in between. It guarantees exclusion inside one process.
//! Flaw: two replicas do not see each other, so each lets one in. Shown by
//! `conformance/tests/flaws/nobody_shares.rs` and `loadtest compare`.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use crate::keyed::{KeyedMutex, Turn};
use crate::meter::Meter;
use crate::{
    Acquisition, Belief, Guarantees, Guard, Hold, LockError, LockKind, LockName, Locker, Release,
    Request, Wake, Woken, guarantees,
};

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

/// Takes the turn, which is the whole lock; waits for it at most so long.
pub(crate) async fn take(
    turns: &KeyedMutex,
    name: &LockName,
    wait: Duration,
    meter: &Meter,
) -> Result<Guard, LockError> {
    meter.attempt();
    let asked = if wait.is_zero() {
        turns.try_lock(name).ok_or(None)
    } else {
        turns.ask(name).map_err(Some)
    };
    let queued = match asked {
        Ok(turn) => {
            meter.acquired(Duration::ZERO);
            return Ok(Guard::of_turn(turn, meter));
        }
        Err(queued) => queued,
    };
    meter.busy();
    let asked = Instant::now();
    if let Some(queued) = queued
        && let Ok(mut turn) = timeout_at(asked + wait, queued.turn()).await
    {
        // Without a clock there is nobody to be told how long it took, but only that it did.
        let now = meter.now().unwrap_or(asked);
        meter.hand_off(now - turn.free_since().unwrap_or(now));
        meter.acquired(now - asked);
        return Ok(Guard::of_turn(turn, meter));
    }
    let waited = asked.elapsed();
    meter.timed_out(waited);
    Err(LockError::TimedOut { waited, is_endless: false })
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
            let mut turn = self.names.lock(&self.name).await;
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

    fn options(wait: Duration) -> LockOptions {
        LockOptions::new(wait, LEASE)
    }
}
