//! How long this process has had one lock without a break, and when other processes get it.
//!
//! Where waiters poll, the process that releases a lock knows it first. Its own next task has the
//! lock before another process looks. Without a bound, one process could keep a lock for as long as
//! it has tasks for it. So a process that has had a lock for a *quantum* without a break leaves it
//! free for [`YIELD_PAUSE`]. That is longer than a polling waiter sleeps, so another process can
//! take it.
//!
//! A process that always wins cannot see that other processes want the lock; only a pause shows
//! it. After a pause in which the lock stayed free, the quantum grows by a quarter, up to
//! [`UNCONTENDED_QUANTUM`]. Without other processes, pauses cost at most 2.4 % of the time, and
//! nothing in the first second. A process that finds the lock busy continues with
//! [`CONTENDED_QUANTUM`]. So under saturation processes alternate every 50 ms, and the lock is idle
//! between them for at most 16 ms. The quantum grows slowly because a waiter may be late on a busy
//! machine.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::keyed::{KeyGuard, KeyState};
use crate::wait::PollBackoff;

/// Longer than the longest sleep of a waiter that polls and the answer it then waits for.
const YIELD_PAUSE: Duration = PollBackoff::MAX_INTERVAL.saturating_add(Duration::from_millis(4));
/// The quantum where other processes want the lock.
const CONTENDED_QUANTUM: Duration = Duration::from_millis(50);
/// The quantum without known contention.
const UNCONTENDED_QUANTUM: Duration = Duration::from_secs(1);

/// The guard of a name in the local queue, which keeps the quantum of that name.
pub(crate) type QueueGuard = KeyGuard<ProcessQuantum>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProcessQuantum {
    /// Since when the lock was this process's again and again.
    since: Option<Instant>,
    quantum: Duration,
    /// Whether the lock was just left free for a pause.
    paused: bool,
    /// When this process released the lock last.
    ended: Option<Instant>,
}

impl Default for ProcessQuantum {
    fn default() -> Self {
        Self { since: None, quantum: UNCONTENDED_QUANTUM, paused: false, ended: None }
    }
}

impl ProcessQuantum {
    /// How long to leave the lock to other processes before the first attempt; `None` without a
    /// pause.
    pub(crate) fn due_pause(&mut self) -> Option<Duration> {
        if self.ended.is_some_and(|ended| ended.elapsed() > YIELD_PAUSE) {
            // It was free for that long anyway.
            *self = Self::default();
        }
        let is_over = self.since?.elapsed() >= self.quantum;
        is_over.then(|| {
            (self.since, self.paused) = (None, true);
            YIELD_PAUSE + random_part_of(Duration::from_millis(4))
        })
    }

    /// Records that another process has the lock.
    pub(crate) fn found_busy(&mut self) {
        (self.since, self.paused, self.quantum) = (None, false, CONTENDED_QUANTUM);
    }

    /// Records that this process has the lock.
    pub(crate) fn entered(&mut self) {
        if std::mem::take(&mut self.paused) {
            self.quantum = (self.quantum * 5 / 4).min(UNCONTENDED_QUANTUM);
        }
        self.since.get_or_insert_with(Instant::now);
    }
}

impl KeyState for ProcessQuantum {
    /// Records the release.
    fn ended(&mut self) {
        // A default quantum has recorded nothing yet.
        if *self != Self::default() {
            self.ended = Some(Instant::now());
        }
    }

    /// Whether a quantum has begun and not paused.
    fn is_worth_keeping(&self) -> bool {
        self.since.is_some()
    }
}

/// A random part of a span, so that processes do not pause in step; eight random bits are enough.
fn random_part_of(span: Duration) -> Duration {
    span * u32::from(Uuid::new_v4().as_bytes()[0]) / 256
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const HOLD: Duration = Duration::from_millis(5);

    /// Holds of this process one after the other until it pauses.
    async fn turns_until_pause(quantum: &mut ProcessQuantum) -> u32 {
        let mut turns = 0;
        while quantum.due_pause().is_none() {
            quantum.entered();
            advance(HOLD).await;
            quantum.ended();
            turns += 1;
        }
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_contention_pauses_once_a_second() {
        let mut quantum = ProcessQuantum::default();
        for _ in 0..3 {
            assert_eq!(turns_until_pause(&mut quantum).await, 200);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_found_the_lock_busy_pauses_soon_and_later_if_pauses_are_of_no_use() {
        let mut quantum = ProcessQuantum::default();
        quantum.found_busy();
        let mut before = 10;
        assert_eq!(turns_until_pause(&mut quantum).await, before);
        for _ in 0..14 {
            let turns = turns_until_pause(&mut quantum).await;
            assert!(turns > before && turns <= before * 4 / 3 + 1, "{turns} after {before}");
            before = turns;
        }
        assert_eq!(turns_until_pause(&mut quantum).await, 200);
        quantum.found_busy();
        assert_eq!(turns_until_pause(&mut quantum).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn every_waiter_that_polls_asks_once_during_a_pause() {
        let mut quantum = ProcessQuantum::default();
        for _ in 0..1000 {
            quantum.found_busy();
            quantum.entered();
            advance(CONTENDED_QUANTUM).await;
            quantum.ended();
            let pause = quantum.due_pause().expect("the quantum is over");
            assert!(
                pause >= PollBackoff::MAX_INTERVAL + Duration::from_millis(4)
                    && pause < YIELD_PAUSE * 3 / 2
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_free_for_a_whole_pause_needs_no_further_pause() {
        let mut quantum = ProcessQuantum::default();
        quantum.found_busy();
        quantum.entered();
        advance(CONTENDED_QUANTUM).await;
        quantum.ended();
        advance(YIELD_PAUSE + HOLD).await;
        assert_eq!(quantum.due_pause(), None);
        assert_eq!(turns_until_pause(&mut quantum).await, 200);
    }
}
