//! How long to wait and how long to hold.

use std::time::Duration;

use crate::{Guarantees, HoldKind, Lease, LockError, RenewalKind};

/// How to take a lock.
#[derive(Debug, Clone, Copy)]
pub struct LockOptions {
    /// Zero is the classic `tryLock()`, which fails at once. At most [`LockOptions::MAX`]. With
    /// kinds that poll, a process yields to other processes only if the wait is 100 ms or more.
    /// With shorter waits a busy process may get more than its share. A wait of 100 ms or more for
    /// `local` may last 10 ms longer. These are real time: a paused clock of tokio does not count
    /// them.
    pub wait: Duration,
    /// How long the server keeps the lock if its holder dies: 10 ms to [`LockOptions::MAX`]. It
    /// must be longer than two measured round trips to the server.
    pub lease: Lease,
    /// The longest hold, from the acquisition on: 10 ms to [`LockOptions::MAX`]; `None` has no
    /// limit. At its end the validity ends and the lock is freed, even while the guard lives. Kinds
    /// that could free another owner's lock leave it to its lease; a transaction that was taken out
    /// stays open.
    pub max_hold: Option<Duration>,
    /// Whether the guard must carry a fencing token.
    pub fenced: bool,
}

impl Default for LockOptions {
    /// Ten seconds of waiting, a lease of 30 s that the watchdog renews, no token.
    fn default() -> Self {
        Self::new(Duration::from_secs(10), Lease::Renewed(Self::WATCHDOG_LEASE))
    }
}

impl LockOptions {
    /// The shortest lease: below it a round trip may eat it up.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);
    /// The longest wait, the longest lease and the longest `max_hold`: a day.
    pub const MAX: Duration = Duration::from_hours(24);
    /// The default lease of a renewed hold.
    pub const WATCHDOG_LEASE: Duration = Duration::from_secs(30);

    /// Options with this wait and this lease, no fencing token and no longest hold.
    #[must_use]
    pub fn new(wait: Duration, lease: Lease) -> Self {
        Self { wait, lease, max_hold: None, fenced: false }
    }

    /// Asks for a fencing token.
    #[must_use]
    pub fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    pub(crate) fn check(
        &self,
        guarantees: &Guarantees,
        round_trip: Duration,
    ) -> Result<(), LockError> {
        let refuse = |field, limit| Err(LockError::BadRequest { field, limit });
        let lease = self.lease.length();
        if lease < Self::MIN_LEASE || lease > Self::MAX {
            let limit = format!("must be 10 ms to a day, is {} ms", lease.as_millis());
            return refuse("lease", limit);
        }
        let lease_ends = matches!(guarantees.hold, HoldKind::Lease | HoldKind::WeakestMember);
        if lease_ends && lease <= 2 * round_trip {
            let took_us = round_trip.as_micros();
            let limit =
                format!("must be longer than two round trips, which take {took_us} us each");
            return refuse("lease", limit);
        }
        match (self.lease, guarantees.renewal) {
            (Lease::Renewed(_), RenewalKind::No) => {
                return refuse("lease", "must be fixed: this kind renews nothing".into());
            }
            (Lease::Fixed(_), RenewalKind::Heartbeat) => {
                return refuse("lease", "must be renewed: this kind lives with its session".into());
            }
            _ => {}
        }
        if self.wait > Self::MAX {
            let limit = format!("must be at most a day, is {} s", self.wait.as_secs());
            return refuse("wait", limit);
        }
        if self.max_hold.is_some_and(|most| most < Self::MIN_LEASE || most > Self::MAX) {
            return refuse("max_hold", "must be 10 ms to a day".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockKind::{
        self, Local, LuaRelease, Multi, MysqlNamed, MysqlTable, Redisson, Redlock,
    };
    use crate::guarantees;

    #[test]
    fn a_lease_that_two_round_trips_eat_up_is_refused_wherever_leases_end() {
        let second = Duration::from_secs(1);
        let is_refused = |kind: LockKind| {
            let guarantees = guarantees(kind);
            let options = LockOptions::new(Duration::ZERO, guarantees.lease(second));
            assert!(options.check(&guarantees, second / 3).is_ok(), "{kind}: it is long enough");
            options.check(&guarantees, second / 2).is_err()
        };
        for kind in [LuaRelease, Redisson, Redlock, MysqlTable, Multi] {
            assert!(is_refused(kind), "{kind}");
        }
        for kind in [Local, MysqlNamed] {
            assert!(!is_refused(kind), "{kind}: nothing ends with a lease");
        }
    }
}
