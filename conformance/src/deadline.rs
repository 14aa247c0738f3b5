//! Waiting for what must come.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// A wait that is over only if something is wrong.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Waits until it holds; panics if it does not within [`WAIT_TIMEOUT`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {WAIT_TIMEOUT:?}: {what}");
        sleep(Duration::from_millis(2));
    }
}
