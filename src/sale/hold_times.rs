//! When a purchase held its lock, as its replica saw it. The laboratory draws and judges it.
//!
//! Four readings of the monotonic clock: the request has arrived, the lock is granted, the lock is
//! about to be given back, the answer is written. Each stands inside what it bounds: `granted` is
//! read after the grant and `released` before the release. If the kernel preempts the thread
//! between two readings, the reported hold is shorter than the real one or equal to it, never
//! longer. Each moment is read once: a length is the difference of two readings.
//!
//! A fenced holder also reports the token that it showed, and the highest one that the fence knows.
//!
//! Nothing is reported of a lock that holds nothing, nor of one that is the transaction: it ends in
//! the middle of COMMIT.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The readings of one purchase, shared by the purchase and its handler. If the lock was taken more
/// than once, they are those of the last time.
#[derive(Debug)]
pub struct LockHoldTimes {
    arrived: Instant,
    hold: Mutex<Option<Hold>>,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    granted: Instant,
    released: Option<Instant>,
    lost: bool,
    fence: Option<FenceReport>,
}

/// What the fence made of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceReport {
    /// The token that was shown.
    pub token: u64,
    /// The highest token that was shown so far: a higher one than `token` refuses it.
    pub highest: u64,
}

/// What a replica reports of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldReport {
    /// From the arrival of the request to the grant.
    pub waited: Duration,
    /// From the grant to the release, or to the answer if that comes first.
    pub held: Duration,
    /// From the release to the answer.
    pub since: Duration,
    /// Whether the lock's validity had ended by the release: another holder may have had it then.
    pub lost: bool,
    /// What the fence made of the holder's token, if the holder showed one.
    pub fence: Option<FenceReport>,
}

impl LockHoldTimes {
    /// Of a request that has arrived.
    pub fn begin(arrived: Instant) -> Self {
        Self { arrived, hold: Mutex::default() }
    }

    fn hold(&self) -> MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the lock was granted before `granted`.
    pub(super) fn grant(&self, granted: Instant) {
        *self.hold() = Some(Hold { granted, released: None, lost: false, fence: None });
    }

    /// Notes that the lock is given back after `released`. `is_lost` is asked after that reading:
    /// a lock that is not lost then was held at `released`. Only the first call counts.
    pub(super) fn release(&self, released: Instant, is_lost: impl FnOnce() -> bool) {
        if let Some(hold) = &mut *self.hold()
            && hold.released.is_none()
        {
            (hold.released, hold.lost) = (Some(released), is_lost());
        }
    }

    /// Notes what the fence made of the holder's token.
    pub(super) fn show_token(&self, fence: FenceReport) {
        if let Some(hold) = &mut *self.hold() {
            hold.fence = Some(fence);
        }
    }

    /// The report for an answer that is written now, by `clock`; `None` if no lock was taken.
    pub fn report(&self, clock: impl FnOnce() -> Instant) -> Option<HoldReport> {
        let Hold { granted, released, lost, fence } = (*self.hold())?;
        let now = clock();
        let released = released.unwrap_or(now);
        Some(HoldReport {
            waited: granted.saturating_duration_since(self.arrived),
            held: released.saturating_duration_since(granted),
            since: now.saturating_duration_since(released),
            lost,
            fence,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hold_ends_once_and_a_second_grant_begins_another() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        let times = LockHoldTimes::begin(at(0));
        times.release(at(1), || false);
        assert_eq!(times.report(|| at(2)), None, "no lock was taken");
        times.grant(at(3));
        let told = |ms| times.report(|| at(ms)).expect("a hold");
        let report = |waited, held, since, lost| HoldReport {
            waited: Duration::from_millis(waited),
            held: Duration::from_millis(held),
            since: Duration::from_millis(since),
            lost,
            fence: None,
        };
        assert_eq!(told(9), report(3, 6, 0, false), "it is still held");
        times.release(at(10), || true);
        times.release(at(11), || false);
        assert_eq!(told(12), report(3, 7, 2, true), "the first release counts");
        times.grant(at(20));
        assert_eq!(told(21), report(20, 1, 0, false));
    }

    #[test]
    fn the_answer_of_the_fence_belongs_to_the_hold_in_which_the_token_was_shown() {
        let times = LockHoldTimes::begin(Instant::now());
        let (stale, accepted) =
            (FenceReport { token: 7, highest: 8 }, FenceReport { token: 9, highest: 9 });
        let fence = || times.report(Instant::now).and_then(|report| report.fence);
        times.show_token(stale);
        times.grant(Instant::now());
        assert_eq!(fence(), None, "it was shown under no lock");
        times.show_token(stale);
        assert_eq!(fence(), Some(stale));
        times.grant(Instant::now());
        assert_eq!(fence(), None, "another hold has another token");
        times.show_token(accepted);
        assert_eq!(fence(), Some(accepted));
    }

    proptest! {
        /// The clock of the report stands for a thread that is taken away at each of its readings:
        /// every call comes `stall` later than the one before.
        #[test]
        fn a_thread_descheduled_between_readings_never_makes_a_hold_longer(
            [waited, held, since, stall] in prop::array::uniform4(0..1_000_000_u64),
        ) {
            let micros = Duration::from_micros;
            let arrived = Instant::now();
            let granted = arrived + micros(waited);
            let released = granted + micros(held);
            let times = LockHoldTimes::begin(arrived);
            times.grant(granted);
            times.release(released, || false);
            let mut now = released + micros(since);
            let report = times.report(|| {
                now += micros(stall);
                now
            });
            let report = report.expect("a hold");
            prop_assert_eq!(report.held, micros(held));
            prop_assert_eq!(report.waited, micros(waited));
            prop_assert_eq!(report.since, micros(since + stall));
        }
    }
}
