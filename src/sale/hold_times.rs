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
    loss: Option<HoldLoss>,
    fence: Option<FenceReport>,
}

/// How a hold was lost before its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldLoss {
    /// Its validity had ended then.
    EndOfValidity(Instant),
    /// The server denied it, at a time that the replica does not know.
    Denied,
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
    /// From the grant to the end of validity, if the lock is lost and that moment is known.
    pub valid: Option<Duration>,
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
        *self.hold() = Some(Hold { granted, released: None, loss: None, fence: None });
    }

    /// Notes that the lock is given back after `released`. `loss` is asked after that reading: a
    /// lock that is not lost then was held at `released`. Only the first call counts.
    pub(super) fn release(&self, released: Instant, loss: impl FnOnce() -> Option<HoldLoss>) {
        if let Some(hold) = &mut *self.hold()
            && hold.released.is_none()
        {
            (hold.released, hold.loss) = (Some(released), loss());
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
        let Hold { granted, released, loss, fence } = (*self.hold())?;
        let now = clock();
        let released = released.unwrap_or(now);
        let held = released.saturating_duration_since(granted);
        let valid = match loss {
            Some(HoldLoss::EndOfValidity(end)) => {
                Some(end.saturating_duration_since(granted).min(held))
            }
            Some(HoldLoss::Denied) | None => None,
        };
        Some(HoldReport {
            waited: granted.saturating_duration_since(self.arrived),
            held,
            since: now.saturating_duration_since(released),
            lost: loss.is_some(),
            valid,
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
        times.release(at(1), || None);
        assert_eq!(times.report(|| at(2)), None, "no lock was taken");
        times.grant(at(3));
        let told = |ms| times.report(|| at(ms)).expect("a hold");
        let report = |waited, held, since| HoldReport {
            waited: Duration::from_millis(waited),
            held: Duration::from_millis(held),
            since: Duration::from_millis(since),
            lost: false,
            valid: None,
            fence: None,
        };
        assert_eq!(told(9), report(3, 6, 0), "it is still held");
        times.release(at(10), || Some(HoldLoss::Denied));
        times.release(at(11), || None);
        let lost = HoldReport { lost: true, ..report(3, 7, 2) };
        assert_eq!(told(12), lost, "the first release counts");
        times.grant(at(20));
        assert_eq!(told(21), report(20, 1, 0));
    }

    #[test]
    fn a_lost_hold_says_when_its_validity_ended_within_it() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        for (end, valid) in [(15, 5), (5, 0), (99, 20)] {
            let times = LockHoldTimes::begin(at(0));
            times.grant(at(10));
            times.release(at(30), || Some(HoldLoss::EndOfValidity(at(end))));
            let report = times.report(|| at(31)).expect("a hold");
            assert!(report.lost);
            assert_eq!(report.valid, Some(Duration::from_millis(valid)), "{end}");
        }
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
            times.release(released, || None);
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
