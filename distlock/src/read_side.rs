//! The read side of locks that have one.

use crate::Locks;

impl Locks {
    /// Locks that share what these take alone, with the same token issuer and owner tag; `None` for
    /// kinds without a read side.
    #[must_use]
    pub fn read_side(&self) -> Option<Self> {
        let reader = Self::new(self.locker.read_side()?).with_token_issuer_of(self);
        Some(match &self.owner_tag {
            Some(tag) => reader.with_owner_tag(tag.clone()),
            None => reader,
        })
    }
}
