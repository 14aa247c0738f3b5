//! A lock of the kind `redisson`, seen by somebody who does not hold it.

use std::time::Duration;

use conformance::protocol::{Failure, Inspected, Word};
use distlock::RedissonLock;

/// What Redisson's `remainTimeToLive` says of a lock without an end, and of none.
const NO_END: i64 = -1;
const ABSENT: i64 = -2;

pub(crate) async fn inspect(lock: &RedissonLock) -> Result<Word, Failure> {
    let left_ms = match lock.remaining_lease().await? {
        Some(Duration::MAX) => NO_END,
        Some(left) => i64::try_from(left.as_millis()).unwrap_or(i64::MAX),
        None => ABSENT,
    };
    Ok(Word::Inspected(Inspected { is_locked: lock.is_locked().await?, left_ms }))
}
