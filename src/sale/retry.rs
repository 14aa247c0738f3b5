//! Retries of transactions that met another one.

use std::time::Duration;

/// How often a transaction is tried that meets another one (1213) or an id that is taken.
pub(super) const MAX_TRIES: u32 = 5;
/// How often a single order's transaction is tried that meets another one. Two nodes of Galera that
/// write a row find each other only at COMMIT, and so often several times in a row.
pub(super) const MAX_CONFLICTS: u32 = 10;

/// The pause after a failed try: 1 to 2 ms after the first, doubled after each of the next four.
pub(super) fn jitter(attempt: u32) -> Duration {
    Duration::from_micros(fastrand::u64(1000..=2020) << (attempt - 1).min(4))
}
