//! Wakes those who have waited for a moment, so that all who wait for less need no timer.
//!
//! A timer of the runtime is kept in one list for all its threads, which is visited twice for each:
//! that costs as much as the rest of a wait inside a process, and mostly for nothing.
//!
//! Bounds: one thread for all keys of a [`KeyedMutex`](super::KeyedMutex), which sleeps while
//! nobody new waits and ends with them; in its list one key for each that somebody began to wait
//! for lately.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::{Place, Shard};

/// Whoever has waited for two of these has been woken, and for one at least.
pub(super) const TICK: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    /// Whether there is a thread; there may be none left to be had.
    runs: OnceLock<bool>,
}

#[derive(Default)]
struct Shared {
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    keys: Vec<(Arc<Shard>, Place)>,
    is_over: bool,
}

impl Watch {
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

    /// Watches a key until nobody waits for it who has not been woken.
    pub(super) fn add(&self, shard: &Arc<Shard>, place: Place) {
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

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.list().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) {
        loop {
            let idle = |list: &mut List| list.keys.is_empty() && !list.is_over;
            let list = self.changed.wait_while(self.list(), idle);
            if list.unwrap_or_else(PoisonError::into_inner).is_over {
                return;
            }
            thread::sleep(TICK);
            let mut keys = std::mem::take(&mut self.list().keys);
            keys.retain(|(shard, place)| shard.tick(*place, call));
            self.list().keys.append(&mut keys);
        }
    }
}

/// One that panics must not keep the others waiting.
fn call(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::warn!("the waker of somebody who waits for a lock panicked");
    }
}
