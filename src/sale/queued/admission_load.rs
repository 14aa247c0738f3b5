//! The load of admissions in a replica. While many requests are pending and some are admitted, the
//! replica reads less from its queues (`stream_consumer`): clients wait for admissions, not for
//! entries.
//!
//! Once requests are refused, or get earlier tickets, that delay gains nothing, and the queues come
//! first. The load is that of all vouchers together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Concurrent admissions that keep a replica busy.
const BUSY_ADMISSIONS: usize = 16;

/// Counts pending and refused admissions.
#[derive(Debug, Default)]
pub(super) struct AdmissionLoad {
    pending: AtomicUsize,
    /// Requests since the last admitted one; counted up to [`BUSY_ADMISSIONS`].
    rejected_in_a_row: AtomicUsize,
}

impl AdmissionLoad {
    /// Counts a pending admission until that is dropped.
    pub(super) fn join(&self) -> PendingAdmission<'_> {
        self.pending.fetch_add(1, Relaxed);
        PendingAdmission(self)
    }

    /// Whether many admissions are pending and some succeed.
    pub(super) fn has_priority(&self) -> bool {
        self.pending.load(Relaxed) >= BUSY_ADMISSIONS && !self.is_over()
    }

    /// Whether a load that had priority has ended, or is refused only. The number of pending
    /// admissions alone does not show it: answers come many at a time.
    pub(super) fn is_over(&self) -> bool {
        self.pending.load(Relaxed) == 0 || self.rejected_in_a_row.load(Relaxed) >= BUSY_ADMISSIONS
    }
}

/// A pending admission.
pub(super) struct PendingAdmission<'a>(&'a AdmissionLoad);

impl PendingAdmission<'_> {
    /// Records the answer of Redis.
    pub(super) fn answered(self, is_admitted: bool) {
        let rejected_in_a_row = &self.0.rejected_in_a_row;
        // Shared by all cores: written only when it changes.
        match rejected_in_a_row.load(Relaxed) {
            1.. if is_admitted => rejected_in_a_row.store(0, Relaxed),
            few @ ..BUSY_ADMISSIONS if !is_admitted => rejected_in_a_row.store(few + 1, Relaxed),
            _ => {}
        }
    }
}

impl Drop for PendingAdmission<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admissions_have_priority_while_many_ask_and_some_are_admitted() {
        let admission_load = AdmissionLoad::default();
        let few: Vec<_> = (1..BUSY_ADMISSIONS).map(|_| admission_load.join()).collect();
        assert!(!admission_load.has_priority());
        let last = admission_load.join();
        assert!(admission_load.has_priority());
        for _ in 1..BUSY_ADMISSIONS {
            admission_load.join().answered(false);
        }
        assert!(admission_load.has_priority(), "some always ask again");
        for _ in 0..3 * BUSY_ADMISSIONS {
            admission_load.join().answered(false);
        }
        assert!(
            !admission_load.has_priority() && admission_load.is_over(),
            "what they ask for is gone"
        );
        admission_load.join().answered(true);
        assert!(admission_load.has_priority());
        drop(last);
        assert!(!admission_load.has_priority() && !admission_load.is_over());
        drop(few);
        assert!(admission_load.is_over());
        assert_eq!(admission_load.pending.into_inner(), 0);
    }
}
