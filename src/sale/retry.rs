//! Retries of transactions that met another one.

use std::time::Duration;

/// How often a transaction is tried that meets another one (1213) or an id that is taken: for about
/// a second. Two nodes of Galera that write a row find each other only at COMMIT. While one node
/// writes it all the time, more than half of the other's tries fail, often ten in a row.
pub(super) const MAX_TRIES: u32 = 40;

/// The pause after a failed try: 1 to 2 ms after the first, doubled after each of the next four.
pub(super) fn jitter(attempt: u32) -> Duration {
    Duration::from_micros(fastrand::u64(1000..=2020) << (attempt - 1).min(4))
}
