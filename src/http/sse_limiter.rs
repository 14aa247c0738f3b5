//! Limits event streams: those of a replica, and those of a user over all replicas.
//!
//! Redis keeps the user's streams as leases. Without an answer of Redis no stream begins, and none
//! that has begun ends.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

use super::error::ApiError;
use crate::domain::UserId;
use crate::store::StreamLeases;

/// When to try again without a permit: the longest interval at which the page polls instead.
const RETRY_AFTER_S: u64 = 5;

/// The permits of a replica. Cheap to clone.
#[derive(Clone)]
pub struct SseLimiter {
    of_replica: Arc<Semaphore>,
    leases: StreamLeases,
}

/// The permit of one stream.
pub(super) struct SsePermit {
    leases: StreamLeases,
    user: UserId,
    stream: Uuid,
    /// When the next renewal is due: a third of a lease after the last.
    due: Instant,
    _of_replica: OwnedSemaphorePermit,
}

impl SseLimiter {
    /// At most `most` streams of this replica, with those leases of users.
    pub fn new(most: u32, leases: StreamLeases) -> Self {
        Self { of_replica: Arc::new(Semaphore::new(most as usize)), leases }
    }

    /// Takes a permit for a stream of that user.
    pub(super) async fn enter(&self, user: UserId) -> Result<SsePermit, ApiError> {
        let of_replica = Arc::clone(&self.of_replica).try_acquire_owned();
        let of_replica = of_replica.map_err(|_| ApiError::Overloaded)?;
        let (leases, stream) = (self.leases.clone(), Uuid::new_v4());
        let due = Instant::now() + leases.length() / 3;
        if !leases.take(user, stream).await? {
            return Err(ApiError::TooManyRequests { retry_after_s: RETRY_AFTER_S });
        }
        Ok(SsePermit { leases, user, stream, due, _of_replica: of_replica })
    }
}

impl SsePermit {
    /// Renews the lease if that is due; `false` if it has ended and the user's other streams have
    /// all leases.
    pub(super) async fn keep(&mut self) -> bool {
        let now = Instant::now();
        if now < self.due {
            return true;
        }
        self.due = now + self.leases.length() / 3;
        self.leases.take(self.user, self.stream).await.unwrap_or(true)
    }

    /// Gives the lease back; without an answer it ends by itself.
    pub(super) async fn leave(self) {
        if let Err(error) = self.leases.give_back(self.user, self.stream).await {
            tracing::debug!(%error, "stream lease not given back; it ends by itself");
        }
    }
}
