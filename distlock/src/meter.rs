//! What is measured, per kind; through the facade of the crate `metrics`, so it costs next to
//! nothing where nobody has installed a recorder. Recorders must be installed before the
//! [`Locks`](crate::Locks) are made.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, IntoF64, counter, histogram};
use tokio::time::Instant;

/// Without instruments if nobody has installed a recorder: then all clones of it need not count
/// their references to them, and the clock need not be read.
#[derive(Clone)]
pub(crate) struct Meter(Option<Arc<Instruments>>);

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
        let instruments = Instruments {
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
        };
        Self(is_heard(&instruments.hold).then(|| Arc::new(instruments)))
    }

    /// The time, if anybody wants to know how long something takes.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    fn note(&self, what: impl FnOnce(&Instruments)) {
        if let Some(instruments) = &self.0 {
            what(instruments);
        }
    }

    /// A server was asked.
    pub(crate) fn attempt(&self) {
        self.note(|to| to.attempts.increment(1));
    }

    /// It said that somebody else holds the lock.
    pub(crate) fn busy(&self) {
        self.note(|to| to.busy.increment(1));
    }

    /// The lock was taken, after so long.
    pub(crate) fn acquired(&self, waited: Duration) {
        self.note(|to| {
            to.acquired.increment(1);
            to.wait.record(waited);
        });
    }

    /// Nobody got the lock in time.
    pub(crate) fn timed_out(&self, waited: Duration) {
        self.note(|to| {
            to.timed_out.increment(1);
            to.wait.record(waited);
        });
    }

    /// The server failed.
    pub(crate) fn failed(&self) {
        self.note(|to| to.failed.increment(1));
    }

    /// Somebody who had to wait holds the lock, so long after the moment at which he could first
    /// have known: the message, watch or look that said it may be free; where the lock comes with
    /// the news, the answer that brought it, or the release by the holder in the same process.
    pub(crate) fn hand_off(&self, took: Duration) {
        self.note(|to| to.hand_off.record(took));
    }

    /// A hold has ended; `lost` if belief in it ended before it was released.
    pub(crate) fn ended(&self, held: Duration, lost: bool) {
        self.note(|to| {
            to.hold.record(held);
            if lost {
                to.lost.increment(1);
            }
        });
    }

    /// A renewal was begun so long after it was due.
    pub(crate) fn renewal_late(&self, late: Duration) {
        self.note(|to| to.renewal_late.record(late));
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
