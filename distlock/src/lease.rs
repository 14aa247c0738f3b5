//! How long a holder may believe that it holds.
//!
//! Belief ends before the lease does: a holder counts from the instant at which it *sent* the
//! request that was granted, on the monotonic clock, and stops a margin before the server will
//! let somebody else in. The margin is that of the Redlock description: 1 % of the lease for
//! clocks that run at different speeds, and 2 ms for their resolution.

use std::time::{Duration, Instant};

/// Until when a hold may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Belief(Option<Instant>);

impl Belief {
    /// Holds until it is released: nothing outside this process can end it.
    pub const FOREVER: Self = Self(None);

    /// The belief in a lease of that length that was asked for at `sent`.
    pub fn in_lease(sent: Instant, lease: Duration) -> Self {
        let margin = lease / 100 + Duration::from_millis(2);
        Self(Some(sent + lease.saturating_sub(margin)))
    }

    /// The instant at which belief ends, or `None` if it never does.
    pub fn deadline(self) -> Option<Instant> {
        self.0
    }

    /// Whether it has ended. Looks at the clock, so that a process that was frozen knows at its
    /// first instruction, before any timer has run.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn belief_ends_before_the_lease_counted_from_the_sending() {
        let sent = Instant::now();
        let lease = Duration::from_secs(10);
        let deadline = Belief::in_lease(sent, lease).deadline().unwrap();
        assert_eq!(deadline, sent + Duration::from_millis(10_000 - 100 - 2));
        assert!(!Belief::in_lease(sent, lease).is_over());
        assert!(Belief::in_lease(sent, Duration::from_millis(1)).is_over());
        assert!(!Belief::FOREVER.is_over());
    }
}
