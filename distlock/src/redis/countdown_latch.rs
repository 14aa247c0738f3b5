//! A latch that opens when it has been counted down to zero.
//!
//! How it works: the count is a field of a hash in Redis. A script counts it down and notes the id
//! of the call in the same hash, so an id counts once, however often it is sent. At zero the hash
//! is renamed, its ids are remembered for [`LATCH_TTL`], and all waiters are woken. A waiter
//! subscribes and looks. It looks again after each message and every [`MAX_MESSAGE_WAIT`], which
//! bounds the cost of a lost message.
//!
//! Guarantees that it opens when as many different ids have counted as were set, and not before. It
//! opens once: a latch of the same name that is set afterwards is another one. A latch that is not
//! there is open.
//!
//! Flaws: a counter that dies before counting keeps the latch closed, so every wait has an end. A
//! failover to a replica that lags forgets counts. A Redis that loses its memory opens the latch.
//!
//! Bounds: one field per id that counts, until it opens. One look per waiter and
//! [`MAX_MESSAGE_WAIT`].
//!
//! Source: Redisson's `RCountDownLatch`, which counts a repeated request twice; the formats differ.
//! Tests: `tests/countdown_latch.rs`, `tests/countdown_latch_faults.rs`,
//! `tests/synchronizer_scripts.rs`, `tests/synchronizer_failover.rs`.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::RedisServer;
use super::idempotent_call::{
    CALL_RETRY_TIMEOUT, CallError, CallResult, LATCH_TTL, idempotent_call, retry_until_answered,
};
use super::keys::{ms, prefixed};
use super::permits::{MAX_MESSAGE_WAIT, RETRY_PAUSE, Synchronizers, check_wait};
use super::signal::WAKE_ALL;
use crate::{LockError, LockName};

/// The field of the hash in which is counted.
const COUNT_FIELD: &str = "count";

/// A latch that the processes of one Redis share. Cheap to clone.
///
/// Methods that ask the server fail with [`LockError::Backend`] if it does not answer. They fail
/// with [`LockError::HeldByOtherKind`] if the key has another type.
///
/// ```no_run
/// use distlock::{CountdownLatch, LockError, LockName, RedisServer};
/// use std::time::Duration;
/// # async fn example(server: &RedisServer) -> Result<(), LockError> {
/// let parts_done = CountdownLatch::new(server, LockName::new("import:7")?);
/// parts_done.try_set_count(3).await?;
/// // Each of three workers, when it is done:
/// parts_done.count_down().await?;
/// // A task that needs all three parts:
/// parts_done.wait(Duration::from_secs(60)).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CountdownLatch(Arc<LatchState>);

struct LatchState {
    server: RedisServer,
    shared: Arc<Synchronizers>,
    name: LockName,
    /// The latch of that name that was opened last.
    past: String,
    channel: String,
}

impl CountdownLatch {
    /// The latch of that name. Sends nothing yet. Needs a tokio runtime, the same for all
    /// synchronizers of a server.
    #[must_use]
    pub fn new(server: &RedisServer, name: LockName) -> Self {
        Self(Arc::new(LatchState {
            server: server.clone(),
            shared: server.synchronizers(),
            past: prefixed("distlock_latch_past", &name),
            channel: prefixed("distlock_latch_channel", &name),
            name,
        }))
    }

    /// Closes the latch until it has been counted down so often, at least once. `false` if it is
    /// closed already; it stays as it is.
    pub async fn try_set_count(&self, count: u32) -> Result<bool, LockError> {
        if count == 0 {
            let limit = "must be at least 1".into();
            return Err(LockError::BadRequest { field: "count", limit });
        }
        let keys = [self.0.name.as_str(), &self.0.channel, &self.0.past];
        self.0.shared.set(&self.0.server, &keys, (COUNT_FIELD, count)).await
    }

    /// Counts down by one, and opens the latch at zero. Returns how many counts are left; 0 if it
    /// is open, or was before. Goes on if the future is dropped after it was begun.
    ///
    /// It counts once, also if it has to be sent again. After [`LockError::Backend`] it is not
    /// known whether it has counted; a caller that wants to ask again uses
    /// [`CountdownLatch::count_down_as`].
    pub async fn count_down(&self) -> Result<u32, LockError> {
        self.count_down_as(Uuid::new_v4()).await
    }

    /// Counts down for work that may be done again: all calls with one id count once together, and
    /// get the answer of the first. Remembered until two minutes after the latch has opened.
    pub async fn count_down_as(&self, id: Uuid) -> Result<u32, LockError> {
        let (latch, id) = (self.clone(), id.to_string());
        let work = async move {
            retry_until_answered(CALL_RETRY_TIMEOUT, || latch.send_count_down(&id)).await
        };
        let counted = self.0.shared.background.finish(work, |_| Box::pin(ready(()))).await?;
        Ok(counted.value)
    }

    async fn send_count_down(&self, id: &str) -> Result<CallResult<u32>, CallError> {
        let keys = [self.0.name.as_str(), &self.0.past, &self.0.channel];
        let script = &self.0.shared.scripts.latch_count_down;
        let args = (WAKE_ALL, id, ms(LATCH_TTL), self.0.server.publish());
        idempotent_call(&self.0.server, script, &keys, args).await
    }

    /// How many counts are left; 0 if it is open. May be out of date when it comes.
    pub async fn count(&self) -> Result<u32, LockError> {
        self.0.shared.number(&self.0.server, &self.0.name, COUNT_FIELD).await
    }

    /// Waits until the latch is open, for at most `wait`; zero is one look. Fails with
    /// [`LockError::TimedOut`] if it is closed after that, and with [`LockError::BadRequest`] for
    /// more than a day. Dropping the future leaves nothing behind.
    pub async fn wait(&self, at_most: Duration) -> Result<(), LockError> {
        check_wait(at_most)?;
        let started = Instant::now();
        let deadline = started + at_most;
        let signals = self.0.server.signals();
        let mut subscription = signals.join(&self.0.channel);
        let mut was_closed = false;
        loop {
            match self.count().await {
                Ok(0) => return Ok(()),
                Ok(_) => was_closed = true,
                // A waiter keeps waiting when the server fails.
                Err(error) if was_closed && error.is_unknown() && Instant::now() < deadline => {
                    tracing::debug!(%error, "look failed; waiter retries");
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(LockError::TimedOut {
                    waited: started.elapsed(),
                    has_no_expiry: false,
                    holder: None,
                });
            }
            let told = subscription.get_or_insert_with(|| signals.subscribe(&self.0.channel));
            // When the time is over it looks once more.
            let _over = timeout_at(deadline, told.next(MAX_MESSAGE_WAIT)).await;
        }
    }

    /// Opens the latch, whatever its count. `false` if it was open.
    pub async fn delete(&self) -> Result<bool, LockError> {
        let keys = [self.0.name.as_str(), &self.0.channel];
        self.0.shared.delete(&self.0.server, &keys, COUNT_FIELD).await
    }
}
