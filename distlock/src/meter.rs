//! What is measured, per kind; through the facade of the crate `metrics`, so it costs next to
//! nothing where nobody has installed a recorder. Recorders must be installed before the
//! [`Locks`](crate::Locks) are made.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

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
}

impl Meter {
    pub(crate) fn of(kind: &'static str) -> Self {
        Self(Arc::new(Instruments {
            attempts: counter!("distlock_attempts_total", "kind" => kind),
            acquired: counter!("distlock_acquired_total", "kind" => kind),
            busy: counter!("distlock_busy_total", "kind" => kind),
            timed_out: counter!("distlock_timed_out_total", "kind" => kind),
            failed: counter!("distlock_failed_total", "kind" => kind),
            lost: counter!("distlock_lost_total", "kind" => kind),
            wait: histogram!("distlock_wait_seconds", "kind" => kind),
            hold: histogram!("distlock_hold_seconds", "kind" => kind),
            hand_off: histogram!("distlock_hand_off_seconds", "kind" => kind),
            renewal_late: histogram!("distlock_renewal_late_seconds", "kind" => kind),
        }))
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
