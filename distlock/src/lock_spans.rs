//! Spans of the target `distlock::trace`, at the level `TRACE`: the wait for a lock, a hand-off
//! within it, the hold, and the release within that. They cost next to nothing without a subscriber
//! that wants them. The kind `local` has none.
//!
//! The name of a lock is a pattern, with `*` in place of digits: a lock for each user has one name.

use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use crate::{Guard, LockError, LockName, Release};

/// The wait of an acquisition.
pub(crate) fn wait(kind: &'static str, name: &LockName) -> Span {
    let span = tracing::trace_span!(
        target: "distlock::trace", "lock.wait", lock.kind = kind, lock.name = Empty, outcome = Empty
    );
    record_name(&span, name);
    span
}

/// How the wait ended.
pub(crate) fn record_wait(span: &Span, outcome: &Result<Guard, LockError>) {
    if span.is_disabled() {
        return;
    }
    span.record(
        "outcome",
        match outcome {
            Ok(_) => "acquired",
            Err(LockError::TimedOut { .. }) => "timed out",
            Err(_) => "failed",
        },
    );
}

/// From the news that the lock may be free to the end of the attempt that follows.
pub(crate) fn hand_off(kind: &'static str) -> Span {
    tracing::trace_span!(target: "distlock::trace", "lock.hand_off", lock.kind = kind)
}

/// A hold; its span ends with the value.
pub(crate) struct HoldSpan(Span);

impl HoldSpan {
    /// A hold that begins now.
    pub(crate) fn begin(kind: &'static str, name: &LockName) -> Self {
        let span = tracing::trace_span!(
            target: "distlock::trace", "lock.hold", lock.kind = kind, lock.name = Empty,
            lost = Empty
        );
        record_name(&span, name);
        Self(span)
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.0.is_disabled()
    }

    /// The hold is lost.
    pub(crate) fn record_loss(&self) {
        self.0.record("lost", true);
    }
}

/// Runs a release inside the span of its hold.
pub(crate) async fn trace_release(
    hold: Option<&HoldSpan>,
    release: impl Future<Output = Result<Release, LockError>>,
) -> Result<Release, LockError> {
    let Some(HoldSpan(hold)) = hold else { return release.await };
    let span = tracing::trace_span!(
        target: "distlock::trace", parent: hold, "lock.release", outcome = Empty
    );
    let outcome = release.instrument(span.clone()).await;
    span.record(
        "outcome",
        match &outcome {
            Ok(Release::Released) => "released",
            Ok(Release::HeldByOther | Release::Gone) => "lost",
            Err(_) => "failed",
        },
    );
    outcome
}

fn record_name(span: &Span, name: &LockName) {
    if !span.is_disabled() {
        span.record("lock.name", display(pattern(name.as_str())));
    }
}

/// The name with one `*` in place of each run of digits.
fn pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            c => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_their_numbers_have_one_pattern() {
        for (name, expected) in
            [("lock:order:1007", "lock:order:*"), ("a1b22{3}", "a*b*{*}"), ("report", "report")]
        {
            assert_eq!(pattern(name), expected);
        }
    }
}
