//! Finds tasks that wait for each other's locks, in this process and in others.
//!
//! A task that holds a lock and waits for another one for longer than [`PUBLISH_INTERVAL`]
//! publishes both every [`PUBLISH_INTERVAL`], one exchange for all such tasks of the process. Each
//! exchange reads what the other processes publish. A cycle that is [certain](confirmation) is a
//! deadlock: it is logged and counted in `distlock_deadlocks_total`. Tasks that hold no lock while
//! they wait publish nothing. [`DeadlockDetector::observe`] reads what others publish.

mod confirmation;
mod held_by_tasks;
mod record;
mod wait_graph;

use std::convert::Infallible;
use std::mem;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use metrics::{Counter, counter};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use self::confirmation::CycleConfirmation;
use self::held_by_tasks::HeldByTasks;
pub(crate) use self::held_by_tasks::{HoldEntry, LockClass};
pub use self::wait_graph::{Deadlock, DeadlockedTask};
use self::wait_graph::{LockUse, WaitingProcess};
use crate::hold_state::HoldState;
use crate::{LockError, LockName, OwnerTag, Request};

/// How often a process publishes, and how long one answer may take.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(150);
/// How long [`DeadlockDetector::find`] looks.
const FIND_TIMEOUT: Duration = Duration::from_secs(1);
/// How often [`DeadlockDetector::observe`] looks.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(250);
/// How often it looks where it lacks the right: each refusal is in the server's log.
const DENIED_INTERVAL: Duration = Duration::from_mins(1);

/// What a process publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRecord {
    /// The process.
    pub process: Uuid,
    /// Rises with each exchange that was answered.
    pub sequence: u64,
    /// Its tasks, at most 16 KiB.
    pub text: String,
}

/// Where processes publish what their tasks wait for.
pub trait WaitExchange: Send + Sync + 'static {
    /// Stores the record of a process in the place of its former one, and reads those of all
    /// others, in one step. A record is valid for a second. One with a lower sequence number than
    /// the stored one comes late and is not stored.
    fn exchange<'a>(
        &'a self,
        record: Option<&'a WaitRecord>,
    ) -> BoxFuture<'a, Result<Vec<WaitRecord>, LockError>>;
}

/// Finds deadlocks among processes that publish in one place. Cheap to clone: all
/// [`Locks`](crate::Locks) of a process share one.
///
/// A guard counts as held by the task that took it. A task that passes its guard to another one
/// and then waits can be reported although the other one would release the lock. The detector
/// reports; it ends no wait.
#[derive(Clone)]
pub struct DeadlockDetector(Arc<DetectorState>);

struct DetectorState {
    exchange: Arc<dyn WaitExchange>,
    process: Uuid,
    /// The process, for people.
    label: String,
    /// What the process that started this one holds meanwhile.
    inherited: Vec<(LockUse, String)>,
    tasks: HeldByTasks,
    found: Counter,
    readings: Mutex<Readings>,
}

struct Readings {
    sequence: u64,
    last: Option<Instant>,
    confirmation: CycleConfirmation,
}

impl DeadlockDetector {
    /// A detector of this process, which people know by the tag.
    ///
    /// `inherited` is empty, or the [`DeadlockDetector::held_by_this_task`] of a process that waits
    /// for the end of this one. Its holds count for all tasks, as long as the process runs that
    /// the owner's tag names. Fails with [`LockError::BadRequest`] if it is damaged.
    pub fn new(
        exchange: Arc<dyn WaitExchange>,
        tag: &OwnerTag,
        inherited: &str,
    ) -> Result<Self, LockError> {
        let inherited = record::decode_holds(inherited).ok_or_else(|| LockError::BadRequest {
            field: "inherited holds",
            limit: "must come from `held_by_this_task`".to_owned(),
        })?;
        let OwnerTag { host, process, label, .. } = tag;
        let (sequence, last, confirmation) = (0, None, CycleConfirmation::default());
        Ok(Self(Arc::new(DetectorState {
            exchange,
            process: Uuid::new_v4(),
            label: format!("{label} on {host}, process {process},"),
            inherited,
            tasks: HeldByTasks::default(),
            found: counter!("distlock_deadlocks_total"),
            readings: Mutex::new(Readings { sequence, last, confirmation }),
        })))
    }

    /// What the current task holds, and what it has inherited, for a process that it starts and
    /// whose end it waits for.
    #[must_use]
    pub fn held_by_this_task(&self) -> String {
        let own = self.0.tasks.held_by_this_task();
        let all: Vec<_> = self.0.inherited.iter().cloned().chain(own).collect();
        record::encode_holds(&all)
    }

    /// The deadlocks that processes publish at present; publishes nothing. Looks for a second, or
    /// until all that it sees are certain. Fails with [`LockError::Backend`] or
    /// [`LockError::AccessDenied`].
    pub async fn find(&self) -> Result<Vec<Deadlock>, LockError> {
        let end = Instant::now() + FIND_TIMEOUT;
        let mut confirmation = CycleConfirmation::default();
        loop {
            let records = self.0.exchange.exchange(None).await?;
            let reading = confirmation.read(&processes(&records));
            let is_certain = !reading.confirmed.is_empty() && !reading.has_candidates;
            if is_certain || Instant::now() >= end {
                return Ok(reading.confirmed);
            }
            sleep(PUBLISH_INTERVAL).await;
        }
    }

    /// Looks for deadlocks of all processes until it is dropped, and publishes nothing. Each is
    /// logged and counted once. An exchange that does not answer is asked again; one that denies
    /// access is asked once a minute.
    pub async fn observe(&self) -> Infallible {
        let mut is_denied = false;
        loop {
            let pause = match self.0.exchange.exchange(None).await {
                Ok(records) => {
                    self.0.report(&mut *self.0.readings.lock().await, &records);
                    is_denied = false;
                    OBSERVE_INTERVAL
                }
                Err(error @ LockError::AccessDenied(_)) => {
                    if !mem::replace(&mut is_denied, true) {
                        tracing::warn!(%error, "cannot look for deadlocks of other processes");
                    }
                    DENIED_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot look for deadlocks; the next look is soon");
                    OBSERVE_INTERVAL
                }
            };
            sleep(pause).await;
        }
    }

    /// Runs an acquisition of the current task, and publishes its wait until it ends.
    pub(crate) async fn watch<T>(
        &self,
        class: LockClass,
        name: &LockName,
        acquire: impl Future<Output = T>,
    ) -> T {
        let _wait = self.0.tasks.enter_wait(class, name, Instant::now());
        let publish = pin!(self.publish());
        tokio::select! {
            biased;
            outcome = acquire => outcome,
            never = publish => match never {},
        }
    }

    /// Enters a hold of the current task.
    pub(crate) fn enter_hold(
        &self,
        class: LockClass,
        request: &Request,
        hold_state: &Arc<HoldState>,
    ) -> HoldEntry {
        self.0.tasks.enter_hold(class, (&request.name, &request.owner), hold_state)
    }

    async fn publish(&self) -> Infallible {
        loop {
            sleep(PUBLISH_INTERVAL).await;
            // Whichever waiter comes first publishes for all.
            if let Ok(mut readings) = self.0.readings.try_lock()
                && readings.last.is_none_or(|last| last.elapsed() >= PUBLISH_INTERVAL / 2)
            {
                self.0.read(&mut readings).await;
            }
        }
    }
}

impl DetectorState {
    /// What is inherited from processes that still run, as far as their owners' tags tell.
    fn inherited(&self) -> Vec<(LockUse, String)> {
        let runs = |tag: OwnerTag| Path::new("/proc").join(tag.process.to_string()).exists();
        let live = self.inherited.iter();
        live.filter(|(_, owner)| OwnerTag::find(owner).is_none_or(runs)).cloned().collect()
    }

    /// One exchange, and what follows from it. Without an answer nothing does.
    async fn read(&self, readings: &mut Readings) {
        readings.last = Some(Instant::now());
        let tasks = self.tasks.waiting(&self.inherited());
        let Some(text) = record::encode(&self.label, &tasks) else { return };
        let record = WaitRecord { process: self.process, sequence: readings.sequence, text };
        let answer = timeout(PUBLISH_INTERVAL, self.exchange.exchange(Some(&record))).await;
        let mut records = match answer {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot look for deadlocks; the next look is soon");
                return;
            }
            Err(_) => return,
        };
        readings.sequence += 1;
        records.push(record);
        self.report(readings, &records);
    }

    /// Logs and counts the deadlocks that these records confirm.
    fn report(&self, readings: &mut Readings, records: &[WaitRecord]) {
        for deadlock in readings.confirmation.read(&processes(records)).new {
            self.found.increment(1);
            tracing::warn!("deadlock: {deadlock}");
        }
    }
}

/// The records that can be read, in the order of their processes.
fn processes(records: &[WaitRecord]) -> Vec<WaitingProcess> {
    let decode = |one: &WaitRecord| record::decode(one.process, one.sequence, &one.text);
    records.iter().filter_map(decode).collect()
}
