//! How long a hold lasts, and how long its holder may believe in it.
//!
//! Belief ends before the lease does: a holder counts from the instant at which it *sent* the
//! request that was granted, on the monotonic clock, and stops a margin before the server will
//! let somebody else in. The margin is that of the Redlock description: 1 % of the lease for
//! clocks that run at different speeds, and 2 ms for their resolution. The way of the request needs
//! none: the server's lease begins when it arrives, which is not before it was sent.
//!
//! Nor does a busy machine: to look ([`Belief::is_over`]) is to read the clock, so whoever looks
//! after the end of belief is told so, however late he looks. To *be told* ([`Guard::lost`]) takes a
//! timer and a processor, and may come after the lease's end where these are late. The margin is not
//! made for that, and none would do: a process may stand still for any time. So work looks before
//! each step, and what must not be done twice even then needs a fence. Nor does the margin cover a
//! server's clock that is set forward, or slewed by more than 1 % (ntpd: 0.05 % at most; chrony: 8 %
//! unless `maxslewrate` says less).
//!
//! [`Guard::lost`]: crate::Guard::lost
//!
//! On Linux that clock stands still while the machine itself is suspended, or its virtual machine
//! is paused: a process learns of that only from the server, at its next renewal. What remains
//! against a sleep between look and write is a fence.

use std::time::Duration;

use tokio::time::Instant;

/// How long the server keeps a lock whose holder says nothing more. Not every kind takes both; the
/// one that suits a kind comes from [`Guarantees::lease`](crate::Guarantees::lease).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// So long, and no longer. What a kind without renewal needs.
    Fixed(Duration),
    /// So long since the watchdog's last renewal; it renews at every third of it.
    Renewed(Duration),
}

impl Lease {
    /// Its length.
    pub fn length(self) -> Duration {
        match self {
            Self::Fixed(length) | Self::Renewed(length) => length,
        }
    }
}

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

    /// The belief that ends at that instant.
    pub fn until(deadline: Instant) -> Self {
        Self(Some(deadline))
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

    /// The one that ends first.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(one), Some(another)) => Self(Some(one.min(another))),
            (one, another) => Self(one.or(another)),
        }
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

    #[test]
    fn of_two_beliefs_the_one_that_ends_first_counts() {
        let now = Instant::now();
        let (soon, late) = (Belief::until(now), Belief::until(now + Duration::from_secs(1)));
        assert_eq!(soon.earlier(late), soon);
        assert_eq!(late.earlier(soon), soon);
        assert_eq!(Belief::FOREVER.earlier(soon), soon);
        assert_eq!(soon.earlier(Belief::FOREVER), soon);
    }
}
