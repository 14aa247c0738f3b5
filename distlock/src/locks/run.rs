//! The calls of [`Locks`] that run work under a lock.

use super::Locks;
use crate::{Guard, LockError, LockName, LockOptions, LostSignal};

impl Locks {
    /// Runs `work` under the lock and releases it. The work gets a handle that tells it of the
    /// loss; it is never dropped half way, so it has to look at it. Fails with [`LockError::Lost`]
    /// if the lock was lost before the work was done.
    pub async fn scope<T>(
        &self,
        name: &LockName,
        options: &LockOptions,
        work: impl AsyncFnOnce(LostSignal) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name, options).await?;
        let outcome = work(guard.lost_signal()).await;
        let lost = guard.is_lost();
        release(guard).await;
        if lost { Err(LockError::Lost) } else { Ok(outcome) }
    }

    /// Runs `work` under the lock as [`Guard::run`] does, and releases it. Fails as [`Locks::lock`]
    /// does, before the work begins, and with [`LockError::Lost`].
    ///
    /// A release that fails is no error: the lock then ends with its lease. If the future is
    /// dropped, so is the work, and the lock is released in the background.
    pub async fn run<T>(
        &self,
        name: &LockName,
        options: &LockOptions,
        work: impl Future<Output = T>,
    ) -> Result<T, LockError> {
        let guard = self.lock(name, options).await?;
        let outcome = guard.run(work).await;
        release(guard).await;
        outcome
    }
}

/// Releases the lock of work that is done, whose outcome no longer depends on it.
async fn release(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "release failed; lock ends with its lease");
    }
}
