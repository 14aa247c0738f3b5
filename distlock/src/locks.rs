//! What callers use: waiting, the queue inside the process and cancellation, once for all kinds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{Instant as TokioInstant, sleep, timeout_at};

use crate::background::Background;
use crate::guard::Guard;
use crate::keyed::{KeyedMutex, Turn};
use crate::wait::Polling;
use crate::{
    Attempt, Guarantees, Hold, HoldKind, LockError, LockName, Locker, Owner, Request, Wake, Woken,
};

/// How long to wait, and how long to hold at most.
#[derive(Debug, Clone, Copy)]
pub struct LockOptions {
    /// Zero is the classic `tryLock()`, which fails at once. At most [`LockOptions::MAX`].
    pub wait: Duration,
    /// After this time the server frees the lock by itself: 10 ms to [`LockOptions::MAX`].
    pub lease: Duration,
}

impl LockOptions {
    /// The shortest lease: below it a round trip may eat it up.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);
    /// The longest wait and the longest lease: a day.
    pub const MAX: Duration = Duration::from_hours(24);

    fn check(&self) -> Result<(), LockError> {
        if self.lease < Self::MIN_LEASE || self.lease > Self::MAX {
            return Err(LockError::BadRequest {
                field: "lease",
                limit: format!("must be 10 ms to a day, is {} ms", self.lease.as_millis()),
            });
        }
        if self.wait > Self::MAX {
            return Err(LockError::BadRequest {
                field: "wait",
                limit: format!("must be at most a day, is {} s", self.wait.as_secs()),
            });
        }
        Ok(())
    }
}

/// The locks of one mechanism. Cheap to clone; clones share the queue inside the process.
#[derive(Clone)]
pub struct Locks {
    locker: Arc<dyn Locker>,
    /// One task per process and name goes to the server; the others queue here.
    first_stage: Option<KeyedMutex>,
    /// Attempts and releases that outlive the future that asked for them.
    background: Background,
}

impl Locks {
    /// Locks by that mechanism. Needs a tokio runtime for the rest of its life.
    pub fn new(locker: Arc<dyn Locker>) -> Self {
        let on_a_server = locker.guarantees().hold == HoldKind::Lease;
        Self {
            locker,
            first_stage: on_a_server.then(KeyedMutex::new),
            background: Background::here(),
        }
    }

    /// What the mechanism promises.
    pub fn guarantees(&self) -> Guarantees {
        self.locker.guarantees()
    }

    /// Takes the lock, waiting at most `options.wait` for its holder.
    ///
    /// Fails with [`LockError::TimedOut`], [`LockError::Backend`] or [`LockError::BadRequest`].
    /// Dropping the future at any point leaves nothing behind: a lock that the server grants to a
    /// caller who has gone is released again.
    pub async fn lock(&self, name: &LockName, options: &LockOptions) -> Result<Guard, LockError> {
        options.check()?;
        let started = Instant::now();
        let deadline = started + options.wait;
        let timed_out = || LockError::TimedOut { waited: started.elapsed() };
        let turn = self.first_turn(name, deadline).await.map_err(|Late| timed_out())?;
        let owner = Owner::fresh();
        let request = Request { name: name.clone(), owner, lease: options.lease };
        let mut polling = Polling::new();
        loop {
            let wake = match self.attempt(&request).await? {
                Attempt::Held(hold) => return Ok(self.guard(hold, turn)),
                Attempt::Busy(wake) => wake,
            };
            match look_again(wake, &mut polling, deadline).await {
                Ok(Woken::Held(hold)) => return Ok(self.guard(hold, turn)),
                Ok(Woken::LookAgain) => {}
                Err(Late) => return Err(timed_out()),
            }
        }
    }

    /// Waits until no release or abandoned attempt is under way, for the end of a process.
    pub async fn flush(&self) {
        self.background.flush().await;
    }

    async fn first_turn(&self, name: &LockName, deadline: Instant) -> Result<Option<Turn>, Late> {
        let Some(stage) = &self.first_stage else { return Ok(None) };
        if let Some(turn) = stage.try_lock(name) {
            return Ok(Some(turn));
        }
        match timeout_at(deadline.into(), stage.lock(name)).await {
            Ok(turn) => Ok(Some(turn)),
            Err(_) => Err(Late),
        }
    }

    /// One attempt. If the caller goes away meanwhile, or the outcome stays unknown, what was
    /// taken is given back in the background.
    async fn attempt(&self, request: &Request) -> Result<Attempt, LockError> {
        let (locker, request) = (Arc::clone(&self.locker), request.clone());
        let background = self.background.clone();
        let work = async move {
            let outcome = locker.acquire(&request).await;
            if matches!(outcome, Err(LockError::Backend(_))) {
                background.spawn(abandon(locker, request));
            }
            outcome
        };
        self.background.finish(work, |outcome| Box::pin(give_back(outcome))).await
    }

    fn guard(&self, hold: Box<dyn Hold>, turn: Option<Turn>) -> Guard {
        Guard::new(hold, turn, self.background.clone())
    }
}

async fn give_back(outcome: Result<Attempt, LockError>) {
    if let Ok(Attempt::Held(hold)) = outcome
        && let Err(error) = hold.release().await
    {
        tracing::debug!(%error, "a lock nobody waits for any more is left to its lease");
    }
}

async fn abandon(locker: Arc<dyn Locker>, request: Request) {
    if let Err(error) = locker.abandon(&request).await {
        tracing::debug!(%error, "an attempt with an unknown outcome is left to its lease");
    }
}

/// The caller's wait is over.
struct Late;

async fn look_again(wake: Wake, polling: &mut Polling, until: Instant) -> Result<Woken, Late> {
    match wake {
        Wake::Signal(signal) => {
            timeout_at(TokioInstant::from_std(until), signal).await.map_err(|_| Late)
        }
        Wake::Poll => {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Late);
            }
            sleep(polling.next().min(left)).await;
            Ok(Woken::LookAgain)
        }
    }
}
