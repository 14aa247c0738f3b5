//! Keys that keep all waiters out and that no holder frees: without an expiry, or no such lock.
//! Each wait that ends at one is counted, and the first of a key and minute is logged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, counter};
use tokio::time::Instant;

use crate::{LockError, LockName};

/// How long a key that was logged is not logged again.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);
/// The most keys that are remembered, and so the most lines a minute.
const MAX_KEYS: usize = 1024;

/// The stuck keys that the waiters of one kind met.
#[derive(Clone)]
pub(crate) struct StuckKeys(Arc<StuckMetrics>);

struct StuckMetrics {
    kind: &'static str,
    no_expiry: Counter,
    wrong_type: Counter,
    warned: Mutex<HashMap<LockName, Instant>>,
}

impl StuckKeys {
    pub(crate) fn for_kind(kind: &'static str) -> Self {
        let counted = |reason| counter!("distlock_stuck_total", "kind" => kind, "reason" => reason);
        let (no_expiry, wrong_type) = (counted("no_expiry"), counted("wrong_type"));
        Self(Arc::new(StuckMetrics { kind, no_expiry, wrong_type, warned: Mutex::default() }))
    }

    /// Counts and logs an acquisition that ended at a stuck key.
    pub(crate) fn report(&self, name: &LockName, error: &LockError) {
        let StuckMetrics { kind, no_expiry, wrong_type, warned } = &*self.0;
        let (counter, what) = match error {
            LockError::TimedOut { has_no_expiry: true, .. } => {
                (no_expiry, "lock has no expiry; waiters time out until its key is deleted")
            }
            LockError::HeldByOtherKind => {
                (wrong_type, "key is no lock of this kind; requests fail until it is deleted")
            }
            _ => return,
        };
        counter.increment(1);
        let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
        if may_warn(&mut warned, name, Instant::now()) {
            tracing::warn!(lock = %name, kind, "{what}");
        }
    }
}

fn may_warn(warned: &mut HashMap<LockName, Instant>, name: &LockName, now: Instant) -> bool {
    let is_recent = |at: &Instant| now.saturating_duration_since(*at) < WARNING_INTERVAL;
    if warned.get(name).is_some_and(is_recent) {
        return false;
    }
    if warned.len() >= MAX_KEYS {
        warned.retain(|_, at| is_recent(at));
    }
    if warned.len() >= MAX_KEYS {
        return false;
    }
    warned.insert(name.clone(), now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_logged_once_a_minute_and_the_keys_are_bounded() {
        let (mut warned, now) = (HashMap::new(), Instant::now());
        let name = |number: usize| LockName::new(format!("lock:{number}")).expect("a name");
        assert!((0..MAX_KEYS).all(|number| may_warn(&mut warned, &name(number), now)));
        assert!(!may_warn(&mut warned, &name(0), now), "a second line");
        assert!(!may_warn(&mut warned, &name(MAX_KEYS), now), "one key too many");
        let later = now + WARNING_INTERVAL;
        assert!(may_warn(&mut warned, &name(MAX_KEYS), later), "the others are forgotten");
        assert_eq!(warned.len(), 1);
    }
}
