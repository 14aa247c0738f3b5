//! Those who ask to buy at this moment. Each waits for an answer, and whoever is in the queue has
//! one: while many ask and are admitted, the replica takes less from its queues (`pump`).
//!
//! Once they are turned away, because everything is admitted or because a queue is full, nothing
//! is gained by that any more: then the queues come first.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// So many at a time keep a replica busy.
const MANY: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Crowd {
    asking: AtomicUsize,
    /// Whether the latest who was answered was turned away.
    turned_away: AtomicBool,
}

impl Crowd {
    /// One more, until that is dropped.
    pub(super) fn join(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Ordering::Relaxed);
        Asking(self)
    }

    /// Whether many ask, and not in vain.
    pub(super) fn comes_first(&self) -> bool {
        let many = self.asking.load(Ordering::Relaxed) >= MANY;
        many && !self.turned_away.load(Ordering::Relaxed)
    }
}

pub(super) struct Asking<'a>(&'a Crowd);

impl Asking<'_> {
    /// What Redis said to it.
    pub(super) fn answered(self, is_turned_away: bool) {
        let latest = &self.0.turned_away;
        // All look at it, so that it is written only when it changes.
        if latest.load(Ordering::Relaxed) != is_turned_away {
            latest.store(is_turned_away, Ordering::Relaxed);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_comes_first_for_as_long_as_many_ask_and_are_not_turned_away() {
        let crowd = Crowd::default();
        let few: Vec<_> = (1..MANY).map(|_| crowd.join()).collect();
        assert!(!crowd.comes_first());
        let last = crowd.join();
        assert!(crowd.comes_first());
        crowd.join().answered(true);
        assert!(!crowd.comes_first(), "what they ask for is gone");
        crowd.join().answered(false);
        assert!(crowd.comes_first());
        drop(last);
        assert!(!crowd.comes_first());
        drop(few);
        assert_eq!(crowd.asking.into_inner(), 0);
    }
}
