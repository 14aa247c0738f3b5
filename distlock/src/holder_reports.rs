//! The holders that keep waiters waiting: seen through the inspector, logged, and put into errors.
//!
//! A wait that lasts longer than a second asks every second which owner holds the lock. A process
//! asks once a second for each name, and at most [`MAX_QUESTIONS`] at a time; all its
//! waiters share the answer. Shorter waits ask nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::name_rate_limit::NameRateLimit;
use crate::{Guard, HoldKind, LockError, LockHolder, LockName, Locker, RenewalKind};

/// How often a waiter reports, and how long one answer may take.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// An answer younger than this is shared.
const MAX_AGE: Duration = Duration::from_millis(900);
/// The most names that are remembered.
const MAX_NAMES: usize = 1024;
/// The most questions under way: some kinds need a connection of the pool for one.
const MAX_QUESTIONS: usize = 4;

/// The holders of one mechanism's locks, as waiters of this process saw them.
#[derive(Clone)]
pub(crate) struct HolderReports(Arc<ReportState>);

struct ReportState {
    locker: Arc<dyn Locker>,
    readings: Mutex<HashMap<LockName, HolderReading>>,
    losses: NameRateLimit,
    /// One for each question that may be under way.
    questions: Semaphore,
}

struct HolderReading {
    at: Instant,
    holder: Option<LockHolder>,
}

impl HolderReports {
    pub(crate) fn new(locker: Arc<dyn Locker>) -> Self {
        Self(Arc::new(ReportState {
            locker,
            readings: Mutex::default(),
            losses: NameRateLimit::default(),
            questions: Semaphore::new(MAX_QUESTIONS),
        }))
    }

    /// Runs an acquisition, and reports every second until it ends. A time-out names the holder
    /// that was seen last.
    pub(crate) async fn report_during(
        &self,
        name: &LockName,
        started: Instant,
        acquire: impl Future<Output = Result<Guard, LockError>>,
    ) -> Result<Guard, LockError> {
        let mut seen = None;
        let outcome = {
            let report = pin!(self.report(name, started, &mut seen));
            tokio::select! {
                biased;
                outcome = acquire => outcome,
                never = report => match never {},
            }
        };
        match outcome {
            Err(LockError::TimedOut { waited, has_no_expiry, .. }) => {
                Err(LockError::TimedOut { waited, has_no_expiry, holder: seen.map(Box::new) })
            }
            outcome => outcome,
        }
    }

    /// Looks and logs every second, for ever.
    async fn report(
        &self,
        name: &LockName,
        started: Instant,
        seen: &mut Option<LockHolder>,
    ) -> Infallible {
        loop {
            sleep(REPORT_INTERVAL).await;
            if self.claim(name, seen) {
                *seen = self.look(name).await;
                self.readings().insert(
                    name.clone(),
                    HolderReading { at: Instant::now(), holder: seen.clone() },
                );
                if let Some(holder) = seen {
                    let kind = self.kind();
                    let waited_ms = started.elapsed().as_millis();
                    tracing::info!(lock = %name, kind, waited_ms, %holder, "waits for a held lock");
                }
            }
        }
    }

    /// Whether the loss of a lock of that name may be logged now.
    pub(crate) fn admits_loss(&self, name: &LockName) -> bool {
        self.0.losses.admit(name)
    }

    /// The name of the kind.
    pub(crate) fn kind(&self) -> &'static str {
        self.0.locker.name()
    }

    /// How holds of the kind are kept alive.
    pub(crate) fn renewal(&self) -> RenewalKind {
        self.0.locker.guarantees().renewal
    }

    /// Whether this waiter has to ask. If another one has just asked, its answer is `seen`.
    fn claim(&self, name: &LockName, seen: &mut Option<LockHolder>) -> bool {
        let now = Instant::now();
        let mut readings = self.readings();
        let is_recent = |one: &HolderReading| now.saturating_duration_since(one.at) < MAX_AGE;
        if let Some(reading) = readings.get(name).filter(|one| is_recent(one)) {
            seen.clone_from(&reading.holder);
            return false;
        }
        if readings.len() >= MAX_NAMES {
            readings.retain(|_, one| is_recent(one));
        }
        if readings.len() >= MAX_NAMES {
            return false;
        }
        // Until the answer comes, the others have the holder that was seen before.
        readings.insert(name.clone(), HolderReading { at: now, holder: seen.clone() });
        true
    }

    /// The first holder; `None` if it is not known, or if too many are asked for already.
    pub(crate) async fn look(&self, name: &LockName) -> Option<LockHolder> {
        // Only while it has waiters is the holder of a row known, after up to 6 s.
        if self.0.locker.guarantees().hold == HoldKind::Transaction {
            return None;
        }
        let _question = self.0.questions.try_acquire().ok()?;
        let inspector = self.0.locker.inspector()?;
        let lock = timeout(REPORT_INTERVAL, inspector.inspect(name)).await.ok()?.ok()?;
        lock.state.holders().first().cloned()
    }

    fn readings(&self) -> MutexGuard<'_, HashMap<LockName, HolderReading>> {
        self.0.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
