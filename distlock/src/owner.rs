//! Who holds a lock.

use std::fmt;

use uuid::Uuid;

/// An owner, made anew for every acquisition: a stale handle can therefore never free its
/// successor, and no thread or task identity is involved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner(Uuid);

impl Owner {
    /// A fresh owner (UUID v4).
    pub fn fresh() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
