//! How long a hold lasts, and how long its holder may rely on it (the validity time).
//!
//! Validity ends before the lease. A holder counts from the instant at which it *sent* the granted
//! request, on the monotonic clock. It stops a margin before the server admits another owner. The
//! margin is that of the Redlock description: 1 % of the lease for clocks of different speeds, and
//! 2 ms for their resolution. The time on the network needs no margin: the server's lease begins at
//! arrival, which is after the sending.
//!
//! A busy machine needs none either. A check ([`Validity::has_ended`]) reads the clock, so it is
//! right however late it runs. A *notification* ([`Guard::lost`]) takes a timer and a processor,
//! and may come after the lease's end. The margin does not cover that, and none could: a process
//! may stand still for any time. So work checks before each step, and effects that must not happen
//! twice need a fence. The margin does not cover a server's clock that is set forward, or slewed by
//! more than 1 % (ntpd: at most 0.05 %; chrony: 8 % unless `maxslewrate` is lower).
//!
//! [`Guard::lost`]: crate::Guard::lost
//!
//! On Linux that clock stands still while the machine is suspended or its virtual machine is
//! paused. The process then learns of the loss from the server, at its next renewal. A fence covers
//! a suspension between check and write.

use std::time::Duration;

use tokio::time::Instant;

/// How long the server keeps a lock whose holder says nothing more. Not every kind takes both; the
/// one that suits a kind comes from [`Guarantees::lease`](crate::Guarantees::lease).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// Ends after this time. Kinds without renewal need it.
    Fixed(Duration),
    /// Ends after this time without a renewal. The watchdog renews at every third of it.
    Renewed(Duration),
}

impl Lease {
    /// The length of the lease.
    #[must_use]
    pub fn length(self) -> Duration {
        match self {
            Self::Fixed(length) | Self::Renewed(length) => length,
        }
    }
}

/// The instant until which a holder may rely on its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity(Option<Instant>);

impl Validity {
    /// Holds until it is released: nothing outside this process can end it.
    pub const UNBOUNDED: Self = Self(None);

    /// The validity of a lease of that length, requested at `sent`.
    #[must_use]
    pub fn of_lease(sent: Instant, lease: Duration) -> Self {
        let margin = lease / 100 + Duration::from_millis(2);
        Self(Some(sent + lease.saturating_sub(margin)))
    }

    /// The validity that ends at that instant.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self(Some(deadline))
    }

    /// The instant at which validity ends, or `None` if it has no end.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        self.0
    }

    /// Whether it has ended. Looks at the clock, so that a process that was frozen knows at its
    /// first instruction, before any timer has run.
    #[must_use]
    pub fn has_ended(self) -> bool {
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
    fn validity_ends_before_the_lease_counted_from_the_sending() {
        let sent = Instant::now();
        let lease = Duration::from_secs(10);
        let deadline = Validity::of_lease(sent, lease).deadline().unwrap();
        assert_eq!(deadline, sent + Duration::from_millis(10_000 - 100 - 2));
        assert!(!Validity::of_lease(sent, lease).has_ended());
        assert!(Validity::of_lease(sent, Duration::from_millis(1)).has_ended());
        assert!(!Validity::UNBOUNDED.has_ended());
    }

    #[test]
    fn of_two_validitys_the_one_that_ends_first_counts() {
        let now = Instant::now();
        let (soon, late) = (Validity::until(now), Validity::until(now + Duration::from_secs(1)));
        assert_eq!(soon.earlier(late), soon);
        assert_eq!(late.earlier(soon), soon);
        assert_eq!(Validity::UNBOUNDED.earlier(soon), soon);
        assert_eq!(soon.earlier(Validity::UNBOUNDED), soon);
    }
}
