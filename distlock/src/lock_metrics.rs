//! Metrics per kind, through the facade of the crate `metrics`: they cost next to nothing without a
//! recorder. A recorder must be installed before the [`Locks`](crate::Locks) are made.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, IntoF64, counter, histogram};
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) struct LockMetrics(Arc<Instruments>);

struct Instruments {
    attempts: Counter,
    acquired: Counter,
    busy: Counter,
    timed_out: Counter,
    failed: Counter,
    lost: Counter,
    wait: Histogram,
    hold: Histogram,
    hand_off: Histogram,
    renewal_late: Histogram,
    /// Whether a recorder takes the histograms.
    is_timed: bool,
}

impl LockMetrics {
    pub(crate) fn for_kind(kind: &'static str) -> Self {
        let counted = |name| counter!(name, "kind" => kind);
        let timed = |name| histogram!(name, "kind" => kind);
        let wait = timed("distlock_wait_seconds");
        let hold = timed("distlock_hold_seconds");
        let hand_off = timed("distlock_hand_off_seconds");
        let is_timed = is_recorded(&wait) || is_recorded(&hold) || is_recorded(&hand_off);
        Self(Arc::new(Instruments {
            is_timed,
            attempts: counted("distlock_attempts_total"),
            acquired: counted("distlock_acquisitions_total"),
            busy: counted("distlock_contended_attempts_total"),
            timed_out: counted("distlock_timeouts_total"),
            failed: counted("distlock_errors_total"),
            lost: counted("distlock_losses_total"),
            wait,
            hold,
            hand_off,
            renewal_late: timed("distlock_renewal_delay_seconds"),
        }))
    }

    /// The time; `None` without a recorder. For holds so short that reading the clock counts.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.is_timed.then(Instant::now)
    }

    /// A server was asked.
    pub(crate) fn record_attempt(&self) {
        self.0.attempts.increment(1);
    }

    /// Counts an attempt that found the lock held by another owner.
    pub(crate) fn record_contention(&self) {
        self.0.busy.increment(1);
    }

    /// Counts an acquisition and records its wait.
    pub(crate) fn record_acquisition(&self, waited: Duration) {
        self.0.acquired.increment(1);
        self.0.wait.record(waited.as_secs_f64());
    }

    /// Counts a wait that timed out.
    pub(crate) fn record_timeout(&self, waited: Duration) {
        self.0.timed_out.increment(1);
        self.0.wait.record(waited.as_secs_f64());
    }

    /// The server failed.
    pub(crate) fn record_failure(&self) {
        self.0.failed.increment(1);
    }

    /// Records the time of a hand-off, which ends with the waiter's acquisition. It begins with the
    /// message, watch event or poll that said the lock may be free. If the lock comes with the
    /// news, it begins with the answer, or with the release in the same process.
    pub(crate) fn record_hand_off(&self, took: Duration) {
        self.0.hand_off.record(took.as_secs_f64());
    }

    /// Records the end of a hold; `lost` if its validity had ended before the release.
    pub(crate) fn record_hold(&self, held: Duration, lost: bool) {
        self.0.hold.record(held.as_secs_f64());
        if lost {
            self.0.lost.increment(1);
        }
    }

    /// Records how late a renewal was sent.
    pub(crate) fn record_renewal_delay(&self, late: Duration) {
        self.0.renewal_late.record(late.as_secs_f64());
    }
}

/// Whether there is a recorder behind it: one asks for the value, be it for none to be recorded.
fn is_recorded(histogram: &Histogram) -> bool {
    struct CalledFlag<'a>(&'a Cell<bool>);
    impl IntoF64 for CalledFlag<'_> {
        fn into_f64(self) -> f64 {
            self.0.set(true);
            0.0
        }
    }
    let is_called = Cell::new(false);
    histogram.record_many(CalledFlag(&is_called), 0);
    is_called.get()
}
