//! What callers use: waiting, the queue inside the process, renewal, fencing and cancellation, once
//! for all kinds.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};
use uuid::Uuid;

use crate::attempt::AcquireAttempts;
use crate::background::BackgroundTasks;
use crate::deadlock_detector::LockClass;
use crate::error::timeout_as_none;
use crate::guard::Guard;
use crate::holder_reports::{HolderReports, first_question};
use crate::keyed::KeyedMutex;
use crate::local::{self, Local};
use crate::local_queue_slot::LocalQueueTimeout;
use crate::lock_metrics::LockMetrics;
use crate::lock_spans::{self, HoldSpan};
use crate::ownership::OwnershipRegistry;
use crate::process_quantum::{ProcessQuantum, QueueGuard};
use crate::round_trip::RoundTripEstimator;
use crate::runtime_ticker::RuntimeTicker;
use crate::stuck::StuckKeys;
use crate::wait::AcquireWait;
use crate::watchdog::Watchdog;
use crate::{
    DeadlockDetector, Fencing, Guarantees, Hold, Lease, LockError, LockName, LockOptions, Locker,
    Owner, OwnerTag, Request, TokenIssuer, WakeEvent, WakeKind, failpoint,
};

mod extras;
mod inspection;
mod new_guard;
mod run;

/// The locks of one mechanism. Cheap to clone; clones share the queue inside the process and
/// the watchdog.
#[derive(Clone)]
pub struct Locks {
    pub(crate) locker: Arc<dyn Locker>,
    guarantees: Guarantees,
    /// One task per process and name goes to the server; the others queue here.
    local_queue: Option<KeyedMutex<ProcessQuantum>>,
    /// The mutex that is the whole lock of `local`, which cannot fail, end by itself or leave
    /// anything behind: it needs nothing of the general path.
    local_mutex: Option<KeyedMutex>,
    /// The token issuer, and the tokens of the current owners.
    token_issuer: Option<(Arc<dyn TokenIssuer>, OwnershipRegistry)>,
    watchdog: Watchdog,
    /// Attempts and releases that outlive the future that asked for them.
    background: BackgroundTasks,
    metrics: LockMetrics,
    stuck: StuckKeys,
    holder_reports: HolderReports,
    /// What the owners of this process tell people; `None` if nothing.
    pub(crate) owner_tag: Option<OwnerTag>,
    pub(crate) deadlock_detector: Option<(DeadlockDetector, LockClass)>,
    round_trips: RoundTripEstimator,
    ticker: RuntimeTicker,
}

impl Locks {
    /// Locks by that mechanism. Needs a tokio runtime for the rest of its life.
    pub fn new(locker: Arc<dyn Locker>) -> Self {
        let name = locker.name();
        let metrics = LockMetrics::for_kind(name);
        Self {
            local_queue: locker.uses_local_queue().then(KeyedMutex::new),
            local_mutex: Local::mutex_of(&*locker),
            guarantees: locker.guarantees(),
            holder_reports: HolderReports::new(Arc::clone(&locker)),
            owner_tag: None,
            deadlock_detector: None,
            locker,
            token_issuer: None,
            watchdog: Watchdog::new(metrics.clone()),
            background: BackgroundTasks::current(name),
            metrics,
            stuck: StuckKeys::for_kind(name),
            round_trips: RoundTripEstimator::default(),
            ticker: RuntimeTicker::current(),
        }
    }

    /// What the mechanism promises.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    /// Whether the mechanism's servers answer, as far as an acquisition needs them: one round trip,
    /// for health checks, to be bounded by the caller. Only the kinds on several servers, those
    /// whose replicas must confirm, `zookeeper`, `etcd` and `nats` look; `mysql-named` asks once
    /// whether its server is a node of Galera. For others it is fine at once. Fails with
    /// [`LockError::Backend`], or [`LockError::Unsupported`] on Galera.
    pub async fn check_servers(&self) -> Result<(), LockError> {
        self.locker.check_servers().await
    }

    /// Takes the lock, waiting at most `options.wait` for its holder.
    ///
    /// Fails with [`LockError::TimedOut`], [`LockError::Backend`], [`LockError::AccessDenied`],
    /// [`LockError::HeldByOtherKind`], [`LockError::BadRequest`] or [`LockError::Unsupported`]. A
    /// dropped future leaves nothing: if the server grants the lock later, it is released again.
    pub async fn lock(&self, name: &LockName, options: &LockOptions) -> Result<Guard, LockError> {
        self.lock_for(None, name, options).await
    }

    /// Takes the lock for a given owner: the owner of a hold there is, for re-entry. Each guard is
    /// released on its own; the last one frees the lock. A kind that is not reentrant finds itself
    /// busy.
    ///
    /// Fails as [`Locks::lock`] does. Some kinds cannot distinguish a lost hold from a new one:
    /// `reentrant`, `redisson`, and locks made of them. If the owner's hold has ended, they fail
    /// with [`LockError::Lost`]; other kinds take the lock again. A re-entry that asks for an
    /// issued token gets the token of the outer hold. That hold must be by these [`Locks`], or by
    /// others that share their token issuer; else the call fails with [`LockError::BadRequest`].
    pub async fn lock_as(
        &self,
        owner: Owner,
        name: &LockName,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        // To a mechanism that promises no re-entry the same owner twice is an answer that was lost.
        let owner = self.guarantees.reentrant.is_yes().then_some(owner);
        self.lock_for(owner, name, options).await
    }

    async fn lock_for(
        &self,
        owner: Option<Owner>,
        name: &LockName,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        self.check(options)?;
        self.check_reentry(owner.as_ref(), name, options)?;
        if let Some(mutex) = &self.local_mutex
            && options.max_hold.is_none()
        {
            return local::acquire(mutex, name, options.wait, &self.metrics).await;
        }
        let started = Instant::now();
        // Pinned one by one: each layer that took the next by value would double their size.
        let acquire = pin!(self.acquire(owner, name, options, started));
        let acquire = pin!(async move {
            match first_question(options.wait) {
                Some(first) => {
                    self.holder_reports.report_during(name, started, first, acquire).await
                }
                None => acquire.await,
            }
        });
        let acquire = pin!(async move {
            match &self.deadlock_detector {
                Some((detector, class)) => detector.watch(*class, name, acquire).await,
                None => acquire.await,
            }
        });
        let kind = self.locker.name();
        let span = lock_spans::wait(kind, name);
        let outcome = acquire.instrument(span.clone()).await;
        lock_spans::record_wait(&span, &outcome);
        drop(span);
        if let Ok(guard) = &outcome
            && let Some(span) = HoldSpan::begin(kind, name)
        {
            guard.trace(span);
        }
        match &outcome {
            Ok(_) => self.metrics.record_acquisition(started.elapsed()),
            Err(LockError::TimedOut { waited, .. }) => self.metrics.record_timeout(*waited),
            Err(_) => self.metrics.record_failure(),
        }
        if let Err(error) = &outcome {
            self.stuck.report(name, error);
        }
        outcome
    }

    /// Takes the lock if it is free: the classic `tryLock()`. Returns `None` if another owner holds
    /// it. Fails as [`Locks::lock`] does.
    pub async fn try_lock(
        &self,
        name: &LockName,
        lease: Lease,
    ) -> Result<Option<Guard>, LockError> {
        timeout_as_none(self.lock(name, &LockOptions::new(Duration::ZERO, lease)).await)
    }

    /// Waits until no release or abandoned attempt is under way, for the end of a process. At most
    /// 16,384 are at a time; what is dropped beyond that ends with its lease, and is counted in
    /// `distlock_cleanups_dropped_total`.
    pub async fn flush(&self) {
        self.background.flush().await;
        // What is done by now may have left something to the mechanism.
        self.locker.flush().await;
    }

    fn check(&self, options: &LockOptions) -> Result<(), LockError> {
        let guarantees = &self.guarantees;
        options.check(guarantees, self.round_trips.estimate())?;
        match guarantees.fencing {
            _ if !options.fenced => Ok(()),
            Fencing::Optional if self.token_issuer.is_some() => Ok(()),
            Fencing::Yes => Ok(()),
            Fencing::Optional => Err(LockError::Unsupported("a token issuer")),
            _ => Err(LockError::Unsupported("another kind: this one has no fencing token")),
        }
    }

    /// A second token for one ownership would make the first one stale.
    fn check_reentry(
        &self,
        owner: Option<&Owner>,
        name: &LockName,
        options: &LockOptions,
    ) -> Result<(), LockError> {
        let is_issued = options.fenced && self.guarantees.fencing == Fencing::Optional;
        match (owner, &self.token_issuer) {
            (Some(owner), Some((_, all))) if is_issued && !all.knows(name, owner) => {
                let limit = "must hold the lock by these Locks, which know its token";
                Err(LockError::BadRequest { field: "owner", limit: limit.into() })
            }
            _ => Ok(()),
        }
    }

    async fn acquire(
        &self,
        given: Option<Owner>,
        name: &LockName,
        options: &LockOptions,
        started: Instant,
    ) -> Result<Guard, LockError> {
        let deadline = started + options.wait;
        let timed_out = |has_no_expiry| LockError::TimedOut {
            waited: started.elapsed(),
            has_no_expiry,
            holder: None,
        };
        let key_guard = self
            .enter_local_queue(name, given.is_some(), deadline)
            .await
            .map_err(|LocalQueueTimeout| timed_out(false))?;
        let mut wait = AcquireWait::new(deadline, key_guard);
        if self.gives_way() {
            wait.give_way().await;
        }
        loop {
            let mut request = Request {
                name: name.clone(),
                owner: given.clone().unwrap_or_else(|| self.fresh_owner()),
                may_hold: given.is_some(),
                id: Uuid::new_v4(),
                lease: options.lease.length(),
            };
            let failure = match self.wait_for(name, request.clone(), &mut wait).await {
                Ok(Some(hold)) => {
                    if let Some(owner) = hold.owner() {
                        request.owner = owner.clone();
                    }
                    let key_guard = wait.key_guard.take().map(|key_guard| self.used(key_guard));
                    return self.new_guard(hold, key_guard, &request, options).await;
                }
                Ok(None) => return Err(timed_out(wait.has_no_expiry)),
                Err(error) => error,
            };
            // A waiter that has seen the lock busy keeps waiting when the server fails; a new
            // caller gets the error at once. The retry uses a fresh owner id, while the background
            // releases what the failed attempt may have taken. A re-entry cannot change its owner,
            // so it fails.
            if given.is_some() || !wait.was_busy || !failure.is_unknown() {
                return Err(failure);
            }
            tracing::debug!(error = %failure, "attempt failed; waiter retries with a fresh owner");
            if !wait.pause_after_failure().await {
                return Err(failure);
            }
        }
    }

    fn fresh_owner(&self) -> Owner {
        let owner = self.locker.fresh_owner();
        match &self.owner_tag {
            Some(tag) => tag.append_to(&owner),
            None => owner,
        }
    }

    /// One acquisition, from its first attempt to the end of the wait (`None`).
    async fn wait_for(
        &self,
        name: &LockName,
        request: Request,
        wait: &mut AcquireWait,
    ) -> Result<Option<Box<dyn Hold>>, LockError> {
        let acquisition = self.locker.begin(request);
        let measures = (self.metrics.clone(), self.round_trips.clone());
        let mut attempts = AcquireAttempts::new(acquisition, self.background.clone(), measures);
        let mut woken_at: Option<Instant> = None;
        loop {
            let span = match woken_at {
                Some(_) => lock_spans::hand_off(self.locker.name(), name),
                None => Span::none(),
            };
            let attempt = attempts.attempt().instrument(span.clone()).await;
            lock_spans::record_hand_off(&span, &attempt);
            drop(span);
            if let Some(hold) = attempt? {
                if let Some(woken_at) = woken_at {
                    self.metrics.record_hand_off(woken_at.elapsed());
                }
                return Ok(Some(hold));
            }
            wait.found_busy();
            failpoint::reach(failpoint::BUSY);
            let woken = wait.look_again(attempts.wake_strategy()?).await;
            failpoint::reach(failpoint::WOKEN);
            match woken {
                Some(Ok(WakeEvent::Acquired { hold, since })) => {
                    attempts.finish();
                    self.metrics.record_hand_off(since.elapsed());
                    return Ok(Some(hold));
                }
                Some(Ok(WakeEvent::Retry)) => woken_at = Some(Instant::now()),
                Some(Err(error)) => return Err(error),
                None => {
                    wait.has_no_expiry = attempts.has_no_expiry().await;
                    return Ok(None);
                }
            }
        }
    }

    /// Notes that the key guard has brought the lock.
    fn used(&self, key_guard: QueueGuard) -> QueueGuard {
        if self.gives_way() {
            key_guard.with_state(ProcessQuantum::entered);
        }
        key_guard
    }

    async fn enter_local_queue(
        &self,
        name: &LockName,
        is_given: bool,
        deadline: Instant,
    ) -> Result<Option<QueueGuard>, LocalQueueTimeout> {
        let Some(stage) = &self.local_queue else { return Ok(None) };
        // A given owner may hold the lock already, also by the other side of a read-write lock:
        // then the first in this queue waits for it. The server decides.
        if is_given {
            return Ok(None);
        }
        let key_guard = match stage.try_lock(name) {
            Some(key_guard) => key_guard,
            None => timeout_at(deadline, stage.lock(name)).await.map_err(|_| LocalQueueTimeout)?,
        };
        Ok(Some(key_guard))
    }

    /// Waiters of other processes poll: this one must give way regularly.
    fn gives_way(&self) -> bool {
        self.guarantees.wake == WakeKind::Poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backends, LockKind, locker};

    /// A caller's future contains it, and moves it.
    #[tokio::test]
    async fn an_acquisition_is_no_large_future() {
        let locks = Locks::new(locker(LockKind::None, &Backends::default()).expect("a locker"));
        let (name, options) = (LockName::new("a").expect("a name"), LockOptions::default());
        let bytes = size_of_val(&locks.lock(&name, &options));
        assert!(bytes <= 8192, "{bytes} bytes");
    }
}
