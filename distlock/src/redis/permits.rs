//! How tasks wait for permits, the same for both semaphores, and what the synchronizers of a server
//! share.
//!
//! A task that comes while nobody of its process waits asks the server at once, beside others. Who
//! is told to wait queues in the process, first come first served, and so does who comes later: of
//! each process only the head of the queue asks the server again, when a message tells that permits
//! were given back, when its mechanism wants another look, or after [`LOOK`]. A head that gets its
//! permits lets the next one ask. So nobody of a process is overtaken for ever by its neighbours,
//! and there is no herd: `n` permits given back make at most `n` tasks ask that get one, and one of
//! each process that finds none. Heads of several processes compete.
//!
//! Bounds: one background task per attempt whose caller has gone or whose outcome is unknown, for
//! [`GIVE_BACK`] at most; one place in the queue per waiter; one subscription per process and name.

use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::RedisServer;
use super::expirable_semaphore::PermitRenewer;
use super::once::{Answered, Failure, LAST_CALLS, SOON, call, persist};
use super::script::LuaScript;
use super::signal::{Subscription, WAKE_ALL, WAKE_ONE};
use crate::background::Background;
use crate::keyed::{KeyedMutex, Turn};
use crate::meter::Meter;
use crate::pulse::Pulse;
use crate::watchdog::Watchdog;
use crate::{LockError, LockName, LockOptions, Synchronizer};

/// How long a waiter relies on messages at most.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How long permits that nobody wants are sent back to a server that does not answer.
pub(super) const GIVE_BACK: Duration = Duration::from_secs(30);
/// Before a waiter asks again whose server failed.
pub(super) const AFTER_FAILURE: Duration = Duration::from_millis(50);

/// What the synchronizers of a server share in this process.
pub(crate) struct Synchronizers {
    pub(super) background: Background,
    pub(super) watchdog: Watchdog,
    pub(super) pulse: Pulse,
    pub(super) renewer: Arc<PermitRenewer>,
    pub(super) scripts: Scripts,
    pub(super) semaphore_meter: Meter,
    pub(super) expirable_meter: Meter,
    /// Bounds the connections of [`call_at_last`](super::once::call_at_last).
    pub(super) last_calls: Semaphore,
    waiters: KeyedMutex,
}

impl Synchronizers {
    /// Needs a tokio runtime for the rest of its life.
    pub(super) fn new(server: &RedisServer) -> Self {
        let expirable_meter = Meter::of(Synchronizer::ExpirableSemaphore.as_str());
        Self {
            background: Background::here("synchronizers"),
            watchdog: Watchdog::new(expirable_meter.clone()),
            pulse: Pulse::here(),
            renewer: Arc::new(PermitRenewer::new(server.connection())),
            scripts: Scripts::new(),
            semaphore_meter: Meter::of(Synchronizer::Semaphore.as_str()),
            expirable_meter,
            last_calls: Semaphore::new(LAST_CALLS),
            waiters: KeyedMutex::new(),
        }
    }

    /// Gets permits, waiting for them at most so long; zero is one question, whoever waits.
    /// Dropping the future at any point leaves nothing behind.
    pub(super) async fn obtain<W: Wish>(
        &self,
        mut wish: W,
        wait: Duration,
    ) -> Result<W::Permits, LockError> {
        check_wait(wait)?;
        let started = Instant::now();
        let outcome = self.wait_for(&mut wish, started, wait).await;
        match &outcome {
            Ok(_) => wish.meter().acquired(started.elapsed()),
            Err(LockError::TimedOut { waited, .. }) => wish.meter().timed_out(*waited),
            Err(_) => wish.meter().failed(),
        }
        outcome
    }

    async fn wait_for<W: Wish>(
        &self,
        wish: &mut W,
        started: Instant,
        wait: Duration,
    ) -> Result<W::Permits, LockError> {
        let late = || LockError::TimedOut { waited: started.elapsed(), is_endless: false };
        let deadline = started + wait;
        let mut pause = None;
        if wait.is_zero() || self.waiters.try_lock(wish.name()).is_some() {
            match self.ask(wish).await? {
                Reply::Granted(permits) => return Ok(permits),
                Reply::Busy(_) if wait.is_zero() => return Err(late()),
                Reply::Busy(at_most) => pause = Some(at_most),
            }
        }
        let (_turn, at_once) = self.queue(wish.name(), deadline).await.ok_or_else(late)?;
        // Who has queued asks before it waits: what it was told is too old.
        pause = pause.filter(|_| at_once);
        let mut subscription: Option<Subscription> = None;
        loop {
            if let Some(at_most) = pause {
                let signals = wish.server().signals();
                let told = subscription.get_or_insert_with(|| signals.subscribe(wish.channel()));
                timeout_at(deadline, told.next(at_most)).await.map_err(|_| late())?;
            } else if subscription.is_none() {
                subscription = wish.server().signals().join(wish.channel());
            }
            match self.ask(wish).await {
                Ok(Reply::Granted(permits)) => return Ok(permits),
                Ok(Reply::Busy(at_most)) => pause = Some(at_most),
                // A waiter does not lose its wait because the server is away for a moment.
                Err(error) if error.is_unknown() && Instant::now() + AFTER_FAILURE < deadline => {
                    tracing::debug!(%error, "a waiter goes on after a failure");
                    sleep(AFTER_FAILURE).await;
                    *wish = wish.anew();
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
        let send = || call::<i64>(server, &self.scripts.set, keys, args);
        Ok(persist(SOON, send).await?.value == 1)
    }

    /// The number in that field of a synchronizer; 0 if there is none.
    pub(super) async fn number(
        &self,
        server: &RedisServer,
        name: &LockName,
        field: &str,
    ) -> Result<u32, LockError> {
        let number = call(server, &self.scripts.number, &[name.as_str()], (field,)).await?;
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
        let deleted = call::<i64>(server, &self.scripts.delete, keys, args).await?;
        Ok(deleted.value == 1)
    }

    /// The head's place, and whether it was free; `None` when the wait is over.
    async fn queue(&self, name: &LockName, deadline: Instant) -> Option<(Turn, bool)> {
        if let Some(turn) = self.waiters.try_lock(name) {
            return Some((turn, true));
        }
        let turn = timeout_at(deadline, self.waiters.lock(name)).await.ok()?;
        Some((turn, false))
    }

    /// Asks once. An attempt goes on if its caller has gone; what it brings then is dropped, and so
    /// given back.
    async fn ask<W: Wish>(&self, wish: &W) -> Result<Reply<W::Permits>, LockError> {
        wish.meter().attempt();
        let (asking, background) = (wish.clone(), self.background.clone());
        let work = async move {
            let reply = asking.ask().await;
            if reply.as_ref().is_err_and(Failure::may_have_acted) {
                background.spawn(abandon(asking));
            }
            reply
        };
        let orphaned = |reply| {
            drop::<Result<Reply<W::Permits>, Failure>>(reply);
            Box::pin(ready(())) as _
        };
        let reply = self.background.finish(work, orphaned).await?;
        if matches!(reply, Reply::Busy(_)) {
            wish.meter().busy();
        }
        Ok(reply)
    }
}

/// Gives back what an attempt with an unknown outcome may have taken.
async fn abandon<W: Wish>(wish: W) {
    if let Err(failure) = persist(GIVE_BACK, || wish.abandon()).await {
        let error = LockError::from(failure);
        tracing::warn!(%error, name = %wish.name(), "permits may be lost");
    }
}

/// One caller's wish for permits, under an id of its own.
pub(super) trait Wish: Clone + Send + Sync + 'static {
    /// Gives itself back when it is dropped.
    type Permits: Send + 'static;

    fn server(&self) -> &RedisServer;
    fn name(&self) -> &LockName;
    fn channel(&self) -> &str;
    fn meter(&self) -> &Meter;

    /// The same wish under another id.
    fn anew(&self) -> Self;

    /// Asks the server, which counts it once.
    fn ask(&self) -> impl Future<Output = Result<Reply<Self::Permits>, Failure>> + Send;

    /// Gives back what it may have got, and keeps it from getting it later.
    fn abandon(&self) -> impl Future<Output = Result<Answered<i64>, Failure>> + Send;
}

/// What the server says.
pub(super) enum Reply<P> {
    Granted(P),
    /// Look again when told, or after so long.
    Busy(Duration),
}

/// The scripts, made once per server.
pub(super) struct Scripts {
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

impl Scripts {
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

/// A number of permits that somebody wants, has or sets: `least` to 2147483647.
pub(super) fn check_permits(permits: u32, least: u32) -> Result<(), LockError> {
    if permits < least || i32::try_from(permits).is_err() {
        let limit = format!("must be {least} to {}, is {permits}", i32::MAX);
        return Err(LockError::BadRequest { field: "permits", limit });
    }
    Ok(())
}
