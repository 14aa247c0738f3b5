//! What a caller holds.

use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::background::BackgroundTasks;
use crate::deadlock_detector::HoldEntry;
use crate::hold_state::HoldState;
use crate::keyed::KeyGuard;
use crate::local_queue_slot::LocalQueueSlot;
use crate::lock_metrics::LockMetrics;
use crate::lock_spans::{self, HoldSpan};
use crate::loss_report::LossReport;
use crate::ownership::OwnershipGuard;
use crate::watchdog::RenewalRegistration;
use crate::{
    Hold, LockError, LockName, LossCause, LostSignal, Owner, Release, Renewal, RenewalTarget,
    Request, Token, Validity, failpoint,
};

/// How often a release is tried that was not sent, or has no answer and counts once.
const RELEASE_ATTEMPTS: u32 = 3;
/// Before the second one; doubles.
const RELEASE_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A held lock. Release it with [`Guard::release`]. A guard that is merely dropped is released in
/// the background, and so is one whose holder panics (a lock of `local` at once).
#[must_use = "dropping the guard releases the lock"]
pub struct Guard(GuardKind);

enum GuardKind {
    Local(LocalGuard),
    Server(Box<ServerGuard>),
}

/// A lock of `local`: the key guard is the whole lock, cannot end by itself and is released at
/// once.
struct LocalGuard {
    key_guard: KeyGuard,
    /// Metrics and the start of the hold; `None` without a recorder, which saves a shared reference
    /// count.
    timed: Option<Box<(LockMetrics, Instant)>>,
    owner: OnceLock<Box<Owner>>,
}

impl Drop for LocalGuard {
    fn drop(&mut self) {
        let Some(timed) = &self.timed else { return };
        let ((metrics, since), now) = (&**timed, Instant::now());
        metrics.record_hold(now - *since, false);
        self.key_guard.end(Some(now));
    }
}

struct ServerGuard {
    /// Away once it was released, by the caller or because it had lasted for as long as it may.
    held: Arc<Mutex<Option<HoldResources>>>,
    /// The kind and the name; `None` for what is no lock.
    lock: Option<(&'static str, LockName)>,
    owner: Owner,
    token: Option<Token>,
    hold_state: Arc<HoldState>,
    background: BackgroundTasks,
    _end: Option<AbortOnDropHandle<()>>,
}

/// The hold on the server, its renewal, and the slot in the process's queue.
pub(crate) struct HoldResources {
    pub(crate) hold: Box<dyn Hold>,
    pub(crate) hold_state: Arc<HoldState>,
    pub(crate) registration: Option<RenewalRegistration>,
    pub(crate) key_guard: Option<LocalQueueSlot>,
    /// The part in the owner's token, if tokens are issued.
    pub(crate) ownership: Option<OwnershipGuard>,
    /// Whether a release may be sent again.
    pub(crate) idempotent: bool,
    /// Whether the hold can be left to its servers for a time.
    pub(crate) has_renewable_lease: bool,
    pub(crate) metrics: LockMetrics,
    pub(crate) since: Instant,
    /// The span of the hold; `None` if it is not traced.
    pub(crate) span: Option<HoldSpan>,
    /// The hold in the deadlock detector's table.
    pub(crate) _deadlock_entry: Option<HoldEntry>,
    /// Logs why the hold was lost, if it was.
    pub(crate) loss_report: Option<LossReport>,
}

impl HoldResources {
    /// Records the end of the hold, and logs a loss.
    fn record_end(&mut self) {
        let (held, loss_cause) = (self.since.elapsed(), self.hold_state.loss_cause());
        self.metrics.record_hold(held, loss_cause.is_some());
        if let Some(span) = self.span.as_mut().filter(|_| loss_cause.is_some()) {
            span.set_lost();
        }
        if let Some((cause, report)) = loss_cause.zip(self.loss_report.take()) {
            report.log(cause, held);
        }
    }

    /// Stops the renewal, frees the lock on the server, then hands it to the next task in the
    /// process.
    async fn release(mut self) -> Result<Release, LockError> {
        drop(self.registration.take());
        // A re-entry that begins now must not join a hold that is about to end.
        drop(self.ownership.take());
        self.record_end();
        failpoint::reach(failpoint::BEFORE_RELEASE);
        let span = self.span.take();
        let outcome = lock_spans::trace_release(span, self.send_release()).await;
        failpoint::reach(failpoint::RELEASE_ANSWERED);
        drop(self.key_guard);
        outcome
    }

    async fn send_release(&mut self) -> Result<Release, LockError> {
        let mut pause = RELEASE_RETRY_PAUSE;
        for _ in 1..RELEASE_ATTEMPTS {
            match self.hold.release().await {
                Err(error) if self.may_be_sent_again(&error) => {
                    tracing::debug!(%error, "release failed; retrying");
                    sleep(pause).await;
                    pause *= 2;
                }
                outcome => return outcome,
            }
        }
        self.hold.release().await
    }

    /// Renews the hold once more, for `rest`, without a registration that would renew it further.
    async fn leave_for(mut self, target: RenewalTarget, rest: Duration) -> Result<(), LockError> {
        drop(self.registration.take());
        drop(self.ownership.take());
        self.record_end();
        let request = Request { lease: rest, ..target.request };
        let mut pause = RELEASE_RETRY_PAUSE;
        for _ in 0..RELEASE_ATTEMPTS {
            match target.renewer.renew(std::slice::from_ref(&request)).await.first() {
                Some(Renewal::Renewed(_)) => return Ok(()),
                Some(Renewal::Lost) => return Err(LockError::Lost),
                Some(Renewal::Unknown) | None => sleep(pause).await,
            }
            pause *= 2;
        }
        Err(LockError::Backend("no answer to the last renewal".into()))
    }

    /// What was never sent may be, also where a second one counts twice.
    fn may_be_sent_again(&self, error: &LockError) -> bool {
        let counts_once = match error {
            LockError::NoConnection(_) => true,
            error => error.is_unknown() && self.idempotent,
        };
        counts_once && !self.hold_state.is_lost()
    }
}

impl Guard {
    /// A lock of `local`: the key guard and nothing else.
    pub(crate) fn of_key_guard(key_guard: KeyGuard, metrics: &LockMetrics) -> Self {
        let timed = metrics.now().map(|since| Box::new((metrics.clone(), since)));
        Self(GuardKind::Local(LocalGuard { owner: OnceLock::new(), timed, key_guard }))
    }

    /// Frees the lock at `most` if it is held until then, whatever the holder does.
    pub(crate) fn new(
        held: HoldResources,
        owner: Owner,
        background: BackgroundTasks,
        most: Option<Validity>,
    ) -> Self {
        let hold_state = Arc::clone(&held.hold_state);
        let held = Arc::new(Mutex::new(Some(held)));
        let end = most.map(|most| {
            let end =
                free_after(most, Arc::clone(&held), Arc::clone(&hold_state), background.clone());
            background.timer(end)
        });
        let served =
            ServerGuard { held, lock: None, owner, token: None, hold_state, background, _end: end };
        Self(GuardKind::Server(Box::new(served)))
    }

    pub(crate) fn with_name(mut self, kind: &'static str, name: &LockName) -> Self {
        if let GuardKind::Server(hold) = &mut self.0 {
            hold.lock = Some((kind, name.clone()));
        }
        self
    }

    pub(crate) fn with_token(mut self, token: Option<Token>) -> Self {
        if let GuardKind::Server(hold) = &mut self.0 {
            hold.token = token;
        }
        self
    }

    /// Has a span end with the hold.
    pub(crate) fn trace(&self, span: HoldSpan) {
        if let GuardKind::Server(hold) = &self.0
            && let Some(held) = &mut *lock(&hold.held)
        {
            held.span = Some(span);
        }
    }

    /// Whether the lock is lost: its validity has ended or the server took it away. Work checks
    /// this before each effect.
    pub fn is_lost(&self) -> bool {
        self.hold_state().is_some_and(|hold_state| hold_state.is_lost())
    }

    /// Resolves when the lock is lost; never for a lock that cannot be.
    pub async fn lost(&self) -> LossCause {
        self.lost_signal().lost().await
    }

    /// A handle that the work can carry, to notice the loss.
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal::of(self.hold_state().cloned())
    }

    /// Runs `work` for as long as the lock is held. Fails with [`LockError::Lost`] if the lock is
    /// lost before the work is done; then the work has ended, because its future was dropped.
    ///
    /// The work is polled only while the lock is held by this process's clock. So it ends with the
    /// validity time, or when the server denies the hold, which the next renewal learns: after a
    /// third of the lease. What the work does between two awaits is not interrupted. A request that
    /// it has sent may still be carried out; what must not happen twice needs a fence.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|context| {
            if self.is_lost() || lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(LockError::Lost));
            }
            match work.as_mut().poll(context) {
                Poll::Ready(_) if self.is_lost() => Poll::Ready(Err(LockError::Lost)),
                outcome => outcome.map(Ok),
            }
        })
        .await
    }

    /// The validity as of now; each renewal extends it.
    pub fn validity(&self) -> Validity {
        self.lost_signal().validity()
    }

    /// The owner of the hold. Pass it to [`Locks::lock_as`](crate::Locks::lock_as) for re-entry.
    pub fn owner(&self) -> &Owner {
        match &self.0 {
            GuardKind::Local(key_guard) => key_guard.owner.get_or_init(|| Box::new(Owner::fresh())),
            GuardKind::Server(hold) => &hold.owner,
        }
    }

    /// The fencing token, where the kind has one or the options asked for one.
    pub fn token(&self) -> Option<Token> {
        match &self.0 {
            GuardKind::Local(_) => None,
            GuardKind::Server(hold) => hold.token,
        }
    }

    /// The kind and the name of a lock on a server.
    pub(crate) fn kind_and_name(&self) -> Option<&(&'static str, LockName)> {
        match &self.0 {
            GuardKind::Local(_) => None,
            GuardKind::Server(hold) => hold.lock.as_ref(),
        }
    }

    /// Takes out the database transaction that holds the lock (`mysql-row`). The lock then ends
    /// with the transaction. `None` for every other kind, and on the second call.
    #[cfg(feature = "mysql")]
    pub fn take_transaction(&mut self) -> Option<crate::lock_transaction::LockTransaction> {
        match &self.0 {
            GuardKind::Local(_) => None,
            GuardKind::Server(hold) => lock(&hold.held).as_mut()?.hold.take_transaction(),
        }
    }

    /// Frees the lock and says how that ended; [`Release::Gone`] if that was done already, because
    /// it had been held for as long as it may. The release continues if the future is dropped.
    pub async fn release(self) -> Result<Release, LockError> {
        let served = match &self.0 {
            GuardKind::Local(_) => return Ok(Release::Released),
            GuardKind::Server(served) => served,
        };
        let Some(held) = take(&served.held) else { return Ok(Release::Gone) };
        served
            .background
            .finish(held.release(), |outcome| {
                log_failure(outcome);
                Box::pin(ready(()))
            })
            .await
    }

    /// Ends the renewal without freeing the lock: the server excludes other owners until the lease
    /// ends. For a holder that does not know the outcome of its work. A lock without a lease is
    /// freed.
    pub fn leave_to_lease(self) {
        if let GuardKind::Server(hold) = &self.0
            && let Some(mut held) = take(&hold.held)
        {
            held.record_end();
        }
    }

    /// Ends the renewal and leaves the lock to its server for `rest` at least; a lease that ends
    /// later may stay. For a holder that is done and keeps other owners out for longer.
    ///
    /// A hold without a lease that can be renewed (one of a session, say) is released, and the call
    /// fails with [`LockError::Unsupported`]. It fails with [`LockError::Lost`], or with
    /// [`LockError::Backend`] without an answer; then, and if the future is dropped, the lock is
    /// left to its lease.
    pub async fn leave_for(self, rest: Duration) -> Result<(), LockError> {
        let GuardKind::Server(served) = &self.0 else {
            return Err(LockError::Unsupported("a lease"));
        };
        let target = match &*lock(&served.held) {
            Some(held) if held.has_renewable_lease => held.hold.renewal_target(),
            Some(_) => None,
            None => return Err(LockError::Lost),
        };
        // Without one, the guard is dropped here, and so released.
        let target = target.ok_or(LockError::Unsupported("a lease that is renewed"))?;
        let held = take(&served.held).ok_or(LockError::Lost)?;
        held.leave_for(target, rest).await
    }

    /// `None` if nothing can end the lock.
    fn hold_state(&self) -> Option<&Arc<HoldState>> {
        match &self.0 {
            GuardKind::Local(_) => None,
            GuardKind::Server(hold) => Some(&hold.hold_state),
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.kind_and_name())
            .field("owner", self.owner())
            .field("token", &self.token())
            .field("loss", &self.lost_signal().cause())
            .finish_non_exhaustive()
    }
}

impl Drop for ServerGuard {
    fn drop(&mut self) {
        let Some(held) = take(&self.held) else { return };
        self.background.spawn(async move { log_failure(held.release().await) });
    }
}

fn lock(held: &Mutex<Option<HoldResources>>) -> MutexGuard<'_, Option<HoldResources>> {
    // Taking out of an option cannot be left half done by a panic.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(held: &Mutex<Option<HoldResources>>) -> Option<HoldResources> {
    lock(held).take()
}

/// What is lost before is not this hold's to free any more.
async fn free_after(
    most: Validity,
    held: Arc<Mutex<Option<HoldResources>>>,
    hold_state: Arc<HoldState>,
    background: BackgroundTasks,
) {
    hold_state.lost().await;
    if most.has_ended()
        && let Some(held) = take(&held)
    {
        background.spawn(async move { log_failure(held.release().await) });
    }
}

/// Logs a failed release that has no caller.
fn log_failure(outcome: Result<Release, LockError>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "release of a dropped guard failed; lock ends with its lease");
    }
}
