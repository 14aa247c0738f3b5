//! The state of a hold: its validity, and whether it is lost. The guard, the watchdog and the lost
//! signals of the hold share it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::Validity;
use crate::runtime_ticker::RuntimeTicker;

/// Why a lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// Its lease was not renewed in time, as far as this process knows, or it was held for as long
    /// as its [`max_hold`](crate::LockOptions::max_hold) lets it.
    Expired,
    /// The server says that it is not the holder's any more.
    Taken,
}

pub(crate) struct HoldState {
    status: Mutex<HoldStatus>,
    changed: Notify,
    ticker: RuntimeTicker,
}

struct HoldStatus {
    validity: Validity,
    lost: Option<LossCause>,
}

impl HoldState {
    pub(crate) fn new(validity: Validity, ticker: &RuntimeTicker) -> Arc<Self> {
        let status = Mutex::new(HoldStatus { validity, lost: None });
        Arc::new(Self { status, changed: Notify::new(), ticker: ticker.clone() })
    }

    /// Why the hold is lost, if it is. Loss is final: a renewal after the end of validity does not
    /// undo it.
    pub(crate) fn loss_cause(&self) -> Option<LossCause> {
        self.status().lost
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss_cause().is_some()
    }

    pub(crate) fn validity(&self) -> Validity {
        self.status().validity
    }

    /// Extends the validity; `false` if it has ended already.
    pub(crate) fn extend(&self, validity: Validity) -> bool {
        let mut status = self.status();
        if status.lost.is_some() {
            return false;
        }
        status.validity = validity;
        drop(status);
        self.changed.notify_waiters();
        true
    }

    /// The server answered that the hold has ended.
    pub(crate) fn mark_lost(&self) {
        self.status().lost.get_or_insert(LossCause::Taken);
        self.changed.notify_waiters();
    }

    /// Resolves when the hold is lost; never for one that cannot be.
    pub(crate) async fn lost(&self) -> LossCause {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(cause) = self.loss_cause() {
                return cause;
            }
            match self.validity().deadline() {
                Some(deadline) => {
                    let _waits = self.ticker.start();
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(deadline) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// The status as of now: the end of validity is loss.
    fn status(&self) -> MutexGuard<'_, HoldStatus> {
        // Plain values cannot be left half changed by a panic.
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if status.lost.is_none() && status.validity.has_ended() {
            status.lost = Some(LossCause::Expired);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance, timeout};

    use super::*;

    fn until(ms: u64) -> Validity {
        Validity::until(Instant::now() + Duration::from_millis(ms))
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_after_the_end_of_validity_does_not_restore_it() {
        let hold_state = HoldState::new(until(100), &RuntimeTicker::current());
        assert!(hold_state.extend(until(200)));
        advance(Duration::from_millis(201)).await;
        assert!(!hold_state.extend(until(100)));
        assert_eq!(hold_state.loss_cause(), Some(LossCause::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn loss_is_signalled_at_the_renewed_end_of_validity_or_at_once() {
        let hold_state = HoldState::new(until(100), &RuntimeTicker::current());
        let told = tokio::spawn({
            let hold_state = Arc::clone(&hold_state);
            async move {
                hold_state.lost().await;
                Instant::now()
            }
        });
        tokio::task::yield_now().await;
        let end = Instant::now() + Duration::from_millis(300);
        assert!(hold_state.extend(Validity::until(end)));
        let told = told.await.unwrap();
        assert!(told >= end && told < end + Duration::from_millis(5));

        let hold_state = HoldState::new(Validity::UNBOUNDED, &RuntimeTicker::current());
        let waiting = timeout(Duration::from_hours(1), hold_state.lost()).await;
        assert!(waiting.is_err(), "a hold without an end is not lost by waiting");
        hold_state.mark_lost();
        assert_eq!(hold_state.lost().await, LossCause::Taken);
    }
}
