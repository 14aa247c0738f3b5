//! What is known of a hold from outside of it: until when it may be believed, and whether it is
//! lost. Shared by the guard, the watchdog, and whoever asked to be told of the loss.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::Belief;
use crate::pulse::Pulse;

/// Why a lock can no longer be believed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Its lease was not renewed in time, as far as this process knows, or it was held for as long
    /// as its [`max_hold`](crate::LockOptions::max_hold) lets it.
    Expired,
    /// The server says that it is not the holder's any more.
    Taken,
}

pub(crate) struct Tenure {
    standing: Mutex<Standing>,
    changed: Notify,
    pulse: Pulse,
}

struct Standing {
    belief: Belief,
    lost: Option<LossCause>,
}

impl Tenure {
    pub(crate) fn new(belief: Belief, pulse: &Pulse) -> Arc<Self> {
        let standing = Mutex::new(Standing { belief, lost: None });
        Arc::new(Self { standing, changed: Notify::new(), pulse: pulse.clone() })
    }

    /// Loss is for ever: once belief has ended, no renewal that comes late brings it back.
    pub(crate) fn loss(&self) -> Option<LossCause> {
        self.look().lost
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    pub(crate) fn belief(&self) -> Belief {
        self.look().belief
    }

    /// Prolongs belief; `false` if it has ended already.
    pub(crate) fn prolong(&self, belief: Belief) -> bool {
        let mut standing = self.look();
        if standing.lost.is_some() {
            return false;
        }
        standing.belief = belief;
        drop(standing);
        self.changed.notify_waiters();
        true
    }

    /// The server said that the hold is gone.
    pub(crate) fn lose(&self) {
        self.look().lost.get_or_insert(LossCause::Taken);
        self.changed.notify_waiters();
    }

    /// Resolves when the hold is lost; never for one that cannot be.
    pub(crate) async fn lost(&self) -> LossCause {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(cause) = self.loss() {
                return cause;
            }
            match self.belief().deadline() {
                Some(deadline) => {
                    let _waits = self.pulse.wait();
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(deadline) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// The standing as of now: belief that has ended is loss.
    fn look(&self) -> MutexGuard<'_, Standing> {
        // Plain values cannot be left half changed by a panic.
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if standing.lost.is_none() && standing.belief.is_over() {
            standing.lost = Some(LossCause::Expired);
        }
        standing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance, timeout};

    use super::*;

    fn until(ms: u64) -> Belief {
        Belief::until(Instant::now() + Duration::from_millis(ms))
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_comes_after_the_end_of_belief_does_not_bring_it_back() {
        let tenure = Tenure::new(until(100), &Pulse::here());
        assert!(tenure.prolong(until(200)));
        advance(Duration::from_millis(201)).await;
        assert!(!tenure.prolong(until(100)));
        assert_eq!(tenure.loss(), Some(LossCause::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn loss_is_told_at_the_end_of_belief_as_it_is_after_renewals_or_at_once() {
        let tenure = Tenure::new(until(100), &Pulse::here());
        let told = tokio::spawn({
            let tenure = Arc::clone(&tenure);
            async move {
                tenure.lost().await;
                Instant::now()
            }
        });
        tokio::task::yield_now().await;
        let end = Instant::now() + Duration::from_millis(300);
        assert!(tenure.prolong(Belief::until(end)));
        let told = told.await.unwrap();
        assert!(told >= end && told < end + Duration::from_millis(5));

        let tenure = Tenure::new(Belief::FOREVER, &Pulse::here());
        let waiting = timeout(Duration::from_hours(1), tenure.lost()).await;
        assert!(waiting.is_err(), "a hold without an end is not lost by waiting");
        tenure.lose();
        assert_eq!(tenure.lost().await, LossCause::Taken);
    }
}
