//! The read side of locks that have one.

use crate::Locks;
use crate::deadlock_detector::LockClass;

impl Locks {
    /// Locks that share what these take alone, with the same token issuer, owner tag and
    /// deadlock detector; `None` for
    /// kinds without a read side.
    #[must_use]
    pub fn read_side(&self) -> Option<Self> {
        let mut reader = Self::new(self.locker.read_side()?).with_token_issuer_of(self);
        let shared = |class: LockClass| LockClass { shares: true, ..class };
        let deadlock_detector = self.deadlock_detector.clone();
        reader.owner_tag.clone_from(&self.owner_tag);
        reader.deadlock_detector = deadlock_detector.map(|(all, class)| (all, shared(class)));
        Some(reader)
    }
}
