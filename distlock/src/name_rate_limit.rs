//! At most one log line a minute for each name, of at most [`MAX_NAMES`] names.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::LockName;

/// How long a name that was admitted is not admitted again.
const INTERVAL: Duration = Duration::from_mins(1);
/// The most names that are remembered, and so the most lines a minute.
const MAX_NAMES: usize = 1024;

/// The names that were admitted lately.
#[derive(Default)]
pub(crate) struct NameRateLimit(Mutex<HashMap<LockName, Instant>>);

impl NameRateLimit {
    /// Whether the name may be logged now.
    pub(crate) fn admit(&self, name: &LockName) -> bool {
        let mut admitted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        admit(&mut admitted, name, Instant::now())
    }
}

fn admit(admitted: &mut HashMap<LockName, Instant>, name: &LockName, now: Instant) -> bool {
    let is_recent = |at: &Instant| now.saturating_duration_since(*at) < INTERVAL;
    if admitted.get(name).is_some_and(is_recent) {
        return false;
    }
    if admitted.len() >= MAX_NAMES {
        admitted.retain(|_, at| is_recent(at));
    }
    if admitted.len() >= MAX_NAMES {
        return false;
    }
    admitted.insert(name.clone(), now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_admitted_once_a_minute_and_the_names_are_bounded() {
        let (mut admitted, now) = (HashMap::new(), Instant::now());
        let name = |number: usize| LockName::new(format!("lock:{number}")).expect("a name");
        assert!((0..MAX_NAMES).all(|number| admit(&mut admitted, &name(number), now)));
        assert!(!admit(&mut admitted, &name(0), now), "a second line");
        assert!(!admit(&mut admitted, &name(MAX_NAMES), now), "one name too many");
        let later = now + INTERVAL;
        assert!(admit(&mut admitted, &name(MAX_NAMES), later), "the others are forgotten");
        assert_eq!(admitted.len(), 1);
    }
}
