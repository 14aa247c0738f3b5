//! What callers use: waiting, the queue inside the process, renewal, fencing and cancellation, once
//! for all kinds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::attempt::Attempts;
use crate::background::Background;
use crate::error::in_time;
use crate::guard::{Guard, Held};
use crate::keyed::{KeyedMutex, Turn};
use crate::meter::Meter;
use crate::ownership::Ownerships;
use crate::pace::Pace;
use crate::pulse::Pulse;
use crate::stage::StageTurn;
use crate::streak::Streak;
use crate::tenure::Tenure;
use crate::wait::Waiting;
use crate::watchdog::Watchdog;
use crate::{
    Answer, Belief, Fencing, Guarantees, Hold, Lease, LockError, LockName, LockOptions, Locker,
    Loss, Mint, Owner, OwnerCheck, Request, WakeKind, Woken, failpoint, local,
};

/// The locks of one mechanism. Cheap to clone; clones share the queue inside the process and the
/// watchdog.
#[derive(Clone)]
pub struct Locks {
    locker: Arc<dyn Locker>,
    guarantees: Guarantees,
    /// One task per process and name goes to the server; the others queue here.
    first_stage: Option<KeyedMutex>,
    /// And what it has minted for the owners there are.
    mint: Option<(Arc<dyn Mint>, Ownerships)>,
    watchdog: Watchdog,
    /// Attempts and releases that outlive the future that asked for them.
    background: Background,
    meter: Meter,
    pace: Pace,
    pulse: Pulse,
}

impl Locks {
    /// Locks by that mechanism. Needs a tokio runtime for the rest of its life.
    pub fn new(locker: Arc<dyn Locker>) -> Self {
        let name = locker.name();
        let meter = Meter::of(name);
        Self {
            first_stage: locker.has_first_stage().then(KeyedMutex::new),
            guarantees: locker.guarantees(),
            locker,
            mint: None,
            watchdog: Watchdog::new(meter.clone()),
            background: Background::here(name),
            meter,
            pace: Pace::default(),
            pulse: Pulse::here(),
        }
    }

    /// The same, with a mint of fencing tokens for kinds that have none of their own. All holds of
    /// one ownership have the same token, the one that the first of them to ask for it got.
    #[must_use]
    pub fn with_mint(self, mint: Arc<dyn Mint>) -> Self {
        Self { mint: Some((mint, Ownerships::default())), ..self }
    }

    /// The same with the mint of those locks, and one token for an owner that holds by both: the
    /// two sides of a read-write lock.
    #[must_use]
    pub fn with_mint_of(self, other: &Self) -> Self {
        Self { mint: other.mint.clone(), ..self }
    }

    /// The same without the queue inside the process: each task goes to the server. For tests
    /// that show what the server alone does.
    #[must_use]
    pub fn without_first_stage(self) -> Self {
        Self { first_stage: None, ..self }
    }

    /// What the mechanism promises.
    pub fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    /// Whether the mechanism's servers answer, as far as an acquisition needs them: one round trip,
    /// for health checks, to be bounded by the caller. Only the kinds on several servers, those
    /// whose replicas must confirm, and `zookeeper` look; for others it is fine at once. Fails
    /// with [`LockError::Backend`].
    pub async fn check_servers(&self) -> Result<(), LockError> {
        self.locker.check_servers().await
    }

    /// Takes the lock, waiting at most `options.wait` for its holder.
    ///
    /// Fails with [`LockError::TimedOut`], [`LockError::Backend`], [`LockError::HeldByOtherKind`],
    /// [`LockError::BadRequest`] or [`LockError::Unsupported`]. Dropping the future at any point
    /// leaves nothing behind: a lock that the server grants to a caller who has gone is released
    /// again.
    pub async fn lock(&self, name: &LockName, options: &LockOptions) -> Result<Guard, LockError> {
        self.lock_for(None, name, options).await
    }

    /// Takes the lock for a given owner: the owner of a hold there is, for re-entry. Each guard is
    /// released on its own; the last one frees the lock. A kind that is not reentrant finds itself
    /// busy.
    ///
    /// Fails as [`Locks::lock`] does, and with [`LockError::Lost`] if the owner's hold is gone and
    /// the kind cannot tell it from a new one (`reentrant`, `redisson`, and what is made of them);
    /// other kinds take the lock anew. A re-entry that asks for a token of the mint is handed the
    /// one of the hold around it, which must be by these locks, or by some that share their mint;
    /// else it is refused with [`LockError::BadRequest`].
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
        if let Some(turns) = self.locker.turns()
            && options.max_hold.is_none()
        {
            return local::take(turns, name, options.wait, &self.meter).await;
        }
        let started = Instant::now();
        let outcome = self.acquire(owner, name, options, started).await;
        match &outcome {
            Ok(_) => self.meter.acquired(started.elapsed()),
            Err(LockError::TimedOut { waited, .. }) => self.meter.timed_out(*waited),
            Err(_) => self.meter.failed(),
        }
        outcome
    }

    /// Takes the lock if it is free: the classic `tryLock()`. `None` if somebody else holds it.
    /// Fails as [`Locks::lock`] does.
    pub async fn try_lock(
        &self,
        name: &LockName,
        lease: Lease,
    ) -> Result<Option<Guard>, LockError> {
        in_time(self.lock(name, &LockOptions::new(Duration::ZERO, lease)).await)
    }

    /// Runs `work` under the lock and releases it. The work gets a handle that tells it of the
    /// loss; it is never dropped half way, so it has to look at it. Fails with [`LockError::Lost`]
    /// if the lock was lost before the work was done.
    pub async fn scope<T>(
        &self,
        name: &LockName,
        options: &LockOptions,
        work: impl AsyncFnOnce(Loss) -> T,
    ) -> Result<T, LockError> {
        let guard = self.lock(name, options).await?;
        let outcome = work(guard.loss()).await;
        let lost = guard.is_lost();
        if let Err(error) = guard.release().await {
            tracing::debug!(%error, "a lock could not be released and is left to its lease");
        }
        if lost { Err(LockError::Lost) } else { Ok(outcome) }
    }

    /// Waits until no release or abandoned attempt is under way, for the end of a process. At most
    /// 16,384 are at a time; what is dropped beyond that ends with its lease, and is counted in
    /// `distlock_given_up_total`.
    pub async fn flush(&self) {
        self.background.flush().await;
        // What is done by now may have left something to the mechanism.
        self.locker.flush().await;
    }

    fn check(&self, options: &LockOptions) -> Result<(), LockError> {
        let guarantees = &self.guarantees;
        options.check(guarantees, self.pace.round_trip())?;
        match guarantees.fencing {
            _ if !options.fenced => Ok(()),
            Fencing::Optional if self.mint.is_some() => Ok(()),
            Fencing::Yes => Ok(()),
            Fencing::Optional => Err(LockError::Unsupported("a mint for fencing tokens")),
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
        let is_minted = options.fenced && self.guarantees.fencing == Fencing::Optional;
        match (owner, &self.mint) {
            (Some(owner), Some((_, all))) if is_minted && !all.knows(name, owner) => {
                let limit = "must hold the lock by these locks, for its token to be known";
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
        let timed_out = |is_endless| LockError::TimedOut { waited: started.elapsed(), is_endless };
        let turn = self
            .first_turn(name, given.as_ref(), deadline)
            .await
            .map_err(|Late| timed_out(false))?;
        let mut wait = Waiting::new(deadline, turn);
        if self.gives_way() {
            wait.give_way().await;
        }
        loop {
            let request = Request {
                name: name.clone(),
                owner: given.clone().unwrap_or_else(|| self.locker.fresh_owner()),
                may_hold: given.is_some(),
                id: Uuid::new_v4(),
                lease: options.lease.length(),
            };
            let failure = match self.wait_for(request.clone(), &mut wait).await {
                Ok(Some(hold)) => {
                    let turn = wait.turn.take().map(|turn| self.used(turn, &request.owner));
                    return self.guard(hold, turn, &request, options).await;
                }
                Ok(None) => return Err(timed_out(wait.is_endless)),
                Err(error) => error,
            };
            // Whoever has been told to wait does not lose its wait because the server is away for a
            // moment; whoever comes then is told at once. It waits on as somebody else: what the
            // failed attempt may have taken is given back meanwhile. A re-entry cannot do that.
            if given.is_some() || !wait.was_busy || !failure.is_unknown() {
                return Err(failure);
            }
            tracing::debug!(error = %failure, "a waiter goes on after a failure");
            if !wait.pause_after_failure().await {
                return Err(failure);
            }
        }
    }

    /// One acquisition, from its first attempt to the end of the wait (`None`).
    async fn wait_for(
        &self,
        request: Request,
        wait: &mut Waiting,
    ) -> Result<Option<Box<dyn Hold>>, LockError> {
        let acquisition = self.locker.begin(request);
        let measures = (self.meter.clone(), self.pace.clone());
        let mut attempts = Attempts::new(acquisition, self.background.clone(), measures);
        let mut woken_at: Option<Instant> = None;
        loop {
            if let Some(hold) = attempts.attempt().await? {
                if let Some(woken_at) = woken_at {
                    self.meter.hand_off(woken_at.elapsed());
                }
                return Ok(Some(hold));
            }
            wait.found_busy();
            failpoint::reach(failpoint::BUSY);
            let woken = wait.look_again(attempts.wake()?).await;
            failpoint::reach(failpoint::WOKEN);
            match woken {
                Some(Ok(Woken::Held { hold, since })) => {
                    attempts.done();
                    self.meter.hand_off(since.elapsed());
                    return Ok(Some(hold));
                }
                Some(Ok(Woken::LookAgain)) => woken_at = Some(Instant::now()),
                Some(Err(error)) => return Err(error),
                None => {
                    wait.is_endless = attempts.is_endless();
                    return Ok(None);
                }
            }
        }
    }

    /// The turn has brought the lock.
    fn used(&self, turn: Turn, owner: &Owner) -> Turn {
        turn.belongs_to(owner);
        if self.gives_way() {
            turn.streak(Streak::entered);
        }
        turn
    }

    async fn first_turn(
        &self,
        name: &LockName,
        owner: Option<&Owner>,
        deadline: Instant,
    ) -> Result<Option<Turn>, Late> {
        let Some(stage) = &self.first_stage else { return Ok(None) };
        if owner.is_some_and(|owner| stage.is_turn_of(name, owner)) {
            return Ok(None);
        }
        let turn = match stage.try_lock(name) {
            Some(turn) => turn,
            None => timeout_at(deadline, stage.lock(name)).await.map_err(|_| Late)?,
        };
        Ok(Some(turn))
    }

    /// Makes the guard: renewal starts before the caller sees success. A token counts only if it
    /// came while the hold could be believed; a hold without belief is given back.
    async fn guard(
        &self,
        hold: Box<dyn Hold>,
        turn: Option<Turn>,
        request: &Request,
        options: &LockOptions,
    ) -> Result<Guard, LockError> {
        let since = Instant::now();
        let until = options.max_hold.map_or(Belief::FOREVER, |most| Belief::until(since + most));
        let tenure = Tenure::new(hold.belief().earlier(until), &self.pulse);
        let kept = match options.lease {
            Lease::Renewed(_) => hold.upkeep(),
            Lease::Fixed(_) => None,
        }
        .map(|upkeep| self.watchdog.keep(upkeep, Arc::clone(&tenure), until));
        let turn = turn.map(|turn| StageTurn::new(turn, Arc::clone(&tenure), &self.background));
        let own_token = hold.token();
        let idempotent = self.guarantees.idempotent == Answer::Yes;
        let meter = self.meter.clone();
        let mint = self.mint.as_ref().filter(|_| own_token.is_none());
        let key = (request.name.clone(), request.owner.clone());
        let share = mint.map(|(_, all)| all.join(key, Arc::clone(&tenure)));
        let shared_token = share.as_ref().map(|share| share.token.clone());
        let whole = Held { hold, tenure, kept, turn, share, idempotent, meter, since };
        // From here on the guard cleans up after itself, also if this future is dropped.
        let (owner, background) = (request.owner.clone(), self.background.clone());
        let most = options.max_hold.is_some() && self.frees_only_its_own();
        let guard = Guard::new(whole, owner, background, most.then_some(until));
        let guard = match mint.zip(shared_token) {
            Some(((mint, _), shared)) if options.fenced => {
                let token = shared.get(&**mint, &request.name).await?;
                failpoint::reach(failpoint::TOKEN_MINTED);
                guard.with_token(Some(token))
            }
            _ => guard.with_token(own_token),
        };
        if guard.is_lost() {
            return Err(too_slow(options));
        }
        Ok(guard)
    }

    /// Waiters of other processes poll: this one must let them in now and then.
    fn gives_way(&self) -> bool {
        self.guarantees.wake == WakeKind::Poll
    }

    /// Whether a release that comes late cannot free somebody else's lock.
    fn frees_only_its_own(&self) -> bool {
        match self.guarantees.owner_checked {
            OwnerCheck::Atomic | OwnerCheck::Yes => true,
            OwnerCheck::NotApplicable | OwnerCheck::No | OwnerCheck::Racy => false,
        }
    }
}

fn too_slow(options: &LockOptions) -> LockError {
    let lease = options.lease.length().as_millis();
    LockError::Backend(format!("its answer took longer than the lease of {lease} ms"))
}

/// The caller's wait is over.
struct Late;
