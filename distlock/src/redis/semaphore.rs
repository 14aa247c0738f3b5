//! A semaphore: a number of permits, taken and given back.
//!
//! How it works: the number of free permits is a field of a hash in Redis. Scripts take and release
//! permits. Each acquisition has an id, and the server remembers its answer for [`LATCH_TTL`]. So a
//! request whose answer was lost can be repeated or undone, and counts once. Waiting is the same
//! for all semaphores (`permits.rs`): a release publishes one message, which wakes one task of each
//! process.
//!
//! Guarantees, among the processes of one Redis:
//! - at most the set number of permits is taken;
//! - an acquisition that was dropped, or whose answer was lost, takes nothing;
//! - permits of a semaphore that was removed and set again do not add to the new one.
//!
//! Flaws: a holder that dies keeps its permits, because they have no lease. A failover to a replica
//! that lags forgets what was taken last. [`ExpirableSemaphore`](crate::ExpirableSemaphore) has
//! leases.
//!
//! Source: Redisson's `RSemaphore`, which counts in the same way but has neither ids nor guards;
//! the formats differ, so that neither accepts the other's key. Known bugs of it that this avoids:
//! redisson#3573, redisson#3728. Tests: `tests/semaphore.rs`, `tests/semaphore_load.rs`,
//! `tests/semaphore_faults.rs`, `tests/synchronizer_scripts.rs`, `tests/synchronizer_failover.rs`.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::RedisServer;
use super::idempotent_call::{
    CALL_RETRY_TIMEOUT, CallError, CallResult, LATCH_TTL, call_on_fresh_connection, delete_latches,
    idempotent_call, retry_until_answered,
};
use super::keys::{ms, prefixed};
use super::permits::{
    GIVE_BACK_TIMEOUT, MAX_MESSAGE_WAIT, PermitReply, PermitRequest, Synchronizers, check_permits,
};
use super::signal::WAKE_ONE;
use crate::error::timeout_as_none;
use crate::lock_metrics::LockMetrics;
use crate::{LockError, LockName, Release};

/// The field of the hash in which the free permits are counted.
const PERMITS_FIELD: &str = "permits";

/// A counting semaphore that the processes of one Redis share. Cheap to clone.
///
/// Permits are taken as [`Permits`], which release themselves on drop. Methods that ask the server
/// fail with [`LockError::Backend`] if it does not answer. They fail with
/// [`LockError::HeldByOtherKind`] if the key has another type. A number of permits is at most
/// 2147483647; another is [`LockError::BadRequest`].
///
/// ```no_run
/// use distlock::{LockError, LockName, RedisServer, Semaphore};
/// use std::time::Duration;
/// # async fn example(server: &RedisServer) -> Result<(), LockError> {
/// let exports = Semaphore::new(server, LockName::new("exports")?);
/// exports.try_set_permits(4).await?;
/// let permits = exports.acquire(1, Duration::from_secs(5)).await?;
/// // ... one of at most four exports at a time, in all processes ...
/// permits.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore(Arc<SemaphoreState>);

struct SemaphoreState {
    server: RedisServer,
    shared: Arc<Synchronizers>,
    name: LockName,
    channel: String,
}

impl Semaphore {
    /// The semaphore of that name. Sends nothing yet. Needs a tokio runtime, the same for all
    /// synchronizers of a server.
    #[must_use]
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        let channel = prefixed("distlock_semaphore_channel", &name);
        Self(Arc::new(SemaphoreState {
            server: server.clone(),
            shared: server.synchronizers(),
            name,
            channel,
        }))
    }

    /// Creates the semaphore with this number of permits. Returns `false` if it exists already; it
    /// is then unchanged. Until it exists, no permit can be taken.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool, LockError> {
        check_permits(permits, 0)?;
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.set(&self.0.server, &keys, (PERMITS_FIELD, permits)).await
    }

    /// Takes permits, all or none, waiting for at most `wait`. Fails with [`LockError::TimedOut`]
    /// if too few were free during the wait.
    ///
    /// Waiting tasks of one process get permits in the order of arrival, so a task that wants many
    /// is not overtaken by tasks that want few. Dropping the future at any point leaves nothing
    /// behind.
    pub async fn acquire(&self, permits: u32, wait: Duration) -> Result<Permits, LockError> {
        check_permits(permits, 1)?;
        self.0.shared.obtain(SemaphoreRequest::new(self, permits), wait).await
    }

    /// Takes permits if they are free now, past the queue of waiters; `None` if they are not.
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Permits>, LockError> {
        timeout_as_none(self.acquire(permits, Duration::ZERO).await)
    }

    /// Takes all permits that are free now; there may be none.
    pub async fn drain(&self) -> Result<Permits, LockError> {
        self.0.shared.obtain(SemaphoreRequest::new(self, ALL_PERMITS), Duration::ZERO).await
    }

    /// Adds permits: those of [`Permits::forget`], or additional ones. Returns [`Release::Gone`] if
    /// there is no semaphore.
    ///
    /// If it fails with [`LockError::Backend`] the permits are given in the background, as with
    /// [`Permits::release`].
    pub async fn release(&self, permits: u32) -> Result<Release, LockError> {
        check_permits(permits, 1)?;
        let any = String::new();
        let pending_release =
            PermitRelease { request: SemaphoreRequest::new(self, permits), of: any, again: false };
        self.0.shared.background.finish(pending_release.give(), |_| Box::pin(ready(()))).await
    }

    /// How many permits are free; 0 if there is no semaphore. May be out of date when it comes.
    pub async fn available(&self) -> Result<u32, LockError> {
        self.0.shared.number(&self.0.server, &self.0.name, PERMITS_FIELD).await
    }

    /// Removes it. Taken permits are void from then on, also if it is set again.
    /// `false` if there was none.
    pub async fn delete(&self) -> Result<bool, LockError> {
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.delete(&self.0.server, &keys, PERMITS_FIELD).await
    }

    /// Waits for the background tasks of this server's synchronizers, for the end of a process.
    /// Dropped permits are released then, or their server has not answered for 30 s.
    pub async fn flush(&self) {
        self.0.shared.background.flush().await;
    }
}

/// As many as there are.
const ALL_PERMITS: u32 = 0;

/// One acquisition on its way.
#[derive(Clone)]
struct SemaphoreRequest {
    semaphore: Semaphore,
    /// What it did is remembered here.
    latch: Arc<str>,
    count: u32,
}

impl SemaphoreRequest {
    fn new(semaphore: &Semaphore, count: u32) -> Self {
        let latch = prefixed("distlock_semaphore_latch", &semaphore.0.name);
        let latch = format!("{latch}:{}", Uuid::new_v4()).into();
        Self { semaphore: semaphore.clone(), latch, count }
    }

    fn inner(&self) -> &SemaphoreState {
        &self.semaphore.0
    }

    /// Gives back what the request took: a number of permits of a semaphore.
    /// `on_fresh_connection` for the last call of a request.
    async fn release(
        &self,
        what: (u32, &str),
        on_fresh_connection: bool,
    ) -> Result<CallResult<i64>, CallError> {
        let script = &self.inner().shared.scripts.semaphore_release;
        let keys = [self.name().as_str(), &*self.latch, self.channel()];
        let args = (WAKE_ONE, what, ms(LATCH_TTL), self.server().publish());
        if on_fresh_connection {
            call_on_fresh_connection(self.server(), script, &keys, args).await
        } else {
            idempotent_call(self.server(), script, &keys, args).await
        }
    }
}

impl PermitRequest for SemaphoreRequest {
    type Permits = Permits;

    fn server(&self) -> &RedisServer {
        &self.inner().server
    }

    fn name(&self) -> &LockName {
        &self.inner().name
    }

    fn channel(&self) -> &str {
        &self.inner().channel
    }

    fn metrics(&self) -> &LockMetrics {
        &self.inner().shared.semaphore_metrics
    }

    fn with_fresh_id(&self) -> Self {
        Self::new(&self.semaphore, self.count)
    }

    async fn ask(&self) -> Result<PermitReply<Permits>, CallError> {
        let script = &self.inner().shared.scripts.semaphore_acquire;
        let keys = [self.name().as_str(), &*self.latch];
        let args = (self.count, ms(LATCH_TTL));
        let answer = idempotent_call::<(i64, String)>(self.server(), script, &keys, args).await?;
        let (taken, of) = answer.value;
        let Ok(count) = u32::try_from(taken) else {
            return Ok(PermitReply::Busy(MAX_MESSAGE_WAIT));
        };
        let pending_release =
            PermitRelease { request: Self { count, ..self.clone() }, of, again: answer.again };
        Ok(PermitReply::Granted(Permits {
            pending_release: Some(pending_release),
            count,
            since: Instant::now(),
        }))
    }

    async fn abandon(&self) -> Result<CallResult<i64>, CallError> {
        self.release((ALL_PERMITS, ""), true).await
    }
}

/// Permits on their way back.
struct PermitRelease {
    request: SemaphoreRequest,
    /// The id under which the permits were set; empty if it does not matter.
    of: String,
    /// Whether the acquisition was sent more than once.
    again: bool,
}

impl PermitRelease {
    /// Gives them back soon, or else in the background.
    async fn give(self) -> Result<Release, LockError> {
        if self.request.count == 0 {
            return Ok(Release::Released);
        }
        match retry_until_answered(CALL_RETRY_TIMEOUT, || self.send(false)).await {
            Ok(answer) => Ok(self.done(answer).await),
            Err(failure) => {
                if !failure.is_final() {
                    let background = self.request.inner().shared.background.clone();
                    background.spawn(self.give_at_last());
                }
                Err(failure.into())
            }
        }
    }

    async fn give_at_last(self) {
        match retry_until_answered(GIVE_BACK_TIMEOUT, || self.send(true)).await {
            // The answer may be that to an earlier sending.
            Ok(_) => {}
            Err(failure) => {
                let (error, count) = (LockError::from(failure), self.request.count);
                tracing::warn!(%error, name = %self.request.name(), count, "permits are lost");
            }
        }
    }

    async fn send(&self, on_fresh_connection: bool) -> Result<CallResult<i64>, CallError> {
        self.request.release((self.request.count, &self.of), on_fresh_connection).await
    }

    async fn done(&self, answer: CallResult<i64>) -> Release {
        if !self.again && !answer.again {
            // No call of this id is in flight any more, so its latch is not needed.
            delete_latches(self.request.server(), &*self.request.latch).await;
        }
        if answer.value == 1 { Release::Released } else { Release::Gone }
    }
}

/// Permits that were taken. Those that are merely dropped are given back in the background, also
/// if their holder panics.
#[must_use = "dropping the permits gives them back"]
pub struct Permits {
    pending_release: Option<PermitRelease>,
    count: u32,
    since: Instant,
}

impl Permits {
    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Gives them back. [`Release::Gone`] if the semaphore was removed meanwhile, or the server has
    /// forgotten it; nothing was done then.
    ///
    /// Fails with [`LockError::Backend`] if the server has not answered for half a second. The
    /// background then repeats the release for up to 30 s; it counts once. It continues if the
    /// future is dropped.
    pub async fn release(mut self) -> Result<Release, LockError> {
        let Some(pending_release) = self.end() else { return Ok(Release::Gone) };
        let background = pending_release.request.inner().shared.background.clone();
        background.finish(pending_release.give(), |_| Box::pin(ready(()))).await
    }

    /// Keeps the permits taken, until [`Semaphore::release`] is called for them. Returns their
    /// number.
    #[allow(clippy::must_use_candidate, reason = "the caller may know the number already")]
    pub fn forget(mut self) -> u32 {
        self.end();
        self.count
    }

    fn end(&mut self) -> Option<PermitRelease> {
        let pending_release = self.pending_release.take()?;
        pending_release.request.metrics().record_hold(self.since.elapsed(), false);
        Some(pending_release)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        let Some(pending_release) = self.end() else { return };
        let background = pending_release.request.inner().shared.background.clone();
        background.spawn(async move {
            if let Err(error) = pending_release.give().await {
                tracing::debug!(%error, "dropped permits not released yet; retrying");
            }
        });
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permits").field("count", &self.count).finish_non_exhaustive()
    }
}
