//! The read side of locks that have one.

use crate::Locks;

impl Locks {
    /// Locks that share what these take alone, with the same token issuer; `None` for kinds without
    /// a read side.
    #[must_use]
    pub fn read_side(&self) -> Option<Self> {
        self.locker.read_side().map(|reader| Self::new(reader).with_token_issuer_of(self))
    }
}
