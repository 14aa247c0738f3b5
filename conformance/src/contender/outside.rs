//! A lock of the kind `redisson`, seen by a process that does not hold it.

use std::time::Duration;

use conformance::protocol::{Failure, LockInspection, Response};
use distlock::RedissonLock;

/// What Redisson's `remainTimeToLive` says of a lock without an end, and of none.
const NO_END: i64 = -1;
const ABSENT: i64 = -2;

pub(crate) async fn inspect(lock: &RedissonLock) -> Result<Response, Failure> {
    let left_ms = match lock.remaining_lease().await? {
        Some(Duration::MAX) => NO_END,
        Some(left) => i64::try_from(left.as_millis()).unwrap_or(i64::MAX),
        None => ABSENT,
    };
    Ok(Response::Inspected(LockInspection { is_locked: lock.is_locked().await?, left_ms }))
}
