//! Waiting for what must come.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// A wait that is over only if something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until it holds; panics if it does not within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(2));
    }
}
