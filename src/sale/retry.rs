//! Retries of transactions that met another one.

use std::time::Duration;

/// How often a transaction is tried that meets another one (1213): the pauses are 0.9 s in all. Two
/// nodes of Galera that write a row find each other only at COMMIT. While one node writes it all
/// the time, more than half of the other's tries fail, often ten in a row.
pub(super) const MAX_TRIES: u32 = 40;
/// How often it is tried if an id is taken, or units went elsewhere.
pub(super) const FEW_TRIES: u32 = 5;
/// After this time no other try begins, as each may wait for rows.
pub(super) const MAX_RETRY_TIME: Duration = Duration::from_secs(10);

/// The pause after a failed try: 1 to 2 ms after the first, doubled after each of the next four.
pub(super) fn jitter(attempt: u32) -> Duration {
    Duration::from_micros(fastrand::u64(1000..=2020) << (attempt - 1).min(4))
}
