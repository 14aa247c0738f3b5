//! Keeps the news of a loss from being late after a freeze.
//!
//! A runtime that has nothing to do reckons how long it may sleep, and then asks the kernel for a
//! sleep of that length. A process that is frozen between the two sleeps the whole length after it
//! is thawed, however late it is by then: up to a third of the lease for a lock that is renewed. So
//! while anybody waits for the loss of a lock, the runtime that the locks were made in is not let
//! sleep for longer than [`PERIOD`]; whoever waits in another one has no such help. Looks at a lock
//! need none of this, for they read the clock. Seen without it, with other work on the machine:
//! about 290 ms from the thaw to the news in three of 1,764 freezes of holders of `red`, none of
//! 1,728 of others. `conformance/tests/belief` freezes holders.
//!
//! Bounds: for each [`Locks`](crate::Locks) one task for all that wait, and none [`PERIOD`] after
//! the last of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

/// Between two beats: half of the 50 ms within which a loss is told.
const PERIOD: Duration = Duration::from_millis(25);

/// The pulse of the runtime that it was made in.
#[derive(Clone)]
pub(crate) struct Pulse(Arc<Shared>);

struct Shared {
    runtime: Handle,
    waiting: AtomicUsize,
    beats: AtomicBool,
}

/// Somebody waits, until this is dropped.
pub(crate) struct Waits<'a>(&'a Pulse);

impl Pulse {
    pub(crate) fn here() -> Self {
        let (waiting, beats) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Shared { runtime: Handle::current(), waiting, beats }))
    }

    pub(crate) fn wait(&self) -> Waits<'_> {
        self.0.waiting.fetch_add(1, SeqCst);
        if !self.0.beats.swap(true, SeqCst) {
            self.0.runtime.spawn(beat(Arc::clone(&self.0)));
        }
        Waits(self)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, SeqCst);
    }
}

/// The task. It ends when nobody waits, and is started again by whoever waits next.
async fn beat(shared: Arc<Shared>) {
    loop {
        sleep(PERIOD).await;
        if shared.waiting.load(SeqCst) > 0 {
            continue;
        }
        shared.beats.store(false, SeqCst);
        // Who came before that took this task for one that goes on.
        if shared.waiting.load(SeqCst) == 0 || shared.beats.swap(true, SeqCst) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::Belief;
    use crate::tenure::Tenure;

    #[tokio::test(start_paused = true)]
    async fn the_runtime_sleeps_for_a_moment_only_while_somebody_waits_for_a_loss() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let (pulse, before) = (Pulse::here(), tasks());
        let tenure = Tenure::new(Belief::until(Instant::now() + PERIOD * 400), &pulse);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let tenure = Arc::clone(&tenure);
                tokio::spawn(async move { tenure.lost().await })
            })
            .collect();
        sleep(PERIOD * 10).await;
        assert_eq!(tasks(), before + 4, "one pulse for all who wait");
        for waiter in waiters {
            waiter.abort();
        }
        sleep(PERIOD * 2).await;
        assert_eq!(tasks(), before, "nobody waits");
        tenure.lost().await;
        assert!(tenure.is_lost(), "the pulse is started again, and the wait has its end");
        sleep(PERIOD * 2).await;
        assert_eq!(tasks(), before);
        let endless = Tenure::new(Belief::FOREVER, &pulse);
        let waiter = tokio::spawn(async move { endless.lost().await });
        sleep(PERIOD).await;
        assert_eq!(tasks(), before + 1, "what has no end needs no pulse");
        waiter.abort();
    }
}
