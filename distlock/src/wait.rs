//! When to look again at a busy lock.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use crate::keyed::Turn;
use crate::streak::Streak;
use crate::{Hold, LockError};

/// What a waiter is told.
pub enum Woken {
    /// It is its turn: the lock is already the waiter's.
    Held {
        /// The lock.
        hold: Box<dyn Hold>,
        /// When it came free, as far as the mechanism knows: the release inside the process, else
        /// the answer that brought it.
        since: Instant,
    },
    /// The lock may be free.
    LookAgain,
}

/// A signal to await. It comes at the latest when the mechanism wants another look anyway, so a
/// message that is lost costs a bounded time. It may be dropped at any point.
pub type Signal<'a> = Pin<Box<dyn Future<Output = Result<Woken, LockError>> + Send + 'a>>;

/// When to look again.
pub enum Wake<'a> {
    /// The mechanism has no signal: look again after a while, at growing intervals.
    Poll,
    /// Await this.
    Signal(Signal<'a>),
}

/// The pause before the next look at a lock without a signal: 0.5 to 16 ms. The interval is 1 ms,
/// doubling up to 16 ms, and each pause is drawn from the upper half of it so that waiters do not
/// march in step.
pub(crate) struct Polling {
    interval: Duration,
}

impl Polling {
    const FIRST: Duration = Duration::from_millis(1);
    pub(crate) const LONGEST: Duration = Duration::from_millis(16);

    pub(crate) fn new() -> Self {
        Self { interval: Self::FIRST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let interval = self.interval;
        self.interval = (interval * 2).min(Self::LONGEST);
        // Eight random bits are enough to be out of step.
        let random = u32::from(Uuid::new_v4().as_bytes()[0]);
        interval / 2 + interval * random / 512
    }
}

/// The wait of one caller.
pub(crate) struct Waiting {
    until: Instant,
    polling: Polling,
    /// The turn in this process, where one task goes to the server for all.
    pub(crate) turn: Option<Turn>,
    /// Whether the server has said that somebody else holds the lock.
    pub(crate) was_busy: bool,
    /// Whether what was in the way at the end had no lease.
    pub(crate) is_endless: bool,
}

impl Waiting {
    /// Between two attempts of a waiter whose server fails.
    const AFTER_FAILURE: Duration = Duration::from_millis(50);
    /// Whoever has less time than that left cannot spare any for others.
    const TO_SPARE: Duration = Duration::from_millis(100);

    pub(crate) fn new(until: Instant, turn: Option<Turn>) -> Self {
        Self { until, polling: Polling::new(), turn, was_busy: false, is_endless: false }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Leaves the lock to other processes for a moment if this one has had it for long.
    pub(crate) async fn give_way(&mut self) {
        if self.left() >= Self::TO_SPARE
            && let Some(pause) =
                self.turn.as_ref().and_then(|turn| turn.streak(Streak::pause).flatten())
        {
            sleep(pause).await;
            // And does not come back before those who have waited for longer.
            self.polling.interval = Polling::LONGEST;
        }
    }

    /// Somebody else holds the lock.
    pub(crate) fn found_busy(&mut self) {
        self.was_busy = true;
        if let Some(turn) = &self.turn {
            turn.streak(Streak::found_busy);
        }
    }

    /// `None` when the wait is over.
    pub(crate) async fn look_again(&mut self, wake: Wake<'_>) -> Option<Result<Woken, LockError>> {
        let left = self.left();
        if left.is_zero() {
            return None;
        }
        match wake {
            Wake::Signal(signal) => timeout_at(self.until, signal).await.ok(),
            Wake::Poll => {
                sleep(self.polling.next().min(left)).await;
                Some(Ok(Woken::LookAgain))
            }
        }
    }

    /// `false` when the wait is over.
    pub(crate) async fn pause_after_failure(&self) -> bool {
        sleep(Self::AFTER_FAILURE).await;
        Instant::now() < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockName;
    use crate::keyed::KeyedMutex;

    #[test]
    fn polling_starts_at_a_millisecond_and_never_exceeds_sixteen() {
        let mut polling = Polling::new();
        assert!(polling.next() <= Polling::FIRST);
        for _ in 0..20 {
            let pause = polling.next();
            assert!(pause >= Duration::from_millis(1) && pause <= Polling::LONGEST, "{pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_may_wait_for_100_ms_gives_way_after_a_streak_and_whoever_has_less_does_not() {
        let (name, ms) = (LockName::new("a").unwrap(), Duration::from_millis);
        for (wait, gives_way) in [(ms(99), false), (ms(100), true)] {
            let turn = KeyedMutex::new().try_lock(&name).unwrap();
            turn.streak(Streak::entered);
            tokio::time::advance(Duration::from_secs(2)).await;
            let started = Instant::now();
            let mut waiting = Waiting::new(started + wait, Some(turn));
            waiting.give_way().await;
            assert_eq!(started.elapsed() > Polling::LONGEST, gives_way, "{wait:?}");
        }
    }
}
