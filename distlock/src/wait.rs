//! When to look again at a busy lock.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use crate::process_quantum::{ProcessQuantum, QueueGuard};
use crate::{Hold, LockError};

/// Why a waiter wakes up.
pub enum WakeEvent {
    /// The waiter has the lock.
    Acquired {
        /// The lock.
        hold: Box<dyn Hold>,
        /// When it came free, as far as the mechanism knows: the release inside the process, else
        /// the answer that brought it.
        since: Instant,
    },
    /// The lock may be free.
    Retry,
}

/// A signal to await. It comes at the latest when the mechanism wants another look anyway, so a
/// message that is lost costs a bounded time. It may be dropped at any point.
pub type WakeSignal<'a> = Pin<Box<dyn Future<Output = Result<WakeEvent, LockError>> + Send + 'a>>;

/// When to look again.
pub enum WakeStrategy<'a> {
    /// The mechanism has no signal: poll at growing intervals.
    Poll,
    /// Await this.
    Signal(WakeSignal<'a>),
}

/// The pause between two polls: 0.5 to 16 ms. The interval begins at 1 ms and doubles up to 16 ms.
/// Each pause is drawn from its upper half, so that waiters do not poll in step.
pub(crate) struct PollBackoff {
    interval: Duration,
}

impl PollBackoff {
    const MIN_INTERVAL: Duration = Duration::from_millis(1);
    pub(crate) const MAX_INTERVAL: Duration = Duration::from_millis(16);

    pub(crate) fn new() -> Self {
        Self { interval: Self::MIN_INTERVAL }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let interval = self.interval;
        self.interval = (interval * 2).min(Self::MAX_INTERVAL);
        // Eight random bits are enough to be out of step.
        let random = u32::from(Uuid::new_v4().as_bytes()[0]);
        interval / 2 + interval * random / 512
    }
}

/// The wait of one caller.
pub(crate) struct AcquireWait {
    until: Instant,
    polling: PollBackoff,
    /// The guard of the process's queue, for kinds that have one.
    pub(crate) key_guard: Option<QueueGuard>,
    /// Whether an attempt found the lock held by another owner.
    pub(crate) was_busy: bool,
    /// Whether what was in the way at the end had no lease.
    pub(crate) has_no_expiry: bool,
}

impl AcquireWait {
    /// Between two attempts of a waiter whose server fails.
    const RETRY_PAUSE: Duration = Duration::from_millis(50);
    /// A waiter with less time left does not yield to other processes.
    const MIN_TIME_TO_YIELD: Duration = Duration::from_millis(100);

    pub(crate) fn new(until: Instant, key_guard: Option<QueueGuard>) -> Self {
        Self {
            until,
            polling: PollBackoff::new(),
            key_guard,
            was_busy: false,
            has_no_expiry: false,
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Leaves the lock to other processes for a pause if this process has used up its quantum.
    pub(crate) async fn give_way(&mut self) {
        if self.left() >= Self::MIN_TIME_TO_YIELD
            && let Some(pause) = self
                .key_guard
                .as_ref()
                .and_then(|key_guard| key_guard.with_state(ProcessQuantum::due_pause).flatten())
        {
            sleep(pause).await;
            // Its next poll comes after those of waiters that have waited longer.
            self.polling.interval = PollBackoff::MAX_INTERVAL;
        }
    }

    /// Records that another owner holds the lock.
    pub(crate) fn found_busy(&mut self) {
        self.was_busy = true;
        if let Some(key_guard) = &self.key_guard {
            key_guard.with_state(ProcessQuantum::found_busy);
        }
    }

    /// `None` when the wait is over.
    pub(crate) async fn look_again(
        &mut self,
        wake: WakeStrategy<'_>,
    ) -> Option<Result<WakeEvent, LockError>> {
        let left = self.left();
        if left.is_zero() {
            return None;
        }
        match wake {
            WakeStrategy::Signal(signal) => timeout_at(self.until, signal).await.ok(),
            WakeStrategy::Poll => {
                sleep(self.polling.next().min(left)).await;
                Some(Ok(WakeEvent::Retry))
            }
        }
    }

    /// `false` when the wait is over.
    pub(crate) async fn pause_after_failure(&self) -> bool {
        sleep(Self::RETRY_PAUSE).await;
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
        let mut polling = PollBackoff::new();
        assert!(polling.next() <= PollBackoff::MIN_INTERVAL);
        for _ in 0..20 {
            let pause = polling.next();
            assert!(
                pause >= Duration::from_millis(1) && pause <= PollBackoff::MAX_INTERVAL,
                "{pause:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_100_ms_gives_way_after_a_quantum_and_a_shorter_one_does_not() {
        let (name, ms) = (LockName::new("a").unwrap(), Duration::from_millis);
        for (wait, gives_way) in [(ms(99), false), (ms(100), true)] {
            let key_guard = KeyedMutex::new().try_lock(&name).unwrap();
            key_guard.with_state(ProcessQuantum::entered);
            tokio::time::advance(Duration::from_secs(2)).await;
            let started = Instant::now();
            let mut waiting = AcquireWait::new(started + wait, Some(key_guard));
            waiting.give_way().await;
            assert_eq!(started.elapsed() > PollBackoff::MAX_INTERVAL, gives_way, "{wait:?}");
        }
    }
}
