//! Flaws that several kinds share, in the words of the table of guarantees.

/// A lease that is not renewed ends while its holder works.
pub(crate) const LONG_WORK: &str = "work longer than the lease has two holders";

/// A promoted replica that has not received a lock grants it again.
pub(crate) const FAILOVER: &str = "a failover to a replica that lags forgets the lock";

/// A lease counts by the wall clock of its server.
pub(crate) const SERVER_CLOCK: &str =
    "a clock of the server that is set forward ends the lease early";

/// What a frozen holder does before it looks.
pub(crate) const PAUSED: &str =
    "a holder that is paused past its lease works on unless its token is checked";

/// What a holder does that is paused between its read and its write.
pub(crate) const STALE_READER: &str =
    "a fence that is checked at the write alone lets a stale reader write";
