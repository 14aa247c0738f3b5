//! Those who ask to buy at this moment. Each waits for an answer, and whoever is in the queue has
//! one: while many ask and are admitted, the replica takes less from its queues (`pump`).
//!
//! Once they are turned away, because everything is admitted or because a queue is full, or have
//! tickets already, nothing is gained by that any more: then the queues come first. That is known
//! of all vouchers together.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// So many at a time keep a replica busy.
const MANY: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Crowd {
    asking: AtomicUsize,
    /// Since the latest who was admitted; [`MANY`] stands for more as well.
    in_vain: AtomicUsize,
}

impl Crowd {
    /// One more, until that is dropped.
    pub(super) fn join(&self) -> Asking<'_> {
        self.asking.fetch_add(1, Relaxed);
        Asking(self)
    }

    /// Whether many ask, and not in vain.
    pub(super) fn comes_first(&self) -> bool {
        self.asking.load(Relaxed) >= MANY && !self.is_over()
    }

    /// Whether a crowd that came first has gone, or asks in vain. How many ask at a moment goes up
    /// and down, since they are answered many at a time.
    pub(super) fn is_over(&self) -> bool {
        self.asking.load(Relaxed) == 0 || self.in_vain.load(Relaxed) >= MANY
    }
}

pub(super) struct Asking<'a>(&'a Crowd);

impl Asking<'_> {
    /// What Redis said to it.
    pub(super) fn answered(self, is_admitted: bool) {
        let in_vain = &self.0.in_vain;
        // All look at it, so that it is written only when it changes.
        match in_vain.load(Relaxed) {
            1.. if is_admitted => in_vain.store(0, Relaxed),
            few @ ..MANY if !is_admitted => in_vain.store(few + 1, Relaxed),
            _ => {}
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_comes_first_for_as_long_as_many_ask_and_some_are_admitted() {
        let crowd = Crowd::default();
        let few: Vec<_> = (1..MANY).map(|_| crowd.join()).collect();
        assert!(!crowd.comes_first());
        let last = crowd.join();
        assert!(crowd.comes_first());
        for _ in 1..MANY {
            crowd.join().answered(false);
        }
        assert!(crowd.comes_first(), "some always ask again");
        for _ in 0..3 * MANY {
            crowd.join().answered(false);
        }
        assert!(!crowd.comes_first() && crowd.is_over(), "what they ask for is gone");
        crowd.join().answered(true);
        assert!(crowd.comes_first());
        drop(last);
        assert!(!crowd.comes_first() && !crowd.is_over());
        drop(few);
        assert!(crowd.is_over());
        assert_eq!(crowd.asking.into_inner(), 0);
    }
}
