//! The holders that keep waiters waiting: seen through the inspector, logged, and put into errors.
//!
//! A wait of at least half a second asks which owner holds the lock: after three quarters of it or
//! a second, and then every second. A process asks once a second for each name, and at most
//! [`MAX_QUESTIONS`] at a time; all its waiters share the answer. Shorter waits ask nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::name_rate_limit::NameRateLimit;
use crate::{Guard, HoldKind, LockError, LockHolder, LockName, LockState, Locker, RenewalKind};

/// Shorter waits ask nothing.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
/// How often a waiter reports, and how long one answer may take.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// After a question, no other waiter asks for so long.
const MAX_AGE: Duration = Duration::from_millis(900);
/// After a question, the last answer is that of all waiters for so long: the next may get none.
const ANSWER_LIFETIME: Duration = Duration::from_secs(2);
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
    /// `None` until the answer comes, and if there is none.
    answer: Option<HolderAnswer>,
}

/// What the server says of the holder of a lock.
#[derive(Clone)]
enum HolderAnswer {
    Free,
    Held(Box<LockHolder>),
}

impl HolderAnswer {
    fn holder(self) -> Option<LockHolder> {
        match self {
            Self::Free => None,
            Self::Held(holder) => Some(*holder),
        }
    }
}

/// When a waiter of that length asks first: early enough for an answer before its time-out.
pub(crate) fn first_question(wait: Duration) -> Option<Duration> {
    (wait >= SHORTEST_WAIT).then(|| (wait / 4 * 3).min(REPORT_INTERVAL))
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

    /// Runs an acquisition, and reports until it ends: after `first`, and then every second. A
    /// time-out names the holder that was seen last.
    pub(crate) async fn report_during(
        &self,
        name: &LockName,
        started: Instant,
        first: Duration,
        acquire: impl Future<Output = Result<Guard, LockError>>,
    ) -> Result<Guard, LockError> {
        let mut seen = None;
        let outcome = {
            let report = pin!(self.report(name, started, first, &mut seen));
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

    /// Looks and logs, for ever.
    async fn report(
        &self,
        name: &LockName,
        started: Instant,
        first: Duration,
        seen: &mut Option<LockHolder>,
    ) -> Infallible {
        let mut pause = first;
        loop {
            sleep(pause).await;
            pause = REPORT_INTERVAL;
            if self.claim(name, seen) {
                // Without an answer it is the holder that was seen before.
                let Some(answer) = self.ask(name).await else { continue };
                let reading = HolderReading { at: Instant::now(), answer: Some(answer.clone()) };
                self.readings().insert(name.clone(), reading);
                *seen = answer.holder();
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

    /// Whether this waiter has to ask. The answer that another one has got is `seen`.
    fn claim(&self, name: &LockName, seen: &mut Option<LockHolder>) -> bool {
        let now = Instant::now();
        let mut readings = self.readings();
        let age = |one: &HolderReading| now.saturating_duration_since(one.at);
        let is_recent = |one: &HolderReading| age(one) < MAX_AGE;
        let last = readings.get(name).filter(|one| age(one) < ANSWER_LIFETIME);
        if let Some(answer) = last.and_then(|one| one.answer.clone()) {
            *seen = answer.holder();
        }
        if last.is_some_and(is_recent) {
            return false;
        }
        if readings.len() >= MAX_NAMES {
            readings.retain(|_, one| is_recent(one));
        }
        if readings.len() >= MAX_NAMES {
            return false;
        }
        // Until the answer comes, the others have the holder that was seen before.
        let answer = seen.clone().map(|holder| HolderAnswer::Held(Box::new(holder)));
        readings.insert(name.clone(), HolderReading { at: now, answer });
        true
    }

    /// The first holder; `None` if there is none, or if it is not known.
    pub(crate) async fn look(&self, name: &LockName) -> Option<LockHolder> {
        self.ask(name).await?.holder()
    }

    /// Asks for the first holder; `None` if the server does not say in time. The time includes the
    /// wait for other questions.
    async fn ask(&self, name: &LockName) -> Option<HolderAnswer> {
        // Only while it has waiters is the holder of a row known, after up to 6 s.
        if self.0.locker.guarantees().hold == HoldKind::Transaction {
            return None;
        }
        let inspector = self.0.locker.inspector()?;
        let question = async {
            // It is never closed.
            let _question = self.0.questions.acquire().await.ok()?;
            inspector.inspect(name).await.ok()
        };
        let lock = timeout(REPORT_INTERVAL, question).await.ok()??;
        if matches!(lock.state, LockState::Unknown { .. } | LockState::Damaged(_)) {
            return None;
        }
        let holder = lock.state.holders().first().cloned();
        Some(holder.map_or(HolderAnswer::Free, |holder| HolderAnswer::Held(Box::new(holder))))
    }

    fn readings(&self) -> MutexGuard<'_, HashMap<LockName, HolderReading>> {
        self.0.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::none::NoLock;
    use crate::{
        Acquisition, Guarantees, ListCursor, LockInspector, LockPage, LockSnapshot, LockWaiters,
        RemainingLease, Request,
    };

    /// How long the inspector takes.
    const ANSWER_TIME: Duration = Duration::from_millis(5);

    /// A kind of which each lock is held, as long as its server answers.
    struct HeldLocker {
        /// From here on the server answers no question.
        silent_from: Instant,
    }

    impl Locker for HeldLocker {
        fn name(&self) -> &'static str {
            "held"
        }

        fn guarantees(&self) -> Guarantees {
            Guarantees { hold: HoldKind::Lease, ..NoLock.guarantees() }
        }

        fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
            Some(Arc::new(Self { silent_from: self.silent_from }))
        }

        fn begin(&self, request: Request) -> Box<dyn Acquisition> {
            NoLock.begin(request)
        }
    }

    impl LockInspector for HeldLocker {
        fn inspect<'a>(
            &'a self,
            name: &'a LockName,
        ) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
            Box::pin(async move {
                if Instant::now() >= self.silent_from {
                    std::future::pending::<()>().await;
                }
                sleep(ANSWER_TIME).await;
                let holder = LockHolder {
                    id: "holder".to_owned(),
                    owner: None,
                    tag: None,
                    holds: None,
                    shares: false,
                    lease: RemainingLease::NoExpiry,
                    held_for: None,
                    token: None,
                    place: None,
                    servers: 1,
                };
                Ok(LockSnapshot {
                    kind: "held",
                    name: name.to_string(),
                    state: LockState::Held(vec![holder]),
                    waiters: LockWaiters::Unknown,
                    has_more_waiters: false,
                    renewal: RenewalKind::No,
                })
            })
        }

        fn list<'a>(
            &'a self,
            _: &'a str,
            _: Option<ListCursor>,
            _: usize,
        ) -> BoxFuture<'a, Result<LockPage, LockError>> {
            Box::pin(async move { unreachable!("no report lists locks") })
        }

        fn force_release<'a>(
            &'a self,
            _: &'a LockName,
            _: &'a str,
        ) -> BoxFuture<'a, Result<bool, LockError>> {
            Box::pin(async move { unreachable!("no report frees a lock") })
        }
    }

    /// The holder that a wait of that length names when it times out.
    async fn holder_after(
        reports: HolderReports,
        name: String,
        wait: Duration,
    ) -> Option<LockHolder> {
        let name = LockName::new(name).unwrap();
        let acquire = async {
            sleep(wait).await;
            Err(LockError::TimedOut { waited: wait, has_no_expiry: false, holder: None })
        };
        let first = first_question(wait)?;
        match reports.report_during(&name, Instant::now(), first, acquire).await {
            Err(LockError::TimedOut { holder, .. }) => holder.map(|holder| *holder),
            _ => panic!("it timed out"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_waits_that_begin_together_each_name_their_holder() {
        let silent_from = Instant::now() + Duration::from_hours(1);
        let reports = HolderReports::new(Arc::new(HeldLocker { silent_from }));
        let waits = (0..10).map(|number| {
            let wait = Duration::from_millis(1500);
            tokio::spawn(holder_after(reports.clone(), format!("lock:{number}"), wait))
        });
        for (number, wait) in waits.collect::<Vec<_>>().into_iter().enumerate() {
            assert!(wait.await.unwrap().is_some(), "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_half_a_second_names_its_holder_and_a_shorter_one_asks_nothing() {
        let silent_from = Instant::now() + Duration::from_hours(1);
        let reports = HolderReports::new(Arc::new(HeldLocker { silent_from }));
        for (wait_ms, is_named) in [(499, false), (500, true), (1000, true)] {
            let wait = Duration::from_millis(wait_ms);
            let holder = holder_after(reports.clone(), format!("lock:{wait_ms}"), wait).await;
            assert_eq!(holder.is_some(), is_named, "{wait:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_leaves_the_holder_that_was_seen_last() {
        let silent_from = Instant::now() + Duration::from_millis(1500);
        let reports = HolderReports::new(Arc::new(HeldLocker { silent_from }));
        let wait = Duration::from_secs(6);
        let waits =
            [0, 1].map(|_| tokio::spawn(holder_after(reports.clone(), "lock:1".to_owned(), wait)));
        for wait in waits {
            assert!(wait.await.unwrap().is_some());
        }
    }
}
