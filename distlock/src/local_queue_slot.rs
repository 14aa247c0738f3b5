//! The place in the process's queue that belongs to a hold on a server.
//!
//! It ends with the hold's validity, even if the holder hangs: the server admits other owners by
//! then, so the waiters of this process must not be kept out. Only waiters need the timer that ends
//! it, so the first waiter starts it. A hold without waiters costs no task.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::task::AbortOnDropHandle;

use crate::background::BackgroundTasks;
use crate::hold_state::HoldState;
use crate::process_quantum::QueueGuard;

/// The caller's wait is over.
pub(crate) struct LocalQueueTimeout;

pub(crate) struct LocalQueueSlot(Arc<Mutex<SlotState>>);

struct SlotState {
    key_guard: Option<QueueGuard>,
    timer: Option<AbortOnDropHandle<()>>,
}

impl LocalQueueSlot {
    pub(crate) fn new(
        key_guard: QueueGuard,
        hold_state: Arc<HoldState>,
        background: &BackgroundTasks,
    ) -> Self {
        let on_contention = key_guard.on_contention();
        let stage = Arc::new(Mutex::new(SlotState { key_guard: Some(key_guard), timer: None }));
        let (own, background) = (Arc::downgrade(&stage), background.clone());
        on_contention.call(Box::new(move || {
            let Some(stage) = own.upgrade() else { return };
            // The hold is lost already: the waiter enters at once.
            if hold_state.is_lost() {
                return drop(take(&stage));
            }
            let timer = background.timer(async move {
                hold_state.lost().await;
                if let Some(stage) = own.upgrade() {
                    drop(take(&stage));
                }
            });
            stage.lock().unwrap_or_else(PoisonError::into_inner).timer = Some(timer);
        }));
        Self(stage)
    }
}

impl Drop for LocalQueueSlot {
    fn drop(&mut self) {
        drop(take(&self.0));
    }
}

fn take(stage: &Mutex<SlotState>) -> Option<QueueGuard> {
    // Taking out of an option cannot be left half done by a panic.
    stage.lock().unwrap_or_else(PoisonError::into_inner).key_guard.take()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::keyed::KeyedMutex;
    use crate::runtime_ticker::RuntimeTicker;
    use crate::{LockName, Validity};

    const VALIDITY: Duration = Duration::from_secs(10);

    fn hung(key_guard: QueueGuard) -> LocalQueueSlot {
        let hold_state =
            HoldState::new(Validity::until(Instant::now() + VALIDITY), &RuntimeTicker::current());
        LocalQueueSlot::new(key_guard, hold_state, &BackgroundTasks::current("none"))
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    async fn gets_it_when_validity_ends(
        waiter: tokio::task::JoinHandle<QueueGuard>,
        began: Instant,
    ) {
        let key_guard = timeout(VALIDITY * 2, waiter).await.expect("in time").expect("no panic");
        assert!(began.elapsed() >= VALIDITY, "{:?}", began.elapsed());
        drop(key_guard);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_contended_hold_has_a_task_that_frees_its_slot_with_its_validity() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let (began, before) = (Instant::now(), tasks());
        let hold = hung(keyed.try_lock(&name).unwrap());
        assert_eq!(tasks(), before);
        let (queue, wanted) = (keyed.clone(), name.clone());
        let waiter = tokio::spawn(async move { queue.lock(&wanted).await });
        tokio::task::yield_now().await;
        assert_eq!(tasks(), before + 3, "the waiter, the timer that it needs, and the pulse");
        gets_it_when_validity_ends(waiter, began).await;
        drop(hold);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_arrives_after_the_end_of_validity_enters_without_waiting() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let hold = hung(keyed.try_lock(&name).unwrap());
        tokio::time::advance(VALIDITY).await;
        assert!(keyed.try_lock(&name).is_some());
        drop(hold);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_from_before_the_grant_enters_at_the_end_of_validity_as_well() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let (began, key_guard) = (Instant::now(), keyed.try_lock(&name).unwrap());
        let (queue, wanted) = (keyed.clone(), name.clone());
        let waiter = tokio::spawn(async move { queue.lock(&wanted).await });
        tokio::task::yield_now().await;
        let hold = hung(key_guard);
        gets_it_when_validity_ends(waiter, began).await;
        drop(hold);
    }
}
