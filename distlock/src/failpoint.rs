//! Named points in the life of a lock at which the laboratory makes a process fail.
//!
//! With the feature `failpoints`, an armed point panics, stalls, or ends the process as SIGKILL
//! does; each hit is counted. Without the feature a point is an empty function. Actions are those
//! of the crate `fail`: `panic`, `sleep(ms)`, `off`, each with `3*` (three times), `10%` (a chance)
//! and `->` (then). `return(kill)` is our own. They block the thread, as a long pause does. A lock
//! of `local` reaches none of them.

/// Before a server is asked for a lock.
pub const BEFORE_ACQUIRE: &str = "lock-before-acquire";
/// The server has answered an attempt; the caller has not seen the answer.
pub const ACQUIRE_ANSWERED: &str = "lock-acquire-answered";
/// The server has answered that another owner has the lock.
pub const BUSY: &str = "lock-busy";
/// A waiter is about to look again.
pub const WOKEN: &str = "lock-woken";
/// A fencing token was issued.
pub const TOKEN_ISSUED: &str = "lock-token-issued";
/// Before a batch of holds is renewed.
pub const BEFORE_RENEWAL: &str = "lock-before-renewal";
/// A batch was renewed, and the watchdog does not know yet.
pub const RENEWAL_ANSWERED: &str = "lock-renewal-answered";
/// Before a hold is released.
pub const BEFORE_RELEASE: &str = "lock-before-release";
/// The lock is released; the caller does not know it yet.
pub const RELEASE_ANSWERED: &str = "lock-release-answered";

/// All of them.
pub const ALL: [&str; 9] = [
    BEFORE_ACQUIRE,
    ACQUIRE_ANSWERED,
    BUSY,
    WOKEN,
    TOKEN_ISSUED,
    BEFORE_RENEWAL,
    RENEWAL_ANSWERED,
    BEFORE_RELEASE,
    RELEASE_ANSWERED,
];

/// Whether the points are compiled in.
#[must_use]
pub const fn are_compiled_in() -> bool {
    cfg!(feature = "failpoints")
}

/// Does what the point is armed to do.
#[cfg(feature = "failpoints")]
pub fn reach(point: &'static str) {
    metrics::counter!("distlock_failpoints_reached_total", "point" => point).increment(1);
    let reached = std::time::Instant::now();
    fail::fail_point!(point, |action| {
        if action.as_deref() == Some(KILL) {
            eprintln!("failpoint {point}: the process ends here");
            // No destructor runs and nothing is flushed.
            std::process::abort();
        }
    });
    let stood = reached.elapsed();
    if stood >= MAX_STALL {
        eprintln!("failpoint {point}: stood still for {} ms", stood.as_millis());
    }
}

/// Does nothing.
#[cfg(not(feature = "failpoints"))]
pub const fn reach(_point: &'static str) {}

/// Reports how long a point took; one that is not armed takes no time.
#[cfg(feature = "failpoints")]
const MAX_STALL: std::time::Duration = std::time::Duration::from_millis(100);

/// What `return(...)` may say.
#[cfg(feature = "failpoints")]
const KILL: &str = "kill";

/// Arms a point; the error is a sentence.
#[cfg(feature = "failpoints")]
pub fn arm(point: &str, actions: &str) -> Result<(), String> {
    let unknown = |text: &str| text.contains("return") && !text.contains("return(kill)");
    if actions.split("->").any(unknown) {
        return Err(format!("{point}: the only value to return is `kill`"));
    }
    fail::cfg(point, actions).map_err(|error| format!("{point}: {error}"))
}

/// There is none to arm.
#[cfg(not(feature = "failpoints"))]
pub fn arm(_point: &str, _actions: &str) -> Result<(), String> {
    Err("this program has no failpoints (cargo build --features failpoints)".to_owned())
}
