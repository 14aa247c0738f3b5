//! Wakes waiters that have waited for one to two ticks, so that shorter waits need no timer.
//!
//! The runtime keeps all timers in one list, which each timer visits twice. That costs as much as
//! the rest of a wait inside a process, and most timers never fire.
//!
//! Bounds: one thread for all keys of a [`KeyedMutex`](super::KeyedMutex). It sleeps without new
//! waiters, and ends with the mutex. Its list has one entry for each key with new waiters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::{EntryId, KeyState, Shard};

/// A waiter is woken after one to two of these.
pub(super) const WAKE_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(super) struct SlowWaiterWaker<S: KeyState> {
    shared: Arc<WakerThread<S>>,
    /// Whether there is a thread; there may be none left to be had.
    runs: OnceLock<bool>,
}

#[derive(Default)]
struct WakerThread<S: KeyState> {
    list: Mutex<PendingKeys<S>>,
    changed: Condvar,
}

#[derive(Default)]
struct PendingKeys<S: KeyState> {
    keys: Vec<(Arc<Shard<S>>, EntryId)>,
    is_over: bool,
}

impl<S: KeyState> SlowWaiterWaker<S> {
    /// Whether it was started, and works.
    pub(super) fn runs(&self) -> bool {
        self.runs.get().is_some_and(|runs| *runs)
    }

    pub(super) fn start(&self) {
        self.runs.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("distlock-watch".into());
            thread.spawn(move || shared.watch()).is_ok()
        });
    }

    /// Adds a key, until all its waiters have been woken.
    pub(super) fn add(&self, shard: &Arc<Shard<S>>, place: EntryId) {
        let mut list = self.shared.list();
        list.keys.push((Arc::clone(shard), place));
        if list.keys.len() == 1 {
            self.shared.changed.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.shared.list().keys.len()
    }
}

impl<S: KeyState> Drop for SlowWaiterWaker<S> {
    fn drop(&mut self) {
        self.shared.list().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl<S: KeyState> WakerThread<S> {
    fn list(&self) -> MutexGuard<'_, PendingKeys<S>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        loop {
            let idle = |list: &mut PendingKeys<S>| list.keys.is_empty() && !list.is_over;
            let list = self.changed.wait_while(self.list(), idle);
            if list.unwrap_or_else(PoisonError::into_inner).is_over {
                return;
            }
            thread::sleep(WAKE_INTERVAL);
            let mut keys = std::mem::take(&mut self.list().keys);
            keys.retain(|(shard, place)| shard.tick(*place, call));
            self.list().keys.append(&mut keys);
        }
    }
}

/// One that panics must not keep the others waiting.
fn call(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::warn!("waker of a lock waiter panicked; other waiters are served");
    }
}
