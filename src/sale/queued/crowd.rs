//! Those who ask to buy at this moment. Each waits for an answer, and whoever is in the queue has
//! one: while many ask, the replica takes less from its queues (`pump`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// So many at a time keep a replica busy.
const MANY: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Crowd(AtomicUsize);

impl Crowd {
    /// One more, until that is dropped.
    pub(super) fn join(&self) -> Asking<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Asking(&self.0)
    }

    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MANY
    }
}

pub(super) struct Asking<'a>(&'a AtomicUsize);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_there_for_as_long_as_many_ask() {
        let crowd = Crowd::default();
        let few: Vec<_> = (1..MANY).map(|_| crowd.join()).collect();
        assert!(!crowd.is_there());
        let last = crowd.join();
        assert!(crowd.is_there());
        drop(last);
        assert!(!crowd.is_there());
        drop(few);
        assert_eq!(crowd.0.into_inner(), 0);
    }
}
