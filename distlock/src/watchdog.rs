//! Keeps held locks alive.
//!
//! One task serves all holds of a [`Locks`](crate::Locks) and awaits all its batches concurrently,
//! so a [`Renewer`] must not block. A hold is due at every third of its lease, counted from the
//! sending of its last renewal. Holds that are due at about the same time are renewed in one batch.
//! A renewal without an answer is retried with growing pauses within the hold's validity; it does
//! not delay other holds. A hold that the server reports as lost is lost at once. A hold whose
//! validity has ended is not renewed again, because its holder has got the loss.
//!
//! Bounds: one entry and one renewal under way per hold, one task.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::hold_state::HoldState;
use crate::lock_metrics::LockMetrics;
use crate::{Renewal, RenewalTarget, Renewer, Request, Validity, failpoint};

/// Renewals per lease.
const RENEWALS_PER_LEASE: u32 = 3;
/// A hold may be renewed early by this part of its interval, to go with others.
const EARLY_FRACTION: u32 = 10;
/// How long the idle task waits for another hold. Without it, each short lock would start a task,
/// which takes longer than the lock itself.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// How far ahead the watchdog looks for holds that may go early, at most.
const MAX_LOOKAHEAD: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct Watchdog {
    shared: Arc<WatchdogState>,
    runtime: Handle,
    metrics: LockMetrics,
}

struct WatchdogState {
    schedule: Mutex<RenewalSchedule>,
    changed: Notify,
}

#[derive(Default)]
struct RenewalSchedule {
    next_id: u64,
    entries: HashMap<u64, ScheduledHold>,
    due: BTreeSet<(Instant, u64)>,
    /// Of all holds so far: beyond a part of that none may go early.
    longest_interval: Duration,
    running: bool,
    /// When the task wakes up without a signal.
    looks_at: Option<Instant>,
}

struct ScheduledHold {
    renewal_target: RenewalTarget,
    hold_state: Arc<HoldState>,
    /// The longest validity that a renewal may give.
    until: Validity,
    failures: u32,
    /// `None` while a renewal is under way.
    due: Option<Instant>,
}

/// Keeps a hold until it is dropped; from then on no renewal of it is begun.
pub(crate) struct RenewalRegistration {
    id: u64,
    shared: Arc<WatchdogState>,
}

impl Drop for RenewalRegistration {
    fn drop(&mut self) {
        self.shared.lock().unregister(self.id);
    }
}

impl Watchdog {
    pub(crate) fn new(metrics: LockMetrics) -> Self {
        let shared = WatchdogState { schedule: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared), runtime: Handle::current(), metrics }
    }

    /// Keeps the hold, but not beyond `until`.
    pub(crate) fn register(
        &self,
        renewal_target: RenewalTarget,
        hold_state: Arc<HoldState>,
        until: Validity,
    ) -> RenewalRegistration {
        let interval = interval(&renewal_target.request);
        let due = Instant::now() + interval;
        let entry =
            ScheduledHold { renewal_target, hold_state, until, failures: 0, due: Some(due) };
        let mut schedule = self.shared.lock();
        let id = schedule.next_id;
        schedule.next_id += 1;
        schedule.entries.insert(id, entry);
        schedule.due.insert((due, id));
        schedule.longest_interval = schedule.longest_interval.max(interval);
        let looks_too_late = schedule.looks_at.is_none_or(|looks_at| due < looks_at);
        let start = !std::mem::replace(&mut schedule.running, true);
        drop(schedule);
        if start {
            self.runtime.spawn(run_watchdog(Arc::clone(&self.shared), self.metrics.clone()));
        } else if looks_too_late {
            self.shared.changed.notify_one();
        }
        RenewalRegistration { id, shared: Arc::clone(&self.shared) }
    }
}

impl WatchdogState {
    fn lock(&self) -> MutexGuard<'_, RenewalSchedule> {
        // Each change is made of steps that do not panic.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interval(request: &Request) -> Duration {
    request.lease / RENEWALS_PER_LEASE
}

/// Holds of one renewer, and what their renewal brought.
struct RenewalBatch {
    renewer: Arc<dyn Renewer>,
    ids: Vec<u64>,
    requests: Vec<Request>,
}

/// What the renewals brought, and when they were sent.
type RenewalResults = (Instant, Vec<(u64, Renewal)>);

impl RenewalBatch {
    async fn renew(self) -> RenewalResults {
        let sent = Instant::now();
        failpoint::reach(failpoint::BEFORE_RENEWAL);
        let mut answers = self.renewer.renew(&self.requests).await;
        failpoint::reach(failpoint::RENEWAL_ANSWERED);
        answers.resize(self.ids.len(), Renewal::Unknown);
        (sent, self.ids.into_iter().zip(answers).collect())
    }
}

/// The task. It ends when there was nothing to keep for as long as it lingers, and is started again
/// by the next hold.
async fn run_watchdog(shared: Arc<WatchdogState>, metrics: LockMetrics) {
    let mut under_way = FuturesUnordered::new();
    let mut has_lingered = false;
    loop {
        let (batches, next) = shared.lock().take_due(Instant::now(), &metrics);
        for batch in batches {
            // Nothing that a renewal leaves half done is used again: its holds are not renewed.
            under_way.push(AssertUnwindSafe(batch.renew()).catch_unwind());
        }
        let is_idle = under_way.is_empty() && shared.lock().due.is_empty();
        if is_idle && has_lingered && shared.lock().stop_if_idle() {
            return;
        }
        has_lingered = false;
        tokio::select! {
            Some(answers) = under_way.next() => match answers {
                Ok((sent, answers)) => shared.lock().apply_renewals(sent, answers),
                // A mechanism that panics leaves its own holds to their leases.
                Err(_panic) => tracing::error!("renewal panicked; its holds end with their leases"),
            },
            () = sleep_until(next) => has_lingered = is_idle,
            () = shared.changed.notified() => {}
        }
    }
}

impl RenewalSchedule {
    /// Takes what is due, with what may go with it; also says when to look again.
    fn take_due(&mut self, now: Instant, metrics: &LockMetrics) -> (Vec<RenewalBatch>, Instant) {
        let mut batches = Vec::new();
        if self.due.first().is_some_and(|(due, _)| *due <= now) {
            let ahead = MAX_LOOKAHEAD.min(self.longest_interval / EARLY_FRACTION);
            let candidates: Vec<_> = self.due.range(..=(now + ahead, u64::MAX)).copied().collect();
            for (due, id) in candidates {
                let Some(entry) = self.entries.get_mut(&id) else { continue };
                if due > now + interval(&entry.renewal_target.request) / EARLY_FRACTION {
                    continue;
                }
                self.due.remove(&(due, id));
                entry.due = None;
                if entry.hold_state.is_lost() {
                    self.entries.remove(&id);
                    continue;
                }
                metrics.record_renewal_delay(now.saturating_duration_since(due));
                add(&mut batches, id, &entry.renewal_target);
            }
        }
        let next = self.due.first().map_or(now + IDLE_TIMEOUT, |(due, _)| *due);
        self.looks_at = Some(next);
        (batches, next)
    }

    fn apply_renewals(&mut self, sent: Instant, answers: Vec<(u64, Renewal)>) {
        for (id, renewal) in answers {
            self.apply_renewal(id, sent, renewal);
        }
    }

    fn unregister(&mut self, id: u64) {
        if let Some(ScheduledHold { due: Some(due), .. }) = self.entries.remove(&id) {
            self.due.remove(&(due, id));
        }
    }

    fn apply_renewal(&mut self, id: u64, sent: Instant, renewal: Renewal) {
        // A hold that was released meanwhile is no longer here.
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let due = match renewal {
            Renewal::Lost => {
                entry.hold_state.mark_lost();
                None
            }
            Renewal::Renewed(validity) => {
                entry.failures = 0;
                let going_on = entry.hold_state.extend(validity.earlier(entry.until));
                going_on.then(|| sent + interval(&entry.renewal_target.request))
            }
            Renewal::Unknown => {
                entry.failures += 1;
                let pause = back_off(interval(&entry.renewal_target.request), entry.failures);
                (!entry.hold_state.is_lost()).then(|| Instant::now() + pause)
            }
        };
        entry.due = due;
        match due {
            Some(due) => drop(self.due.insert((due, id))),
            None => drop(self.entries.remove(&id)),
        }
    }

    fn stop_if_idle(&mut self) -> bool {
        self.running = !self.due.is_empty();
        self.looks_at = None;
        !self.running
    }
}

fn add(batches: &mut Vec<RenewalBatch>, id: u64, renewal_target: &RenewalTarget) {
    let room = |batch: &&mut RenewalBatch| {
        Arc::ptr_eq(&batch.renewer, &renewal_target.renewer)
            && batch.ids.len() < renewal_target.renewer.batch()
    };
    // Looked for from the end: the last batch of a renewer is the one with room.
    if let Some(batch) = batches.iter_mut().rev().find(room) {
        batch.ids.push(id);
        batch.requests.push(renewal_target.request.clone());
    } else {
        batches.push(RenewalBatch {
            renewer: Arc::clone(&renewal_target.renewer),
            ids: vec![id],
            requests: vec![renewal_target.request.clone()],
        });
    }
}

/// A 32nd of the interval after the first failure, doubling up to half of it.
fn back_off(interval: Duration, failures: u32) -> Duration {
    interval / 32 * 2_u32.pow(failures.saturating_sub(1).min(4))
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use tokio::task::yield_now;
    use tokio::time::sleep;
    use uuid::Uuid;

    use super::*;
    use crate::runtime_ticker::RuntimeTicker;
    use crate::{LockName, Owner};

    struct UnusedRenewer;

    impl Renewer for UnusedRenewer {
        fn renew<'a>(&'a self, _holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
            Box::pin(async move { unreachable!("no hold lasts that long") })
        }
    }

    fn held_for_a_moment(watchdog: &Watchdog) -> RenewalRegistration {
        let request = Request {
            name: LockName::new("a").unwrap(),
            owner: Owner::fresh(),
            may_hold: false,
            id: Uuid::new_v4(),
            lease: Duration::from_secs(30),
        };
        let renewal_target = RenewalTarget { renewer: Arc::new(UnusedRenewer), request };
        watchdog.register(
            renewal_target,
            HoldState::new(Validity::UNBOUNDED, &RuntimeTicker::current()),
            Validity::UNBOUNDED,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn short_holds_share_one_renewal_task_which_ends_after_them() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let (watchdog, before) = (Watchdog::new(LockMetrics::for_kind("none")), tasks());
        for _ in 0..3 {
            drop(held_for_a_moment(&watchdog));
            yield_now().await;
            assert_eq!(tasks(), before + 1, "it waits for the next hold");
        }
        sleep(IDLE_TIMEOUT * 3).await;
        assert_eq!(tasks(), before, "nothing is left to keep");
        let registration = held_for_a_moment(&watchdog);
        yield_now().await;
        assert_eq!(tasks(), before + 1, "it is started again");
        drop(registration);
    }
}
