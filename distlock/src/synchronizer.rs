//! The closed list of the types that are no locks: two semaphores and a latch. Each is a type of
//! its own, because no single owner holds it. The list is compiled without the feature `redis` too,
//! for tables and metrics.

use std::fmt;
use std::str::FromStr;

/// The name of a synchronizer. Tables and tests iterate [`Synchronizer::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Synchronizer {
    /// `distlock::Semaphore`.
    Semaphore,
    /// `distlock::ExpirableSemaphore`.
    ExpirableSemaphore,
    /// `distlock::CountdownLatch`.
    CountdownLatch,
}

impl Synchronizer {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Semaphore, Self::ExpirableSemaphore, Self::CountdownLatch];

    /// The name used in tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Semaphore => "semaphore",
            Self::ExpirableSemaphore => "expirable-semaphore",
            Self::CountdownLatch => "countdown-latch",
        }
    }

    /// What it is, in one line.
    #[must_use]
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Semaphore => "a number of permits in Redis, taken and given back",
            Self::ExpirableSemaphore => "permits with ids and leases, by the server's clock",
            Self::CountdownLatch => "opens to all waiters when it was counted down to zero",
        }
    }

    /// What it is known to get wrong.
    #[must_use]
    pub const fn flaws(self) -> &'static [&'static str] {
        match self {
            Self::Semaphore => &[
                "a holder that dies keeps its permits for ever",
                "a failover to a replica that lags forgets what was taken last",
            ],
            Self::ExpirableSemaphore => &[
                "a holder that does not notice the end of its lease works on beside its successor",
                "a failover to a replica that lags forgets permits that are out",
            ],
            Self::CountdownLatch => &[
                "a process that dies before counting keeps it closed",
                "a failover to a replica that lags forgets counts",
                "a server that loses its memory opens it",
            ],
        }
    }
}

impl fmt::Display for Synchronizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is no synchronizer.
#[derive(Debug, thiserror::Error)]
#[error("no such synchronizer; one of: {}", Synchronizer::ALL.map(Synchronizer::as_str).join(", "))]
pub struct UnknownSynchronizer;

impl FromStr for Synchronizer {
    type Err = UnknownSynchronizer;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownSynchronizer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockKind;

    #[test]
    fn every_synchronizer_is_found_again_by_its_name_which_no_lock_has() {
        for kind in Synchronizer::ALL {
            assert_eq!(kind.as_str().parse::<Synchronizer>().unwrap(), kind);
            assert!(kind.as_str().parse::<LockKind>().is_err());
            assert!(!kind.summary().is_empty() && !kind.flaws().is_empty());
        }
        let refusal = "lua-release".parse::<Synchronizer>().unwrap_err().to_string();
        assert!(refusal.contains("countdown-latch"), "{refusal}");
    }
}
