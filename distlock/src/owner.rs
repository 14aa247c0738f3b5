//! Owners of locks.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::OwnerTag;

/// An owner, new for every acquisition: a stale handle can therefore never free its
/// successor, and no thread or task identity is involved. Re-entry is asked for by passing the
/// owner of the hold there is ([`Guard::owner`](crate::Guard::owner)). Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// A fresh owner (UUID v4).
    #[must_use]
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    /// An owner in a format that others prescribe. It must not be used twice.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// This owner with the tag of another, which asks now.
    pub(crate) fn tagged_as(self, other: &Self) -> Self {
        match OwnerTag::find(other.as_str()) {
            Some(tag) => tag.append_to(&self),
            None => self,
        }
    }

    /// As text, as servers store it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
