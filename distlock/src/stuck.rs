//! Keys that keep all waiters out and that no holder frees: without an expiry, or no such lock.
//! Each wait that ends at one is counted, and the first of a key and minute is logged.

use std::sync::Arc;

use metrics::{Counter, counter};

use crate::name_rate_limit::NameRateLimit;
use crate::{LockError, LockName};

/// The stuck keys that the waiters of one kind met.
#[derive(Clone)]
pub(crate) struct StuckKeys(Arc<StuckMetrics>);

struct StuckMetrics {
    kind: &'static str,
    no_expiry: Counter,
    wrong_type: Counter,
    warnings: NameRateLimit,
}

impl StuckKeys {
    pub(crate) fn for_kind(kind: &'static str) -> Self {
        let counted = |reason| counter!("distlock_stuck_total", "kind" => kind, "reason" => reason);
        let (no_expiry, wrong_type) = (counted("no_expiry"), counted("wrong_type"));
        Self(Arc::new(StuckMetrics {
            kind,
            no_expiry,
            wrong_type,
            warnings: NameRateLimit::default(),
        }))
    }

    /// Counts and logs an acquisition that ended at a stuck key.
    pub(crate) fn report(&self, name: &LockName, error: &LockError) {
        let StuckMetrics { kind, no_expiry, wrong_type, warnings } = &*self.0;
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
        if warnings.admit(name) {
            tracing::warn!(lock = %name, kind, "{what}");
        }
    }
}
