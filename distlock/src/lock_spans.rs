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
    let outcome = match outcome {
        Ok(_) => "acquired",
        Err(LockError::TimedOut { .. }) => "timed out",
        Err(_) => "failed",
    };
    span.record("outcome", outcome);
}

/// From the news that the lock may be free to the end of the attempt that follows.
pub(crate) fn hand_off(kind: &'static str, name: &LockName) -> Span {
    let span = tracing::trace_span!(
        target: "distlock::trace", "lock.hand_off", lock.kind = kind, lock.name = Empty,
        outcome = Empty
    );
    record_name(&span, name);
    span
}

/// What the attempt has brought.
pub(crate) fn record_hand_off<T>(span: &Span, outcome: &Result<Option<T>, LockError>) {
    let outcome = match outcome {
        Ok(Some(_)) => "acquired",
        Ok(None) => "busy",
        Err(_) => "failed",
    };
    span.record("outcome", outcome);
}

/// A hold; its span ends with the value.
pub(crate) struct HoldSpan {
    span: Span,
    kind: &'static str,
    name: LockName,
    is_lost: bool,
}

impl HoldSpan {
    /// A hold that begins now; `None` if it is not traced.
    pub(crate) fn begin(kind: &'static str, name: &LockName) -> Option<Self> {
        let span = tracing::trace_span!(
            target: "distlock::trace", "lock.hold", lock.kind = kind, lock.name = Empty,
            outcome = Empty
        );
        if span.is_disabled() {
            return None;
        }
        record_name(&span, name);
        Some(Self { span, kind, name: name.clone(), is_lost: false })
    }

    /// The hold is lost.
    pub(crate) fn set_lost(&mut self) {
        self.is_lost = true;
    }
}

impl Drop for HoldSpan {
    fn drop(&mut self) {
        self.span.record("outcome", if self.is_lost { "lost" } else { "kept" });
    }
}

/// Runs a release inside the span of its hold.
pub(crate) async fn trace_release(
    hold: Option<HoldSpan>,
    release: impl Future<Output = Result<Release, LockError>>,
) -> Result<Release, LockError> {
    let Some(mut hold) = hold else { return release.await };
    let span = tracing::trace_span!(
        target: "distlock::trace", parent: &hold.span, "lock.release", lock.kind = hold.kind,
        lock.name = Empty, outcome = Empty
    );
    record_name(&span, &hold.name);
    let outcome = release.instrument(span.clone()).await;
    let text = match &outcome {
        Ok(Release::Released) => "released",
        Ok(Release::HeldByOther | Release::Gone) => {
            hold.set_lost();
            "lost"
        }
        Err(_) => "failed",
    };
    span.record("outcome", text);
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
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::subscriber::Interest;
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    type Fields = BTreeMap<&'static str, String>;

    /// Keeps the name and the fields of each span.
    #[derive(Default, Clone)]
    struct Recorder(Arc<Mutex<Vec<(&'static str, Fields)>>>);

    impl Recorder {
        fn with_fields(&self, id: &Id, read: impl FnOnce(&mut FieldReader<'_>)) {
            let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let place = usize::try_from(id.into_u64()).expect("a place") - 1;
            read(&mut FieldReader(&mut spans[place].1));
        }
    }

    struct FieldReader<'a>(&'a mut Fields);

    impl Visit for FieldReader<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.insert(field.name(), format!("{value:?}"));
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.0.insert(field.name(), value.to_owned());
        }
    }

    impl Subscriber for Recorder {
        /// Has each thread ask its own subscriber, of which the other tests have none.
        fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
            Interest::sometimes()
        }

        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            spans.push((span.metadata().name(), Fields::new()));
            let id = Id::from_u64(spans.len() as u64);
            drop(spans);
            self.with_fields(&id, |reader| span.record(reader));
            id
        }

        fn record(&self, span: &Id, values: &Record<'_>) {
            self.with_fields(span, |reader| values.record(reader));
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// The outcome of each span that `traced` makes, by the span's name. Each span has the kind and
    /// the name as well.
    fn outcomes(traced: impl FnOnce(&LockName)) -> Vec<(&'static str, String)> {
        let recorder = Recorder::default();
        let name = LockName::new("lock:order:1007").expect("a name");
        tracing::subscriber::with_default(recorder.clone(), || traced(&name));
        let mut spans = recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = |(span, mut fields): (_, Fields)| {
            assert_eq!(
                (&fields["lock.kind"][..], &fields["lock.name"][..]),
                ("fair", "lock:order:*")
            );
            (span, fields.remove("outcome").expect("an outcome"))
        };
        spans.drain(..).map(outcome).collect()
    }

    fn release(hold: Option<HoldSpan>, outcome: Result<Release, LockError>) {
        let released = trace_release(hold, std::future::ready(outcome)).now_or_never();
        assert!(released.is_some());
    }

    #[test]
    fn a_span_of_a_lock_has_its_kind_its_pattern_and_its_outcome() {
        let waits = outcomes(|name| {
            let timed_out =
                LockError::TimedOut { waited: Duration::ZERO, has_no_expiry: false, holder: None };
            for outcome in [timed_out, LockError::Lost] {
                record_wait(&wait("fair", name), &Err(outcome));
            }
            for outcome in [Ok(Some(())), Ok(None), Err(LockError::Lost)] {
                record_hand_off(&hand_off("fair", name), &outcome);
            }
        });
        let wanted = ["timed out", "failed", "acquired", "busy", "failed"];
        assert_eq!(waits.iter().map(|(_, outcome)| &outcome[..]).collect::<Vec<_>>(), wanted);

        let text = |hold: &str, release: &str| {
            vec![("lock.hold", hold.to_owned()), ("lock.release", release.to_owned())]
        };
        for (outcome, wanted) in [
            (Ok(Release::Released), text("kept", "released")),
            (Ok(Release::HeldByOther), text("lost", "lost")),
            (Err(LockError::Lost), text("kept", "failed")),
        ] {
            assert_eq!(outcomes(|name| release(HoldSpan::begin("fair", name), outcome)), wanted);
        }
        // Left to its lease, after the process has noticed the loss.
        let left = outcomes(|name| HoldSpan::begin("fair", name).expect("a span").set_lost());
        assert_eq!(left, [("lock.hold", "lost".to_owned())]);
    }

    #[test]
    fn a_hold_without_a_subscriber_is_not_traced() {
        assert!(HoldSpan::begin("fair", &LockName::new("a").expect("a name")).is_none());
    }

    #[test]
    fn names_that_differ_in_their_numbers_have_one_pattern() {
        for (name, expected) in
            [("lock:order:1007", "lock:order:*"), ("a1b22{3}", "a*b*{*}"), ("report", "report")]
        {
            assert_eq!(pattern(name), expected);
        }
    }
}
