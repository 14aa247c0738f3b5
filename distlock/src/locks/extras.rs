//! What [`Locks`] can have besides their mechanism.

use std::sync::Arc;

use super::Locks;
use crate::deadlock_detector::LockClass;
use crate::ownership::OwnershipRegistry;
use crate::{DeadlockDetector, OwnerTag, TokenIssuer};

impl Locks {
    /// Adds a token issuer, for kinds without fencing tokens of their own. All holds of one
    /// ownership carry the same token: the first hold that asks for one issues it.
    #[must_use]
    pub fn with_token_issuer(self, token_issuer: Arc<dyn TokenIssuer>) -> Self {
        Self { token_issuer: Some((token_issuer, OwnershipRegistry::default())), ..self }
    }

    /// Adds the token issuer of `other`. An owner that holds by both has one token: needed for the
    /// two sides of a read-write lock.
    #[must_use]
    pub fn with_token_issuer_of(self, other: &Self) -> Self {
        Self { token_issuer: other.token_issuer.clone(), ..self }
    }

    /// Adds a tag to the owners of all acquisitions. The inspector, waiters and time-outs show it
    /// ([`OwnerTag`]). It lengthens what servers store by up to 88 bytes.
    #[must_use]
    pub fn with_owner_tag(self, owner_tag: OwnerTag) -> Self {
        Self { owner_tag: Some(owner_tag), ..self }
    }

    /// Adds a deadlock detector, which other [`Locks`] of the process share. The kind `local` takes
    /// no part. An acquisition costs two entries in a table of the process.
    #[must_use]
    pub fn with_deadlock_detector(self, detector: DeadlockDetector) -> Self {
        let class = LockClass { kind: self.locker.name(), shares: false };
        Self { deadlock_detector: Some((detector, class)), ..self }
    }

    /// Removes the queue inside the process, for tests that show what the server alone does.
    #[must_use]
    pub fn without_local_queue(self) -> Self {
        Self { local_queue: None, ..self }
    }
}
