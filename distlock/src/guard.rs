//! What a caller holds.

use std::future::{pending, ready};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::background::{Background, Timer};
use crate::keyed::Turn;
use crate::meter::Meter;
use crate::ownership::Share;
use crate::stage::StageTurn;
use crate::tenure::Tenure;
use crate::watchdog::Kept;
use crate::{Belief, Hold, LockError, LossCause, Owner, Release, Token, failpoint};

/// How often a release is tried that was not sent, or has no answer and counts once.
const RELEASE_TRIES: u32 = 3;
/// Before the second one; doubles.
const RELEASE_PAUSE: Duration = Duration::from_millis(50);

/// A held lock. Release it with [`Guard::release`]; a guard that is merely dropped is released
/// in the background, and so is one whose holder panics (a lock of `local` at once).
#[must_use = "dropping the guard releases the lock"]
pub struct Guard(Kind);

enum Kind {
    Turn(HeldTurn),
    Hold(Box<HeldHold>),
}

/// The turn is the whole lock: nothing can end it, and nobody has to wait for its release.
struct HeldTurn {
    turn: Turn,
    /// Who wants to know how long it lasts, and since when it does. All guards count their
    /// references to one meter, so there is none for nobody.
    timed: Option<Box<(Meter, Instant)>>,
    owner: OnceLock<Box<Owner>>,
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        let Some(timed) = &self.timed else { return };
        let ((meter, since), now) = (&**timed, Instant::now());
        meter.ended(now - *since, false);
        self.turn.end(Some(now));
    }
}

struct HeldHold {
    /// Away once it was released, by the caller or because it had lasted for as long as it may.
    held: Arc<Mutex<Option<Held>>>,
    owner: Owner,
    token: Option<Token>,
    tenure: Arc<Tenure>,
    background: Background,
    _end: Option<Timer>,
}

/// The hold on the server, its renewal, and the turn in the process.
pub(crate) struct Held {
    pub(crate) hold: Box<dyn Hold>,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) kept: Option<Kept>,
    pub(crate) turn: Option<StageTurn>,
    /// Where tokens are minted: what it has in common with the owner's other holds.
    pub(crate) share: Option<Share>,
    /// Whether a release may be sent again.
    pub(crate) idempotent: bool,
    pub(crate) meter: Meter,
    pub(crate) since: Instant,
}

impl Held {
    /// Stops the renewal, frees the lock on the server, then lets the next task in the process go.
    async fn release(mut self) -> Result<Release, LockError> {
        drop(self.kept.take());
        // Whoever comes from now on joins no hold that may be gone before he is there.
        drop(self.share.take());
        self.meter.ended(self.since.elapsed(), self.tenure.is_lost());
        failpoint::reach(failpoint::BEFORE_RELEASE);
        let outcome = self.send_release().await;
        failpoint::reach(failpoint::RELEASE_ANSWERED);
        drop(self.turn);
        outcome
    }

    async fn send_release(&mut self) -> Result<Release, LockError> {
        let mut pause = RELEASE_PAUSE;
        for _ in 1..RELEASE_TRIES {
            match self.hold.release().await {
                Err(error) if self.may_be_sent_again(&error) => {
                    tracing::debug!(%error, "a release is sent again");
                    sleep(pause).await;
                    pause *= 2;
                }
                outcome => return outcome,
            }
        }
        self.hold.release().await
    }

    /// What was never sent may be, also where a second one counts twice.
    fn may_be_sent_again(&self, error: &LockError) -> bool {
        let counts_once = match error {
            LockError::NoConnection(_) => true,
            error => error.is_unknown() && self.idempotent,
        };
        counts_once && !self.tenure.is_lost()
    }
}

impl Guard {
    /// The turn, which has just come, and nothing else.
    pub(crate) fn of_turn(turn: Turn, meter: &Meter) -> Self {
        let timed = meter.now().map(|since| Box::new((meter.clone(), since)));
        Self(Kind::Turn(HeldTurn { owner: OnceLock::new(), timed, turn }))
    }

    /// Frees the lock at `most` if it is held until then, whatever the holder does.
    pub(crate) fn new(
        held: Held,
        owner: Owner,
        background: Background,
        most: Option<Belief>,
    ) -> Self {
        let tenure = Arc::clone(&held.tenure);
        let held = Arc::new(Mutex::new(Some(held)));
        let end = most.map(|most| {
            let end = free_after(most, Arc::clone(&held), Arc::clone(&tenure), background.clone());
            background.timer(end)
        });
        let served = HeldHold { held, owner, token: None, tenure, background, _end: end };
        Self(Kind::Hold(Box::new(served)))
    }

    pub(crate) fn with_token(mut self, token: Option<Token>) -> Self {
        if let Kind::Hold(hold) = &mut self.0 {
            hold.token = token;
        }
        self
    }

    /// Whether the lock can no longer be believed in. Work looks at this before each effect.
    pub fn is_lost(&self) -> bool {
        self.tenure().is_some_and(|tenure| tenure.is_lost())
    }

    /// Resolves when the lock is lost; never for a lock that cannot be.
    pub async fn lost(&self) -> LossCause {
        self.loss().lost().await
    }

    /// A handle that the work can carry, to notice the loss.
    pub fn loss(&self) -> Loss {
        Loss(self.tenure().cloned())
    }

    /// Until when the lock may be believed in, as of now; the watchdog moves it on.
    pub fn belief(&self) -> Belief {
        self.loss().belief()
    }

    /// Who holds it: to be passed to [`Locks::lock_as`](crate::Locks::lock_as) for re-entry.
    pub fn owner(&self) -> &Owner {
        match &self.0 {
            Kind::Turn(turn) => turn.owner.get_or_init(|| Box::new(Owner::fresh())),
            Kind::Hold(hold) => &hold.owner,
        }
    }

    /// The fencing token, where the kind has one or the options asked for one.
    pub fn token(&self) -> Option<Token> {
        match &self.0 {
            Kind::Turn(_) => None,
            Kind::Hold(hold) => hold.token,
        }
    }

    /// Takes out the database transaction that the lock lives in (`mysql-row`); its end is the
    /// end of the lock. `None` for every other kind, and the second time.
    #[cfg(feature = "mysql")]
    pub fn lend(&mut self) -> Option<crate::mysql::LentTransaction> {
        match &self.0 {
            Kind::Turn(_) => None,
            Kind::Hold(hold) => lock(&hold.held).as_mut()?.hold.lend(),
        }
    }

    /// Frees the lock and says how that ended; [`Release::Gone`] if that was done already, because
    /// it had been held for as long as it may. The release goes on if the future is dropped.
    pub async fn release(self) -> Result<Release, LockError> {
        let served = match &self.0 {
            Kind::Turn(_) => return Ok(Release::Released),
            Kind::Hold(served) => served,
        };
        let Some(held) = take(&served.held) else { return Ok(Release::Gone) };
        served
            .background
            .finish(held.release(), |outcome| {
                note(outcome);
                Box::pin(ready(()))
            })
            .await
    }

    /// Gives the lock up without freeing it: nobody renews it any more, and the server keeps
    /// everybody out until the lease ends. For a holder that does not know what it has done. A
    /// lock without a lease is freed.
    pub fn leave_to_lease(self) {
        if let Kind::Hold(hold) = &self.0
            && let Some(held) = take(&hold.held)
        {
            held.meter.ended(held.since.elapsed(), held.tenure.is_lost());
        }
    }

    /// `None` if nothing can end the lock.
    fn tenure(&self) -> Option<&Arc<Tenure>> {
        match &self.0 {
            Kind::Turn(_) => None,
            Kind::Hold(hold) => Some(&hold.tenure),
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("owner", self.owner())
            .field("token", &self.token())
            .field("loss", &self.loss().cause())
            .finish_non_exhaustive()
    }
}

impl Drop for HeldHold {
    fn drop(&mut self) {
        let Some(held) = take(&self.held) else { return };
        self.background.spawn(async move { note(held.release().await) });
    }
}

fn lock(held: &Mutex<Option<Held>>) -> MutexGuard<'_, Option<Held>> {
    // Taking out of an option cannot be left half done by a panic.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(held: &Mutex<Option<Held>>) -> Option<Held> {
    lock(held).take()
}

/// What is lost before is not this hold's to free any more.
async fn free_after(
    most: Belief,
    held: Arc<Mutex<Option<Held>>>,
    tenure: Arc<Tenure>,
    background: Background,
) {
    tenure.lost().await;
    if most.is_over()
        && let Some(held) = take(&held)
    {
        background.spawn(async move { note(held.release().await) });
    }
}

/// Nobody waits for this outcome.
fn note(outcome: Result<Release, LockError>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "a dropped lock is left to its lease");
    }
}

/// Tells when a lock is lost.
#[derive(Clone)]
pub struct Loss(Option<Arc<Tenure>>);

impl Loss {
    /// Whether the lock can no longer be believed in. Looks at the clock, so a process that was
    /// frozen knows at its first instruction.
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|tenure| tenure.is_lost())
    }

    /// Why, if it is.
    pub fn cause(&self) -> Option<LossCause> {
        self.0.as_ref()?.loss()
    }

    /// Until when the lock may be believed in, as of now.
    pub fn belief(&self) -> Belief {
        self.0.as_ref().map_or(Belief::FOREVER, |tenure| tenure.belief())
    }

    /// Resolves at that moment; never for a lock that cannot be lost.
    pub async fn lost(&self) -> LossCause {
        match &self.0 {
            Some(tenure) => tenure.lost().await,
            None => pending().await,
        }
    }
}

impl std::fmt::Debug for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loss").field(&self.cause()).finish()
    }
}
