//! Keeps the news of a loss from being late after a freeze.
//!
//! An idle runtime computes how long it may sleep and then asks the kernel for that time. A process
//! that is frozen in between sleeps the whole time after its thaw: up to a third of the lease of a
//! renewed lock. So while a task waits for the loss of a lock, the ticker wakes the runtime that
//! made the locks every [`TICK_INTERVAL`]. A task that waits in another runtime has no ticker.
//! Checks of a lock need none, because they read the clock. Without the ticker, on a busy machine,
//! 3 of 1,764 freezes of holders of `redlock` were reported about 290 ms late, and none of 1,728 of
//! others. `conformance/tests/validity` freezes holders.
//!
//! Bounds: for each [`Locks`](crate::Locks) one task for all waiters; it ends one
//! [`TICK_INTERVAL`] after the last of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

/// The time between two wake-ups: half of the 50 ms within which a loss is reported.
const TICK_INTERVAL: Duration = Duration::from_millis(25);

/// The ticker of the runtime that made it.
#[derive(Clone)]
pub(crate) struct RuntimeTicker(Arc<TickerState>);

struct TickerState {
    runtime: Handle,
    waiting: AtomicUsize,
    is_running: AtomicBool,
}

/// Keeps the ticker running until it is dropped.
pub(crate) struct TickerGuard<'a>(&'a RuntimeTicker);

impl RuntimeTicker {
    pub(crate) fn current() -> Self {
        let (waiting, is_running) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(TickerState { runtime: Handle::current(), waiting, is_running }))
    }

    pub(crate) fn start(&self) -> TickerGuard<'_> {
        self.0.waiting.fetch_add(1, SeqCst);
        if !self.0.is_running.swap(true, SeqCst) {
            self.0.runtime.spawn(run_ticker(Arc::clone(&self.0)));
        }
        TickerGuard(self)
    }
}

impl Drop for TickerGuard<'_> {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, SeqCst);
    }
}

/// Runs until no task waits; the next wait starts it again.
async fn run_ticker(shared: Arc<TickerState>) {
    loop {
        sleep(TICK_INTERVAL).await;
        if shared.waiting.load(SeqCst) > 0 {
            continue;
        }
        shared.is_running.store(false, SeqCst);
        // A wait that began before the store relied on this task.
        if shared.waiting.load(SeqCst) == 0 || shared.is_running.swap(true, SeqCst) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::Validity;
    use crate::hold_state::HoldState;

    #[tokio::test(start_paused = true)]
    async fn the_runtime_ticks_only_while_a_task_waits_for_a_loss() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let (ticker, before) = (RuntimeTicker::current(), tasks());
        let hold_state =
            HoldState::new(Validity::until(Instant::now() + TICK_INTERVAL * 400), &ticker);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let hold_state = Arc::clone(&hold_state);
                tokio::spawn(async move { hold_state.lost().await })
            })
            .collect();
        sleep(TICK_INTERVAL * 10).await;
        assert_eq!(tasks(), before + 4, "one pulse for all who wait");
        for waiter in waiters {
            waiter.abort();
        }
        sleep(TICK_INTERVAL * 2).await;
        assert_eq!(tasks(), before, "nobody waits");
        hold_state.lost().await;
        assert!(hold_state.is_lost(), "the pulse is started again, and the wait has its end");
        sleep(TICK_INTERVAL * 2).await;
        assert_eq!(tasks(), before);
        let endless = HoldState::new(Validity::UNBOUNDED, &ticker);
        let waiter = tokio::spawn(async move { endless.lost().await });
        sleep(TICK_INTERVAL).await;
        assert_eq!(tasks(), before + 1, "what has no end needs no pulse");
        waiter.abort();
    }
}
