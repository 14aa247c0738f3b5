//! Keeps held locks alive.
//!
//! One task for all holds of a [`Locks`](crate::Locks) waits for all batches that it has sent at
//! the same time; so a [`Renewer`] must not block. A hold is due at every third of its lease,
//! counted from the sending of its last renewal; those that are due at about the same time are
//! renewed together, in batches. A renewal without an answer is tried again, soon and then less
//! soon, for as long as the hold may be believed; it never ends the renewal of another hold. A hold
//! that the server calls lost is lost at once. A hold whose belief has ended is not renewed again:
//! its holder has been told.
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

use crate::meter::Meter;
use crate::tenure::Tenure;
use crate::{Belief, Renewal, Renewer, Request, Upkeep, failpoint};

/// Renewals per lease.
const PER_LEASE: u32 = 3;
/// A hold may be renewed early by this part of its interval, to go with others.
const EARLY: u32 = 10;
/// How long the task waits for another hold after the last: a lock that is held for a moment only
/// would else cost a task each time, which takes longer than the lock where nothing else goes on.
const LINGER: Duration = Duration::from_secs(1);
/// How far ahead the watchdog looks for holds that may go early, at most.
const AHEAD: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    runtime: Handle,
    meter: Meter,
}

struct Shared {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    entries: HashMap<u64, Entry>,
    due: BTreeSet<(Instant, u64)>,
    /// Of all holds so far: beyond a part of that none may go early.
    longest_interval: Duration,
    running: bool,
    /// When the task looks again, unless it is told.
    looks_at: Option<Instant>,
}

struct Entry {
    upkeep: Upkeep,
    tenure: Arc<Tenure>,
    /// No belief beyond that.
    until: Belief,
    failures: u32,
    /// `None` while a renewal is under way.
    due: Option<Instant>,
}

/// Keeps a hold until it is dropped; from then on no renewal of it is begun.
pub(crate) struct Kept {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.shared.lock().forget(self.id);
    }
}

impl Watchdog {
    pub(crate) fn new(meter: Meter) -> Self {
        let shared = Shared { table: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared), runtime: Handle::current(), meter }
    }

    /// Keeps the hold, but not beyond `until`.
    pub(crate) fn keep(&self, upkeep: Upkeep, tenure: Arc<Tenure>, until: Belief) -> Kept {
        let interval = interval(&upkeep.request);
        let due = Instant::now() + interval;
        let entry = Entry { upkeep, tenure, until, failures: 0, due: Some(due) };
        let mut table = self.shared.lock();
        let id = table.next_id;
        table.next_id += 1;
        table.entries.insert(id, entry);
        table.due.insert((due, id));
        table.longest_interval = table.longest_interval.max(interval);
        let looks_too_late = table.looks_at.is_none_or(|looks_at| due < looks_at);
        let start = !std::mem::replace(&mut table.running, true);
        drop(table);
        if start {
            self.runtime.spawn(watch(Arc::clone(&self.shared), self.meter.clone()));
        } else if looks_too_late {
            self.shared.changed.notify_one();
        }
        Kept { id, shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change is made of steps that do not panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interval(request: &Request) -> Duration {
    request.lease / PER_LEASE
}

/// Holds of one renewer, and what their renewal brought.
struct Batch {
    renewer: Arc<dyn Renewer>,
    ids: Vec<u64>,
    requests: Vec<Request>,
}

/// What the renewals brought, and when they were sent.
type Answers = (Instant, Vec<(u64, Renewal)>);

impl Batch {
    async fn renew(self) -> Answers {
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
async fn watch(shared: Arc<Shared>, meter: Meter) {
    let mut under_way = FuturesUnordered::new();
    let mut has_lingered = false;
    loop {
        let (batches, next) = shared.lock().take_due(Instant::now(), &meter);
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
                Ok((sent, answers)) => shared.lock().settle_all(sent, answers),
                // A mechanism that panics leaves its own holds to their leases.
                Err(_panic) => tracing::error!("a renewal panicked"),
            },
            () = sleep_until(next) => has_lingered = is_idle,
            () = shared.changed.notified() => {}
        }
    }
}

impl Table {
    /// Takes what is due, with what may go with it; also says when to look again.
    fn take_due(&mut self, now: Instant, meter: &Meter) -> (Vec<Batch>, Instant) {
        let mut batches = Vec::new();
        if self.due.first().is_some_and(|(due, _)| *due <= now) {
            let ahead = AHEAD.min(self.longest_interval / EARLY);
            let candidates: Vec<_> = self.due.range(..=(now + ahead, u64::MAX)).copied().collect();
            for (due, id) in candidates {
                let Some(entry) = self.entries.get_mut(&id) else { continue };
                if due > now + interval(&entry.upkeep.request) / EARLY {
                    continue;
                }
                self.due.remove(&(due, id));
                entry.due = None;
                if entry.tenure.is_lost() {
                    self.entries.remove(&id);
                    continue;
                }
                meter.renewal_late(now.saturating_duration_since(due));
                add(&mut batches, id, &entry.upkeep);
            }
        }
        let next = self.due.first().map_or(now + LINGER, |(due, _)| *due);
        self.looks_at = Some(next);
        (batches, next)
    }

    fn settle_all(&mut self, sent: Instant, answers: Vec<(u64, Renewal)>) {
        for (id, renewal) in answers {
            self.settle(id, sent, renewal);
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(Entry { due: Some(due), .. }) = self.entries.remove(&id) {
            self.due.remove(&(due, id));
        }
    }

    fn settle(&mut self, id: u64, sent: Instant, renewal: Renewal) {
        // A hold that was released meanwhile is no longer here.
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let due = match renewal {
            Renewal::Lost => {
                entry.tenure.lose();
                None
            }
            Renewal::Renewed(belief) => {
                entry.failures = 0;
                let going_on = entry.tenure.prolong(belief.earlier(entry.until));
                going_on.then(|| sent + interval(&entry.upkeep.request))
            }
            Renewal::Unknown => {
                entry.failures += 1;
                let pause = back_off(interval(&entry.upkeep.request), entry.failures);
                (!entry.tenure.is_lost()).then(|| Instant::now() + pause)
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

fn add(batches: &mut Vec<Batch>, id: u64, upkeep: &Upkeep) {
    let room = |batch: &&mut Batch| {
        Arc::ptr_eq(&batch.renewer, &upkeep.renewer) && batch.ids.len() < upkeep.renewer.batch()
    };
    // Looked for from the end: the last batch of a renewer is the one with room.
    if let Some(batch) = batches.iter_mut().rev().find(room) {
        batch.ids.push(id);
        batch.requests.push(upkeep.request.clone());
    } else {
        batches.push(Batch {
            renewer: Arc::clone(&upkeep.renewer),
            ids: vec![id],
            requests: vec![upkeep.request.clone()],
        });
    }
}

/// A 32nd of the interval after the first failure, doubling up to half of it.
fn back_off(interval: Duration, failures: u32) -> Duration {
    interval / 32 * 2_u32.pow(failures.saturating_sub(1).min(4))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tokio::task::yield_now;
    use tokio::time::sleep;
    use uuid::Uuid;

    use super::*;
    use crate::pulse::Pulse;
    use crate::{LockName, Owner};

    struct Never;

    #[async_trait]
    impl Renewer for Never {
        async fn renew(&self, _holds: &[Request]) -> Vec<Renewal> {
            unreachable!("no hold lasts that long")
        }
    }

    fn held_for_a_moment(watchdog: &Watchdog) -> Kept {
        let request = Request {
            name: LockName::new("a").unwrap(),
            owner: Owner::fresh(),
            may_hold: false,
            id: Uuid::new_v4(),
            lease: Duration::from_secs(30),
        };
        let upkeep = Upkeep { renewer: Arc::new(Never), request };
        watchdog.keep(upkeep, Tenure::new(Belief::FOREVER, &Pulse::here()), Belief::FOREVER)
    }

    #[tokio::test(start_paused = true)]
    async fn locks_that_are_held_for_a_moment_again_and_again_share_a_task_which_ends_after_them() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let (watchdog, before) = (Watchdog::new(Meter::of("none")), tasks());
        for _ in 0..3 {
            drop(held_for_a_moment(&watchdog));
            yield_now().await;
            assert_eq!(tasks(), before + 1, "it waits for the next hold");
        }
        sleep(LINGER * 3).await;
        assert_eq!(tasks(), before, "nothing is left to keep");
        let kept = held_for_a_moment(&watchdog);
        yield_now().await;
        assert_eq!(tasks(), before + 1, "it is started again");
        drop(kept);
    }
}
