//! What is measured, per kind; through the facade of the crate `metrics`, so it costs next to
//! nothing where nobody has installed a recorder. Recorders must be installed before the
//! [`Locks`](crate::Locks) are made.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, IntoF64, counter, histogram};
use tokio::time::Instant;

#[derive(Clone)]
pub(crate) struct Meter(Arc<Instruments>);

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
    /// Whether anybody wants to know how long something takes.
    is_timed: bool,
}

impl Meter {
    pub(crate) fn of(kind: &'static str) -> Self {
        let counted = |name| counter!(name, "kind" => kind);
        let timed = |name| histogram!(name, "kind" => kind);
        let wait = timed("distlock_wait_seconds");
        let hold = timed("distlock_hold_seconds");
        let hand_off = timed("distlock_hand_off_seconds");
        let is_timed = is_heard(&wait) || is_heard(&hold) || is_heard(&hand_off);
        Self(Arc::new(Instruments {
            is_timed,
            attempts: counted("distlock_attempts_total"),
            acquired: counted("distlock_acquired_total"),
            busy: counted("distlock_busy_total"),
            timed_out: counted("distlock_timed_out_total"),
            failed: counted("distlock_failed_total"),
            lost: counted("distlock_lost_total"),
            wait,
            hold,
            hand_off,
            renewal_late: timed("distlock_renewal_late_seconds"),
        }))
    }

    /// The time, for what is so short that reading the clock counts; `None` if nobody has installed
    /// a recorder that would be told.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.is_timed.then(Instant::now)
    }

    /// A server was asked.
    pub(crate) fn attempt(&self) {
        self.0.attempts.increment(1);
    }

    /// It said that somebody else holds the lock.
    pub(crate) fn busy(&self) {
        self.0.busy.increment(1);
    }

    /// The lock was taken, after so long.
    pub(crate) fn acquired(&self, waited: Duration) {
        self.0.acquired.increment(1);
        self.0.wait.record(waited.as_secs_f64());
    }

    /// Nobody got the lock in time.
    pub(crate) fn timed_out(&self, waited: Duration) {
        self.0.timed_out.increment(1);
        self.0.wait.record(waited.as_secs_f64());
    }

    /// The server failed.
    pub(crate) fn failed(&self) {
        self.0.failed.increment(1);
    }

    /// Somebody who had to wait holds the lock, so long after the moment at which he could first
    /// have known: the message, watch or look that said it may be free; where the lock comes with
    /// the news, the answer that brought it, or the release by the holder in the same process.
    pub(crate) fn hand_off(&self, took: Duration) {
        self.0.hand_off.record(took.as_secs_f64());
    }

    /// A hold has ended; `lost` if belief in it ended before it was released.
    pub(crate) fn ended(&self, held: Duration, lost: bool) {
        self.0.hold.record(held.as_secs_f64());
        if lost {
            self.0.lost.increment(1);
        }
    }

    /// A renewal was begun so long after it was due.
    pub(crate) fn renewal_late(&self, late: Duration) {
        self.0.renewal_late.record(late.as_secs_f64());
    }
}

/// Whether there is a recorder behind it: one asks for the value, be it for none to be recorded.
fn is_heard(histogram: &Histogram) -> bool {
    struct Asked<'a>(&'a Cell<bool>);
    impl IntoF64 for Asked<'_> {
        fn into_f64(self) -> f64 {
            self.0.set(true);
            0.0
        }
    }
    let is_asked = Cell::new(false);
    histogram.record_many(Asked(&is_asked), 0);
    is_asked.get()
}
