//! How tasks wait for permits, the same for both semaphores, and what the synchronizers of a server
//! share.
//!
//! A task that finds no waiters in its process asks the server at once, concurrently with others.
//! If it must wait, it queues in the process in the order of arrival, and so do later tasks. Only
//! the head of each process's queue asks the server again: after a message, when its mechanism
//! wants another attempt, or after [`MAX_MESSAGE_WAIT`]. A head that gets its permits lets the next
//! one ask. So no task is overtaken for ever by its neighbours, and there is no herd. `n` released
//! permits make at most `n` tasks ask with success, and one of each process without. Heads of
//! several processes compete.
//!
//! Bounds: one background task per attempt whose caller was dropped or whose outcome is unknown,
//! for at most [`GIVE_BACK_TIMEOUT`]. One place in the queue per waiter. One subscription per
//! process and name.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::RedisServer;
use super::idempotent_call::{
    CALL_RETRY_TIMEOUT, CallError, CallResult, MAX_FRESH_CONNECTIONS, idempotent_call,
    retry_until_answered,
};
use super::permit_renewer::PermitRenewer;
use super::script::LuaScript;
use super::signal::{Subscription, WAKE_ALL, WAKE_ONE};
use crate::background::BackgroundTasks;
use crate::keyed::{KeyGuard, KeyedMutex};
use crate::lock_metrics::LockMetrics;
use crate::runtime_ticker::RuntimeTicker;
use crate::watchdog::Watchdog;
use crate::{LockError, LockName, LockOptions, Synchronizer};

/// How long a waiter relies on messages at most.
pub(super) const MAX_MESSAGE_WAIT: Duration = Duration::from_secs(1);
/// How long unwanted permits are sent back to a server that does not answer.
pub(super) const GIVE_BACK_TIMEOUT: Duration = Duration::from_secs(30);
/// Before a waiter asks again whose server failed.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// What the synchronizers of a server share in this process.
pub(crate) struct Synchronizers {
    pub(super) background: BackgroundTasks,
    pub(super) watchdog: Watchdog,
    pub(super) ticker: RuntimeTicker,
    pub(super) renewer: Arc<PermitRenewer>,
    pub(super) scripts: SynchronizerScripts,
    pub(super) semaphore_metrics: LockMetrics,
    pub(super) expirable_metrics: LockMetrics,
    /// Bounds the connections of `call_on_fresh_connection`.
    pub(super) last_calls: Semaphore,
    waiters: KeyedMutex,
}

impl Synchronizers {
    /// Needs a tokio runtime for the rest of its life.
    pub(super) fn new(server: &RedisServer) -> Self {
        let expirable_metrics = LockMetrics::for_kind(Synchronizer::ExpirableSemaphore.as_str());
        Self {
            background: BackgroundTasks::current("synchronizers"),
            watchdog: Watchdog::new(expirable_metrics.clone()),
            ticker: RuntimeTicker::current(),
            renewer: Arc::new(PermitRenewer::new(server.connection())),
            scripts: SynchronizerScripts::new(),
            semaphore_metrics: LockMetrics::for_kind(Synchronizer::Semaphore.as_str()),
            expirable_metrics,
            last_calls: Semaphore::new(MAX_FRESH_CONNECTIONS),
            waiters: KeyedMutex::new(),
        }
    }

    /// Takes permits, waiting at most `wait`; with zero it asks once, past the queue. Dropping the
    /// future at any point leaves nothing behind.
    pub(super) async fn obtain<W: PermitRequest>(
        &self,
        mut request: W,
        wait: Duration,
    ) -> Result<W::Permits, LockError> {
        check_wait(wait)?;
        let started = Instant::now();
        let outcome = self.wait_for(&mut request, started, wait).await;
        match &outcome {
            Ok(_) => request.metrics().record_acquisition(started.elapsed()),
            Err(LockError::TimedOut { waited, .. }) => request.metrics().record_timeout(*waited),
            Err(_) => request.metrics().record_failure(),
        }
        outcome
    }

    async fn wait_for<W: PermitRequest>(
        &self,
        request: &mut W,
        started: Instant,
        wait: Duration,
    ) -> Result<W::Permits, LockError> {
        let late = || LockError::TimedOut {
            waited: started.elapsed(),
            has_no_expiry: false,
            holder: None,
        };
        let deadline = started + wait;
        let mut pause = None;
        if wait.is_zero() || self.waiters.try_lock(request.name()).is_some() {
            match self.ask(request).await? {
                PermitReply::Granted(permits) => return Ok(permits),
                PermitReply::Busy(_) if wait.is_zero() => return Err(late()),
                PermitReply::Busy(at_most) => pause = Some(at_most),
            }
        }
        let (_key_guard, at_once) = self.queue(request.name(), deadline).await.ok_or_else(late)?;
        // After the queue it asks before it waits: its earlier answer is too old.
        pause = pause.filter(|_| at_once);
        let mut subscription: Option<Subscription> = None;
        loop {
            if let Some(at_most) = pause {
                let signals = request.server().signals();
                let told = subscription.get_or_insert_with(|| signals.subscribe(request.channel()));
                timeout_at(deadline, told.next(at_most)).await.map_err(|_| late())?;
            } else if subscription.is_none() {
                subscription = request.server().signals().join(request.channel());
            }
            match self.ask(request).await {
                Ok(PermitReply::Granted(permits)) => return Ok(permits),
                Ok(PermitReply::Busy(at_most)) => pause = Some(at_most),
                // A waiter keeps waiting when the server fails.
                Err(error) if error.is_unknown() && Instant::now() + RETRY_PAUSE < deadline => {
                    tracing::debug!(%error, "attempt failed; waiter retries");
                    sleep(RETRY_PAUSE).await;
                    *request = request.with_fresh_id();
                    pause = None;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a synchronizer with its number, unless there is one.
    pub(super) async fn set(
        &self,
        server: &RedisServer,
        keys: &[&str],
        number: (&str, u32),
    ) -> Result<bool, LockError> {
        let id = Uuid::new_v4().to_string();
        let args = (WAKE_ONE, number, &id, server.publish());
        let send = || idempotent_call::<i64>(server, &self.scripts.set, keys, args);
        Ok(retry_until_answered(CALL_RETRY_TIMEOUT, send).await?.value == 1)
    }

    /// The number in that field of a synchronizer; 0 if there is none.
    pub(super) async fn number(
        &self,
        server: &RedisServer,
        name: &LockName,
        field: &str,
    ) -> Result<u32, LockError> {
        let number =
            idempotent_call(server, &self.scripts.number, &[name.as_str()], (field,)).await?;
        Ok(number.value)
    }

    /// Removes a synchronizer that has that field. `false` if there is none.
    pub(super) async fn delete(
        &self,
        server: &RedisServer,
        keys: &[&str],
        field: &str,
    ) -> Result<bool, LockError> {
        let args = (WAKE_ALL, field, server.publish());
        let deleted = idempotent_call::<i64>(server, &self.scripts.delete, keys, args).await?;
        Ok(deleted.value == 1)
    }

    /// The head's place, and whether it was free; `None` when the wait is over.
    async fn queue(&self, name: &LockName, deadline: Instant) -> Option<(KeyGuard, bool)> {
        if let Some(key_guard) = self.waiters.try_lock(name) {
            return Some((key_guard, true));
        }
        let key_guard = timeout_at(deadline, self.waiters.lock(name)).await.ok()?;
        Some((key_guard, false))
    }

    /// Asks once. An attempt continues if its caller was dropped; its permits are dropped then, and
    /// so given back.
    async fn ask<W: PermitRequest>(
        &self,
        request: &W,
    ) -> Result<PermitReply<W::Permits>, LockError> {
        request.metrics().record_attempt();
        let (asking, background) = (request.clone(), self.background.clone());
        let work = async move {
            let reply = asking.ask().await;
            if reply.as_ref().is_err_and(CallError::may_have_acted) {
                background.spawn(abandon(asking));
            }
            reply
        };
        let orphaned = |reply| {
            drop::<Result<PermitReply<W::Permits>, CallError>>(reply);
            Box::pin(ready(())) as _
        };
        let reply = self.background.finish(work, orphaned).await?;
        if matches!(reply, PermitReply::Busy(_)) {
            request.metrics().record_contention();
        }
        Ok(reply)
    }
}

/// Gives back what an attempt with an unknown outcome may have taken.
async fn abandon<W: PermitRequest>(request: W) {
    if let Err(failure) = retry_until_answered(GIVE_BACK_TIMEOUT, || request.abandon()).await {
        let error = LockError::from(failure);
        let what = "abandoned attempt not undone; permits may stay taken";
        tracing::warn!(%error, name = %request.name(), "{what}");
    }
}

/// One caller's request for permits, under an id of its own.
pub(super) trait PermitRequest: Clone + Send + Sync + 'static {
    /// Gives itself back when it is dropped.
    type Permits: Send + 'static;

    fn server(&self) -> &RedisServer;
    fn name(&self) -> &LockName;
    fn channel(&self) -> &str;
    fn metrics(&self) -> &LockMetrics;

    /// This request under another id.
    fn with_fresh_id(&self) -> Self;

    /// Asks the server, which counts it once.
    fn ask(&self) -> impl Future<Output = Result<PermitReply<Self::Permits>, CallError>> + Send;

    /// Gives back what it may have got, and keeps it from getting it later.
    fn abandon(&self) -> impl Future<Output = Result<CallResult<i64>, CallError>> + Send;
}

/// What the server says.
pub(super) enum PermitReply<P> {
    Granted(P),
    /// Ask again after a message, or after this time.
    Busy(Duration),
}

/// The scripts, made once per server.
pub(super) struct SynchronizerScripts {
    pub(super) set: LuaScript,
    pub(super) semaphore_acquire: LuaScript,
    pub(super) semaphore_release: LuaScript,
    pub(super) expirable_acquire: LuaScript,
    pub(super) expirable_release: LuaScript,
    pub(super) expirable_available: LuaScript,
    pub(super) latch_count_down: LuaScript,
    pub(super) delete: LuaScript,
    pub(super) number: LuaScript,
}

impl SynchronizerScripts {
    fn new() -> Self {
        Self {
            set: LuaScript::new(include_str!("../../lua/synchronizer_set.lua")),
            semaphore_acquire: LuaScript::new(include_str!("../../lua/semaphore_acquire.lua")),
            semaphore_release: LuaScript::new(include_str!("../../lua/semaphore_release.lua")),
            expirable_acquire: LuaScript::new(include_str!("../../lua/expirable_acquire.lua")),
            expirable_release: LuaScript::new(include_str!("../../lua/expirable_release.lua")),
            expirable_available: LuaScript::new(include_str!("../../lua/expirable_available.lua")),
            latch_count_down: LuaScript::new(include_str!("../../lua/latch_count_down.lua")),
            number: LuaScript::new(include_str!("../../lua/synchronizer_number.lua")),
            delete: LuaScript::new(include_str!("../../lua/synchronizer_delete.lua")),
        }
    }
}

pub(super) fn check_wait(wait: Duration) -> Result<(), LockError> {
    if wait > LockOptions::MAX {
        let limit = format!("must be at most a day, is {} s", wait.as_secs());
        return Err(LockError::BadRequest { field: "wait", limit });
    }
    Ok(())
}

/// Checks a number of permits: `least` to 2147483647.
pub(super) fn check_permits(permits: u32, least: u32) -> Result<(), LockError> {
    if permits < least || i32::try_from(permits).is_err() {
        let limit = format!("must be {least} to {}, is {permits}", i32::MAX);
        return Err(LockError::BadRequest { field: "permits", limit });
    }
    Ok(())
}
