//! When to look again at a busy lock.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use uuid::Uuid;

use crate::{Hold, LockError};

/// What a waiter is told.
pub enum Woken {
    /// It is its turn: the lock is already the waiter's.
    Held(Box<dyn Hold>),
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

/// The pause before the next look at a lock without a signal: 1 ms, doubling up to 16 ms, each
/// drawn from the upper half of its interval so that waiters do not march in step.
pub(crate) struct Polling {
    interval: Duration,
}

impl Polling {
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(16);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_starts_at_a_millisecond_and_never_exceeds_sixteen() {
        let mut polling = Polling::new();
        assert!(polling.next() <= Polling::FIRST);
        for _ in 0..20 {
            let pause = polling.next();
            assert!(pause >= Duration::from_millis(1) && pause <= Polling::LONGEST, "{pause:?}");
        }
    }
}
